"""UsageReport: what this program gets out of its store, written down there for `farm cache stats`.

At the end of the farm, and at most every minute before, in the installer's thread; never where a call waits. Each
time what was counted since the last. Nothing is written to a store that is used read-only or is refused, nor where
there is none yet: then it is kept for the next time. A program that is killed loses what it has not written.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from farm.errors import StoreRefused
from farm.observe.stats import Counters
from farm.store import usage
from farm.store.disk import DiskStore
from farm.store.usage import Usage

EVERY_S: Final = 60.0


class UsageReport:
    """Writes down what the counters of one farm have counted since it was made.

    Parameters
    ----------
    store
        Gives the store that is open, or None.
    clock
        Seconds that only rise.
    """

    def __init__(
        self,
        counters: Counters,
        store: Callable[[], DiskStore | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._counters = counters
        self._store = store
        self._clock = clock
        # Guards the three below. Nothing else is done with it held.
        self._lock = threading.RLock()
        self._taken = _counted(counters)  # in a forked child the counters go on from the parent's, who tells of those
        self._unwritten = Usage()
        self._is_first = True
        self._next = clock() + EVERY_S

    def usual_compile_s(self) -> float | None:
        """What a compile took that programs made for this store, on average; None if they have told of none."""
        store = self._store()
        places = None if store is None else store.places
        try:
            known = Usage() if places is None else usage.total(places)
        except (StoreRefused, OSError):
            return None
        made = known.compiled + known.local
        return known.compile_s / made if made else None

    def pause_s(self) -> float | None:
        """Write if a minute has passed; give how long to wait until this should be asked again, None for until
        there is news."""
        now = self._clock()
        if now < self._next:
            return self._next - now
        self._next = now + EVERY_S
        return EVERY_S if self.write() else None

    def write(self) -> bool:
        """Write down what was counted since the last time. Whether there was anything, and it was written."""
        store = self._store()
        places = None if store is None or store.readonly else store.places
        if places is None:
            return False
        with self._lock:
            counted = _counted(self._counters)
            news = self._unwritten + counted.since_then(self._taken)
            if not news:
                return False
            first, self._is_first = self._is_first, False
            self._taken, self._unwritten = counted, Usage()
        if first:
            news += Usage(programs=1)
        if usage.add(places, news, time.time()):
            return True
        with self._lock:
            self._unwritten += news
        return False


def _counted(counters: Counters) -> Usage:
    total, seconds, misses = counters.totals()
    return Usage(
        loaded=total.get("loaded", 0),
        compiled=total.get("compiled", 0),
        local=total.get("local", 0),
        failed=sum(total.get(name, 0) for name in ("failed", "died", "timed_out", "out_of_memory")),
        saved_s=seconds.get("saved_s", 0.0),
        load_s=seconds.get("load_s", 0.0),
        compile_s=seconds.get("compile_s", 0.0),
        misses=misses,
    )
