"""The numba extensions that others registered in this process, each as a value.

An `@overload`, a lowering, a type model or an unboxer registered outside numba can change what a function compiles
to, and a worker does not have it. A registration is foreign if a function that implements it, or an object or type
that it is for, is defined outside numba, numpy and the standard library.

numba's lists only grow, so each is read from where the last reading ended: 0.03 ms when nothing is new (measured).
Not looked at: the extension dictionaries of parfors and of the IR passes, which no public function fills.
"""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

import numba
from numba.core import datamodel, entrypoints, imputils, pythonapi, registry, types
from numba.core.extending import _Intrinsic
from numba.core.rewrites import rewrite_registry
from numba.core.typing import templates
from numba.core.typing.asnumbatype import as_numba_type
from numba.core.typing.typeof import typeof_impl
from numba.experimental.jitclass.base import JitClassType

from farm.port import describe

NUMBA_DIRECTORY: Final = str(Path(numba.__file__).parent)
OURS: Final = frozenset({"numba", "_box", "_nrt_python", "llvmlite", "numpy", "farm"}) | sys.stdlib_module_names
"""Top-level names whose objects any function may reach without naming them. Two are C modules of numba."""
LISTS: Final = ("functions", "attributes", "globals", "getattrs", "setattrs", "casts", "constants")
CACHES: Final = frozenset({"_impl_cache", "_compiled_overloads", "_inline_overloads", "_overload_cache", "key"})


class Kind(Enum):
    """How something was registered. The first three can be registered again from their content."""

    OVERLOAD = "overload"
    ATTRIBUTE = "overload_attribute"
    METHOD = "overload_method"
    OTHER = "other"


TEMPLATES: Final = {
    templates._OverloadFunctionTemplate: Kind.OVERLOAD,
    templates._OverloadAttributeTemplate: Kind.ATTRIBUTE,
    templates._OverloadMethodTemplate: Kind.METHOD,
}


@dataclass(frozen=True, slots=True, eq=False)
class Registration:
    """One foreign registration.

    Parameters
    ----------
    kind, how
        Which of the kinds, and the list or the decorator.
    name
        `module.function` of what implements it, for people.
    home
        The module to import so that it is there: `__main__` before a user's module before an installed one, where
        several take part. Empty if there is none: what made it was itself made by `exec`.
    group
        Equal for registrations between which numba chooses by their order.
    subjects
        The foreign objects and type classes that it is for. Empty: any function may reach it.
    content
        Everything it is made of, for a description and, but for Kind.OTHER, for `repeat`.
    """

    kind: Kind
    how: str
    name: str
    home: str
    group: tuple[object, ...]
    subjects: tuple[object, ...]
    content: tuple[object, ...]

    @property
    def python_function(self) -> FunctionType | None:
        """The Python function that this overload replaces by something else, if it does."""
        if self.kind is not Kind.OVERLOAD or not self.subjects or not isinstance(self.content[0], FunctionType):
            return None
        return None if self.is_itself else self.content[0]

    @property
    def is_itself(self) -> bool:
        """Whether it overloads a function by that function, as register_jitable does."""
        if self.kind is not Kind.OVERLOAD:
            return False
        implementation: Any = self.content[1]
        return bool(implementation.__module__ == "numba.core.extending" and implementation.__name__ == "ov_wrap")

    @property
    def attribute(self) -> str | None:
        """The attribute or method that any object may have by this registration, if it is one of that kind."""
        return str(self.content[2]) if self.kind in (Kind.ATTRIBUTE, Kind.METHOD) and not self.subjects else None


@dataclass(slots=True)
class _Readings:
    """How far each list was read, and what was found. No lock: what two threads read at once they put into the same
    places of `found`."""

    registries: dict[int, Any] = field(default_factory=dict)
    modules: int = 0
    read: dict[tuple[int, str], int] = field(default_factory=dict)
    tables: dict[str, dict[Any, Any]] = field(default_factory=dict)
    templates: set[object] = field(default_factory=set)
    found: dict[tuple[str, int], Registration] = field(default_factory=dict)


_readings = _Readings()


def read_anew() -> None:
    """Forget what was read: modules have another name now."""
    global _readings
    _readings = _Readings()


