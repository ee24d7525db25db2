"""Recognises numba's objects and takes them apart, one level at a time, into a tag and plain contents.

What comes out may hold further objects (functions, types): the walk in `farm.job.reach` takes those
apart in turn. Nothing here compiles, registers or imports anything. This module also answers the two
questions that a walk and a capture must answer alike: which distribution a module is installed from,
and by what name an object can be found again.
"""

import dis
import functools
import hashlib
import importlib.metadata
import importlib.util
import site
import sys
import sysconfig
import types as python_types
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

from llvmlite import ir
from numba.core import config, types
from numba.core import dispatcher as dispatchers
from numba.core import ir as numba_ir
from numba.core.ccallback import CFunc
from numba.core.datamodel import default_manager
from numba.core.extending import _Intrinsic
from numba.core.typing.templates import Signature
from numba.core.withcontexts import WithContext
from numba.experimental.jitclass.base import JitClassType
from numba.experimental.jitclass.boxing import _box
from numba.stencils.stencil import StencilFunc

Parts = tuple[str, tuple[object, ...]]

GLOBAL_OPERATIONS: Final = frozenset(
    {"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}
)
STUB_MARK: Final = "__farm_stub__"
OWN_DISTRIBUTION: Final = "farm"
BY_NAME_ONLY: Final = (StencilFunc, CFunc, JitClassType)


DispatcherParts = tuple[Any, dict[str, Any], dict[str, Any], str, tuple[Any, ...]]


def dispatcher_parts(obj: object) -> DispatcherParts | None:
    """(py_func, target options, locals, pipeline class as `module:qualname`, explicit signatures), or None.

    An explicit signature is (argument types, return type or None). Jitted callers choose among them alone.
    """
    if not isinstance(obj, dispatchers.Dispatcher):
        return None
    pipeline = obj._compiler.pipeline_class
    return (
        obj.py_func,
        dict(obj.targetoptions),
        dict(obj.locals),
        f"{pipeline.__module__}:{pipeline.__qualname__}",
        _explicit_signatures(obj),
    )


def _explicit_signatures(dispatcher: Any) -> tuple[Any, ...]:
    explicit = getattr(dispatcher, "explicit", None)  # the farm's own dispatchers know them while they are pending
    if explicit is None:
        results = () if dispatcher._can_compile else dispatcher.overloads.values()
        explicit = tuple((tuple(one.signature.args), one.signature.return_type) for one in results)
    return tuple(explicit)


def debug_by_default() -> bool:
    """Whether functions without an option `debug` are compiled with debug information (NUMBA_DEBUGINFO)."""
    return bool(config.DEBUGINFO_DEFAULT)


def pipeline_class(obj: Any) -> type:
    """The compiler pipeline class of a dispatcher."""
    found: type = obj._compiler.pipeline_class
    return found


def parts(obj: object) -> Parts | None:
    """The tag and contents of a numba object other than a dispatcher, or None if it is not numba's."""
    if isinstance(obj, types.Type):
        return type_parts(obj)
    if isinstance(obj, Signature):
        return "signature", (obj.return_type, tuple(obj.args))
    if isinstance(obj, _Intrinsic):
        return "intrinsic", (obj._name, obj._defn, bool(obj._prefer_literal), dict(obj._ctor_kwargs))
    if isinstance(obj, StencilFunc):
        return "stencil", (obj.kernel_ir.func_id.func, obj.mode, dict(obj.options), _frozen(obj.kernel_ir))
    if isinstance(obj, CFunc):
        compiler = obj._compiler
        return "cfunc", (obj._pyfunc, obj._sig, dict(compiler.targetoptions), dict(compiler.locals))
    if isinstance(obj, JitClassType):
        return "jitclass", (obj.class_type,)
    if isinstance(obj, (ir.Type, ir.Constant)):  # what intrinsics and lowerings keep in globals
        return f"llvm {type(obj).__qualname__}", (str(obj),)
    if isinstance(obj, WithContext):  # objmode and its kin: their class is all there is to them
        return "with context", (type(obj),)
    if obj is default_manager:  # what it holds are registrations
        return "data models", ()
    return None


def _frozen(kernel: Any) -> tuple[object, ...]:
    """The globals and constants that a stencil took over at its decoration, whatever they are now."""
    assigned = (one.value for block in kernel.blocks.values() for one in block.find_insts(numba_ir.Assign))
    return tuple(one.value for one in assigned if isinstance(one, (numba_ir.Global, numba_ir.FreeVar, numba_ir.Const)))


def runs_at_compile_time(obj: object) -> bool:
    """Whether numba runs code of the user when it compiles what names this object: an intrinsic, a type, a pipeline."""
    if isinstance(obj, _Intrinsic):
        return _is_users(obj._defn)
    if isinstance(obj, types.Type):
        return any(map(_is_users, type(obj).__mro__))
    return isinstance(obj, dispatchers.Dispatcher) and _is_users(pipeline_class(obj))


def _is_users(obj: object) -> bool:
    name = home(obj)
    held = sys.modules.get(name)
    return name != "builtins" and (held is None or installed(held) is None)


def own_attributes(obj: object) -> dict[str, object]:
    """What a user's type of numba holds beside the key that its equality depends on."""
    if not isinstance(obj, types.Type) or not runs_at_compile_time(obj):
        return {}
    return {name: value for name, value in vars(obj).items() if not name.startswith("_") and name != "name"}


def is_with_context(obj: object) -> bool:
    """Whether the object begins a block that numba compiles in its own way: objmode and its kin."""
    return isinstance(obj, WithContext)


def jitclass_of(kind: Any) -> Any | None:
    """The jitclass whose type this is, from the module that its methods were written in; None if it is not there."""
    functions = [method.py_func for method in kind.jit_methods.values()]
    module = sys.modules.get(functions[0].__module__) if functions else None
    held = () if module is None else tuple(vars(module).values())
    return next((one for one in held if isinstance(one, JitClassType) and one.class_type is kind), None)


def type_parts(kind: Any) -> Parts:
    """A numba type by its structure: its class, and what its equality depends on. Never an address."""
    tag = f"type {type(kind).__module__}:{type(kind).__qualname__}"
    if isinstance(kind, types.Dispatcher):
        return tag, (kind.dispatcher,)
    if isinstance(kind, types.Literal):
        return tag, (kind.literal_value,)
    if isinstance(kind, types.Omitted):
        return tag, (kind.value,)
    if isinstance(kind, types.ClassType):  # its key holds an address
        struct = tuple(kind.struct.items())
        members = (kind.jit_methods, kind.jit_props, kind.jit_static_methods)
        return tag, (kind.class_name, struct, *(tuple(sorted(one.items())) for one in members))
    if isinstance(kind, (types.ClassInstanceType, types.ClassDataType)):
        return tag, (kind.class_type,)
    if isinstance(kind, types.Module):
        return tag, (kind.pymod,)
    if isinstance(kind, types.ExternalFunction):
        return tag, (kind.symbol, kind.sig)
    if isinstance(kind, types.Function):
        return tag, (kind.typing_key,)
    return tag, (kind.key,)


def type_classes(obj: object) -> tuple[type, ...]:
    """The classes of a numba type, base classes included; empty for anything else."""
    return type(obj).__mro__ if isinstance(obj, types.Type) else ()


def external_symbols(obj: object) -> tuple[str, ...]:
    """The symbol that an ExternalFunction calls; empty for anything else."""
    return (obj.symbol,) if isinstance(obj, types.ExternalFunction) else ()


def is_intrinsic(obj: object) -> bool:
    """Whether the object is an intrinsic: it has no meaning in Python."""
    return isinstance(obj, _Intrinsic)


def is_jitclass_instance(obj: object) -> bool:
    """Whether the object is an instance of a jitclass: it lives at an address of this process."""
    return isinstance(obj, _box.Box)


@functools.lru_cache(maxsize=4096)
def global_names(code: python_types.CodeType) -> frozenset[str]:
    """Every global name that the code, or code nested in it, reads or writes."""
    found = {i.argval for one in nested_code(code) for i in instructions(one) if i.opname in GLOBAL_OPERATIONS}
    return frozenset(found)


@functools.lru_cache(maxsize=16)
def instructions(code: python_types.CodeType) -> tuple[dis.Instruction, ...]:
    """What Python runs. Whoever walks a function asks for these several times in a row, at 0.1 ms each (measured)."""
    return tuple(dis.get_instructions(code))


def own_names(function: object) -> frozenset[str]:
    """Names that the walk will find in any case: beginning with them saves most functions a second walk."""
    code = getattr(getattr(function, "py_func", function), "__code__", None)
    if not isinstance(code, python_types.CodeType):
        return frozenset()
    found: set[str] = set()
    for one in nested_code(code):
        found.update(one.co_names, (text for text in operations(one)[2] if type(text) is str))
    return frozenset(found)


@functools.lru_cache(maxsize=4096)
def operations(code: python_types.CodeType) -> tuple[bytes, tuple[int, ...], tuple[object, ...]]:
    """(bytecode without the numbers of constants, numbers in order of first use, the constants in that order).

    What no instruction loads is left out, as a docstring is: it moves the numbers of the others (a function that
    returns nothing loads None), and changes nothing that the function does.
    """
    raw, numbers, order = bytearray(code.co_code), list[int](), dict[int, int]()
    prefixes: list[int] = []
    for one in instructions(code):
        if one.opcode == dis.EXTENDED_ARG:
            prefixes.append(one.offset)
            continue
        if one.opcode in dis.hasconst and one.arg is not None:
            numbers.append(order.setdefault(one.arg, len(order)))
            for offset in (*prefixes, one.offset):
                raw[offset + 1] = 0
        prefixes.clear()
    return bytes(raw), tuple(numbers), tuple(code.co_consts[number] for number in order)


@functools.lru_cache(maxsize=4096)
def imports_inside(code: python_types.CodeType, package: str) -> frozenset[str]:
    """Names of the modules that the code, or code nested in it, imports when it runs."""
    found = set()
    for one in nested_code(code):
        known = instructions(one)
        for at, instruction in enumerate(known):
            if instruction.opname == "IMPORT_NAME":
                level = known[at - 2].argval if at > 1 else 0
                dots = "." * level if isinstance(level, int) else ""
                found.add(importlib.util.resolve_name(f"{dots}{instruction.argval}", package))
    return frozenset(found)


def nested_code(code: python_types.CodeType) -> Iterator[python_types.CodeType]:
    """The code object itself and all in its constants, recursively."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, python_types.CodeType):
            yield from nested_code(constant)


@functools.lru_cache(maxsize=4096)
def _versions(top: str) -> str | None:
    """`name==version` of the distributions that a top-level name is installed from, and a digest of their files.

    A version says little about a checkout that is installed again and again; what pip records of the files does.

    Most are called as their module is, and are found at once. Only for others is the metadata of everything that is
    installed read: 5 ms a distribution (measured), seconds in a large environment.
    """
    try:
        return _version(top)
    except importlib.metadata.PackageNotFoundError:
        names = sorted(set(_distributions().get(top, ())))
        return ",".join(map(_version, names)) or None


def _version(name: str) -> str:
    found = importlib.metadata.distribution(name)
    record = found.read_text("RECORD") or ""
    files = sorted(line for line in record.splitlines() if ".dist-info/" not in line and "__pycache__" not in line)
    return f"{name}=={found.version}+{hashlib.sha256(chr(10).join(files).encode()).hexdigest()[:16]}"


@functools.lru_cache(maxsize=1)
def _distributions() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


@functools.lru_cache(maxsize=1)
def _roots() -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """(directories that distributions are installed into, directories of the standard library)."""
    paths = sysconfig.get_paths()
    packages = {paths["purelib"], paths["platlib"], *site.getsitepackages(), site.getusersitepackages()}
    # `pip install --target`, PYTHONPATH, site.addsitedir: distributions lie wherever they are recorded.
    packages |= {path for path in sys.path if path and _records_distributions(Path(path))}
    library = {paths["stdlib"], paths["platstdlib"], *filter(None, [sysconfig.get_config_var("DESTSHARED")])}
    return tuple(Path(p).resolve() for p in sorted(packages)), tuple(Path(p).resolve() for p in sorted(library))


def _records_distributions(directory: Path) -> bool:
    try:
        return any(directory.glob("*.dist-info"))
    except OSError:  # somebody else's: nothing is imported from there
        return False


def installed(module: python_types.ModuleType) -> str | None:
    """`distribution==version` (or `python`) of an installed module; None for the user's own modules.

    A module counts by where its file lies, not by its name: an editable install changes without its
    version changing, so it is the user's.
    """
    if STUB_MARK in vars(module):
        return None
    return _installed(module.__name__, getattr(module, "__file__", None))


def distribution(module: str) -> str | None:
    """The top-level name of an imported module that belongs to an installed distribution; None for the user's."""
    held = sys.modules.get(module)
    return None if held is None or installed(held) is None else module.partition(".")[0]


def version(module: str) -> str:
    """The distribution and version that an imported module is installed from; empty for the user's."""
    held = sys.modules.get(module)
    return "" if held is None else installed(held) or ""


def version_if_imported(module: str) -> str | None:
    """What `installed` would say of a module that is not imported, from where its package lies. Imports nothing."""
    top = module.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    return None if spec is None else _installed(top, spec.origin if spec.has_location else None)


def home(obj: Any) -> str:
    """Name of the module that an object was defined in or that it is, `builtins` if it does not say."""
    name = obj.__name__ if isinstance(obj, python_types.ModuleType) else getattr(obj, "__module__", None)
    return name if isinstance(name, str) else "builtins"


@functools.lru_cache(maxsize=4096)
def _installed(name: str, file: str | None) -> str | None:
    top = name.partition(".")[0]
    if top == OWN_DISTRIBUTION:
        return OWN_DISTRIBUTION
    if not file:
        return "python" if top in sys.stdlib_module_names and top != "__main__" else None
    packages, library = _roots()
    path = Path(file).resolve()
    if any(root in path.parents for root in packages):
        return _versions(top)
    if top in sys.stdlib_module_names and any(root in path.parents for root in library):
        return "python"
    return None


def by_name(obj: Any) -> tuple[python_types.ModuleType, str] | None:
    """(module, qualified name) under which exactly this object is found, among imported modules; or None."""
    name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None)
    home = getattr(obj, "__module__", None)
    if isinstance(name, str) and isinstance(home, str):
        module = sys.modules.get(home)
        if module is not None and resolve(module, name) is obj:
            return module, name
    short = getattr(obj, "__name__", None)
    if isinstance(short, str) and callable(obj) and not isinstance(obj, (type, python_types.FunctionType)):
        # numpy.random.rand is a method of an object that has no name.
        for candidate in (home, "builtins", "numpy.random", "numpy", "math", "operator"):
            module = sys.modules.get(candidate) if isinstance(candidate, str) else None
            if module is not None and vars(module).get(short) is obj:
                return module, short
    return None


def resolve(module: python_types.ModuleType, qualname: str) -> object:
    """What the module holds under the qualified name, or None; nothing is imported."""
    found: Any = module
    for name in qualname.split("."):
        if name == "<locals>":
            return None
        found = vars(found).get(name) if isinstance(found, python_types.ModuleType) else getattr(found, name, None)
        if found is None:
            return None
    return found


def imported(name: str) -> python_types.ModuleType | None:
    """The module of that name if it is imported already."""
    return sys.modules.get(name)


def travels_as_standin(cls: type) -> bool:
    """Whether a worker gets a class of this kind as a stand-in, made of members and fields only."""
    return issubclass(cls, (Enum, BaseException)) or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
