"""Who starts, signals and buries the workers, seen from the pool's thread: a foreman, or that thread itself.

Both do the same three things: `start` a worker, `signal` its process group, and say in `messages` what
became of it. Nobody signals a pid that somebody else may have reaped already.
"""

import contextlib
import json
import os
import socket
import subprocess
from typing import Final, Protocol

from farm.job.messages import Fork, Message, Ping, Signal
from farm.pool.launch import Setup, start
from farm.pool.process import Channel, Output, WorkerProcess, open_worker

REAP_S: Final = 0.2
"""A guess: what was told to end, or killed, ends within it or is waited for by nobody."""


class Starter(Protocol):
    """What the pool's thread needs. Whoever implements it is ready once `messages` gave ForemanReady."""

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
        self._process.wait()

    def abandon(self) -> None:
        """In a forked child: not our process, so no warning about it and no wait for it."""
        self._process.returncode = 0
        self._close()

    def _close(self) -> None:
        self.channel.close()
        self.output.close()
