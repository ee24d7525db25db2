"""Turns an artifact's parts back into a function of this process.

A light load: only the object code is linked. The bitcode is parsed when another compile links this
function, from the bytes that were loaded, never from a path again (a republished key has other symbol
names). The defined symbols come from the artifact instead of from parsing bitcode. Every undefined
symbol must have an address here, else the load is refused: an unresolved one is a segfault.
"""

import functools
import importlib
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import numpy
from numba import _dynfunc
from numba.core import registry, serialize
from numba.core.cgutils import normalize_ir_text
from numba.core.codegen import CodeLibrary, JITCodeLibrary
from numba.core.compiler import CompileResult
from numba.core.environment import Environment, lookup_environment
from numba.core.runtime import rtsys

from farm.errors import NotShippable, told
from farm.port import standin
from farm.port.compile import Parts
from farm.port.cpu import Cpu, lacking, triple
from farm.port.locks import compiler_lock
from farm.port.metadata import from_plain
from farm.port.target import own_cpu
from farm.reasons import MissReason, RefusalReason

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
        self._reload_init: set[Callable[[], None]] = set()  # numba's libraries have one from 0.63 on
        self._final_module = llvm.parse_assembly(_empty_module(codegen))
        self._final_module.name = normalize_ir_text(name)
        self._shared_module: Any = None
        self._bitcode = bitcode
        self._code = code
        self.enable_object_caching()
        self._set_compiled_object(code)
        self._disable_inspection = False  # it warns that what it shows is empty, and here it is not

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

    def _get_compiled_object(self) -> bytes:
        return self._code

    def get_function(self, name: str) -> Any:
        return self._get_module_for_linking().get_function(name)

    def get_llvm_str(self) -> str:
        """The text of the bitcode: what numba shows, but that its functions are marked for linking elsewhere."""
        return str(self._get_module_for_linking())

    def get_asm_str(self) -> str:
        """Assembly made anew from the bitcode, by the code generator of this process."""
        # a copy: making code prepares the module for it, and others link this one
        return str(self._codegen._tm.emit_assembly(self._get_module_for_linking().clone()))

    def serialize_using_object_code(self) -> tuple[str, str, tuple[bytes, bytes]]:
        return self.name, "object", (self._code, self._bitcode())


class LinkedLibrary(LoadedLibrary):
    """A code library that other compiles link, and that never runs here: its machine code is not loaded."""

    def __init__(self, codegen: Any, name: str, code: bytes, bitcode: bytes) -> None:
        super().__init__(codegen, name, code, lambda: bitcode)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        # Only code that holds addresses of this process asks for one, and that cannot leave it.
        raise NotShippable(RefusalReason.DYNAMIC_GLOBALS, f"the address of {name}")


def load(
    parts: Parts,
    own_globals: dict[str, Any] | None = None,
    bitcode: Callable[[], bytes] | None = None,
    arguments: tuple[Any, ...] | None = None,
) -> CompileResult:
    """Link the parts into this process and return a CompileResult that is not yet installed anywhere.

    Parameters
    ----------
    own_globals
        The globals of the Python function that the code belongs to: object mode blocks look names up
        there at run time. None for a callee, whose module is found by name, without importing it.

    bitcode
        Reads the bitcode when it is needed, for parts that were read without it.

    arguments
        The argument types as this process knows them. Those that travelled with the parts can be copies
        (a type that holds a dispatcher), and a copy matches nothing that a jitted caller asks for.

    Raises LoadRefused.
    """
    return link(unpack(parts, arguments), own_globals, bitcode)


@dataclass(slots=True)
class Unpacked:
    """Parts whose environment is unpickled. To be linked once: the descriptor in it becomes the function's own."""

    parts: Parts
    state: dict[str, Any]


def unpack(parts: Parts, arguments: tuple[Any, ...] | None = None) -> Unpacked:
    """The half of a load that may import modules. To be done without the compiler lock, wherever that is possible.

    An import waits for a module that another thread is importing, and that module's body may be waiting for this very
    lock. Raises LoadRefused.
    """
    with _refusals():
        _require_cpu(parts.meta)
        return Unpacked(parts, _unpickle(parts, arguments))


def require_cpu(meta: Mapping[str, Any]) -> None:
    """Whether this CPU can run an artifact, as its metadata says what it was made for. Raises LoadRefused."""
    with _refusals():
        _require_cpu(meta)


def made_for_cpu(meta: Mapping[str, Any]) -> Cpu:
    """What CPU an artifact was made for, as its metadata says."""
    return Cpu(meta["target"]["cpu"], meta["target"]["features"])


def _require_cpu(meta: Mapping[str, Any]) -> None:
    missing = lacking(made_for_cpu(meta), own_cpu())
    if meta["target"]["triple"] != triple():
        missing = (meta["target"]["triple"],)
    if missing:
        raise LoadRefused(MissReason.CPU_LACKS_FEATURE, ", ".join(missing))


