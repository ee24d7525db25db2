"""Meanwhile: what calls do under fallback="auto" as long as their machine code is pending.

    nothing in it loops                       the Python body: there is nothing to win
    restartable (farm.job.restart)            the Python body on shadow copies of what it may write to; when the code
                                              comes first, the body is stopped and the call begins again, compiled
    anything else, or a copy would cost more  the Python body, if it is known to be over before the compile is;
    than it can win                           otherwise the call waits, as with numba

A body that has ended is as good as one that ran on the caller's arguments: what it changed is written back, what it
returns is the caller's own, what it raises is raised.
"""

from __future__ import annotations

from math import isfinite
from time import monotonic, perf_counter
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from numpy import ndarray

from farm.front.alone import alone
from farm.front.pending import Pending
from farm.front.policy import waiting_is_better
from farm.front.shadow import COPY_S, Plan, copy_estimate_s, plan_shadows
from farm.front.switch import Run, enters, leave_if_there, passes, run_stoppable, runs_here
from farm.observe.fallbacks import watched
from farm.port.dispatch import Types, by_parameter, converted, spread

if TYPE_CHECKING:
    from farm.front.dispatcher import FarmDispatcher

NO_COPY_S: Final = COPY_S
"""No shadow is made in less, so what takes less in Python is not looked at any closer."""
ASK_MEMORY_BYTES: Final = 16 << 20
"""Above this it is looked how much memory is free, which takes 0.1 ms."""
MEMORY_SHARE: Final = 0.1
"""Of the memory that is free, what shadows may take."""


