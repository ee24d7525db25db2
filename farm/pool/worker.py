"""A worker process: takes one job at a time from the front and answers it.

A thread owns reading. It hands jobs to the main thread through a queue and ends the process at end of
file, in the middle of a compile if need be: the front is gone, nobody wants the answer. Only the main
thread writes. Both wait for the front without a bound: a worker has nothing else to do. Against a dead
parent the kernel sends SIGKILL (PR_SET_PDEATHSIG), which also ends a worker that is stopped or that
holds the GIL inside a C call.
"""

import contextlib
import importlib
import json
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Final, NoReturn

from farm.errors import told
from farm.job.messages import Answer, BadMessage, Compile, Decoder, Forked, Rejected, WorkerAnswer, encode
from farm.pool import launch
from farm.reasons import RefusalReason

OOM_SCORE: Final = b"700"
"""So that the kernel ends a worker before the front."""
READ_BYTES: Final = 1 << 16
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def resolve(name: str) -> Callable[..., object]:
    """The object that "module:function" names."""
    module, _, attribute = name.partition(":")
    found: Callable[..., object] = getattr(importlib.import_module(module), attribute)
    return found


def main(settings: str) -> NoReturn:
    """Be a worker that no foreman forked: do what a foreman does, say that it is done, and go on as any worker."""
    given = json.loads(settings)
    launch.reset_signals()
    sock = socket.socket(fileno=given["socket_fd"])
    sock.set_inheritable(False)
    if given["preload"] is not None:
        resolve(given["preload"])(given["preload_with"])
    sock.sendall(encode(Forked(given["worker_id"], os.getpid())))  # no bound: the socket is empty
    run(sock=sock, parent_pid=given["front_pid"], nice=given["nice"], task=given["task"])


def run(*, sock: socket.socket, parent_pid: int, nice: int, task: str, output_fd: int | None = None) -> NoReturn:
    """Be a worker until the front closes the socket. Output goes to the descriptor, or stays where it is."""
    _settle(output_fd=output_fd, parent_pid=parent_pid, nice=nice)
    jobs: queue.SimpleQueue[Compile] = queue.SimpleQueue()
    first_bytes: int | None = None
    threading.Thread(target=_read, args=(sock, jobs), name="farm-worker-reader", daemon=True).start()
    while True:
        job = jobs.get()  # no bound: there is nothing else to do, and the reader ends the process
        answer = _perform(task, job)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # a job can have put anything in their place
                stream.flush()
        used_bytes = _used_bytes()
        if first_bytes is None:
            first_bytes = used_bytes
        try:
            message = _framed(job, answer, used_bytes - first_bytes)
            sock.sendall(message)  # no bound: the front reads when it can, and the reader sees its end
        except OSError:
            os._exit(0)


def _settle(*, output_fd: int | None, parent_pid: int, nice: int) -> None:
    with contextlib.suppress(OSError):  # the parent does the same: whoever comes first
        os.setpgid(0, 0)
    launch.on_parent_death(signal.SIGKILL)
    if os.getppid() != parent_pid:  # it died before the line above
        os._exit(0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if output_fd is not None:
        os.dup2(output_fd, 1)
        os.dup2(output_fd, 2)
        os.close(output_fd)
    if nice:
        os.nice(nice)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
        file.write(OOM_SCORE)


def _read(sock: socket.socket, jobs: "queue.SimpleQueue[Compile]") -> None:
    decoder = Decoder()
    try:
        while data := sock.recv(READ_BYTES):  # no bound: the front sends when it likes, and its end ends this
            for message in decoder.feed(data):
                if isinstance(message, Compile):
                    jobs.put(message)
    finally:  # whatever it was: nobody would see the front's end any more
        os._exit(0)


def _used_bytes() -> int:
    """RSS of this process; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read().split()[1]) * PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


def _framed(job: Compile, answer: WorkerAnswer, grown_bytes: int) -> bytes:
    """The answer for the wire; where it cannot be sent, that is the answer."""
    try:
        return encode(Answer(job.job_id, job.attempt, answer, grown_bytes))
    except BadMessage as error:
        answer = Rejected(RefusalReason.TOO_LARGE, f"{type(answer).__name__}: {error}")
    except Exception as error:  # what a compile gives holds objects of the user
        answer = Rejected(RefusalReason.NOT_SERIALISABLE, f"{type(answer).__name__}: {told(error)}")
    return encode(Answer(job.job_id, job.attempt, answer, grown_bytes))


def _perform(task: str, job: Compile) -> WorkerAnswer:
    # BaseException: a SystemExit from an imported module is that module's failure, not the worker's end.
    try:
        answer = resolve(task)(job.payload, job.label)
    except BaseException as error:
        return Rejected(RefusalReason.RESTORE_FAILED, told(error))
    if not isinstance(answer, WorkerAnswer):
        return Rejected(RefusalReason.RESTORE_FAILED, f"{task} gave {type(answer).__name__}")
    return answer
