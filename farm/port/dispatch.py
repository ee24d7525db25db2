"""numba's dispatcher with its two questions handed to an owner: "what runs this call?", "what does this caller link?".

numba's C code calls `_compile_for_args` only when no overload in its own table matches, and calls
whatever callable comes back, so a compiled overload is reached without any code of ours. Jitted
callers come through `compile`. Everything that changes a dispatcher's overloads is here, as five
functions: `attach`, `insert_in_table`, `discard_overloads`, `allow_only_installed`, `allow_compiling`;
`farm.front.install` alone calls them.
"""

import numbers
import threading
from collections.abc import Callable
from typing import Any

from numba import _dispatcher, types
from numba.core import config, sigutils
from numba.core.compiler import Compiler
from numba.core.dispatcher import OmittedArg
from numba.core.errors import ForceLiteralArg, LiteralTypingError, NumbaError
from numba.core.registry import CPUDispatcher

from farm.errors import SignatureError
from farm.port.locks import compiler_lock

Types = tuple[Any, ...]
Signature = tuple[Types, Any]
"""Argument types and the declared return type, or None where it is left to inference."""


# Guards: every dispatcher's `in_table` and numba's C table, as one step: inserting one signature twice
# makes every later call 15 us, for ever. Not with it held: numba's compiler lock may be held when this
# one is taken, never the other way round.
_table_lock = threading.RLock()


class HookedDispatcher(CPUDispatcher):
    """A CPUDispatcher whose owner decides what a call runs and where a compile result comes from.

    A subclass gives `callable_for` and `result_for`. Explicit constructor arguments are numba's.

    `shortcuts` answer calls without asking for the argument types: they map a fingerprint of the arguments to a
    function that gives what runs the call. A fingerprint costs 0.35 us for three arrays where `typeof` costs 6.8 us
    for one (measured), but it tells neither misaligned arrays nor structured types apart, so a shortcut may only lead
    to what is right for any arguments: the fallback, never machine code.
    """

    def __init__(
        self,
        py_func: Callable[..., Any],
        locals: dict[str, Any] | None = None,
        targetoptions: dict[str, Any] | None = None,
        pipeline_class: type = Compiler,
    ) -> None:
        # numba takes None for either from 0.62 on
        super().__init__(py_func, locals or {}, targetoptions or {}, pipeline_class)
        self.in_table: set[Types] = set()
        self.explicit: tuple[Signature, ...] = ()
        self.shortcuts: dict[bytes, Callable[[], Callable[..., Any]]] = {}
        parameters = list(self._compiler.pysig.parameters.values())
        self.has_star_arguments = bool(parameters) and parameters[-1].kind is parameters[-1].VAR_POSITIONAL
        self.folds = self.has_star_arguments or bool(py_func.__defaults__)
        """Whether folded arguments may differ from the ones the body takes."""

    def callable_for(self, folded: tuple[Any, ...]) -> Callable[..., Any]:
        """What runs this call. It is called with the folded arguments: see `unfold`."""
        raise NotImplementedError

    def result_for(self, arguments: Types, return_type: Any | None) -> Any:
        """A CompileResult that is attached to this dispatcher: a jitted caller links it."""
        raise NotImplementedError

    def _compile_for_args(self, *args: Any, **kws: Any) -> Callable[..., Any]:
        if self.shortcuts:
            mark = fingerprint(args)
            found = None if mark is None else self.shortcuts.get(mark)
            if found is not None:
                self._types_active_call.clear()
                return found()
        assert not kws, "numba folds keyword arguments before it asks"
        return self.answer(args)

    def answer(self, folded: tuple[Any, ...]) -> Callable[..., Any]:
        """What runs this call, as numba's C code is told."""
        self._compilation_chain_init_hook()
        try:
            return self.callable_for(folded)
        finally:
            self._types_active_call.clear()  # else the types stay alive (numba issue 9733)

    def compile(self, sig: Any) -> Any:
        """numba's entry for jitted callers and for users: blocks until the code is there, and returns its callable."""
        arguments, return_type = parse_signature(sig)
        existing = self.overloads.get(arguments)
        if existing is not None:
            return existing.entry_point
        if not self._can_compile:
            raise RuntimeError("compilation disabled")
        return self.result_for(arguments, return_type).entry_point


