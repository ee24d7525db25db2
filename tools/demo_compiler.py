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
    """A decorated function and where its arguments come from. It never writes into its arguments."""

    function: Any
    make_batch: Callable[[np.random.Generator], tuple[Any, ...]]

    @property
    def name(self) -> str:
        """The function's name."""
        return str(self.function.__name__)

    @property
    def label(self) -> str:
        """The function's name in farm's statistics and events."""
        return f"{self.function.__module__}.{self.function.__qualname__}"


def use(decorator: Callable[..., Any]) -> None:
    """Decorate every kernel that is imported from now on with this."""
    global _njit
    _njit = decorator


def njit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """The chosen decorator, with numba's options."""
    return _njit(**options) if function is None else _njit(function, **options)
