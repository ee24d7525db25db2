"""The decorators: `farm.jit` and `farm.njit`, with numba's arguments plus `mode` and `fallback`."""

import atexit
import inspect
import os
import threading
from collections.abc import Callable
from typing import Any

from farm.config import CompileMode, Fallback
from farm.errors import DecorationError
from farm.front.dispatcher import FarmDispatcher
from farm.front.farm import Farm

# Guards _default. Making a Farm starts nothing and calls nothing back.
_lock = threading.Lock()
_default: Farm | None = None


def default_farm() -> Farm:
    """The farm of decorators that name none; made on first need, never at import."""
    global _default
    with _lock:
        if _default is None:
            _default = Farm()
            atexit.register(_default.close)
        return _default


def _after_fork_in_child() -> None:
    """The pool belongs to the parent: the child makes its own on first need, and keeps the machine code it has."""
    global _default, _lock
    _lock = threading.Lock()
    _default = None


os.register_at_fork(after_in_child=_after_fork_in_child)


def njit(
    function: Callable[..., Any] | None = None,
    *,
    mode: str | CompileMode | None = None,
    fallback: str | Fallback | Callable[..., Any] | None = None,
    locals: dict[str, Any] | None = None,
    farm: Farm | None = None,
    **options: Any,
) -> Any:
    """Decorate a function: calls run in Python while worker processes compile, then as machine code.

    Parameters
    ----------
    mode
        "async" (default), "strict" or "lazy".
    fallback
        "auto" (default), "python", "wait", or a callable that runs instead of the body.
    farm
        The Farm to use; the default farm if not given.
    options
        numba's target options: parallel, fastmath, error_model, nogil, boundscheck, ...

    Raises DecorationError for something that is not a Python function.
    """
    if function is None:
        return lambda f: njit(f, mode=mode, fallback=fallback, locals=locals, farm=farm, **options)
    if not inspect.isfunction(function):
        raise DecorationError(f"njit decorates a Python function, not {type(function).__name__}: {function!r}")
    options.pop("cache", None)  # numba's own cache goes stale; the farm's store serves instead
    options["nopython"] = True
    return FarmDispatcher(
        function,
        locals,
        options,
        farm=default_farm if farm is None else lambda: farm,
        mode=None if mode is None else _choice(CompileMode, "mode", mode),
        fallback=fallback if fallback is None or callable(fallback) else _choice(Fallback, "fallback", fallback),
    )


jit = njit


def _choice(kind: Any, name: str, value: object) -> Any:
    try:
        return kind(value)
    except ValueError:
        legal = ", ".join(repr(member.value) for member in kind)
        raise DecorationError(f"{name} cannot be {value!r}: use {legal}") from None