def parse_signature(sig: Any) -> Signature:
    """What the user writes as a signature: text, a numba signature, or a tuple of types. Raises SignatureError."""
    text = sig.strip() if isinstance(sig, str) else ""
    # One type in parentheses is no tuple to Python. A manifest writes it so, and people do.
    again = [f"{text[:-1]},)"] if text.startswith("(") and text.endswith(")") else []
    problem: Exception | None = None
    for one in (sig, *again):
        try:
            arguments, return_type = sigutils.normalize_signature(one)
        except (TypeError, ValueError, NameError, SyntaxError, AttributeError, NumbaError) as error:
            problem = problem or error
        else:
            return tuple(arguments), return_type
    raise SignatureError(str(sig), str(problem) or type(problem).__name__)


def is_signature(value: object) -> bool:
    """Whether numba takes the value as a signature, as opposed to a function."""
    return bool(sigutils.is_signature(value))


def jit_is_disabled() -> bool:
    """numba's setting DISABLE_JIT: decorators then return the function as it is."""
    return bool(config.DISABLE_JIT)


def argument_types(dispatcher: HookedDispatcher, folded: tuple[Any, ...]) -> Types:
    """numba's types of folded arguments, as its own `_compile_for_args` finds them."""
    return tuple(
        types.Omitted(value.value) if isinstance(value, OmittedArg) else dispatcher.typeof_pyval(value)
        for value in folded
    )


def fingerprint(folded: tuple[Any, ...]) -> bytes | None:
    """A cheap stand-in for the argument types, or None where there is none: omitted defaults, and some kinds."""
    try:
        found: bytes = _dispatcher.compute_fingerprint(folded)
    except (NotImplementedError, ValueError, TypeError):
        return None
    return found


