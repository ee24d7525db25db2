"""One file lock per key: it saves work, and correctness never depends on it.

Guarantees: `key_lock` gives an outcome within `timeout_s` and a little, and raises nothing of its own. A
holder that dies, by SIGKILL too, frees the lock, because the kernel's flock goes with the descriptor. A
stopped holder keeps it, and then the outcome is BUSY when the time is over.

It does not fall back to lock files without flock: those outlive a killed holder. Where flock is missing
the outcome is UNAVAILABLE, and the caller compiles without a lock. Never wait while holding a key: two
functions that call each other would wait for each other.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Final

POLL_S: Final = 0.02
"""How often a waiting process looks again; a compile takes ten times as long. A guess."""


class LockOutcome(Enum):
    """How the attempt to lock ended."""

    ACQUIRED = "the lock is held"
    BUSY = "somebody else holds the lock"
    UNAVAILABLE = "there is no lock to be had here"


@contextmanager
def key_lock(path: Path, timeout_s: float, *, mode: int = 0o600) -> Iterator[LockOutcome]:
    """Hold the lock at `path` for the block, if the outcome is ACQUIRED.

    Parameters
    ----------
    path
        The lock file. Its directory must exist; the file stays afterwards and is swept by the trimmer.
    timeout_s
        The bound, in seconds. 0 tries once.
    mode
        Permissions of a new lock file.
    """
    # Imported here: a process that only reads from the store needs no lock.
    import filelock

    if timeout_s < 0:
        raise ValueError("a lock needs a bound: timeout_s must not be negative")
    lock: filelock.BaseFileLock | None = None
    outcome = LockOutcome.UNAVAILABLE
    try:
        # filelock would make the directory, open to others, and a deleted store would then be refused.
        os.stat(path.parent)
        try:
            lock = filelock.FileLock(path, timeout_s, mode, fallback_to_soft=False)
        except TypeError:  # filelock before the option existed, where a missing flock is an error anyway
            lock = filelock.FileLock(path, timeout_s, mode)
        lock.acquire(timeout=timeout_s, poll_interval=POLL_S)
        outcome = LockOutcome.ACQUIRED
    except filelock.Timeout:
        outcome = LockOutcome.BUSY
    except (OSError, RuntimeError):  # NotImplementedError, for no flock, is a RuntimeError
        outcome = LockOutcome.UNAVAILABLE
    try:
        yield outcome
    finally:
        if lock is not None and outcome is LockOutcome.ACQUIRED:
            try:
                lock.release()
            except (OSError, RuntimeError):
                # The descriptor goes with the object, and the lock with the descriptor.
                del lock
