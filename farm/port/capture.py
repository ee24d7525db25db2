"""A function as bytes: by value, with what it reaches, and back again in another process.

- The user's functions travel by value with only the globals they name, without annotations.
- Dispatchers, subclasses included, travel as (function, locals, options, pipeline class by name) and
  come back as LibraryDispatchers: nothing compiles at restore, and `cache=True` is gone.
- The user's modules come back as stubs that hold only the attributes the walk reached.
- Installed modules travel by name, as do their functions, classes and dispatchers.
- Enums, named tuples and exceptions of the user travel as stand-ins (`farm.port.standin`), if the front finds
  the identical class under its name: the artifact holds that name.
- Other classes of the user, stencils, cfuncs and jitclasses are imported by name, checked to be the identical
  object. Those of `__main__` are refused.

- What reaches a function that this thread is compiling at the moment does not travel: it is recursive.

Every failure is NotShippable. The bytes are for the wire and differ from process to process: they are
no key, and `restore` must only see bytes that this user's own processes made.
"""

import importlib
import io
import pickle
import sys
import threading
import types
from collections.abc import Mapping, Sequence
from typing import Any

import cloudpickle
import numpy
from cloudpickle import cloudpickle as parts_of_cloudpickle
from numba.core.caching import NullCache
from numba.core.compiler import CompilerBase
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic
from numba.core.registry import cpu_target
from numba.core.types import ClassType, ExternalFunction

from farm.errors import NotShippable, told
from farm.port import describe, places, standin
from farm.port.library import LibraryDispatcher
from farm.port.target import caller_flags
from farm.reasons import RefusalReason

_NAMED_IF_INSTALLED = (
    Dispatcher,
    _Intrinsic,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.BuiltinMethodType,
    type(numpy.random.rand),
    numpy.ufunc,
)
_state = threading.local()
"""`pending` while this thread restores: the dispatchers to initialise once all functions are complete."""

_alive: list[Any] = []
"""The dispatchers of the last restore: a dispatcher that is an argument is held weakly by its type."""


def dump(
    function: object,
    modules: Mapping[str, Mapping[str, object]] | None = None,
    imports: Sequence[str] = (),
    named: Sequence[object] = (),
) -> bytes:
    """The bytes of a function or dispatcher.

    Parameters
    ----------
    modules
        For each module of the user, the attributes its stub must hold (`farm.job.reach.Reached.modules`).
    imports
        Modules that `restore` imports first, so that their attributes and registrations are there.
    named
        Functions of the user that travel by name: numba extensions that an import registers are for these objects.

    Raises NotShippable.
    """
    stream = io.BytesIO()
    try:
        pickler = _Pickler(stream, modules or {}, named)
        pickler.dump(function)
    except NotShippable:
        raise
    except Exception as error:  # reducers are foreign code and raise anything
        name = getattr(function, "__qualname__", type(function).__name__)
        detail = f"{name}: {told(error)}"
        raise NotShippable(RefusalReason.NOT_PICKLABLE, detail) from error
    # Imported before anything is restored: a class that a real module holds needs no stand-in, and must not have one.
    first = (*imports, *sorted(pickler.imported.difference(imports)))
    return pickle.dumps((first, stream.getvalue(), sorted(pickler.homes)))


def restore(data: bytes) -> Any:
    """The function or dispatcher that `dump` was given. Raises NotShippable(RESTORE_FAILED).

    numba needs the defining modules in `sys.modules` (else recursion has unresolved symbols and the
    environment is recorded as dynamic): where one is not imported, an empty stub takes its name until
    the next restore. For worker processes only.
    """
    outer = getattr(_state, "pending", None)
    _state.pending = []
    standin.begin_job()
    places.begin_job()
    try:
        imports, body, homes = pickle.loads(data)
        for name in [name for name, module in list(sys.modules.items()) if _is_stub(module)]:
            del sys.modules[name]  # an import in this job must find the real module
        for name in imports:
            importlib.import_module(name)
        function = pickle.loads(body)
        for name in homes:
            sys.modules.setdefault(name, _make_stub(name))
        for shell, arguments in _state.pending:
            shell.__init__(*arguments)
        _alive[:] = [shell for shell, _ in _state.pending]
    except Exception as error:  # imports run the user's code
        raise NotShippable(RefusalReason.RESTORE_FAILED, told(error)) from error
    finally:
        _state.pending = outer
    if isinstance(function, Dispatcher) and not isinstance(function, LibraryDispatcher):
        function._cache = NullCache()
    return function


