"""Watchers: what a run can say about each function, for farm and for plain numba.

The farm tells by events who compiled what, and by its statistics how many calls ran in Python and how long
compiles took. numba has an event around each compile.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numba
from demo_compiler import label
from demo_report import Row
from numba.core import event

import farm
from farm.observe import events


@dataclass(frozen=True, slots=True)
class Totals:
    """Signatures compiled by workers, loaded from the store, compiled in this process; calls run in Python."""

    compiled: int
    loaded: int
    local: int
    fallback_calls: int


class Watcher(Protocol):
    """What the loop asks while it runs."""

    @property
    def decorator(self) -> Callable[..., Any]:
        """What the kernels are decorated with."""

    def row(self, dispatcher: Any, calls: int) -> Row:
        """A function's line in the live table, after so many calls."""

    def totals(self) -> Totals:
        """The sums for the report."""

    def settle(self, timeout_s: float) -> None:
        """Wait for what is still being compiled."""


class NumbaWatcher(event.Listener):  # type: ignore[misc]  # numba's classes are Any to the type checker
    """Plain numba: every compile happens in the call that needs it, and callees within their caller's."""

    decorator: Final = staticmethod(numba.njit)

    def __init__(self) -> None:
        self._compile_s: defaultdict[str, float] = defaultdict(float)
        self._compiles = 0
        self._started_s: list[float] = []
        event.register("numba:compile", self)

    def on_start(self, event: Any) -> None:
        """A compile begins; it may be one of a callee."""
        self._started_s.append(time.perf_counter())

    def on_end(self, event: Any) -> None:
        """It has ended."""
        seconds = time.perf_counter() - self._started_s.pop()
        self._compile_s[label(event.data["dispatcher"])] += seconds
        self._compiles += not self._started_s

    def row(self, dispatcher: Any, calls: int) -> Row:
        """A function's line in the live table, after so many calls."""
        state = "machine code" if dispatcher.overloads else "not called yet"
        return Row(dispatcher.__name__, state, 0, calls, self._compile_s[label(dispatcher)], None)

    def totals(self) -> Totals:
        """The sums for the report. A callee that is compiled for its caller is not counted."""
        return Totals(compiled=0, loaded=0, local=self._compiles, fallback_calls=0)

    def settle(self, timeout_s: float) -> None:
        """Nothing is ever pending."""


class FarmWatcher:
    """The default farm, seen through its events and its statistics.

    Events arrive in whichever thread caused them; each is one assignment to a dictionary that is only ever read
    for one key, so no lock is taken.
    """

    decorator: Final = staticmethod(farm.njit)

    def __init__(self) -> None:
        self._state: dict[str, str] = {}
        self._worker: dict[str, int | None] = {}
        farm.add_listener(self)

    def on_event(self, event: events.Event) -> None:
        """Take one event of the farm."""
        match event:
            case events.CompileFinished():
                self._worker[event.function] = event.worker
                self._state[event.function] = "loaded" if event.used_persistent_cache else "machine code"
            case events.CompileStarted():
                self._state[event.function] = "compiling"
            case events.CompileFailed():
                self._state[event.function] = "failed"
            case events.CompiledLocally():
                self._state[event.function] = "compiled here"

    def row(self, dispatcher: Any, calls: int) -> Row:
        """A function's line in the live table, after so many calls."""
        name = label(dispatcher)
        counted = farm.stats().per_function.get(name, farm.FunctionStats())
        state = self._state.get(name, "in Python" if calls else "not called yet")
        compiled_calls = max(calls - counted.fallback_calls, 0)
        return Row(
            dispatcher.__name__,
            state,
            counted.fallback_calls,
            compiled_calls,
            counted.compile_s,
            self._worker.get(name),
        )

    def totals(self) -> Totals:
        """The sums for the report."""
        stats = farm.stats()
        return Totals(stats.compiled, stats.loaded, stats.local, stats.fallback_calls)

    def settle(self, timeout_s: float) -> None:
        """Wait for what is still being compiled: functions that kernels call have compiles of their own."""
        farm.wait(timeout_s)
