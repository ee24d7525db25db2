"""FarmDispatcher: the call path, readable top to bottom.

A call reaches this module only when numba's C code has no machine code for its argument types:

    callable_for -> installed already (on probation)?   the machine code, counted
                 -> else the farm decides               compile now? wait? fail?
                 -> and unless it waited                 the fallback, run by `run_body`

Calls from other jitted code come through `result_for` and have no fallback: they wait.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from farm.config import CompileMode, Fallback
from farm.errors import SlowFallbackWarning
from farm.front.install import Installation
from farm.front.table import Table
from farm.port.dispatch import HookedDispatcher, Types, argument_types, unfold

if TYPE_CHECKING:
    from farm.front.farm import Farm

SLOW_BODY_S: Final = 1.0
"""A guess: a body that ran this long would have been done sooner by waiting for an ordinary compile."""


class FarmDispatcher(HookedDispatcher):
    """A numba dispatcher whose functions compile in worker processes. Made by `farm.jit` and `farm.njit`."""

    def __init__(
        self,
        py_func: Callable[..., Any],
        locals: dict[str, Any] | None = None,
        targetoptions: dict[str, Any] | None = None,
        *,
        farm: Callable[[], Farm],
        mode: CompileMode | None = None,
        fallback: Fallback | Callable[..., Any] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(py_func, locals, targetoptions, **more)
        self.farm = farm
        self.mode = mode
        self.fallback = fallback
        self.label = f"{py_func.__module__}.{py_func.__qualname__}"
        self.installation = Installation(self)
        self.table: Table[Types, Any] = Table()
        self.body_is_slow = False

    def signature_label(self, arguments: Types) -> str:
        """`module.function(types)`, for people."""
        return f"{self.label}({', '.join(map(str, arguments))})"

    def callable_for(self, folded: tuple[Any, ...]) -> Callable[..., Any]:
        """The machine code for this call, or the fallback. Raises numba's error in STRICT mode."""
        arguments = argument_types(self, folded)
        code = self.installation.answer(arguments)
        if code is None:
            code = self.farm().code_for_call(self, arguments)
        return self.run_body if code is None else code

    def result_for(self, arguments: Types, return_type: Any | None) -> Any:
        """Wait for a compile: the caller is jitted, or asked for it by name."""
        result = self.farm().result_for_caller(self, arguments, return_type)
        self.installation.end_probation(arguments)
        return result

    def run_body(self, *folded: Any) -> Any:
        """Run the fallback on one call's folded arguments: the only place that does."""
        body = self.fallback if callable(self.fallback) else self.py_func
        started = time.perf_counter()
        try:
            return body(*unfold(self, folded))
        finally:
            if time.perf_counter() - started > SLOW_BODY_S and self.fallback_kind is Fallback.AUTO:
                self._note_slow_body()

    @property
    def fallback_kind(self) -> Fallback | None:
        """What happens while a compile is pending; None if a callable of the user runs."""
        if callable(self.fallback):
            return None
        return self.fallback or self.farm().config.fallback

    def _note_slow_body(self) -> None:
        if self.body_is_slow:
            return
        self.body_is_slow = True
        warnings.warn(
            f"one call of {self.label} ran for over {SLOW_BODY_S:g} s in Python: from now on its calls wait for the "
            f"compile. Say fallback='wait' to wait from the start, or fallback='python' never to wait.",
            SlowFallbackWarning,
            stacklevel=3,
        )

    @property
    def waits(self) -> bool:
        """Whether a call with nothing compiled waits instead of running the body."""
        kind = self.fallback_kind
        return kind is Fallback.WAIT or (kind is Fallback.AUTO and self.body_is_slow)

    def wait(self, timeout: float | None = None) -> bool:
        """Block until all that was asked for is compiled or has failed; False if `timeout` seconds passed first."""
        return self.farm().wait_for(self, timeout)

    def recompile(self) -> None:
        """Forget all machine code and compile every signature again, with the globals as they are now."""
        had = self.installation.discard()
        for arguments in had:
            self.table.lookup_or_create(arguments).recompile()
        for arguments in had:
            self.result_for(arguments, None)