def fold(dispatcher: HookedDispatcher, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Positional arguments folded as numba's C code does before it asks. Raises TypeError where they do not fit."""
    bound = dispatcher._compiler.pysig.bind(*arguments)
    given = bound.arguments
    return tuple(
        given.get(name, () if parameter.kind is parameter.VAR_POSITIONAL else OmittedArg(parameter.default))
        for name, parameter in dispatcher._compiler.pysig.parameters.items()
    )


def unfold(dispatcher: HookedDispatcher, folded: tuple[Any, ...]) -> tuple[Any, ...]:
    """Folded arguments as the Python body takes them: defaults by value, `*args` spread out again."""
    return spread(dispatcher, by_parameter(folded))


def by_parameter(folded: tuple[Any, ...]) -> tuple[Any, ...]:
    """Folded arguments with defaults by value: one for each parameter, `*args` as a tuple."""
    return tuple(value.value if isinstance(value, OmittedArg) else value for value in folded)


def spread(dispatcher: HookedDispatcher, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """One value for each parameter, as the Python body takes them."""
    return (*values[:-1], *values[-1]) if dispatcher.has_star_arguments else values


def with_literals(folded: tuple[Any, ...], arguments: Types, positions: tuple[int, ...]) -> Types | None:
    """The argument types with those at `positions` made literal by the call's values, as numba does on request.

    None if one of the values cannot be a literal, an array for example.
    """
    values = [value.value if isinstance(value, OmittedArg) else value for value in folded]
    try:
        return tuple(types.literal(values[i]) if i in positions else kind for i, kind in enumerate(arguments))
    except LiteralTypingError:
        return None


def force_literals(dispatcher: HookedDispatcher, positions: tuple[int, ...]) -> Exception:
    """The error by which numba's type inference learns that a jitted caller must pass these arguments as literals."""
    fold = dispatcher._compiler.fold_argument_types
    error: Exception = ForceLiteralArg(set(positions))
    return error.bind_fold_arguments(lambda args, kws: fold(args, kws)[1])  # type: ignore[attr-defined, no-any-return]


def are_literal(arguments: Types, positions: tuple[int, ...]) -> bool:
    """Whether one of these arguments is literal already: asking for it again would never end."""
    return any(isinstance(arguments[i], types.Literal) for i in positions)


def choose_declared(dispatcher: HookedDispatcher, declared: tuple[Signature, ...], arguments: Types) -> Types:
    """The declared argument types that a call with these types uses, as numba chooses among compiled ones.

    Raises TypeError where none matches, or two match equally well.
    """
    cases = [(return_type or types.none)(*kinds) for kinds, return_type in declared]
    best = dispatcher.typingctx.resolve_overload(dispatcher.py_func, cases, arguments, {}, allow_ambiguous=False)
    if best is None:
        raise TypeError(f"No matching definition for argument type(s) {', '.join(map(str, arguments))}")
    return tuple(best.args)


def converted(folded: tuple[Any, ...], declared: Types) -> tuple[Any, ...]:
    """Numbers as the machine code for these declared types would see them: `g(3)` declared for float64 runs on 3.0."""
    return tuple(_as_declared(value, kind) for value, kind in zip(folded, declared, strict=True))


def _as_declared(value: Any, kind: Any) -> Any:
    if not isinstance(value, numbers.Number) or not isinstance(kind, (types.Number, types.Boolean)):
        return value
    cast = kind.cast_python_value(value)
    # Python's own numbers are the 64-bit ones; narrower floats round as machine code does only as numpy's scalars.
    return cast.item() if hasattr(cast, "item") and not str(kind).endswith(("float32", "complex64")) else cast


def attach(dispatcher: HookedDispatcher, arguments: Types, result: Any) -> Any:
    """Make a compile result the overload for these types, unless there is one; returns the one that counts.

    The types are the front's own, not the ones that travelled with the result. Jitted callers see it
    from now on; Python callers reach it through `callable_for` until `insert_in_table`.
    """
    with compiler_lock:
        existing = dispatcher.overloads.get(arguments)
        if existing is not None:
            return existing
        if not result.objectmode:
            result.target_context.insert_user_function(result.entry_point, result.fndesc, [result.library])
        dispatcher.overloads[arguments] = result
        return result


def insert_in_table(dispatcher: HookedDispatcher, arguments: Types) -> bool:
    """Let numba's C code find an attached overload by itself. Returns False if it already did, or if it is discarded.

    Literal types never match in the C table, so they are never inserted: such calls are answered from
    `overloads` for ever.
    """
    if any(isinstance(kind, types.Literal) for kind in arguments):
        return False
    with _table_lock:
        result = dispatcher.overloads.get(arguments)
        if result is None or arguments in dispatcher.in_table:
            return False
        codes = [kind._code for kind in arguments]
        try:
            dispatcher._insert(codes, result.entry_point, result.objectmode)
        finally:  # also when Ctrl-C comes just after it: inserted and not noted it would be inserted twice
            dispatcher.in_table.add(arguments)
        return True


def discard_overloads(dispatcher: HookedDispatcher) -> tuple[Types, ...]:
    """Forget every overload, in both tables; returns the types they had."""
    with compiler_lock, _table_lock:
        had = tuple(dispatcher.overloads)
        dispatcher._make_finalizer()()
        try:
            dispatcher._reset_overloads()
        finally:  # also when Ctrl-C comes just after it: what is noted as inserted is never inserted again
            dispatcher.in_table.intersection_update(dispatcher.overloads)
        return had


def reset_in_child() -> None:
    """In a forked child: the lock may have been held by a thread that is not here."""
    global _table_lock
    _table_lock = threading.RLock()


def allow_only_installed(dispatcher: HookedDispatcher) -> None:
    """From now on numba's C code chooses among the installed overloads, converting arguments, and compiles none."""
    dispatcher.disable_compile()


def allow_compiling(dispatcher: HookedDispatcher) -> None:
    """From now on numba's C code asks again for what it does not find."""
    dispatcher.disable_compile(False)
