"""Compiles one signature and takes the result apart into bytes that another process can load.

`take_apart` is strict: whatever holds addresses of this process, or would need code that does not
travel, raises NotShippable with its reason. It never warns and never guesses.
"""

import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

from numba.core import event, serialize
from numba.core.compiler_lock import global_compiler_lock
from numba.core.environment import Environment
from numba.core.errors import ForceLiteralArg
from numba.core.typed_passes import _reload_parfors
from numba.core.typeinfer import register_dispatcher

from farm.errors import NotShippable, told
from farm.port import elf, standin
from farm.port.iterables import picklable_iterables
from farm.port.metadata import to_plain
from farm.port.target import inherited_flags, renew_symbol_names, target
from farm.reasons import RefusalReason

UNRESOLVED_PREFIX = ".numba.unresolved$"
PARALLEL_SYMBOL = "numba_parallel_for"
"""What every parallel loop calls."""


@dataclass(frozen=True, slots=True)
class Parts:
    """One compiled signature as plain values.

    Parameters
    ----------
    meta
        JSON-able: library name, defined and undefined symbols, symbol base, required CPU features, the classes
        that the code and the environment name (`standin.references`), and numba's metadata (`port.metadata`).
    code
        The native object file.
    bitcode
        LLVM bitcode for linking and inlining into other functions.
    environment
        Pickle of the descriptor, the environments and the signature. Only read after a digest check.
    """

    meta: dict[str, Any]
    code: bytes
    bitcode: bytes
    environment: bytes


def compile_signature(
    dispatcher: Any,
    arguments: tuple[Any, ...],
    return_type: Any | None,
    flags_of_caller: Any | None,
    symbol_base: int | None = None,
) -> tuple[Any, int]:
    """Compile one signature of a dispatcher, without installing it; returns (CompileResult, symbol base).

    `flags_of_caller` are those of the compile that asked for it (`target.caller_flags`), so that the
    inherited flags are the ones it would have had there. `symbol_base` is that of an earlier compile which this one
    repeats, None for a fresh one. numba's own exceptions pass through.
    """
    timers: dict[str, float] = {}  # as numba's own `compile` has them
    # The counter is how numba's type inference recognises a call of the function to itself; the registration is
    # how it finds the function where its name is not bound yet, as with explicit signatures at decoration.
    with (
        event.install_timer("numba:compiler_lock", partial(timers.__setitem__, "compiler_lock")),
        event.install_timer("numba:llvm_lock", partial(timers.__setitem__, "llvm_lock")),
        global_compiler_lock,
        dispatcher._compiling_counter,
        register_dispatcher(dispatcher),
    ):
        base = renew_symbol_names(symbol_base)
        try:
            with inherited_flags(flags_of_caller):
                result = dispatcher._compiler.compile(arguments, return_type)
        except ForceLiteralArg as request:
            fold = dispatcher._compiler.fold_argument_types
            raise request.bind_fold_arguments(lambda args, kws: fold(args, kws)[1]) from None
    result.metadata["timers"] = timers
    return result, base


def take_apart(result: Any, symbol_base: int) -> Parts:
    """Turn a CompileResult into Parts. Raises NotShippable where the result cannot leave this process."""
    _refuse_what_cannot_travel(result)
    library = result.library
    code, bitcode = library._get_compiled_object(), library._get_module_for_linking().as_bitcode()
    try:
        symbols = elf.read_symbols(code)
    except ValueError as error:
        raise NotShippable(RefusalReason.NOT_SERIALISABLE, str(error)) from error
    recursive = [name for name in symbols.undefined if name.startswith(UNRESOLVED_PREFIX)]
    if recursive:
        raise NotShippable(RefusalReason.UNRESOLVED_SYMBOLS, recursive[0])
    environment = _dump_environment(result, _initialisers(result, symbols))
    meta = {
        "library": library.name,
        "defined": list(symbols.defined),
        "undefined": list(symbols.undefined),
        "symbol_base": symbol_base,
        "target": target(),
        "classes": standin.references(code, environment),
        "metadata": to_plain(result.metadata or {}),
    }
    return Parts(meta, code, bitcode, environment)


def _refuse_what_cannot_travel(result: Any) -> None:
    if result.objectmode:
        raise NotShippable(RefusalReason.OBJECT_MODE, result.fndesc.qualname)
    # `with parallel_chunksize(...)` leaves a None: it lifts nothing.
    if not all(lifted.can_cache for lifted in result.lifted if lifted is not None):
        raise NotShippable(RefusalReason.LIFTED_LOOPS, result.fndesc.qualname)
    if result.library.has_dynamic_globals:
        raise NotShippable(RefusalReason.DYNAMIC_GLOBALS, result.fndesc.qualname)


def environment_parts(environment: Environment) -> tuple[str | None, list[Any], str]:
    """An Environment as (module name, constants, its symbol's name): rebuilt without importing the module."""
    return environment.globals.get("__name__"), list(environment.consts), environment.env_name


def _stripped(descriptor: Any) -> Any:
    """As numba's own reduction does, but a copy: the live result stays whole."""
    copied = copy.copy(descriptor)
    copied.typemap = copied.calltypes = copied.global_dict = None
    return copied


def _initialisers(result: Any, symbols: elf.Symbols) -> tuple[Any, ...]:
    """What a process must call before it links the code, so that what the code calls is there.

    From numba 0.63 on a caller inherits this from its callees. Before, only the symbol says that one is parallel.
    """
    found = tuple(result.reload_init)
    inherits = PARALLEL_SYMBOL not in symbols.undefined or _reload_parfors in found
    return found if inherits else (*found, _reload_parfors)


def _dump_environment(result: Any, initialisers: tuple[Any, ...]) -> bytes:
    own = result.environment
    others = [env for env in result._find_referenced_environments() if env is not own]
    returns = result.signature.return_type
    generator = result.target_context._generators.get(returns)
    picklable_iterables()
    try:
        return bytes(
            serialize.dumps(
                {
                    "descriptor": _stripped(result.fndesc),
                    "environment": environment_parts(own),
                    "referenced": [environment_parts(env) for env in others],
                    "signature": result.signature,
                    "lifted": result.lifted,
                    "annotation": str(result.type_annotation),
                    "reload_init": initialisers,
                    "generator": None if generator is None else (returns, _stripped(generator[0])),
                }
            )
        )
    except Exception as error:  # pickling runs arbitrary code: whatever it raises, the result stays here
        raise NotShippable(RefusalReason.NOT_SERIALISABLE, told(error)) from error
