"""Fallbacks: how long calls ran in Python while their machine code was not there, by function and over time.

A call's own time is what it ran without the fallbacks that it called. Calls that follow closely upon each other in
one thread become one span, and the more there are the wider a gap closes: so what is kept has a bound, however long
it is watched.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

GAP_S: Final = 0.005
SPANS_MAX: Final = 2000
"""For each thread."""
THREADS_MAX: Final = 16
"""Of more only the seconds by function are kept: a pool of threads that come and go would fill a screen."""


@dataclass(slots=True)
class FallbackSpan:
    """Calls that followed upon each other, in time.monotonic seconds.

    `function` is the one of the first call; `others`: whether there are calls of other functions as well.
    """

    function: str
    began_at: float
    ended_at: float
    calls: int = 1
    others: bool = False


@dataclass(slots=True)
class FallbackTime:
    """Of one function: how many calls, their own seconds, and those with what they called."""

    calls: int = 0
    own_s: float = 0.0
    total_s: float = 0.0


@dataclass(slots=True, eq=False)
class _Lane:
    """What one thread did."""

    name: str
    keeps: bool
    gap_s: float = GAP_S
    spans: list[FallbackSpan] = field(default_factory=list)
    times: dict[str, FallbackTime] = field(default_factory=dict)
    running: list[list[float]] = field(default_factory=list)
    """Of each call that runs: when it began, and how long what it called ran."""

    def close_gaps(self) -> None:
        """Join spans over wider and wider gaps, until few are left."""
        while len(self.spans) > SPANS_MAX:
            self.gap_s *= 2
            joined: list[FallbackSpan] = []
            for span in self.spans:
                if not joined or not join(joined[-1], span, self.gap_s):
                    joined.append(span)
            self.spans = joined


def join(first: FallbackSpan, second: FallbackSpan, gap_s: float) -> bool:
    """Make the second a part of the first, if it follows closely enough."""
    if second.began_at - first.ended_at > gap_s:
        return False
    first.others = first.others or second.others or first.function != second.function
    first.ended_at = max(first.ended_at, second.ended_at)
    first.calls += second.calls
    return True


class Watch:
    """Is told of every fallback that begins and ends, in its thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Guards _lanes. A lane is written by its own thread alone.
        self._lock = threading.RLock()
        self._lanes: list[_Lane] = []
        self._own = threading.local()

    def enter(self) -> None:
        """A fallback begins."""
        lane: _Lane | None = getattr(self._own, "lane", None)
        if lane is None:
            with self._lock:
                lane = _Lane(threading.current_thread().name, len(self._lanes) < THREADS_MAX)
                self._lanes.append(lane)
            self._own.lane = lane
        lane.running.append([self._clock(), 0.0])

    def leave(self, function: str) -> None:
        """The one that began last in this thread ends."""
        lane: _Lane = self._own.lane
        began, inside_s = lane.running.pop()
        now = self._clock()
        spent_s = now - began
        times = lane.times.setdefault(function, FallbackTime())
        times.calls += 1
        times.own_s += spent_s - inside_s
        times.total_s += spent_s
        if lane.running:
            lane.running[-1][1] += spent_s
        elif lane.keeps:
            span = FallbackSpan(function, began, now)
            if not lane.spans or not join(lane.spans[-1], span, lane.gap_s):
                lane.spans.append(span)
                if len(lane.spans) > SPANS_MAX:
                    lane.close_gaps()

    def spans(self) -> list[tuple[str, list[FallbackSpan]]]:
        """(thread, its spans) of every thread that ran a fallback."""
        with self._lock:
            return [(lane.name, list(lane.spans)) for lane in self._lanes if lane.spans]

    def times(self) -> dict[str, FallbackTime]:
        """The time of each function, over all threads."""
        total: dict[str, FallbackTime] = {}
        with self._lock:
            lanes = list(self._lanes)
        for lane in lanes:
            for function, times in list(lane.times.items()):
                one = total.setdefault(function, FallbackTime())
                one.calls += times.calls
                one.own_s += times.own_s
                one.total_s += times.total_s
        return total


def watched(watches: tuple[Watch, ...], function: str, body: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Run a body, and tell all of them when it begins and ends."""
    for watch in watches:
        watch.enter()
    try:
        return body(*arguments)
    finally:
        for watch in watches:
            watch.leave(function)
