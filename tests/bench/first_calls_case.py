"""Case: one function whose first call is measured; the modules beside this one put theirs into the list."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

Random = np.random.Generator


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Parameters
    ----------
    kind
        What sort of function it is.
    load
        Gives the function and what makes its arguments. It imports a library, if it is about one.
    library
        The library that has to be installed, which farm.enable() decorates.
    """

    name: str
    kind: str
    load: Callable[[], tuple[Callable[..., Any], Callable[[Random], tuple[Any, ...]]]]
    library: str | None = None

    @property
    def missing(self) -> bool:
        """Whether its library is not installed."""
        return self.library is not None and importlib.util.find_spec(self.library) is None


CASES: Final[list[Case]] = []


def case(kind: str, make: Callable[[Random], tuple[Any, ...]]) -> Callable[[Any], Any]:
    """Put a decorated function into the list."""

    def add(function: Any) -> Any:
        CASES.append(Case(function.__name__, kind, lambda: (function, make)))
        return function

    return add
