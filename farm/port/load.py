"""Turns an artifact's parts back into a function of this process.

A light load: only the object code is linked. The bitcode is parsed when another compile links this
function, from the bytes that were loaded, never from a path again (a republished key has other symbol
names). The defined symbols come from the artifact instead of from parsing bitcode. Every undefined
symbol must have an address here, else the load is refused: an unresolved one is a segfault.
"""

import functools
import importlib
import sys
import weakref
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from numba.core import registry, serialize
from numba.core.cgutils import normalize_ir_text
from numba.core.codegen import CodeLibrary, JITCodeLibrary
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.environment import Environment, lookup_environment
from numba.core.runtime import rtsys

from farm.port import standin
from farm.port.compile import Parts
from farm.port.target import missing_features
from farm.reasons import MissReason

# Symbols that have an address in this process. Only what is there is remembered: neither LLVM nor the dynamic linker
# takes back what numba, CPython or the C library brought. Guarded by numba's compiler lock.
_addressed: set[str] = set()


class LoadRefused(Exception):
    """The parts cannot be used in this process: a miss, with its reason."""

    def __init__(self, reason: MissReason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


@functools.lru_cache(maxsize=1)
def _empty_module(codegen: Any) -> str:
    """An empty module for this code generator, as text: making it takes 0.03 ms."""
    return str(codegen._create_empty_module("loaded"))


class LoadedLibrary(JITCodeLibrary):
    """A code library made from object code; its bitcode waits until something links it."""

    def __init__(self, codegen: Any, name: str, code: bytes, bitcode: Callable[[], bytes]) -> None:
        CodeLibrary.__init__(self, codegen, name)  # CPUCodeLibrary's prints and parses an empty module each time
        self._linking_libraries: list[Any] = []
        self._final_module = llvm.parse_assembly(_empty_module(codegen))
        self._final_module.name = normalize_ir_text(name)
        self._shared_module: Any = None
        self._bitcode = bitcode
        self._code = code
        self.enable_object_caching()
        self._set_compiled_object(code)

    def _finalize_final_module(self) -> None:
        """numba's own, without its five scans of the module: this one is empty, the object code holds everything.

        What the scans look for (dynamic globals, undefined and unresolved symbols) was refused where it was made.
        """
        self._final_module.__dict__["_CPUCodeLibrary__library"] = weakref.proxy(
            self
        )  # numba's object cache looks there
        engine = self._codegen._engine
        engine._ee.add_module(self._final_module)
        engine.finalize_object()
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        if self._shared_module is None:
            self._shared_module = llvm.parse_bitcode(self._bitcode())
        return self._shared_module

    def serialize_using_object_code(self) -> tuple[str, str, tuple[bytes, bytes]]:
        return self.name, "object", (self._code, self._bitcode())


def load(
    parts: Parts, own_globals: dict[str, Any] | None = None, bitcode: Callable[[], bytes] | None = None
) -> CompileResult:
    """Link the parts into this process and return a CompileResult that is not yet installed anywhere.

    Parameters
    ----------
    own_globals
        The globals of the Python function that the code belongs to: object mode blocks look names up
        there at run time. None for a callee, whose module is found by name, without importing it.

    bitcode
        Reads the bitcode when it is needed, for parts that were read without it.

    Raises LoadRefused.
    """
    lacking = missing_features(parts.meta["target"]["features"])
    if lacking:
        raise LoadRefused(MissReason.CPU_LACKS_FEATURE, ", ".join(lacking))
    with global_compiler_lock:
        try:
            return _load(parts, own_globals, bitcode or (lambda: parts.bitcode))
        except LoadRefused:
            raise
        except Exception as error:  # unpickling and linking run foreign code; damage costs a compile, never a call
            raise LoadRefused(MissReason.LOAD_FAILED, f"{type(error).__name__}: {error}") from error


def _load(parts: Parts, own_globals: dict[str, Any] | None, bitcode: Callable[[], bytes]) -> CompileResult:
    context = registry.cpu_target.target_context
    standin.pin(parts.meta["classes"])
    state = serialize.loads(parts.environment)
    for initialise in state["reload_init"]:
        initialise()
    _require_symbols(context, parts.meta["undefined"])

    codegen = context.codegen()
    library = LoadedLibrary(codegen, parts.meta["library"], parts.code, bitcode)
    library._reload_init.update(state["reload_init"])
    library._finalize_final_module()
    codegen._engine._defined_symbols.update(parts.meta["defined"])
    # A function compiled here may call one of these through a pointer that waits for it: recursion through a second
    # type. numba's own cache forgets this, and the call aborts.
    codegen._rtlinker._defined.update(parts.meta["defined"])
    codegen._rtlinker.resolve(codegen._engine)

    environment = _bind(state["environment"], own_globals)
    referenced = [_bind(env, None) for env in state["referenced"]]
    descriptor = state["descriptor"]
    entry_point = context.get_executable(library, descriptor, environment)
    for env in referenced:
        codegen.set_env(env.env_name, env)
    if state["generator"] is not None:
        generator_type, generator_descriptor = state["generator"]
        context.insert_generator(generator_type, generator_descriptor, [library])
    return CompileResult(
        typing_context=context.typing_context,
        target_context=context,
        entry_point=entry_point,
        typing_error=None,
        type_annotation=state["annotation"],
        signature=state["signature"],
        objectmode=False,
        lifted=state["lifted"],
        fndesc=descriptor,
        library=library,
        call_helper=None,
        environment=environment,
        metadata=None,
        reload_init=state["reload_init"],
        referenced_envs=referenced,
    )


def _require_symbols(context: Any, names: list[str]) -> None:
    """Give every undefined symbol an address, or refuse.

    numba's runtime comes first: 0.016 s once per process (measured). A full refresh of the target
    context takes 0.25 s and imports what registers the rest (string hashing, random numbers), so it
    is made only when a symbol is still missing after that.
    """
    rtsys.initialize(context)
    if not missing_symbols(names):
        return
    context.refresh()
    importlib.import_module("numba.cpython.hashing")
    missing = missing_symbols(names)
    if missing:
        raise LoadRefused(MissReason.SYMBOL_MISSING, ", ".join(missing))


def missing_symbols(names: list[str]) -> list[str]:
    """Those of the symbols that have no address in this process."""
    unknown = [name for name in names if name not in _addressed]
    missing = [name for name in unknown if llvm.address_of_symbol(name) is None]
    _addressed.update(set(unknown).difference(missing))
    return missing


def _bind(parts: tuple[str | None, list[Any], str], own_globals: dict[str, Any] | None) -> Environment:
    module_name, constants, name = parts
    known = lookup_environment(name)
    if known is not None:
        return known
    if own_globals is None:
        module = sys.modules.get(module_name or "")
        own_globals = {"__name__": module_name} if module is None else vars(module)
    environment = Environment(own_globals)
    environment.consts[:] = constants
    environment.env_name = name
    Environment._memo[name] = environment
    return environment
