"""Who starts, signals and buries the workers, seen from the pool's thread: a foreman, or that thread itself.

Both do the same three things: `start` a worker, `signal` its process group, and say in `messages` what
became of it. Only who reaps a worker signals it, so no pid is used again in between.

Forked workers share what the foreman imported and start in 3 ms. Where fork does not exist each worker
is started on its own and imports numba itself, 0.4 s and 150 MB each. That way is for POSIX: a worker's
socket and output are inherited by number, which Windows does not do.
"""

import contextlib
import json
import os
import socket
import subprocess
import time
from signal import SIGKILL
from typing import Final, Protocol

from farm.job.messages import Exited, ForemanReady, Fork, Message, Ping, Signal
from farm.pool.launch import Setup, interpreter, start
from farm.pool.patience import Patience
from farm.pool.process import Channel, Output, WorkerProcess, open_worker

REAP_S: Final = 0.2
"""A guess: what was told to end, or killed, ends within it or is waited for by nobody."""


class Starter(Protocol):
    """What the pool's thread needs. Whoever implements it is ready once `messages` gave ForemanReady."""

    @property
    def pid(self) -> int:
        """Its process."""

    @property
    def channel(self) -> Channel | None:
        """Where messages come from; None if they have to be asked for."""

    @property
    def output(self) -> Output | None:
        """What it writes that no worker wrote."""

    def start(self, worker_id: int, nice: int) -> WorkerProcess:
        """Begin a worker; OSError if there is no descriptor or no process to be had."""

    def signal(self, worker_id: int, number: int) -> None:
        """Signal a worker's process group; nothing if it is gone."""

    def messages(self) -> list[Message]:
        """What happened since the last time."""

    def has_ended(self) -> bool:
        """Whether it is dead, though its socket may be open: a child forked at a bad moment holds a copy."""

    def ping(self) -> bool:
        """Ask for a Pong. False if nothing can be asked: this starter cannot hang."""

    def end(self, wait_s: float) -> None:
        """End all workers and itself, and see it end, within about `wait_s`."""

    def abandon(self) -> None:
        """In a forked child: close the descriptors and nothing else."""


class ForemanProcess:
    """The foreman seen from the front. Raises OSError or RuntimeError if it cannot be started."""

    def __init__(self, setup: Setup) -> None:
        ours, theirs = socket.socketpair()
        read_fd, write_fd = os.pipe()
        self.channel = Channel(ours)
        self.output = Output(read_fd)
        settings = {
            "control_fd": theirs.fileno(),
            "front_pid": os.getpid(),
            "task": setup.task,
            "preload": setup.preload,
            "preload_with": setup.preload_with,
        }
        try:
            self._process = start(
                "farm.pool.foreman", json.dumps(settings), setup=setup, descriptor=theirs.fileno(), output=write_fd
            )
        except BaseException:
            self._close()
            raise
        finally:
            theirs.close()
            os.close(write_fd)

    @property
    def pid(self) -> int:
        """The foreman."""
        return self._process.pid

    def start(self, worker_id: int, nice: int) -> WorkerProcess:
        """Have a worker forked; the descriptors travel with the message."""
        worker, descriptors = open_worker(worker_id)
        self.channel.send(Fork(worker_id, nice), descriptors)
        return worker

    def signal(self, worker_id: int, number: int) -> None:
        """Have a worker's process group signalled."""
        self.channel.send(Signal(worker_id, number))

    def messages(self) -> list[Message]:
        """What the foreman wrote."""
        return self.channel.read()

    def has_ended(self) -> bool:
        """Whether the foreman is dead."""
        return self._process.poll() is not None

    def ping(self) -> bool:
        """Ask the foreman for a Pong."""
        self.channel.send(Ping())
        return True

    def end(self, wait_s: float) -> None:
        """Close the control socket, at which the foreman kills all workers; kill it if it is not gone in time.

        A kill ends its workers as well: the kernel sees to that.
        """
        self._close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(wait_s)
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a process that waits for a disk dies when the disk says
            self._process.wait(REAP_S)

    def abandon(self) -> None:
        """In a forked child: not our process, so no warning about it and no wait for it."""
        self._process.returncode = 0
        self._close()

    def _close(self) -> None:
        self.channel.close()
        self.output.close()


class SpawnedWorkers:
    """No foreman: the pool's thread starts every worker as a process of its own and looks after it.

    `start_s` is how long a worker may do nothing before it says that it is ready.
    Raises RuntimeError if there is no interpreter to start.
    """

    channel = None
    output = None

    def __init__(self, setup: Setup, start_s: float) -> None:
        interpreter()
        self._setup, self._start_s = setup, start_s
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        """By worker id, of workers not reaped yet."""
        self._messages: list[Message] = [ForemanReady(os.getpid())]

    @property
    def pid(self) -> int:
        """This process."""
        return os.getpid()

    def start(self, worker_id: int, nice: int) -> WorkerProcess:
        """Start a worker; it says over its own socket when it is ready."""
        worker, (socket_fd, output_fd) = open_worker(worker_id)
        settings = {
            "socket_fd": socket_fd,
            "front_pid": os.getpid(),
            "worker_id": worker_id,
            "nice": nice,
            "task": self._setup.task,
            "preload": self._setup.preload,
            "preload_with": self._setup.preload_with,
        }
        try:
            process = start(
                "farm.pool.worker", json.dumps(settings), setup=self._setup, descriptor=socket_fd, output=output_fd
            )
        except BaseException:
            worker.close()
            raise
        finally:
            os.close(socket_fd)
            os.close(output_fd)
        self._processes[worker_id] = process
        worker.pid, worker.starting = process.pid, Patience(process.pid, self._start_s, time.monotonic())
        return worker

    def signal(self, worker_id: int, number: int) -> None:
        """Signal a worker's group, or the worker itself while it has none yet."""
        process = self._processes.get(worker_id)
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                try:
                    os.killpg(process.pid, number)
                except ProcessLookupError:
                    os.kill(process.pid, number)

    def messages(self) -> list[Message]:
        """Who has ended since the last time."""
        messages, self._messages = self._messages, []
        for worker_id, process in list(self._processes.items()):
            if not self._has_ended(process):
                continue
            self.signal(worker_id, SIGKILL)  # what the worker left behind
            del self._processes[worker_id]
            code = process.wait()  # no bound: it was seen dead
            messages.append(Exited(worker_id, code, None) if code >= 0 else Exited(worker_id, None, -code))
        return messages

    def has_ended(self) -> bool:
        """Never: it is this process."""
        return False

    def ping(self) -> bool:
        """There is nobody to ask."""
        return False

    def end(self, wait_s: float) -> None:
        """Kill all groups and see the workers end."""
        until = time.monotonic() + wait_s
        for worker_id in self._processes:
            self.signal(worker_id, SIGKILL)
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
        self._processes.clear()

    def abandon(self) -> None:
        """In a forked child: not our processes."""
        for process in self._processes.values():
            process.returncode = 0
        self._processes.clear()

    @staticmethod
    def _has_ended(process: "subprocess.Popen[bytes]") -> bool:
        """Seen dead, and not reaped yet where the system allows it: the group's id is still taken then."""
        if not hasattr(os, "waitid"):
            return process.poll() is not None
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
