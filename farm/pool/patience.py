"""Patience: with a process that is starting, and with whoever holds a lock.

A machine that has much to do is no reason to end a process that is starting. Importing numba takes half a second of
processor time. Where a dozen programs start at once it has lasted over ten seconds, and whoever is ended for that
begins anew and makes it worse for all (seen: eight fronts on two CPUs, each with a foreman that was ended three
times). So a process is lost when it has neither said that it is ready nor used the processor, or after a bound that
ends a busy hang as well.
"""

import contextlib
from typing import Final

from farm.job.key import CompileKey

START_MAX_S: Final = 120.0
"""A guess: over ten times what was seen."""
PROGRESS: Final = 0.002
"""A guess: whoever uses less than this part of one processor waits for something else. Under a load of thirteen on two
processors a starting foreman got two in a hundred."""


LOCK_PATIENCE_S: Final = 30.0
"""A guess: a key that somebody holds for so long is compiled without its lock, as the holder may have been stopped."""
SHORT_LOCK_PATIENCE_S: Final = 2.0
"""A guess: what the next keys are given then. A compile that somebody else is doing may well be done in it."""


class Patience:
    """With one process, from now on. Times are `time.monotonic` seconds."""

    def __init__(self, pid: int, patience_s: float, now: float) -> None:
        self._pid = pid
        self._patience_s = patience_s
        self._end = now + max(START_MAX_S, patience_s)
        self._used_s = 0.0
        self.check_at = now + patience_s
        """When to ask whether it has come to an end."""

    def has_ended(self, now: float) -> bool:
        """Whether the process is to be given up. If not, `check_at` says when to ask again."""
        if now < self.check_at:
            return False
        used_s, before_s = processor_s(self._pid), self._used_s
        self._used_s, self.check_at = used_s, now + self._patience_s
        return now >= self._end or used_s - before_s < PROGRESS * self._patience_s


def processor_s(pid: int) -> float:
    """Seconds that a process has run on a processor; 0 if there is none."""
    import psutil  # 27 ms: only for a pool that is in use

    with contextlib.suppress(psutil.Error, OSError):  # no descriptors left to read /proc with
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)
    return 0.0


class LockPatience:
    """How long the keys that others hold are waited for. Times are `time.monotonic` seconds.

    Who was waited for in vain is probably stopped, and may hold many keys: the next ones are given less time, until a
    key comes that was waited for. Otherwise a program that calls one function after the other would wait for the whole
    bound at each.
    """

    def __init__(self, patience_s: float = LOCK_PATIENCE_S, short_s: float = SHORT_LOCK_PATIENCE_S) -> None:
        self._patience_s, self._short_s = patience_s, short_s
        self._since: dict[CompileKey, float] = {}
        """When each key was first found taken."""
        self._in_vain = False

    def has_ended(self, key: CompileKey, now: float) -> bool:
        """Whether a key that is taken is not to be waited for any longer."""
        since = self._since.setdefault(key, now)
        if now - since < (min(self._short_s, self._patience_s) if self._in_vain else self._patience_s):
            return False
        del self._since[key]
        self._in_vain = True
        return True

    def came(self, key: CompileKey) -> None:
        """The lock is ours, or the artifact is there. If it was waited for, whoever held it is alive."""
        if self._since.pop(key, None) is not None:
            self._in_vain = False
