"""The decorators: `farm.jit` and `farm.njit`, with numba's arguments plus `mode` and `fallback`."""

import inspect
import warnings
from collections.abc import Callable
from typing import Any

from farm.config import CompileMode, Fallback
from farm.errors import DecorationError, SignatureError
from farm.front.default import default_farm
from farm.front.dispatcher import FarmDispatcher, adopt
from farm.front.farm import Farm
from farm.port.dispatch import Signature, is_signature, jit_is_disabled, parse_signature
from farm.port.role import compiles_for_others


def jit(
    signature_or_function: Any = None,
    *,
    mode: str | CompileMode | None = None,
    fallback: str | Fallback | Callable[..., Any] | None = None,
    farm: Farm | None = None,
    locals: dict[str, Any] | None = None,
    cache: bool = False,
    pipeline_class: type | None = None,
    **options: Any,
) -> Any:
    """Decorate a function: calls run in Python while worker processes compile, then as machine code.

    Parameters
    ----------
    signature_or_function
        The function; or a signature, or a list of them, as numba takes them. Explicit signatures are queued at
        decoration and do not block it, except with mode="strict". Until all of them are in, each call uses the
        declared signature it will use afterwards.
    mode
        "async": run the fallback while workers compile. "lazy": the same, from a signature's second call on.
        "strict": wait, as numba does. Default: the setting `mode`, "async".
    fallback
        What a call runs while its code is pending. "auto": the Python body, unless it cannot run as Python or once
        ran for over a second: then wait. "python": always the body. "wait": wait for the code. Or a callable, which
        is called with the call's arguments. Default: the setting `fallback`, "auto".
    farm
        The Farm to use; the default farm if not given.
    cache
        Accepted and without effect: every artifact goes to the farm's store.
    locals, pipeline_class, options
        As in numba: types of local variables; the compiler's pipeline; target options (parallel, fastmath,
        error_model, nogil, boundscheck, inline, ...).

    Raises DecorationError for something that is not a Python function, or a wrong mode or fallback; SignatureError
    for a signature that does not parse.
    """
    chosen_mode = None if mode is None else _choice(CompileMode, "mode", mode)
    chosen_fallback = fallback if fallback is None or callable(fallback) else _choice(Fallback, "fallback", fallback)
    if farm is not None and not isinstance(farm, Farm):
        raise DecorationError(f"farm takes a farm.Farm, not {farm!r}")
    more = {} if pipeline_class is None else {"pipeline_class": pipeline_class}
    options = {"boundscheck": None, **options, "nopython": not options.get("forceobj", False)}

    def decorate(function: Any, signatures: tuple[Signature, ...] = ()) -> Any:
        _require_function(function)
        if jit_is_disabled():
            return function
        if compiles_for_others():
            from farm.front.inert import InertDispatcher  # for workers only

            return InertDispatcher(function, dict(locals or {}), dict(options), explicit=signatures, **more)
        dispatcher = FarmDispatcher(
            function,
            dict(locals or {}),
            dict(options),
            farm=default_farm if farm is None else lambda: farm,
            mode=chosen_mode,
            fallback=chosen_fallback,
            declared=signatures,
            **more,
        )
        adopt(dispatcher)
        if signatures:
            if dispatcher.mode_now is CompileMode.STRICT:
                dispatcher.declared.wait_for_all()
            else:
                dispatcher.declared.queue()
        return dispatcher

    given = signature_or_function
    if given is None:
        return decorate
    if isinstance(given, list):
        parsed = tuple(parse_signature(one) for one in given)
        return lambda function: decorate(function, parsed)
    if is_signature(given):
        one = (parse_signature(given),)
        return lambda function: decorate(function, one)
    if isinstance(given, str):
        raise SignatureError(given, "numba does not take it as one")
    return decorate(given)


def njit(*arguments: Any, **options: Any) -> Any:
    """As `farm.jit`, and like numba's `njit` it takes no object mode."""
    for name in ("nopython", "forceobj"):
        if options.pop(name, None) is not None:
            warnings.warn(f"{name} is set for njit and is ignored", RuntimeWarning, stacklevel=2)
    return jit(*arguments, **options)


def _require_function(function: Any) -> None:
    if inspect.isfunction(function):
        return
    original = getattr(function, "py_func", None)
    if original is not None:
        name = getattr(original, "__qualname__", "it")
        raise DecorationError(f"{name} is jitted already: decorate {name}.py_func, the Python function inside")
    kind = type(function).__name__
    raise DecorationError(
        f"njit decorates a Python function, not an object of type {kind}: {function!r}. Decorate the function itself: "
        "the methods of a class one by one, below @staticmethod; a builtin inside a function that calls it"
    )


def _choice(kind: Any, name: str, value: object) -> Any:
    try:
        return kind(value)
    except ValueError:
        legal = ", ".join(repr(member.value) for member in kind)
        raise DecorationError(f"{name} cannot be {value!r}: use {legal}") from None
