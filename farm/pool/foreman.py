"""The foreman: a single-threaded process that forks workers, reaps them and alone signals them.

It is single-threaded so that forking it is safe, whatever threads the front has, and it alone signals
so that no pid can be reused between a death and a signal: it has not reaped what it still lists. At
end of file on its control socket, or when its parent has changed, it kills all worker groups and ends.
"""

import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final, NoReturn

from farm.job.messages import Decoder, Exited, ForemanReady, Fork, Forked, Message, Ping, Pong, Signal, encode
from farm.pool import launch, worker

FORK_FAILED: Final = 71
"""EX_OSERR: the exit code reported for a worker that could not be forked."""
PARENT_CHECK_S: Final = 0.5
"""For a parent's death that nothing announced: forked children of the front can hold copies of the socket."""
REAP_S: Final = 1.0
"""A guess: a killed worker that is not gone by then waits for a disk."""
READ_BYTES: Final = 1 << 16


def main(settings: str) -> NoReturn:
    """Be the foreman: reset what was inherited, preload, then serve until the front goes."""
    given = json.loads(settings)
    launch.reset_signals()
    control = socket.socket(fileno=given["control_fd"])
    control.set_inheritable(False)
    if given["preload"] is not None:
        worker.resolve(given["preload"])(given["preload_with"])
    gc.collect()
    gc.freeze()
    Foreman(control, front_pid=given["front_pid"], task=given["task"]).serve()


@dataclass(slots=True)
class Foreman:
    """The serving part: the workers by pid, the descriptors that wait for their Fork message."""

    control: socket.socket
    front_pid: int
    task: str
    pids: dict[int, int] = field(default_factory=dict)
    """Worker id to pid, of workers not reaped yet."""
    descriptors: deque[int] = field(default_factory=deque)
    decoder: Decoder = field(default_factory=Decoder)
    wake_r: socket.socket = field(init=False)
    wake_w: socket.socket = field(init=False)

    def serve(self) -> NoReturn:
        """Serve until end of file; never returns."""
        self.wake_r, self.wake_w = socket.socketpair()
        self.wake_r.setblocking(False)
        self.wake_w.setblocking(False)
        signal.set_wakeup_fd(self.wake_w.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        selector = selectors.DefaultSelector()
        selector.register(self.control, selectors.EVENT_READ)
        selector.register(self.wake_r, selectors.EVENT_READ)
        # No longer SIGKILL: the groups must be ended first. SIGCHLD wakes the loop, which sees its parent changed.
        launch.on_parent_death(signal.SIGCHLD)
        try:
            self._send(ForemanReady(os.getpid()))
            while os.getppid() == self.front_pid:
                ready = {key.fileobj for key, _ in selector.select(PARENT_CHECK_S)}
                if self.wake_r in ready:
                    with contextlib.suppress(BlockingIOError):
                        self.wake_r.recv(READ_BYTES)  # no bound: it does not block
                self._reap()
                if self.control in ready and not self._receive(selector):
                    break
        except OSError:
            pass
        finally:
            self._end()

    def _receive(self, selector: selectors.BaseSelector) -> bool:
        # no bound: the selector said that there is something
        data, descriptors, _, _ = socket.recv_fds(self.control, READ_BYTES, 64, socket.MSG_CMSG_CLOEXEC)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        self.descriptors.extend(descriptors)
        for message in self.decoder.feed(data):
            if isinstance(message, Fork):
                self._fork(message, selector)
            elif isinstance(message, Signal):
                self._signal(message.worker_id, message.signal)
            elif isinstance(message, Ping):
                self._send(Pong())
        return bool(data)

    def _fork(self, message: Fork, selector: selectors.BaseSelector) -> None:
        sock_fd, output_fd = self.descriptors.popleft(), self.descriptors.popleft()
        foreman_pid = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            os.close(sock_fd)
            os.close(output_fd)
            self._send(Exited(message.worker_id, FORK_FAILED, None))
            return
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                selector.close()
                for sock in (self.control, self.wake_r, self.wake_w):
                    sock.close()
                for other in self.descriptors:
                    os.close(other)
                worker.run(
                    sock=socket.socket(fileno=sock_fd),
                    output_fd=output_fd,
                    parent_pid=foreman_pid,
                    nice=message.nice,
                    task=self.task,
                )
            finally:
                os._exit(FORK_FAILED)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        os.close(sock_fd)
        os.close(output_fd)
        self.pids[message.worker_id] = pid
        self._send(Forked(message.worker_id, pid))

    def _signal(self, worker_id: int, number: int) -> None:
        pid = self.pids.get(worker_id)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, number)

    def _reap(self) -> None:
        for worker_id, pid in list(self.pids.items()):
            # Seen dead but not reaped yet, the group's id is still taken: end what the worker left behind.
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            self._signal(worker_id, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)  # no bound: it was seen dead
            del self.pids[worker_id]
            code = os.waitstatus_to_exitcode(status)
            self._send(Exited(worker_id, code, None) if code >= 0 else Exited(worker_id, None, -code))

    def _end(self) -> NoReturn:
        try:
            for worker_id in self.pids:
                self._signal(worker_id, signal.SIGKILL)
            end = time.monotonic() + REAP_S
            for pid in self.pids.values():
                while os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < end:
                    time.sleep(0.002)
        finally:
            os._exit(0)

    def _send(self, message: Message) -> None:
        # no bound: a front that does not read has no orders either, and a few bytes a worker fit into the socket
        self.control.sendall(encode(message))
