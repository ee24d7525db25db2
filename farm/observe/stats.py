"""Stats: how often things happened, counted by any thread, read as one frozen value.

Guarantees: a `Stats` is consistent in itself and never changes; it prints as a plain text table.
Does not measure: seconds are handed in by whoever measured them.
"""

import heapq
import itertools
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Final

from farm.reasons import DegradedReason, MissReason


class Count(Enum):
    """What is counted by the piece; a member's value is the field of Stats."""

    COMPILED = "compiled"
    LOADED = "loaded"
    LOCAL = "local"
    FAILED = "failed"
    REJECTED = "rejected"
    DIED = "died"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    FALLBACK_CALLS = "fallback_calls"
    FALLBACK_AVOIDED = "fallback_avoided"
    SWITCHED = "switched"
    FINISHED_IN_PYTHON = "finished_in_python"
    WAITED = "waited"
    VERIFIED = "verified"


class Duration(Enum):
    """What is counted in seconds; a member's value is the field of Stats."""

    COMPILE = "compile_s"
    LOAD = "load_s"
    SAVED = "saved_s"
    SWITCHED = "switched_s"
    FINISHED_IN_PYTHON = "finished_in_python_s"
    WAITED = "waited_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionStats:
    """The counters of one function; `compiled` is by workers, `local` by the front.

    `fallback_avoided`: calls without machine code that got it at once, from the store, instead of running in Python.
    Under fallback="auto", with the seconds they took: `finished_in_python`: calls whose Python body ended before the
    machine code came; `switched`: calls that were begun in Python and done again, compiled (the seconds are those in
    Python); `waited`: calls that waited for the compile, these under fallback="wait" and mode="strict" too.
    """

    compiled: int = 0
    loaded: int = 0
    local: int = 0
    failed: int = 0
    rejected: int = 0
    died: int = 0
    timed_out: int = 0
    out_of_memory: int = 0
    fallback_calls: int = 0
    fallback_avoided: int = 0
    switched: int = 0
    finished_in_python: int = 0
    waited: int = 0
    verified: int = 0
    compile_s: float = 0.0
    load_s: float = 0.0
    saved_s: float = 0.0
    switched_s: float = 0.0
    finished_in_python_s: float = 0.0
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats(FunctionStats):
    """The farm's counters. `saved_s`: compile seconds that loads made unnecessary.

    `recycled`: workers that were replaced because they had done `worker_jobs_max` jobs, or had grown.
    `verified`: with the setting verify, artifacts that were compiled again and found the same, callees included.
    """

    pending: int = 0
    recycled: int = 0
    misses: Mapping[MissReason, int] = field(default_factory=dict)
    degraded: Mapping[DegradedReason, int] = field(default_factory=dict)
    per_function: Mapping[str, FunctionStats] = field(default_factory=dict)

    def __str__(self) -> str:
        rows: list[tuple[str, str]] = []
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, float):
                rows.append((f.name, f"{value:.3f}"))
            elif isinstance(value, int):
                rows.append((f.name, str(value)))
        for title, counted in (("miss", self.misses), ("degraded", self.degraded)):
            rows += [(f"{title}: {reason.value}", str(n)) for reason, n in counted.items()]
        for name, one in self.per_function.items():
            parts = [f"{f.name} {getattr(one, f.name):.6g}" for f in fields(one) if getattr(one, f.name)]
            rows.append((name, ", ".join(parts)))
        width = max(len(label) for label, _ in rows)
        return "\n".join(f"{label:<{width}}  {value}".rstrip() for label, value in rows)


class Tally:
    """A counter for the fastest path: `add` is one step of the interpreter and takes no lock.

    `add()` returns how often it was called, drains included: rising, good for "every so often".
    """

    __slots__ = ("_drained", "_lock", "add")

    def __init__(self) -> None:
        self.add: Callable[[], int] = itertools.count(1).__next__
        # Guards _drained; nothing else is done with it held.
        self._lock = threading.RLock()
        self._drained = 0

    def drain(self) -> int:
        """How often `add` was called by others since the last drain."""
        with self._lock:
            before, self._drained = self._drained, self.add()
            return self._drained - before - 1


