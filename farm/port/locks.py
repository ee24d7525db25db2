"""numba's compiler lock and llvmlite's lock, and how to hold the first so that no Ctrl-C leaves either of them held.

Both are re-entrant locks wrapped in Python, and Python code can be interrupted between having a lock and saying
so, or between being done and giving it back. The thread that was interrupted does not notice, because it owns
the lock; every other thread waits for ever. So the bare lock is taken here, in one step of the interpreter, and what
numba and llvmlite took in between and did not give back is given back on the way out.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from llvmlite.binding import ffi
from numba.core.compiler_lock import global_compiler_lock

from farm.port.interrupts import with_signals_waiting

T = TypeVar("T")

compiler_lock: Final[Any] = global_compiler_lock._lock
"""numba's one lock around compiling and loading, re-entrant. Its owner may link and install."""
LOCKS: Final = (compiler_lock, ffi.lib._lock._lock)
"""In the order in which a compile takes them. The bare locks: taking numba's own ones tells listeners."""


def holds_compiler_lock() -> bool:
    """Whether this thread holds it."""
    return bool(compiler_lock._is_owned())


def with_compiler_lock(work: Callable[[], T], timeout_s: float | None = None) -> T | None:
    """What `work` gives with the compiler lock held; None if the lock could not be had in that time.

    A signal whose handler may raise waits until `work` is over. Whatever `work` raises, this thread holds each lock as
    often as before. Also if it raises nothing: what is raised in a finalizer Python drops, and llvmlite's finalizers
    take its lock.
    """
    before = [_depth(lock) for lock in LOCKS]
    taken: list[bool] = []
    try:
        # One step: the lock is had and noted, or neither. An assignment would be two.
        taken.extend(map(compiler_lock.acquire, (True,), (-1 if timeout_s is None else timeout_s,)))
        result = with_signals_waiting(work) if taken[0] else None
        _give_back(LOCKS[1:], before[1:])
        return result
    except BaseException:
        taken.clear()
        _give_back(LOCKS, before)
        raise
    finally:
        if taken == [True]:
            compiler_lock.release()


def _give_back(locks: Sequence[Any], depths: Sequence[int]) -> None:
    for lock, depth in zip(locks, depths, strict=True):
        while _depth(lock) > depth:
            lock.release()


def _depth(lock: Any) -> int:
    """How often this thread holds a re-entrant lock."""
    if not lock._is_owned():
        return 0
    if hasattr(lock, "_recursion_count"):
        return int(lock._recursion_count())
    counted = re.search(r"count=(\d+)", repr(lock))  # Python 3.10 says it in no other way
    assert counted is not None, lock
    return int(counted[1])
