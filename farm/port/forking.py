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

from farm.port.locks import LOCKS

BOUND_S: Final = 2.0
"""A guess, for both locks together: most compiles are shorter, and a fork that takes longer looks hung."""


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
        held: list[tuple[Any, list[bool]]] = []
        self._held.locks = held
        for lock in LOCKS:
            taken: list[bool] = []
            held.append((lock, taken))
            # One step: an interruption in between would leave the lock held by nobody who knows.
            taken.extend(map(lock.acquire, (True,), (max(0.0, end - time.monotonic()),)))
            if not taken[0]:
                break

    def give_back(self) -> None:
        """After a fork in the parent: release what was taken."""
        for lock, taken in reversed(self._held.locks):
            if taken == [True]:
                lock.release()
        self._held.locks = []

    def give_back_in_child(self) -> None:
        """After a fork in the child: the same, and remember if something was not to be had."""
        self.unlocked = self.unlocked or sum(taken == [True] for _, taken in self._held.locks) < len(LOCKS)
        self.give_back()


_forks: Final = _Forks(BOUND_S)
os.register_at_fork(before=_forks.take, after_in_parent=_forks.give_back, after_in_child=_forks.give_back_in_child)


def forked_unlocked() -> bool:
    """Whether this process is a child that was forked in the middle of a compile: it must not compile or load."""
    return _forks.unlocked
