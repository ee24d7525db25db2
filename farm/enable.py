"""Enable: numba's own decorators go through the farm, for libraries that cannot be edited.

`numba.jit` and `numba.njit` are replaced, so that libraries imported afterwards are decorated by the farm. Modules of
numba itself are left alone: `numba.typed` decorates late, and with a Python body as fallback `len` of a typed list
recurses for ever. So is what numba decorates on behalf of others, the methods of a jitclass for example.
"""

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numba

from farm.jit import jit, njit
from farm.port.role import compiles_for_others

Decorator = Callable[..., Any]


class Enabled:
    """The farm serves `numba.jit` and `numba.njit` until `disable()`, or until the end of a `with` block."""

    def __init__(self) -> None:
        self._before: dict[str, Decorator] = {name: getattr(numba, name) for name in ("jit", "njit")}

    def __enter__(self) -> "Enabled":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.disable()

    def disable(self) -> None:
        """Give numba its decorators back. What was decorated meanwhile stays with the farm."""
        for name, decorator in self._before.items():
            setattr(numba, name, decorator)


def enable(**choices: Any) -> Enabled:
    """From now on `numba.jit` and `numba.njit` are the farm's, for every module that takes them from numba afterwards.

    Parameters
    ----------
    choices
        `mode`, `fallback` and `farm` for everything decorated this way, as in `farm.jit`.

    Enabling twice changes the choices; the first `disable()` of the latest then restores the one before.
    """
    enabled = Enabled()
    if compiles_for_others():  # a user's module enables the farm in a worker too: there numba's own will do
        return enabled
    for name, ours in (("jit", jit), ("njit", njit)):
        setattr(numba, name, _replacement(_numbas_own(name), ours, choices))
    return enabled


def _numbas_own(name: str) -> Decorator:
    current: Decorator = getattr(numba, name)
    return getattr(current, "__numbas_own__", current)


def _replacement(original: Decorator, ours: Decorator, choices: dict[str, Any]) -> Decorator:
    def decorator(*arguments: Any, **options: Any) -> Any:
        caller = str(sys._getframe(1).f_globals.get("__name__", ""))
        if _is_numbas(caller) or "_target" in options:
            return original(*arguments, **options)
        return ours(*arguments, **{**choices, **options})

    decorator.__name__ = decorator.__qualname__ = original.__name__
    decorator.__doc__ = original.__doc__
    decorator.__numbas_own__ = original  # type: ignore[attr-defined]
    return decorator


def _is_numbas(module: str) -> bool:
    return module == "numba" or module.startswith("numba.")
