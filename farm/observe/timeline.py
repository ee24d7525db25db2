"""Timeline: what happened while a report was recorded, as plain values: spans in lanes, sums, notes.

A lane is what a reader sees as one line: nothing in it overlaps. What does, because two threads load at once, gets a
second lane of the same name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from farm.observe.fallbacks import FallbackTime


class Kind(Enum):
    """What took time, and how it ended: by this it is coloured."""

    COMPILED = "compiled by a worker"
    FOUND = "found in the store by a worker"
    LOADED = "loaded"
    LOCAL = "compiled in the program"
    FALLBACK = "ran in Python"
    FAILED = "failed: numba cannot compile it"
    DIED = "the worker died"
    TIMED_OUT = "timed out"
    OUT_OF_MEMORY = "out of memory"
    REJECTED = "left to the program"
    MOVED = "begun again in another worker"
    CANCELLED = "cancelled, or not over at the end"


FRONT: Final = "program"
"""The group of lanes of the process that recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Something that took time. Times are seconds since the recording began.

    Parameters
    ----------
    group
        A worker, or the front: which of its lanes is found out later.
    queued_s
        How long it waited for a worker, if it had to.
    detail
        More, for people.
    """

    group: str
    kind: Kind
    name: str
    began_s: float
    ended_s: float
    queued_s: float | None = None
    worker: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """Something that took no time: a degradation, a miss that is worth a word."""

    at_s: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCost:
    """What one function cost and saved while it was recorded, in seconds."""

    function: str
    compiled: int
    loaded: int
    local: int
    compile_s: float
    load_s: float
    saved_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A whole recording. `counters` is what was counted meanwhile, and `missing` how many spans were too many."""

    program: str
    pid: int
    python: str
    began_at: float
    length_s: float
    spans: tuple[Span, ...]
    notes: tuple[Note, ...] = ()
    counters: Mapping[str, float] = field(default_factory=dict)
    degraded: Mapping[str, int] = field(default_factory=dict)
    functions: tuple[FunctionCost, ...] = ()
    fallbacks: Mapping[str, FallbackTime] = field(default_factory=dict)
    missing: int = 0


@dataclass(frozen=True, slots=True)
class Lane:
    """One line of the picture. `number`: 0 for the first of its group."""

    group: str
    number: int
    spans: tuple[Span, ...]


def lanes_of(spans: Iterable[Span]) -> list[Lane]:
    """Every span in a lane: the front's own first, then its threads, then workers in the order in which they came."""
    groups: dict[str, list[list[Span]]] = {}
    ordered = sorted(spans, key=lambda one: (one.began_s, -one.ended_s))
    for span in sorted(ordered, key=lambda one: (one.group != FRONT, not one.group.startswith(FRONT))):
        lanes = groups.setdefault(span.group, [])
        free = next((lane for lane in lanes if lane[-1].ended_s <= span.began_s), None)
        if free is None:
            free = []
            lanes.append(free)
        free.append(span)
    return [Lane(group, number, tuple(lane)) for group, lanes in groups.items() for number, lane in enumerate(lanes)]
