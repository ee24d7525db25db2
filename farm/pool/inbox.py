"""What other threads tell the pool's thread, and the socket that wakes it."""

import contextlib
import socket
import threading
from collections import deque
from typing import Final

from farm.pool.instructions import Event
from farm.pool.ticket import Ticket

WAKE_BYTES: Final = 4096


class Inbox:
    """A queue that a selector can wait for. `put` never blocks, and is harmless after `close`."""

    def __init__(self) -> None:
        self._entries: deque[Event | Ticket] = deque()  # no lock: append and popleft are atomic
        # Guards the two sockets. Held around a non-blocking send and around close, nothing else.
        self._lock = threading.RLock()
        self._reader, self._writer = socket.socketpair()
        for sock in (self._reader, self._writer):
            sock.setblocking(False)

    def __len__(self) -> int:
        return sum(isinstance(entry, Ticket) for entry in list(self._entries))

    def fileno(self) -> int:
        """For the selector."""
        return self._reader.fileno()

    def put(self, *entries: Event | Ticket) -> None:
        """Add the entries in this order and wake the pool's thread."""
        self._entries.extend(entries)
        with self._lock, contextlib.suppress(OSError):  # full: it will wake anyway; closed: nobody to wake
            self._writer.send(b"x")

    def take(self) -> Event | Ticket | None:
        """The oldest entry, or None."""
        try:
            return self._entries.popleft()
        except IndexError:
            return None

    def clear_wakes(self) -> None:
        """Wakes are not counted: one answer for all of them."""
        with contextlib.suppress(BlockingIOError):
            self._reader.recv(WAKE_BYTES)  # no bound: it does not block

    def close(self) -> None:
        """Close the sockets."""
        with self._lock:
            self._reader.close()
            self._writer.close()

    def abandon(self) -> None:
        """In a forked child: close, whoever held the lock when the process forked."""
        self._lock = threading.RLock()
        self.close()
