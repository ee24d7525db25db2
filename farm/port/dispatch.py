"""numba's dispatcher with its two questions handed to an owner: "what runs this call?", "what does this caller link?".

numba's C code calls `_compile_for_args` only when no overload in its own table matches, and calls
whatever callable comes back, so a compiled overload is reached without any code of ours. Jitted
callers come through `compile`. Everything that changes a dispatcher's overloads is here, as three
functions: `attach`, `insert_in_table`, `discard_overloads`; `farm.front.install` alone calls them.
"""

import threading
from collections.abc import Callable
from typing import Any

from numba import _dispatcher, types
from numba.core import sigutils
from numba.core.compiler import Compiler
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import OmittedArg
from numba.core.registry import CPUDispatcher

Types = tuple[Any, ...]

compiler_lock = global_compiler_lock
"""numba's one lock around compiling and loading, re-entrant. Its owner may link and install."""

# Guards: every dispatcher's `in_table` and numba's C table, as one step: inserting one signature twice
# makes every later call 15 us, for ever. Not with it held: numba's compiler lock may be held when this
# one is taken, never the other way round.
_table_lock = threading.Lock()


class HookedDispatcher(CPUDispatcher):
    """A CPUDispatcher whose owner decides what a call runs and where a compile result comes from.

    A subclass gives `callable_for` and `result_for`. Explicit constructor arguments are numba's.
    """

    def __init__(
        self,
        py_func: Callable[..., Any],
        locals: dict[str, Any] | None = None,
        targetoptions: dict[str, Any] | None = None,
        pipeline_class: type = Compiler,
    ) -> None:
        super().__init__(py_func, locals=locals, targetoptions=targetoptions, pipeline_class=pipeline_class)
        self.in_table: set[Types] = set()

    def callable_for(self, folded: tuple[Any, ...]) -> Callable[..., Any]:
        """What runs this call. It is called with the folded arguments: see `unfold`."""
        raise NotImplementedError

    def result_for(self, arguments: Types, return_type: Any | None) -> Any:
        """A CompileResult that is attached to this dispatcher: a jitted caller links it."""
        raise NotImplementedError

    def _compile_for_args(self, *args: Any, **kws: Any) -> Callable[..., Any]:
        assert not kws, "numba folds keyword arguments before it asks"
        self._compilation_chain_init_hook()
        try:
            return self.callable_for(args)
        finally:
            self._types_active_call.clear()  # else the types stay alive (numba issue 9733)

    def compile(self, sig: Any) -> Any:
        arguments, return_type = sigutils.normalize_signature(sig)
        existing = self.overloads.get(tuple(arguments))
        if existing is not None:
            return existing.entry_point
        if not self._can_compile:
            raise RuntimeError("compilation disabled")
        return self.result_for(tuple(arguments), return_type).entry_point


def argument_types(dispatcher: HookedDispatcher, folded: tuple[Any, ...]) -> Types:
    """numba's types of folded arguments, as its own `_compile_for_args` finds them."""
    return tuple(
        types.Omitted(value.value) if isinstance(value, OmittedArg) else dispatcher.typeof_pyval(value)
        for value in folded
    )


def fingerprint(folded: tuple[Any, ...]) -> bytes | None:
    """A cheap stand-in for the argument types (0.35 us for three arrays, `typeof` 6.8 us for one), or None.

    None where the types have to be asked: omitted defaults, and kinds that numba has no fingerprint for.
    """
    try:
        return bytes(_dispatcher.compute_fingerprint(folded))
    except (NotImplementedError, ValueError, TypeError):
        return None


def unfold(dispatcher: HookedDispatcher, folded: tuple[Any, ...]) -> tuple[Any, ...]:
    """Folded arguments as the Python body takes them: defaults by value, `*args` spread out again."""
    values = tuple(value.value if isinstance(value, OmittedArg) else value for value in folded)
    parameters = list(dispatcher._compiler.pysig.parameters.values())
    if parameters and parameters[-1].kind is parameters[-1].VAR_POSITIONAL:
        return (*values[:-1], *values[-1])
    return values


def attach(dispatcher: HookedDispatcher, arguments: Types, result: Any) -> Any:
    """Make a compile result the overload for these types, unless there is one; returns the one that counts.

    The types are the front's own, not the ones that travelled with the result. Jitted callers see it
    from now on; Python callers reach it through `callable_for` until `insert_in_table`.
    """
    with global_compiler_lock:
        existing = dispatcher.overloads.get(arguments)
        if existing is not None:
            return existing
        if not result.objectmode:
            result.target_context.insert_user_function(result.entry_point, result.fndesc, [result.library])
        dispatcher.overloads[arguments] = result
        return result


def insert_in_table(dispatcher: HookedDispatcher, arguments: Types) -> bool:
    """Let numba's C code find an attached overload by itself. Returns False if it already did.

    Literal types never match in the C table, so they are never inserted: such calls are answered from
    `overloads` for ever.
    """
    if any(isinstance(kind, types.Literal) for kind in arguments):
        return False
    with _table_lock:
        if arguments in dispatcher.in_table:
            return False
        result = dispatcher.overloads[arguments]
        dispatcher._insert([kind._code for kind in arguments], result.entry_point, result.objectmode)
        dispatcher.in_table.add(arguments)
        return True


def discard_overloads(dispatcher: HookedDispatcher) -> tuple[Types, ...]:
    """Forget every overload, in both tables; returns the types they had."""
    with global_compiler_lock, _table_lock:
        had = tuple(dispatcher.overloads)
        dispatcher._make_finalizer()()
        dispatcher._reset_overloads()
        dispatcher.in_table.clear()
        return had