class Meanwhile:
    """Answers the calls of one signature until its machine code is there."""

    __slots__ = (
        *("_arguments", "_body", "_copies_nothing", "_dispatcher", "_function", "_pending", "_plain", "_refused"),
        *("_restart", "_watches", "_writes"),
    )

    def __init__(self, dispatcher: FarmDispatcher, pending: Pending, folded: tuple[Any, ...]) -> None:
        self._dispatcher = dispatcher
        self._pending = pending
        self._arguments: Types = pending.entry.key
        self._plain = not dispatcher.folds and not dispatcher.declared
        """Whether the body takes the folded arguments as they are, and what it gives is the result."""
        self._restart = dispatcher.restart
        self._watches = dispatcher.farm().record.watches
        self._function = dispatcher.py_func
        self._refused: str | None = self._restart.reason
        """Why no call of this signature can be restarted."""
        self._writes: frozenset[int] = frozenset()
        if self._refused is None:  # what these depend on the types say: one look is enough for all calls
            values = self._values(folded)
            self._writes = self._restart.writes_to(values)
            plan = plan_shadows(values, self._writes)
            self._refused = plan if isinstance(plan, str) else None
        if self._refused is None and self._restart.loops:
            self._function = alone(dispatcher, pending)
        self._body = self._watched if self._watches else self._function
        self._copies_nothing = self._restart.loops and self._refused is None and not self._writes

    def call(self, *folded: Any) -> Any:
        pending, values = self._pending, folded if self._plain else self._values(folded)
        leave_if_there()
        for run in runs_here():
            if run.owner is pending and run.open:  # it has called itself: the first call is stopped for all of them
                return self._returned(self._body(*self._spread(values)))
        if self._copies_nothing:
            return self._until_switched(folded, values)
        if not self._restart.loops:
            return self._to_its_end(values, None)
        size = magnitude(values)
        known_s = self._dispatcher.seconds_in_python.get(size)
        if known_s is None or known_s > NO_COPY_S:
            plan = self._plan(values, known_s)
            if plan is not None:
                return self._on_shadows(folded, plan, size)
            if known_s is None or self._waiting_is_better(known_s):
                return self._once_compiled(folded)
        return self._to_its_end(values, size)

    def _plan(self, values: tuple[Any, ...], known_s: float | None) -> Plan | None:
        """What to copy, or None if the call is not to be restarted this time."""
        if self._refused is not None:
            return None
        plan = plan_shadows(values, self._writes)
        if isinstance(plan, str) or plan.size_bytes > self._memory_bytes(plan.size_bytes):
            return None
        return plan if known_s is None or copy_estimate_s(plan.size_bytes) <= known_s else None

    def _memory_bytes(self, wanted: int) -> int:
        limit = self._dispatcher.farm().config.shadow_max_bytes
        if wanted <= ASK_MEMORY_BYTES:
            return limit
        import psutil

        return min(limit, int(psutil.virtual_memory().available * MEMORY_SHARE))

    # -- what a call does ---------------------------------------------------------------------------------

    def _to_its_end(self, values: tuple[Any, ...], size: int | None) -> Any:
        began = perf_counter()
        try:
            result = self._body(*self._spread(values))
            return result if self._plain else self._returned(result)
        finally:
            self._ended(perf_counter() - began, size)

    def _until_switched(self, folded: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
        began = perf_counter()
        try:
            done, result = run_stoppable(
                Run(self._pending, self._restart.codes), self._body, values if self._plain else self._spread(values)
            )
        except Exception:
            self._ended(perf_counter() - began, None)
            raise
        if not done:
            return self._switched(folded, perf_counter() - began)
        self._dispatcher.in_python.add(perf_counter() - began)
        return result if self._plain else self._returned(result)

    def _on_shadows(self, folded: tuple[Any, ...], plan: Plan, size: int) -> Any:
        began = perf_counter()
        try:
            shadows = plan.copy()
        except MemoryError:
            return self._once_compiled(folded)
        try:
            done, result = run_stoppable(
                Run(self._pending, self._restart.codes), self._body, self._spread(shadows.arguments), shadows.keep
            )
        except Exception:
            self._ended(perf_counter() - began, size)
            raise
        if not done:
            del shadows  # before the compiled call, which may want the memory
            return self._switched(folded, perf_counter() - began)
        self._ended(perf_counter() - began, size)
        return self._returned(shadows.returned(result))

    def _switched(self, folded: tuple[Any, ...], seconds: float) -> Any:
        dispatcher = self._dispatcher
        dispatcher.farm().record.switched(dispatcher, seconds)
        dispatcher.farm().settle_now(self._pending)
        return dispatcher.answer(folded)(*folded)

    def _once_compiled(self, folded: tuple[Any, ...]) -> Any:
        """Wait for the compile and call again: its machine code, or what runs if there is none."""
        dispatcher, began = self._dispatcher, perf_counter()
        dispatcher.farm().settle_now(self._pending)
        dispatcher.farm().record.waited(dispatcher, perf_counter() - began, for_fallback=True)
        return dispatcher.answer(folded)(*folded)

    # -- between them -------------------------------------------------------------------------------------

    def _waiting_is_better(self, known_s: float) -> bool:
        expected_s = self._dispatcher.farm().expected_compile_s(self._dispatcher)
        return waiting_is_better(known_s, expected_s, monotonic() - self._pending.began)

    def _ended(self, seconds: float, size: int | None) -> None:
        if size is not None:
            self._dispatcher.seconds_in_python[size] = seconds
        self._dispatcher.in_python.add(seconds)

    def _spread(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return values if self._plain else spread(self._dispatcher, values)

    def _values(self, folded: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments by parameter, as the body takes them."""
        values = by_parameter(folded)
        return converted(values, self._arguments) if self._dispatcher.declared else values

    def _returned(self, result: Any) -> Any:
        return self._dispatcher.declared.returned(result, self._arguments) if self._dispatcher.declared else result

    def _watched(self, *arguments: Any) -> Any:
        return watched(self._watches, self._dispatcher.label, self._function, arguments)


def magnitude(values: tuple[Any, ...]) -> int:
    """How large arguments are, roughly: by powers of two of their bytes, and of the largest number among them."""
    size, largest = 0, 0
    for value in values:
        kind = type(value)
        if kind is ndarray:
            size += value.nbytes
        elif kind is int:
            largest = max(largest, abs(value))
        elif kind is float:
            if isfinite(value):
                largest = max(largest, int(abs(value)))
        elif kind is str or kind is bytes or kind is list or kind is set:
            size += 8 * len(value)
        elif kind is tuple:
            inside = magnitude(value)
            size += 1 << (inside >> 16)
            largest = max(largest, 1 << (inside & 0xFFFF))
    return size.bit_length() << 16 | min(largest.bit_length(), 0xFFFF)


enters((Meanwhile.call,))
# All of its methods: which of them a body is called through is nothing to keep a list of.
passes(one for one in (*vars(Meanwhile).values(), watched) if isinstance(one, FunctionType))
