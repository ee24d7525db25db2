"""The only module of the front that changes a dispatcher.

A new overload is on probation: it is attached, and its calls pass through the dispatcher's Python side
and are counted. After so many of them as the policy says, or as soon as a jitted caller links it, numba's
C code gets it, and from then on a call costs what numba's costs. Explicit signatures have no probation.
"""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from farm.port.dispatch import (
    HookedDispatcher,
    Types,
    allow_compiling,
    allow_only_installed,
    attach,
    discard_overloads,
    insert_in_table,
)


class Installation:
    """What is installed in one dispatcher, and how many calls each overload on probation has answered."""

    def __init__(self, dispatcher: HookedDispatcher) -> None:
        self._dispatcher = dispatcher
        # Guards `_calls`. Nothing is called with it held.
        self._lock = threading.RLock()
        self._calls: Counter[Types] = Counter()

    def install(self, arguments: Types, result: Any, *, probation: bool) -> Any:
        """Attach a result under the front's own argument types; returns the CompileResult that counts."""
        counted = attach(self._dispatcher, arguments, result)
        if not probation:
            insert_in_table(self._dispatcher, arguments)
        return counted

    def answer(self, arguments: Types, probation_calls: int) -> Callable[..., Any] | None:
        """The machine code for one more call with these types, or None. It is on probation for so many calls."""
        result = self._dispatcher.overloads.get(arguments)
        if result is None:
            return None
        with self._lock:
            self._calls[arguments] += 1
            over = self._calls[arguments] >= probation_calls
        if over:
            insert_in_table(self._dispatcher, arguments)
        entry_point: Callable[..., Any] = result.entry_point
        return entry_point

    def end_probation(self, arguments: Types) -> None:
        """A jitted caller has linked this overload: calls can no longer be counted."""
        insert_in_table(self._dispatcher, arguments)

    def counted_calls(self, arguments: Types) -> int:
        """Calls answered on probation so far."""
        with self._lock:
            return self._calls[arguments]

    def close_list(self) -> None:
        """All explicit signatures are installed: from now on numba's C code chooses among them and compiles none."""
        allow_only_installed(self._dispatcher)

    def open_list(self) -> None:
        """They are about to be discarded: without it numba's C code would refuse every call until all are back."""
        allow_compiling(self._dispatcher)

    def reset_in_child(self) -> None:
        """In a forked child: the lock may have been held by a thread that is not here."""
        self._lock = threading.RLock()

    def discard(self) -> tuple[Types, ...]:
        """Forget everything installed; returns the argument types there were."""
        with self._lock:
            self._calls.clear()
        return discard_overloads(self._dispatcher)