def link(
    unpacked: Unpacked, own_globals: dict[str, Any] | None = None, bitcode: Callable[[], bytes] | None = None
) -> CompileResult:
    """The other half: link the machine code into this process. Imports no module of the user. Raises LoadRefused."""
    parts = unpacked.parts
    with compiler_lock, _refusals():
        return _link(parts, unpacked.state, own_globals, bitcode or (lambda: parts.bitcode))


def load_for_linking(parts: Parts, arguments: tuple[Any, ...], own_globals: dict[str, Any]) -> CompileResult:
    """A CompileResult for a jitted caller to link, in a process that will never run it.

    No address is needed, so no symbol and no CPU feature is asked for. Raises LoadRefused.
    """
    with compiler_lock, _refusals():
        context = registry.cpu_target.target_context
        state = _unpickle(parts, arguments)
        library = LinkedLibrary(context.codegen(), parts.meta["library"], parts.code, parts.bitcode)
        library._reload_init.update(state["reload_init"])
        library._get_module_for_linking()
        _insert_generator(context, state, library)
        return _result(
            context,
            state,
            library,
            metadata=None,
            entry_point=object(),  # lowering knows a callee by it, and nobody calls it
            environment=_bind(state["environment"], own_globals),
            referenced=[_bind(env, None) for env in state["referenced"]],
        )


@contextmanager
def _refusals() -> Iterator[None]:
    """Unpickling and linking run foreign code: damage costs a compile, never a call."""
    try:
        yield
    except LoadRefused:
        raise
    except Exception as error:
        raise LoadRefused(MissReason.LOAD_FAILED, told(error)) from error


def _unpickle(parts: Parts, arguments: tuple[Any, ...] | None) -> dict[str, Any]:
    standin.pin(parts.meta["classes"])
    state: dict[str, Any] = serialize.loads(parts.environment)
    if arguments is not None:
        state["descriptor"].argtypes = arguments
        state["signature"] = state["signature"].replace(args=arguments)
    return state


def _link(
    parts: Parts, state: dict[str, Any], own_globals: dict[str, Any] | None, bitcode: Callable[[], bytes]
) -> CompileResult:
    context = registry.cpu_target.target_context
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
    entry_point = _entry_point(context, library, descriptor, environment)
    for env in referenced:
        codegen.set_env(env.env_name, env)
    _insert_generator(context, state, library)
    return _result(
        context,
        state,
        library,
        metadata=from_plain(parts.meta.get("metadata", {})),
        entry_point=entry_point,
        environment=environment,
        referenced=referenced,
    )


def _entry_point(context: Any, library: LoadedLibrary, descriptor: Any, environment: Environment) -> Any:
    """What numba's `get_executable` makes, without its import of the defining module: see `unpack`."""
    address = library.get_pointer_to_function(descriptor.llvm_cpython_wrapper_name)
    if not address:  # a call would end the process
        raise LoadRefused(MissReason.SYMBOL_MISSING, descriptor.llvm_cpython_wrapper_name)
    module = sys.modules.get(descriptor.modname) or types.ModuleType(str(descriptor.modname))
    name = descriptor.qualname.split(".")[-1]
    entry_point = _dynfunc.make_function(
        module, name, f"compiled wrapper for {descriptor.qualname!r}", address, environment, (library,)
    )
    library.codegen.set_env(context.get_env_name(descriptor), environment)
    return entry_point


def _insert_generator(context: Any, state: dict[str, Any], library: LoadedLibrary) -> None:
    if state["generator"] is not None:
        generator_type, generator_descriptor = state["generator"]
        context.insert_generator(generator_type, generator_descriptor, [library])


def _result(
    context: Any,
    state: dict[str, Any],
    library: LoadedLibrary,
    *,
    metadata: dict[str, Any] | None,
    entry_point: Any,
    environment: Environment,
    referenced: list[Environment],
) -> CompileResult:
    return CompileResult(
        typing_context=context.typing_context,
        target_context=context,
        entry_point=entry_point,
        typing_error=None,
        type_annotation=state["annotation"],
        signature=state["signature"],
        objectmode=False,
        lifted=state["lifted"],
        fndesc=state["descriptor"],
        library=library,
        call_helper=None,
        environment=environment,
        metadata=metadata,
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


def _as_numpy_keeps_it(constant: Any) -> Any:
    """numpy's own dtype object for an unpickled copy: a returned array is compared with it, cheaply only if identical.

    A call that returned one of its arrays took 1.06 of numba's time with the copy (measured).
    """
    if isinstance(constant, numpy.dtype) and constant.names is None and constant == numpy.dtype(constant.type):
        return numpy.dtype(constant.type)
    return constant


def _bind(parts: tuple[str | None, list[Any], str], own_globals: dict[str, Any] | None) -> Environment:
    module_name, constants, name = parts
    known = lookup_environment(name)
    if known is not None:
        return known
    if own_globals is None:
        module = sys.modules.get(module_name or "")
        own_globals = {"__name__": module_name} if module is None else vars(module)
    environment = Environment(own_globals)
    environment.consts[:] = map(_as_numpy_keeps_it, constants)
    environment.env_name = name
    Environment._memo[name] = environment
    return environment
