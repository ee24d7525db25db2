"""Watchers: what a run can say about each function, for farm and for plain numba.

The farm tells by events who compiled what and how long it took, and by its statistics how many calls ran in
Python. numba tells neither: there the first call of a kernel is its compile.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import farm
import numba
from demo_compiler import Kernel
from demo_report import Row
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

    decorator: Callable[..., Any]

    def row(self, kernel: Kernel, calls: int, first_call_s: float) -> Row:
        """The kernel's line in the live table."""

    def totals(self) -> Totals:
        """The sums for the report."""

    def settle(self, timeout_s: float) -> None:
        """Wait for what is still being compiled."""


def runs_machine_code(function: Any) -> bool:
    """Whether a dispatcher has machine code to call."""
    return bool(function.overloads)


class NumbaWatcher:
    """Plain numba: every compile happens in the call that needs it."""

    decorator: Final = staticmethod(numba.njit)

    def __init__(self) -> None:
        self._compiled: set[str] = set()

    def row(self, kernel: Kernel, calls: int, first_call_s: float) -> Row:
        """The kernel's line in the live table."""
        if not runs_machine_code(kernel.function):
            return Row(kernel.name, "not called yet", 0, 0, 0.0, None)
        self._compiled.add(kernel.label)
        return Row(kernel.name, "machine code", 0, calls, first_call_s, None)

    def totals(self) -> Totals:
        """The sums for the report."""
        return Totals(compiled=0, loaded=0, local=len(self._compiled), fallback_calls=0)

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

    def row(self, kernel: Kernel, calls: int, first_call_s: float) -> Row:
        """The kernel's line in the live table."""
        counted = farm.stats().per_function.get(kernel.label)
        state = self._state.get(kernel.label, "in Python" if calls else "not called yet")
        fallback_calls = counted.fallback_calls if counted else 0
        compile_s = counted.compile_s if counted else 0.0
        return Row(
            kernel.name, state, fallback_calls, calls - fallback_calls, compile_s, self._worker.get(kernel.label)
        )

    def totals(self) -> Totals:
        """The sums for the report."""
        stats = farm.stats()
        return Totals(stats.compiled, stats.loaded, stats.local, stats.fallback_calls)

    def settle(self, timeout_s: float) -> None:
        """Wait for what is still being compiled: functions that kernels call have compiles of their own."""
        farm.wait(timeout_s)
