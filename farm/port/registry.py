"""Which numba extensions from outside numba this process has registered.

An `@overload`, a lowering, a type model or an unboxer registered by someone else can change what any
function compiles to, and a worker does not have it. This module finds them: a registration is foreign
if a function that implements it is defined outside the `numba` package.
"""

from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, Final

import numba
from numba.core import datamodel, imputils, pythonapi, types
from numba.core.typing import templates
from numba.core.typing.typeof import typeof_impl

NUMBA_DIRECTORY: Final = str(Path(numba.__file__).parent)

# How far the append-only lists were read, and what was found in them. Guarded by nothing: reading a list twice
# finds the same, and the dictionary update is one step under the interpreter's lock.
_read: dict[str, int] = {}
_found: dict[str, None] = {}


def foreign_registrations() -> tuple[str, ...]:
    """`module.function` of every implementation registered from outside numba, in order of registration."""
    for name, entries in _append_only_lists():
        start = _read.get(name, 0)
        for entry in entries[start:]:
            _found.update(dict.fromkeys(_origins(entry)))
        _read[name] = len(entries)
    for converters in (pythonapi._boxers, pythonapi._unboxers, pythonapi._reflectors):
        for function in converters.functions.values():
            _found.update(dict.fromkeys(_origins(function)))
    for implementation in (*typeof_impl.registry.values(), *datamodel.default_manager._handlers.values()):
        _found.update(dict.fromkeys(_origins(implementation)))
    return tuple(_found)


def _append_only_lists() -> Iterator[tuple[str, list[Any]]]:
    for registry, names in (
        (templates.builtin_registry, ("functions", "attributes", "globals")),
        (imputils.builtin_registry, ("functions", "getattrs", "setattrs", "casts", "constants")),
    ):
        for name in names:
            yield f"{type(registry).__module__}.{name}", getattr(registry, name)


def _origins(entry: Any) -> Iterator[str]:
    """The foreign functions and classes that implement a registration. What it is registered *for* does not count."""
    if isinstance(entry, tuple):
        implementation, kind = entry[0], entry[1]
        if isinstance(kind, types.Type):  # a global: (value, type of the value)
            for template in getattr(kind, "templates", ()):
                yield from _origins(template)
        else:  # a lowering: (implementation, key, signature)
            yield from _origins(implementation)
    elif isinstance(entry, FunctionType):
        yield from _foreign(entry)
    elif isinstance(entry, type):
        # Templates that numba makes with type() say "abc" is their module.
        if entry.__module__ != "abc" and entry.__module__.split(".")[0] != "numba":
            yield f"{entry.__module__}.{entry.__qualname__}"
        for name, value in list(vars(entry).items()):
            function = getattr(value, "__func__", value)
            if name != "key" and isinstance(function, FunctionType):
                yield from _foreign(function)


def _foreign(function: FunctionType) -> Iterator[str]:
    if not _is_numbas(function):
        yield f"{function.__module__}.{function.__qualname__}"
        return
    for cell in function.__closure__ or ():
        try:
            held = cell.cell_contents
        except ValueError:  # an empty cell
            continue
        if isinstance(held, FunctionType) and not _is_numbas(held):
            yield f"{held.__module__}.{held.__qualname__}"


def _is_numbas(function: FunctionType) -> bool:
    filename = function.__code__.co_filename
    return filename.startswith(NUMBA_DIRECTORY) or (function.__module__ or "").split(".")[0] == "numba"
