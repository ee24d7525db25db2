"""One child process of the pool seen from the front: its socket, its output, its memory.

Writes never block: what the socket does not take is kept and sent when the selector says so. What comes and is no
message is the end of the connection: nobody knows where the next message begins.
"""

import contextlib
import os
import socket
import sys
import time
from collections import deque
from typing import Final

from farm.job.messages import BadMessage, Decoder, Message, encode
from farm.pool.patience import Patience

RING_BYTES: Final = 1 << 16
READ_BYTES: Final = 1 << 16
READS_MAX: Final = 16
"""Who floods its output or sends a large message gets its turn, not the whole thread."""
WRITES_MAX: Final = 16
LAST_LINES: Final = 20


class Output:
    """The read end of a process's stdout and stderr, and the last 64 KiB that came through it."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self._ring = bytearray()

    def read(self) -> bool:
        """Take what is there. False at end of file."""
        for _ in range(READS_MAX):
            try:
                data = os.read(self.descriptor, READ_BYTES)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            self._ring += data
            del self._ring[:-RING_BYTES]
        return True

    def last_lines(self) -> str:
        """The end of what the process wrote, for people."""
        return "\n".join(self._ring.decode("utf-8", "replace").splitlines()[-LAST_LINES:])

    def close(self) -> None:
        """Close the descriptor; harmless when repeated."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Channel:
    """A non-blocking socket that carries messages both ways, with descriptors on the way out."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.at_end = False
        self.broken = False
        """Whether the end is one by what came: the other side may live on."""
        self._decoder = Decoder()
        self._out: deque[tuple[memoryview, tuple[int, ...]]] = deque()

    @property
    def has_output(self) -> bool:
        """Whether something waits to be written."""
        return bool(self._out)

    def send(self, message: Message, descriptors: tuple[int, ...] = ()) -> None:
        """Send now, or later. The descriptors are closed here once they are sent."""
        self._out.append((memoryview(encode(message)), descriptors))
        self.flush()

    def flush(self) -> None:
        """Write what the socket takes, and not all of a large message in one turn."""
        for _ in range(WRITES_MAX):
            if not self._out or self.at_end:
                return
            data, descriptors = self._out[0]
            try:
                sent = socket.send_fds(self.sock, [data], list(descriptors)) if descriptors else self.sock.send(data)
            except BlockingIOError:
                return
            except OSError:
                # The other end is gone. What it wrote before may still be there: reading finds the end.
                self._drop_output()
                return
            for descriptor in descriptors:
                os.close(descriptor)
            self._out.popleft()
            if sent < len(data):
                self._out.appendleft((data[sent:], ()))

    def drain(self) -> list[Message]:
        """All messages that are there. Of the dead, and of who is about to be ended: others may write for ever."""
        return self._received(sys.maxsize, short_is_last=False)

    def read(self) -> list[Message]:
        """The messages that are there, but for the rest of what floods; sets `at_end` at end of file.

        A read that is not full was the last one: to find nothing would cost one more wait for the interpreter, 5 ms
        while another thread is busy.
        """
        return self._received(READS_MAX, short_is_last=True)

    def _received(self, reads_max: int, *, short_is_last: bool) -> list[Message]:
        messages: list[Message] = []
        for _ in range(reads_max):
            if self.at_end:
                break
            try:
                data = self.sock.recv(READ_BYTES)  # no bound: it does not block
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.at_end = True
                break
            try:
                messages += self._decoder.feed(data)
            except BadMessage:
                self.at_end = self.broken = True
            if short_is_last and len(data) < READ_BYTES:
                break
        return messages

    def close(self) -> None:
        """Close, never shut down: a forked child shares the connection."""
        self._drop_output()
        self.sock.close()

    def _drop_output(self) -> None:
        for _, descriptors in self._out:
            for descriptor in descriptors:
                os.close(descriptor)
        self._out.clear()


class WorkerProcess:
    """A worker: its channel, its output and what it is doing."""

    def __init__(self, worker_id: int, channel: Channel, output: Output) -> None:
        self.worker_id = worker_id
        self.channel = channel
        self.output = output
        self.pid: int | None = None
        self.job: tuple[int, int] | None = None
        """(job id, attempt) while busy."""
        self.deadline: tuple[float, float] | None = None
        """(monotonic time, limit in seconds) while busy."""
        self.starting: Patience | None = None
        """None once it said that it is ready, or if the foreman's word will do."""
        self.idle_since: float | None = time.monotonic()
        self.ended_at: float | None = None
        """When its socket came to an end without a report from its starter."""
        self.killed = False
        self.killed_in_job = False

    def used_bytes(self, limit_bytes: int) -> int:
        """What the worker uses: RSS if that is under half the limit, else what ending it would free (USS).

        RSS costs nothing but counts pages shared with the foreman; USS costs 1.5 ms, 37 ms at 4 GiB.
        """
        used = self._memory_bytes("rss")
        return used if used <= limit_bytes // 2 else self._memory_bytes("uss")

    def _memory_bytes(self, what: str) -> int:
        if self.pid is None:
            return 0
        import psutil  # 27 ms: only for a pool that is in use

        with contextlib.suppress(psutil.Error, OSError):  # no descriptors left to read /proc with
            process = psutil.Process(self.pid)
            return int(process.memory_info().rss if what == "rss" else process.memory_full_info().uss)
        return 0

    def close(self) -> None:
        """Close the descriptors."""
        self.channel.close()
        self.output.close()


def open_worker(worker_id: int) -> tuple[WorkerProcess, tuple[int, int]]:
    """A worker's side of the front, and the two descriptors that the worker needs: its socket, its output pipe.

    Raises OSError, leaving nothing open, if there are no descriptors to be had.
    """
    ours, theirs = socket.socketpair()
    try:
        read_fd, write_fd = os.pipe()
    except OSError:
        ours.close()
        theirs.close()
        raise
    return WorkerProcess(worker_id, Channel(ours), Output(read_fd)), (theirs.detach(), write_fd)
