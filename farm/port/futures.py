"""Futures that Ctrl-C cannot leave locked.

`threading.Condition` is entered by a method in Python. Interrupted when it has the lock and the `with` block has not
begun, nobody lets go of it, and every other thread that asks the future waits for ever (seen: once in 2,000 calls that
were interrupted while they waited). Here `with` calls the lock's own methods, which are in C: the interpreter handles
no signal between the end of such a method and the beginning of the block.
"""

import threading
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class _SteadyCondition(threading.Condition):
    """Held, or not held, whenever a signal is handled: never had by nobody."""

    _lock: Any

    # Looked up by `with` before it calls them: an interrupt in here finds nothing taken yet, or everything still held.
    __enter__ = property(lambda self: self._lock.__enter__)
    __exit__ = property(lambda self: self._lock.__exit__)

    def wait(self, timeout: float | None = None) -> bool:
        """As Condition.wait. Interrupted when it has just let go of the lock, it takes it again: its caller has it."""
        try:
            return super().wait(timeout)  # no bound: the caller's
        except BaseException:
            if not self._lock._is_owned():
                self._lock.acquire()  # no bound: held for a few steps only
            raise


class SteadyFuture(Future[T]):
    """A Future whose lock is never left held."""

    _condition: threading.Condition

    def __init__(self) -> None:
        super().__init__()
        self._condition = _SteadyCondition()