class Spent:
    """Seconds of many short runs: `add` takes no lock."""

    __slots__ = ("_lock", "_runs", "_seconds", "_times")

    FOLD_AT: Final = 1000

    def __init__(self) -> None:
        self._runs: deque[float] = deque()
        # Guards the other two; nothing else is done with it held.
        self._lock = threading.RLock()
        self._times = 0
        self._seconds = 0.0

    def add(self, seconds: float) -> None:
        """One more run."""
        self._runs.append(seconds)
        if len(self._runs) > self.FOLD_AT:
            with self._lock:
                self._fold()

    def _fold(self) -> None:
        for _ in range(len(self._runs)):
            self._seconds += self._runs.popleft()
            self._times += 1

    def drain(self) -> tuple[int, float]:
        """How many runs there were since the last drain, and their seconds."""
        with self._lock:
            self._fold()
            drained = self._times, self._seconds
            self._times, self._seconds = 0, 0.0
        return drained


class Counters:
    """What the farm counts into."""

    def __init__(self) -> None:
        # Guards every field below; held for arithmetic and copying only.
        # No other lock is taken and nothing is called out to while it is held.
        self._lock = threading.RLock()
        self._total: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}
        self._misses: Counter[MissReason] = Counter()
        self._degraded: Counter[DegradedReason] = Counter()
        self._recycled = 0
        self._functions: dict[str, Counter[str]] = {}
        self._function_seconds: dict[str, dict[str, float]] = {}

    def count(self, what: Count, function: str | None = None, *, times: int = 1) -> None:
        """Something happened, to `function` if it is given."""
        with self._lock:
            self._total[what.value] += times
            if function is not None:
                self._functions.setdefault(function, Counter())[what.value] += times

    def spend(self, what: Duration, seconds: float, function: str | None = None) -> None:
        """Something took seconds, or saved them."""
        with self._lock:
            self._seconds[what.value] = self._seconds.get(what.value, 0.0) + seconds
            if function is not None:
                own = self._function_seconds.setdefault(function, {})
                own[what.value] = own.get(what.value, 0.0) + seconds

    def miss(self, reason: MissReason, times: int = 1) -> None:
        """A lookup in the store missed."""
        with self._lock:
            self._misses[reason] += times

    def degrade(self, reason: DegradedReason) -> None:
        """The farm works below its best."""
        with self._lock:
            self._degraded[reason] += 1

    def totals(self) -> tuple[dict[str, int], dict[str, float], dict[MissReason, int]]:
        """How often and how long, by the names of the fields of Stats, and misses by reason; no function apart."""
        with self._lock:
            return dict(self._total), dict(self._seconds), dict(self._misses)

    def reset_in_child(self) -> None:
        """In a forked child: the lock may have been held by a thread that is not here."""
        self._lock = threading.RLock()

    def recycle(self) -> None:
        """A worker was replaced that had done its share."""
        with self._lock:
            self._recycled += 1

    def stats(self, pending: int = 0) -> Stats:
        """The counters as they are now, with so many compiles in progress."""
        with self._lock:
            names = sorted(self._functions.keys() | self._function_seconds.keys())
            return Stats(
                **_numbers(self._total, self._seconds),
                pending=pending,
                recycled=self._recycled,
                misses=dict(self._misses),
                degraded=dict(self._degraded),
                per_function={
                    name: FunctionStats(**_numbers(self._functions.get(name, {}), self._function_seconds.get(name, {})))
                    for name in names
                },
            )

    def summary(self, functions: int) -> dict[str, Any]:
        """The counters as plain values, with so many functions, the most expensive ones: cheap with thousands, too."""
        with self._lock:
            totals = _numbers(self._total, self._seconds) | {"recycled": self._recycled}
            costs = {name: sum(spent.values()) for name, spent in self._function_seconds.items()}
            top = heapq.nlargest(functions, costs, key=costs.__getitem__)
            return {
                "counters": totals,
                "misses": {reason.name: times for reason, times in self._misses.items()},
                "degraded": {reason.name: times for reason, times in self._degraded.items()},
                "functions": [
                    {"function": name, **_numbers(self._functions.get(name, {}), self._function_seconds[name])}
                    for name in top
                ],
            }


def hit_rate(counted: Mapping[str, float]) -> float | None:
    """Which part of the machine code came from the store, from 0 to 1; None as long as there is none."""
    loaded, made = counted["loaded"], counted["compiled"] + counted["local"]
    return loaded / (loaded + made) if loaded + made else None


def _numbers(counted: Mapping[str, int], spent: Mapping[str, float]) -> dict[str, Any]:
    """The fields of a FunctionStats by name, absent ones as zero."""
    numbers: dict[str, Any] = {what.value: counted.get(what.value, 0) for what in Count}
    return numbers | {what.value: spent.get(what.value, 0.0) for what in Duration}