class _Pickler(cloudpickle.CloudPickler):
    """cloudpickle with its own rules for what the farm takes by value, by name and by stub."""

    def __init__(
        self, stream: io.BytesIO, modules: Mapping[str, Mapping[str, object]], named: Sequence[object]
    ) -> None:
        super().__init__(stream, protocol=pickle.HIGHEST_PROTOCOL)
        self._modules = modules
        self._compiling = _functions_being_compiled()
        self._named = frozenset(map(id, named))
        self.homes: set[str] = set()
        """Names of the modules that the functions taken by value were defined in."""
        self.imported: set[str] = set()
        """Names of the user's modules that hold something found by name."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.ModuleType):
            return self._reduce_module(obj)
        if isinstance(obj, describe.BY_NAME_ONLY):
            return self._reduce_named(obj)
        if isinstance(obj, type):
            return self._reduce_class(obj)
        if isinstance(obj, _NAMED_IF_INSTALLED):
            found = _by_installed_name(obj)
            if found is not None:
                return found
        if isinstance(obj, Dispatcher):
            return _reduce_dispatcher(obj)
        if isinstance(obj, _Intrinsic):
            return _make_intrinsic, (obj._name, obj._defn, obj._prefer_literal, dict(obj._ctor_kwargs))
        if isinstance(obj, ClassType):
            owner = describe.jitclass_of(obj)
            if owner is None:
                raise NotShippable(RefusalReason.CLASS_NOT_BY_NAME, f"jitclass {obj.class_name}")
            return getattr, (owner, "class_type")
        if isinstance(obj, ExternalFunction):
            return ExternalFunction, (obj.symbol, obj.sig)
        if id(obj) in self._named:
            return self._reduce_named(obj)
        if isinstance(obj, types.FunctionType):
            return self._reduce_function(obj)
        if isinstance(obj, types.CodeType):  # cloudpickle forgets the file, which errors and debug information name
            return _make_code, (*parts_of_cloudpickle._code_reduce(obj), obj.co_filename)
        if type(obj) is numpy.ndarray and not obj.flags.writeable:
            return _read_only, (obj.copy(order="K"),)
        return super().reducer_override(obj)

    def _reduce_module(self, module: types.ModuleType) -> Any:
        if describe.installed(module) is not None:
            return importlib.import_module, (module.__name__,)
        held = self._modules.get(module.__name__)
        if held is None:
            raise NotShippable(RefusalReason.NOT_PICKLABLE, f"module {module.__name__} was not walked")
        return _make_stub, (module.__name__,), dict(held), None, None, _fill_stub

    def _reduce_class(self, cls: type) -> Any:
        found = _by_installed_name(cls)
        if found is not None:
            return found
        if cls in parts_of_cloudpickle._BUILTIN_TYPE_NAMES or cls in (type(None), type(Ellipsis), type(NotImplemented)):
            return super().reducer_override(cls)
        if standin.has_standin(cls):
            if describe.by_name(cls) is None:
                raise NotShippable(RefusalReason.CLASS_NOT_BY_NAME, f"{cls.__module__}.{cls.__qualname__}")
            bases = tuple(map(_base, cls.__bases__))
            return _make_standin, (cls.__module__, cls.__qualname__, bases, standin.content(cls), standin.shape(cls))
        return self._reduce_named(cls)

    def _reduce_named(self, obj: Any) -> Any:
        found = describe.by_name(obj) or _held_by_its_module(obj)
        if found is None or found[0].__name__ == "__main__":
            text = f"{_home(obj)}.{getattr(obj, '__qualname__', type(obj).__name__)}"
            raise NotShippable(RefusalReason.CLASS_NOT_BY_NAME, text)
        self.imported.add(found[0].__name__)
        if isinstance(obj, type) and not isinstance(obj, describe.BY_NAME_ONLY):
            return NotImplemented
        return _find, (found[0].__name__, found[1])

    def _reduce_function(self, function: types.FunctionType) -> Any:
        if any(function is one for one in self._compiling):
            raise NotShippable(RefusalReason.UNRESOLVED_SYMBOLS, f"{function.__qualname__} is being compiled here")
        held = function.__globals__
        places.remember(function.__code__)
        if isinstance(function.__module__, str):
            self.homes.add(function.__module__)
        base = self.globals_ref.setdefault(id(held), {"__name__": held.get("__name__")})
        names = describe.global_names(function.__code__)
        closure = function.__closure__
        cells = None if closure is None else tuple(parts_of_cloudpickle._make_empty_cell() for _ in closure)
        slots: dict[str, Any] = {
            "__name__": function.__name__,
            "__qualname__": function.__qualname__,
            "__module__": function.__module__,
            "__defaults__": function.__defaults__,
            "__kwdefaults__": function.__kwdefaults__,
            "__closure__": closure,
            "__globals__": {name: held[name] for name in sorted(names) if name in held},
            "_cloudpickle_submodules": [],
        }
        kept = {name: value for name, value in function.__dict__.items() if name == "__wrapped__"}
        arguments = (function.__code__, base, None, None, cells)
        state = (kept, slots)
        return (
            parts_of_cloudpickle._make_function,
            arguments,
            state,
            None,
            None,
            _fill_function,
        )


def _functions_being_compiled() -> tuple[types.FunctionType, ...]:
    """The Python functions whose types this thread is inferring at the moment.

    What they call, and what reaches them again, is recursive: numba types it by the frames on its call stack, and a
    process without those frames infers something else, or fails ("runaway recursion").
    """
    if caller_flags() is None:  # the call stack is one for all threads, and another's
        return ()
    return tuple(frame.func_id.func for frame in cpu_target.typing_context.callstack)


def _reduce_dispatcher(dispatcher: Any) -> Any:
    pipeline = describe.pipeline_class(dispatcher)
    if "<locals>" in pipeline.__qualname__ or describe.by_name(pipeline) is None:
        raise NotShippable(RefusalReason.CLASS_NOT_BY_NAME, f"{pipeline.__module__}.{pipeline.__qualname__}")
    taken = describe.dispatcher_parts(dispatcher)
    assert taken is not None
    function, options, local_types, name, explicit = taken
    # A shell first: the function's globals may hold this dispatcher, and initialising reads the finished function.
    return _make_shell, (), (function, local_types, options, name, explicit), None, None, _fill_shell


def _by_installed_name(obj: Any) -> Any:
    """The reduction by name of an object that an installed module holds; None for all others."""
    found = describe.by_name(obj)
    if found is None or describe.installed(found[0]) is None:
        return None
    if isinstance(obj, (type, types.FunctionType)):
        return NotImplemented  # pickle's own way by name; `_find` itself has to go that way
    return _find, (found[0].__name__, found[1])


def _base(cls: type) -> Any:
    """A base of a class that travels as a stand-in: itself if it has a name, else what a nameless stand-in takes."""
    if describe.by_name(cls) is not None:
        return cls
    if not standin.has_standin(cls):
        raise NotShippable(RefusalReason.CLASS_NOT_BY_NAME, f"{cls.__module__}.{cls.__qualname__}")
    return cls.__module__, cls.__qualname__, tuple(map(_base, cls.__bases__)), standin.content(cls), None


def _make_standin(module: str, qualname: str, bases: tuple[Any, ...], parts: tuple[Any, ...], shape: Any) -> type:
    made = tuple(base if isinstance(base, type) else _make_standin(*base) for base in bases)
    return standin.make(module, qualname, made, parts, shape)


def _home(obj: Any) -> str:
    """The module that a class, or the function inside a stencil or a cfunc, was defined in."""
    taken = describe.parts(obj)
    inner = taken[1][0] if taken is not None and isinstance(taken[1][0], types.FunctionType) else obj
    return str(getattr(inner, "__module__", "?"))


def _held_by_its_module(obj: Any) -> tuple[types.ModuleType, str] | None:
    module = describe.imported(_home(obj))
    names = [] if module is None else sorted(name for name, held in vars(module).items() if held is obj)
    return (module, names[0]) if module is not None and names else None


def _find(module: str, qualname: str) -> Any:
    found = describe.resolve(importlib.import_module(module), qualname)
    if found is None:
        raise AttributeError(f"module {module} holds no {qualname}")
    return found


def _read_only(array: "numpy.ndarray[Any, Any]") -> "numpy.ndarray[Any, Any]":
    array.flags.writeable = False
    return array


def _is_stub(module: object) -> bool:
    return isinstance(module, types.ModuleType) and describe.STUB_MARK in vars(module)


def _make_stub(name: str) -> types.ModuleType:
    stub = types.ModuleType(name)
    vars(stub)[describe.STUB_MARK] = True
    return stub


def _fill_stub(stub: types.ModuleType, held: dict[str, object]) -> None:
    vars(stub).update(held)


def _make_code(make: Any, arguments: tuple[Any, ...], file: str) -> types.CodeType:
    code: types.CodeType = make(*arguments)
    return code.replace(co_filename=file)


def _fill_function(function: types.FunctionType, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    parts_of_cloudpickle._function_setstate(function, state)
    places.index(function.__code__)


def _make_intrinsic(name: str, definition: Any, prefer_literal: bool, options: dict[str, Any]) -> Any:
    made = _Intrinsic(name, definition, prefer_literal, **options)
    made._register()
    return made


def _make_shell() -> Any:
    return LibraryDispatcher.__new__(LibraryDispatcher)


def _fill_shell(shell: Any, state: describe.DispatcherParts) -> None:
    function, local_types, options, name, explicit = state
    module, _, qualname = name.partition(":")
    pipeline = _find(module, qualname)
    if not (isinstance(pipeline, type) and issubclass(pipeline, CompilerBase)):
        raise TypeError(f"{name} is no compiler pipeline")
    _state.pending.append((shell, (function, local_types, options, pipeline, explicit)))