def registrations() -> tuple[Registration, ...]:
    """All foreign registrations; those of one group in order of registration."""
    entrypoints.init_all()  # numba does so before its first compile: what these register must be seen before it too
    _find_registries()
    for one in list(_readings.registries.values()):
        for name in LISTS:
            entries = getattr(one, name, None)
            if isinstance(entries, list) and len(entries) != _readings.read.get((id(one), name), 0):
                _read_list(one, name, entries)
    for name, held in _tables():
        before = _readings.tables.get(name, {})
        if held != before:
            _readings.tables[name] = held
            for key, value in held.items():
                if before.get(key) is not value:
                    _note((name, id(key)), name, value, (None if key is value else key,))
    return tuple(_readings.found.values())


def _find_registries() -> None:
    """Every registry object that a module of numba holds or a context has installed."""
    known = _readings.registries
    kinds = (templates.Registry, imputils.Registry)
    if len(sys.modules) != _readings.modules:
        _readings.modules = len(sys.modules)
        for name, module in list(sys.modules.items()):
            if name.startswith("numba.") and isinstance(module, ModuleType):
                known.update((id(one), one) for one in list(vars(module).values()) if isinstance(one, kinds))
    target = registry.cpu_target
    for context in (target.typing_context, target.target_context):
        known.update((id(one), one) for one in list(context._registries))


def _tables() -> Iterator[tuple[str, dict[Any, Any]]]:
    """Copies of the registries that are dictionaries: an entry there can be replaced."""
    yield "box", dict(pythonapi._boxers.functions)
    yield "unbox", dict(pythonapi._unboxers.functions)
    yield "reflect", dict(pythonapi._reflectors.functions)
    yield "register_model", dict(datamodel.default_manager._handlers)
    yield "typeof_impl", dict(typeof_impl.registry)
    yield "as_numba_type", {key: kind for key, kind in as_numba_type.lookup.items() if type(key) is not JitClassType}
    yield "as_numba_type function", {one: one for one in as_numba_type.functions}
    yield "rewrite", {one: one for kind in list(rewrite_registry.rewrites.values()) for one in kind}


def _read_list(owner: Any, name: str, entries: list[Any]) -> None:
    start = _readings.read.get((id(owner), name), 0)
    end = len(entries)
    for position in range(start, end):
        _read_entry((f"{id(owner)}.{name}", position), name, entries[position])
    _readings.read[id(owner), name] = end


def _read_entry(place: tuple[str, int], name: str, entry: Any) -> None:
    if isinstance(entry, type):  # a template
        _readings.templates.add(entry)
        _note(place, name, entry, (getattr(entry, "key", None),))
    elif name == "globals":  # (value, type of the value): the same template as in `functions`, or one of its own
        value, kind = entry
        for template in getattr(kind, "templates", ()):
            if template not in _readings.templates:
                _note(place, name, template, (value,))
    elif name in ("getattrs", "setattrs"):  # (implementation, attribute, (type,))
        _note(place, f"lower_{name[:-1]}", entry[0], (*entry[2], entry[1]))
    elif name == "functions":  # (implementation, function, argument types)
        if entry[0] is not entry[1]:  # else made by typing an intrinsic
            _note(place, "lower_builtin", entry[0], (entry[1], *entry[2]))
    else:  # (implementation, types)
        _note(place, f"lower_{name[:-1]}", entry[0], tuple(entry[1]))


def _note(place: tuple[str, int], how: str, implementation: Any, purposes: tuple[Any, ...]) -> None:
    """Record a registration if it is foreign."""
    if isinstance(purposes[0], _Intrinsic):
        return  # whoever reaches an intrinsic reaches all of it, and a capture carries it
    functions = tuple(_implementing(implementation))
    if any("_init_once" in one.__qualname__ and one.__module__ == templates.__name__ for one in functions):
        return  # what a context derives from an @overload_attribute or @overload_method
    foreign: list[Any] = [one for one in functions if not _is_numbas(one)]
    subjects = tuple(one for purpose in purposes for one in _foreign_parts(purpose))
    if isinstance(implementation, type) and not _is_numbas(implementation) and implementation.__module__ != "abc":
        foreign.append(implementation)
    if not foreign and not subjects:
        return
    home = max((describe.home(one) for one in (*foreign, *subjects)), key=_closeness)
    if _closeness(home) == 0:
        home = ""
    kind = TEMPLATES.get(implementation.__base__, Kind.OTHER) if isinstance(implementation, type) else Kind.OTHER
    content = _content(kind, implementation, purposes)
    first = (foreign or subjects)[0]
    name = f"{getattr(first, '__module__', home)}.{getattr(first, '__qualname__', type(first).__name__)}"
    group = (how, *(one if isinstance(one, str) else id(one) for one in purposes))
    _readings.found[place] = Registration(kind, how, name, home, group, subjects, content)


