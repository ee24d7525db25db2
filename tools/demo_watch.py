"""Watchers: what a run can say about each function, for farm and for plain numba.

The farm tells by events who compiled what, and by its statistics how many calls ran in Python and how long
compiles took. numba keeps with each compiled function how long that took.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numba
from demo_compiler import label
from demo_report import Row

import farm
from farm.observe import events


@dataclass(frozen=True, slots=True)
class Totals:
    """Signatures compiled by workers, loaded from the store, compiled in this process; calls run in Python.

    Of the latter those that were done again by the machine code that came; and calls that waited.
    """

    compiled: int
    loaded: int
    local: int
    fallback_calls: int
    switched: int
    waited: int


class Watcher(Protocol):
    """What the loop asks while it runs."""

    @property
    def decorator(self) -> Callable[..., Any]:
        """What the kernels are decorated with."""

    def row(self, dispatcher: Any, calls: int) -> Row:
        """A function's line in the live table, after so many calls."""

    def totals(self) -> Totals:
        """The sums for the report."""

    def notes(self) -> tuple[str, ...]:
        """What a reader of the report should know."""

    def settle(self, timeout_s: float) -> None:
        """Wait for what is still being compiled."""


class NumbaWatcher:
    """Plain numba: every compile happens in the call that needs it, and callees within their caller's."""

    decorator: Final = staticmethod(numba.njit)

    def __init__(self) -> None:
        self._compiled: set[str] = set()

    def row(self, dispatcher: Any, calls: int) -> Row:
        """A function's line in the live table, after so many calls."""
        if not dispatcher.overloads:
            return Row(dispatcher.__name__, "not called yet", 0, 0, 0, 0, 0.0, None)
        self._compiled.add(label(dispatcher))
        known = [metadata for metadata in dispatcher.get_metadata().values() if metadata]
        # How long the compiler's lock was held: what a compile keeps the program from doing.
        compile_s = sum(metadata["timers"]["compiler_lock"] for metadata in known)
        return Row(dispatcher.__name__, "machine code", 0, 0, 0, calls, compile_s, None)

    def totals(self) -> Totals:
        """The sums for the report. A callee that is compiled for its caller is not counted."""
        return Totals(compiled=0, loaded=0, local=len(self._compiled), fallback_calls=0, switched=0, waited=0)

    def notes(self) -> tuple[str, ...]:
        """Nothing out of the ordinary happens here."""
        return ()

    def settle(self, timeout_s: float) -> None:
        """Nothing is ever pending."""


class FarmWatcher:
    """The default farm, seen through its events and its statistics.

    Events arrive in whichever thread caused them; each does single steps on a dictionary or a list, which are
    read for one key or copied as a whole, so no lock is taken.
    """

    decorator: Final = staticmethod(farm.njit)

    def __init__(self) -> None:
        self._state: dict[str, str] = {}
        self._worker: dict[str, int | None] = {}
        self._local: list[str] = []
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
                self._local.append(
                    f"{event.function}({event.signature}) was compiled in the calling process: {event.reason.value}."
                )

    def row(self, dispatcher: Any, calls: int) -> Row:
        """A function's line in the live table, after so many calls."""
        name = label(dispatcher)
        counted = farm.stats().per_function.get(name, farm.FunctionStats())
        state = self._state.get(name, "in Python" if calls else "not called yet")
        compiled_calls = max(calls - counted.fallback_calls + counted.switched, 0)
        return Row(
            dispatcher.__name__,
            state,
            counted.fallback_calls,
            counted.switched,
            counted.waited,
            compiled_calls,
            counted.compile_s,
            self._worker.get(name),
        )

    def totals(self) -> Totals:
        """The sums for the report."""
        stats = farm.stats()
        return Totals(stats.compiled, stats.loaded, stats.local, stats.fallback_calls, stats.switched, stats.waited)

    def notes(self) -> tuple[str, ...]:
        """Which functions were compiled in this process, and why."""
        return tuple(self._local)

    def settle(self, timeout_s: float) -> None:
        """Wait for what is still being compiled: functions that kernels call have compiles of their own."""
        farm.wait(timeout_s)
