"""Forking while compiles run: whoever forks holds numba's compiler lock and llvmlite's lock at that moment.

A child inherits locks as they stand. One that is held by a thread which the child does not have stays
held for ever, and the first compile in the child waits for it: 19 to 28 of 40 children hung, with this
none (measured). The wait is bounded, because a compile can take minutes: the fork happens all the same, and
the child is told so by `forked_unlocked`. Such a child runs fallbacks only. What is compiled already it
may call: machine code takes no lock.
"""

import os
import threading
import time
from typing import Any, Final

from llvmlite.binding import ffi
from numba.core.compiler_lock import global_compiler_lock

BOUND_S: Final = 2.0
"""A guess, for both locks together: most compiles are shorter, and a fork that takes longer looks hung."""


def _locks() -> tuple[Any, Any]:
    """In the order in which a compile takes them. The bare locks: taking numba's own ones tells listeners."""
    return global_compiler_lock._lock, ffi.lib._lock._lock


class _Forks:
    """What the thread that forks carries across the fork. Bounds are given so that a test need not wait."""

    def __init__(self, bound_s: float) -> None:
        self.bound_s = bound_s
        self.unlocked = False
        """In a child: forked while a lock could not be had, or from such a process."""
        self._held = threading.local()  # several threads can be about to fork at a time

    def take(self) -> None:
        """Before a fork: take both locks, the bound permitting."""
        end = time.monotonic() + (0 if self.unlocked else self.bound_s)
        held = self._held.locks = []
        for lock in _locks():
            if not lock.acquire(timeout=max(0.0, end - time.monotonic())):
                break
            held.append(lock)

    def give_back(self) -> None:
        """After a fork in the parent: release what was taken."""
        for lock in reversed(self._held.locks):
            lock.release()
        self._held.locks = []

    def give_back_in_child(self) -> None:
        """After a fork in the child: the same, and remember if something was not to be had."""
        self.unlocked = self.unlocked or len(self._held.locks) < len(_locks())
        self.give_back()


_forks: Final = _Forks(BOUND_S)
os.register_at_fork(before=_forks.take, after_in_parent=_forks.give_back, after_in_child=_forks.give_back_in_child)


def forked_unlocked() -> bool:
    """Whether this process is a child that was forked in the middle of a compile: it must not compile or load."""
    return _forks.unlocked