def _content(kind: Kind, implementation: Any, purposes: tuple[Any, ...]) -> tuple[object, ...]:
    if kind is Kind.OTHER:
        return (*purposes, *_members(implementation))
    inline = implementation._inline._inline
    more = (inline, bool(implementation.prefer_literal), dict(implementation.metadata))
    if kind is Kind.OVERLOAD:
        options = dict(implementation._jit_options)
        return (implementation.key, implementation._overload_func, options, bool(implementation._strict), *more)
    return (implementation.key, implementation._overload_func, implementation._attr, *more)


def _members(implementation: Any) -> tuple[object, ...]:
    if not isinstance(implementation, type):
        return (implementation,)
    classes = [cls for cls in reversed(implementation.__mro__) if not _is_numbas(cls) and cls is not object]
    whole = {name: value for cls in (*classes, implementation) for name, value in vars(cls).items()}
    held = sorted((name, value) for name, value in whole.items() if name not in CACHES)
    held = [(name, getattr(value, "__func__", value)) for name, value in held if not name.startswith("__")]
    start = whole.get("__init__")
    return (*held, *((start,) if isinstance(start, FunctionType) else ()))


def repeat(kind: str, content: tuple[Any, ...]) -> None:
    """Make a registration again from what it is made of; `kind` is the value of a Kind other than OTHER."""
    if kind == Kind.OVERLOAD.value:
        subject, implementation, options, strict, inline, literal, more = content
        made = templates.make_overload_template(subject, implementation, options, strict, inline, literal, **more)
        templates.infer(made)
        if callable(subject):
            templates.infer_global(subject, types.Function(made))
        return
    subject, implementation, attribute, inline, literal, more = content
    make: Callable[..., Any] = templates.make_overload_attribute_template
    if kind == Kind.METHOD.value:
        make = templates.make_overload_method_template
    templates.infer_getattr(make(subject, attribute, implementation, inline=inline, prefer_literal=literal, **more))


def _implementing(implementation: Any) -> Iterator[FunctionType]:
    """The functions that an implementation consists of, and those that numba wrapped in them."""
    if isinstance(implementation, type):
        for name, value in list(vars(implementation).items()):
            function = getattr(value, "__func__", value)
            if name not in CACHES and isinstance(function, FunctionType):
                yield from _implementing(function)
    elif isinstance(implementation, FunctionType):
        yield implementation
        if _is_numbas(implementation):
            for cell in implementation.__closure__ or ():
                try:
                    held = cell.cell_contents
                except ValueError:  # an empty cell
                    continue
                if isinstance(held, FunctionType):
                    yield held


def _is_numbas(implementation: Any) -> bool:
    code = getattr(implementation, "__code__", None)
    if code is not None and code.co_filename.startswith(NUMBA_DIRECTORY + os.sep):
        return True
    return (implementation.__module__ or "").partition(".")[0] == "numba"


def _foreign_parts(purpose: Any) -> Iterator[object]:
    """The objects and type classes among what a registration is for that belong to the user or another library."""
    if isinstance(purpose, types.TypeRef):
        purpose = purpose.instance_type
    if isinstance(purpose, types.Module):
        purpose = purpose.pymod
    if isinstance(purpose, tuple):  # (type, method name)
        for one in purpose:
            yield from _foreign_parts(one)
    elif isinstance(purpose, types.Type):
        yield from _foreign_parts(type(purpose))
    elif (isinstance(purpose, ModuleType) or callable(purpose)) and describe.home(purpose).partition(".")[
        0
    ] not in OURS:
        yield purpose


def _closeness(module: str) -> int:
    """How far from importing numba alone a module is: what needs several modules needs the one that needs the rest."""
    if module == "__main__":
        return 3
    if module.partition(".")[0] in OURS:
        return 0
    return 2 if describe.distribution(module) is None else 1
