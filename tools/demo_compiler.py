"""Which `njit` the demo's kernels are decorated with: numba's, or farm's.

One source serves every run of the demo. The process that runs it calls `use` before it imports the kernels;
a user writes `from farm import njit` instead of `from numba import njit`, and that is the whole difference.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

_njit: Callable[..., Any] = numba.njit


@dataclass(frozen=True, slots=True)
class Kernel:
    """What the loop calls, and where its arguments come from. It never writes into its arguments.

    `parts` are the decorated functions behind it, if it is not one itself.
    """

    function: Any
    make_batch: Callable[[np.random.Generator], tuple[Any, ...]]
    parts: tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        """The function's name."""
        return str(self.function.__name__)

    @property
    def dispatchers(self) -> tuple[Any, ...]:
        """The decorated functions that Python calls in one call of this kernel, once each."""
        return self.parts or (self.function,)

    @property
    def runs_machine_code(self) -> bool:
        """Whether all of them have machine code to run."""
        return all(dispatcher.overloads for dispatcher in self.dispatchers)


def label(dispatcher: Any) -> str:
    """A decorated function's name in farm's statistics and events."""
    return f"{dispatcher.__module__}.{dispatcher.__qualname__}"


def use(decorator: Callable[..., Any]) -> None:
    """Decorate every kernel that is imported from now on with this."""
    global _njit
    _njit = decorator


def njit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """The chosen decorator, with numba's options."""
    return _njit(**options) if function is None else _njit(function, **options)
