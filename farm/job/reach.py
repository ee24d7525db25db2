"""The walk: everything a function reaches that can change its machine code, as one encodable description.

The description is computed in the front from the original and in the worker from the restored copy,
and the two must be equal. So it holds content only: no file and no line (unless something reached has
`debug=True`), no address, no user module's name. What is reached twice is described once and then
referred to by its visiting index, which is deterministic because names are visited in sorted order.

Modules are described by attributes. `m = cfg; m.GAIN` and `getattr(cfg, "GAIN")` are compile-time
constants to numba, so following attribute chains is not enough: for each reachable module every name
and every string constant of all reachable code counts, repeated until no new name turns up.

numba extensions registered outside numba belong to what is reached: those on numba's, numpy's or built-in objects
always, others if the walk meets an object or type they are for. What they consist of is walked in turn, so the walk
repeats until neither names nor registrations are added. An installed distribution's count by name and version, and
all of them if one does.

Where code of the user runs at compile time (in an overload, an intrinsic, a type, a pass), everything counts that such
code can see of classes and functions: `farm.job.classes`. Elsewhere of a class counts what machine code sees.

Raises NotShippable, naming the global, for what has no stable content or cannot travel.
"""

import builtins
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import numpy

from farm.errors import NotShippable
from farm.job.canonical import encode
from farm.job.classes import NAMES_IGNORED, attributes
from farm.port import describe, standin
from farm.port.registry import Registration, registrations
from farm.reasons import RefusalReason

ARRAY_BYTES_MAX: Final = 10**6
"""numba's own limit (`make_constant_array`): larger global arrays are compiled in by address."""

MODULE_NAMES_IGNORED: Final = frozenset(
    {"__builtins__", "__cached__", "__dict__", "__loader__", "__path__", "__spec__"}
    | {"__annotations__", describe.STUB_MARK}
)
PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), range, numpy.generic, numpy.dtype)
HAS_DOCSTRING: Final = 0x4000000
SCALARS: Final = (bool, int, float, complex, str, bytes, type(None))
Node = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Reached:
    """What a walk found.

    Parameters
    ----------
    description
        Canonical bytes; two functions with equal descriptions compile to the same code.
    values
        The same for what was walked beside the function: a signature.
    extensions
        The same for `registrations`.
    modules
        For each reachable module of the user, the attributes that a stub of it must hold.
    imports
        Names of the installed modules that were reached, sorted.
    registrations
        The foreign numba extensions that can change the code.
    symbols
        Names of the external functions that the code calls.
    """

    description: bytes
    values: bytes
    extensions: bytes
    modules: Mapping[str, Mapping[str, object]]
    imports: tuple[str, ...]
    registrations: tuple[Registration, ...]
    symbols: tuple[str, ...]


def reach(function: object, values: tuple[object, ...] = ()) -> Reached:
    """Walk everything that a function or a dispatcher reaches, and with it a signature's types or the like."""
    known = registrations()
    names = describe.own_names(function)
    entered: tuple[Registration, ...] = ()
    positions, in_module, whole = describe.debug_by_default(), False, False
    while True:
        walk = _Walk(names, positions, in_module, whole)
        node = walk.part(function, getattr(function, "__qualname__", "function"))
        beside = walk.part(values, "signature")
        extensions = walk.extensions(entered)
        more = tuple(one for one in known if walk.enters(one))
        settled = walk.positions is positions and walk.in_module is in_module and walk.whole is whole
        if len(more) == len(entered) and settled and not walk.would_see_more():
            return Reached(
                encode(node),
                encode(beside),
                encode(extensions),
                walk.modules,
                tuple(sorted(walk.imports)),
                entered,
                tuple(sorted(walk.symbols)),
            )
        names, entered = names | walk.found, more
        positions, in_module, whole = walk.positions, walk.in_module, walk.whole


def describe_values(values: tuple[object, ...]) -> bytes:
    """The canonical bytes of values that may hold numba types, functions and dispatchers, without extensions."""
    names: frozenset[str] = frozenset()
    while True:
        walk = _Walk(names)
        node = walk.part(values, "value")
        if not walk.would_see_more():
            return encode(node)
        names |= walk.found


@dataclass(slots=True)
class _Walk:
    names: frozenset[str]
    """The names that count as attributes of reachable modules."""
    positions: bool = False
    """Whether files and lines count: machine code made with `debug=True` holds them. Turns true where that is met."""
    in_module: bool = False
    """Whether functions' modules count: object mode blocks look globals up there. Turns true like `positions`."""
    whole: bool = False
    """Whether everything counts that Python code can see of classes and functions: code of the user runs at compile
    time. Turns true like `positions`."""
    found: set[str] = field(default_factory=set)
    modules: dict[str, dict[str, object]] = field(default_factory=dict)
    imports: set[str] = field(default_factory=set)
    symbols: set[str] = field(default_factory=set)
    classes: dict[int, int] = field(default_factory=dict)
    """id -> index of the classes of the user, in the order in which they were described."""
    visited: dict[int, int] = field(default_factory=dict)
    """id -> visiting index in the part that is walked."""
    reached: dict[int, object] = field(default_factory=dict)
    """id -> the object, kept alive so that its id is not used again; of all parts."""
    distributions: set[str] = field(default_factory=set)
    """Top-level names of what was reached in installed distributions."""
    asked: dict[int, types.ModuleType] = field(default_factory=dict)
    """id -> the modules of which the names that count were taken."""

    def part(self, value: object, path: str) -> Node:
        """A node whose references stay inside it, so that parts of a key change one by one."""
        self.visited.clear()
        return self.node(value, path)

    def would_see_more(self) -> bool:
        """Whether a walk that counts the names found in this one as well could come out in another way.

        Names say which attributes of a module count: of an installed one modules, variables and with contexts. Most
        functions find `float64` in their signature, and numpy's is none of these. So most are walked once.
        """
        more = self.found - self.names
        return any(
            describe.installed(module) is None or self._leads_on(vars(module)[name])
            for module in self.asked.values()
            for name in (more & vars(module).keys()) - MODULE_NAMES_IGNORED
        )

    def _leads_on(self, value: object) -> bool:
        return isinstance(value, types.ModuleType) or describe.is_with_context(value) or self._is_variable(value)

    def enters(self, one: Registration) -> bool:
        """Whether what was walked reaches an extension."""
        if not one.subjects or describe.distribution(one.home) in self.distributions:
            return True
        return any(
            id(subject) in self.reached or describe.distribution(describe.home(subject)) in self.distributions
            for subject in one.subjects
        )

    def extensions(self, entered: tuple[Registration, ...]) -> Node:
        """Extensions in an order that does not depend on when each module was imported.

        numba chooses between registrations of one group by their order, so the place in the group counts.
        """
        installed: set[tuple[str, str]] = set()
        places: dict[tuple[object, ...], int] = {}
        others = []
        self.visited.clear()
        for one in entered:
            distribution = describe.distribution(one.home)
            if distribution is not None:
                self.distributions.add(distribution)
                installed.add((one.home, describe.version(one.home)))
                continue
            self.whole = self.whole or not one.is_itself
            place = places[one.group] = places.get(one.group, -1) + 1
            others.append((one.name, one.how, place, one))
        others.sort(key=lambda entry: entry[:3])
        return (
            "extensions",
            tuple(sorted(installed)),
            tuple((one.kind.value, how, place, self._extension(one)) for _, how, place, one in others),
        )

    def _extension(self, one: Registration) -> Node:
        try:
            return self.node(one.content, one.name)
        except NotShippable as error:
            raise NotShippable(RefusalReason.EXTENSION_NOT_SHIPPABLE, f"{one.name}: {error.detail}") from error

    def node(self, value: Any, path: str) -> Node:
        if isinstance(value, Enum):
            return ("enum", self._class(type(value), path), value.name)
        if type(value) in PLAIN or isinstance(value, PLAIN[-2:]):
            if type(value) is str:  # a constant, or a global or cell: each can be the name in a getattr
                self.found.add(value)
            return ("plain", self._encoded(value, path))
        if isinstance(value, numpy.ndarray):
            return self._array(value, path)
        if isinstance(value, tuple):
            return self._tuple(value, path)
        if type(value) in (set, frozenset):
            members = sorted(encode(self.node(one, path)) for one in value)
            return (type(value).__name__, tuple(members))
        if type(value) is slice:
            return ("slice", self.node((value.start, value.stop, value.step), path))
        index = self.visited.get(id(value))
        if index is not None:
            return ("again", index)
        self.visited[id(value)] = len(self.visited)
        self.reached[id(value)] = value
        return self._object(value, path)

    def _object(self, value: Any, path: str) -> Node:
        if type(value) is list:
            return ("list", tuple(self.node(one, f"{path}[{i}]") for i, one in enumerate(value)))
        if isinstance(value, dict):  # in its own order, which compile-time code can see
            return ("dict", tuple((self.node(key, path), self.node(value[key], f"{path}[{key!r}]")) for key in value))
        self.whole = self.whole or describe.runs_at_compile_time(value)
        parts = describe.dispatcher_parts(value)
        if parts is not None:
            function, options, local_types, pipeline, explicit = parts
            self.positions = self.positions or bool(options.get("debug"))
            return (
                "dispatcher",
                pipeline,
                self._class(describe.pipeline_class(value), path),
                self.node(function, path),
                self._dict(options, path),
                self._dict(local_types, path),
                self.node(explicit, path),
            )
        taken = describe.parts(value)
        if taken is not None:
            self.reached.update((id(cls), cls) for cls in describe.type_classes(value))
            self.symbols.update(describe.external_symbols(value))
            kinds = tuple(self._class(cls, path) for cls in describe.type_classes(value) if "<locals>" not in str(cls))
            self.in_module = self.in_module or taken[0] == "with context"
            return (taken[0], self.node(taken[1], path), kinds, self._dict(describe.own_attributes(value), path))
        if isinstance(value, types.ModuleType):
            return self._module(value, path)
        if isinstance(value, type):
            return self._class(value, path)
        named = self._named(value)
        if named is not None:
            return named
        if isinstance(value, types.FunctionType):
            return self._function(value, path)
        kind = "a jitclass instance" if describe.is_jitclass_instance(value) else f"a {_kind(value)} object"
        raise NotShippable(RefusalReason.UNKEYABLE, f"{path} is {kind}")

    def _encoded(self, value: object, path: str) -> bytes:
        try:
            return encode(value)
        except NotShippable as error:
            raise NotShippable(error.reason, f"{path} is {error.detail}") from None

    def _array(self, value: Any, path: str) -> Node:
        if type(value) is not numpy.ndarray:
            raise NotShippable(RefusalReason.UNKEYABLE, f"{path} is a {_kind(value)} object")
        if value.nbytes > ARRAY_BYTES_MAX:
            raise NotShippable(RefusalReason.ARRAY_TOO_LARGE, f"{path} has {value.nbytes} bytes")
        if not (value.flags.c_contiguous or value.flags.f_contiguous):
            raise NotShippable(RefusalReason.DYNAMIC_GLOBALS, f"{path} is an array that is not contiguous")
        return ("array", self._encoded(value, path))

    def _tuple(self, value: tuple[Any, ...], path: str) -> Node:
        items = tuple(self.node(one, f"{path}[{i}]") for i, one in enumerate(value))
        if type(value) is tuple:
            return ("tuple", items)
        return ("named tuple", self._class(type(value), path), items)

    def _dict(self, value: dict[Any, Any], path: str) -> Node:
        """Options: in which order they were written does not count."""
        order = sorted(value, key=lambda key: self._order(key, path))
        return ("options", tuple((self.node(key, path), self.node(value[key], f"{path}[{key!r}]")) for key in order))

    def _order(self, key: object, path: str) -> bytes:
        try:
            return encode(key)
        except NotShippable:
            return encode(_Walk(self.names, self.positions).node(key, path))

    def _named(self, value: Any) -> Node | None:
        found = describe.by_name(value)
        if found is None:
            return None
        module, name = found
        version = describe.installed(module)
        if version is None:
            return None
        self._touch(module)
        return ("named", module.__name__, name, version)

    def _touch(self, module: types.ModuleType) -> None:
        distribution = describe.distribution(module.__name__)
        if distribution is not None:
            self.distributions.add(distribution)

    def _class(self, value: type, path: str) -> Node:
        self.reached[id(value)] = value
        named = self._named(value)
        if named is not None:
            return named
        again = self.classes.get(id(value))
        if again is not None:
            return ("class again", again)
        self.classes[id(value)] = len(self.classes)
        if "<locals>" in value.__qualname__:
            raise NotShippable(RefusalReason.CLASS_NOT_BY_NAME, f"{path} is {value.__module__}.{value.__qualname__}")
        bases = tuple(self._class(base, path) for base in value.__bases__)
        content: Node = ()
        stands_in = describe.travels_as_standin(value)
        more = (standin.additions(value) if stands_in else vars(value)) if self.whole else {}
        if more:
            if value.__module__ == "__main__":
                detail = f"{path} is __main__.{value.__qualname__}, which code that runs at compile time can look into"
                raise NotShippable(RefusalReason.CLASS_NOT_BY_NAME, detail)
            self.imports.add(value.__module__)  # so that the worker has the class itself
            content = (self._class(type(value), path), *attributes(more, path, self.node))
        if issubclass(value, Enum):
            members = value.__members__.items()
            content += tuple((name, self.node(member.value, f"{path}.{name}")) for name, member in members)
        elif hasattr(value, "_fields"):
            content += (self.node(tuple(value._fields), path), len(getattr(value, "_field_defaults", ())))
        elif not stands_in and not more:  # then the worker imports it, and finds what is compared here
            held = sorted((name, one) for name, one in vars(value).items() if name not in NAMES_IGNORED)
            content = tuple((name, self._class_attribute(one, f"{path}.{name}")) for name, one in held)
        return ("class", value.__module__, value.__qualname__, bases, content)

    def _class_attribute(self, value: Any, path: str) -> Node:
        """What compile-time code can read of a class. Of a method only its code counts: what it reaches is Python's."""
        function = getattr(value, "__func__", getattr(value, "fget", value))
        if isinstance(function, types.FunctionType):
            return ("method", self._code(function.__code__, path))
        if describe.dispatcher_parts(value) is None and not isinstance(value, (*PLAIN, tuple, Enum, numpy.ndarray)):
            return ("attribute", _kind(value))
        return self.node(value, path)

    def _module(self, module: types.ModuleType, path: str) -> Node:
        version = describe.installed(module)
        held = vars(module)
        self.asked[id(module)] = module
        # A module's `__getattr__` answers for names that it does not hold.
        wanted = sorted((self.names | {"__getattr__"}) & held.keys() - MODULE_NAMES_IGNORED)
        if version is None:
            kept = self.modules.setdefault(module.__name__, {})
            kept.update((name, held[name]) for name in wanted)
            return ("module", tuple((name, self.node(held[name], f"{path}.{name}")) for name in wanted))
        self.imports.add(module.__name__)
        self._touch(module)
        # The version stands for an installed module's functions and classes; its variables can be assigned.
        entries = []
        for name in wanted:
            value = held[name]
            self.in_module = self.in_module or describe.is_with_context(value)
            if not name.startswith("__") and self._is_variable(value):
                entries.append((name, self.node(value, f"{path}.{name}")))
        return ("installed", module.__name__, version, tuple(entries))

    def _is_variable(self, value: object) -> bool:
        if isinstance(value, types.ModuleType):  # a part of another module that may hold variables
            return id(value) not in self.visited and self._holds_variables(value, set())
        if isinstance(value, numpy.ndarray):
            return type(value) is numpy.ndarray and not value.dtype.hasobject and value.nbytes <= ARRAY_BYTES_MAX
        if isinstance(value, tuple):
            return type(value) is tuple and all(map(self._is_variable, value))
        if isinstance(value, (Enum, numpy.dtype)):
            return True
        return (
            type(value) in SCALARS or isinstance(value, numpy.generic) or describe.dispatcher_parts(value) is not None
        )

    def _holds_variables(self, module: types.ModuleType, seen: set[int]) -> bool:
        """Whether the names that count lead from an installed module to a variable, or to a module of the user."""
        if id(module) in seen:
            return False
        seen.add(id(module))
        self.asked[id(module)] = module
        if describe.installed(module) is None:
            return True
        held = vars(module)
        values = [held[name] for name in self.names & held.keys() if not name.startswith("__")]
        submodules = [one for one in values if isinstance(one, types.ModuleType)]
        others = (one for one in values if not isinstance(one, types.ModuleType))
        return any(map(self._is_variable, others)) or any(self._holds_variables(one, seen) for one in submodules)

    def _function(self, function: types.FunctionType, path: str) -> Node:
        code = function.__code__
        self._collect(code)
        cells = tuple(
            self._cell(name, cell, path)
            for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True)
        )
        return (
            "function",
            function.__name__,
            function.__module__ if self.in_module else None,
            self._code(code, path),
            self.node(function.__defaults__, f"{path} defaults"),
            self.node(function.__kwdefaults__, f"{path} keyword defaults"),
            cells,
            tuple((name, self._global(function, name)) for name in sorted(describe.global_names(code))),
            self.node(function.__dict__.get("__wrapped__"), path),
            self._also_seen(function, path) if self.whole else (),
        )

    def _also_seen(self, function: types.FunctionType, path: str) -> Node:
        """What code that runs at compile time can reach by a function beside its globals: attributes and imports.

        Attributes travel with a module only: by value, the worker finds the key to be another one.
        """
        package = str(function.__globals__.get("__package__") or "")
        names = sorted(describe.imports_inside(function.__code__, package))
        held = {name: value for name, value in function.__dict__.items() if name != "__wrapped__"}
        return (self._dict(held, path), tuple((name, self._imported(name, path)) for name in names))

    def _imported(self, name: str, path: str) -> Node:
        module = describe.imported(name)
        if module is None:
            version = describe.version_if_imported(name)  # nobody can have assigned its variables yet
            if version is not None:
                return ("not imported", name, version)
        if module is None or name == "__main__":
            raise NotShippable(RefusalReason.UNKEYABLE, f"{path} imports {name} when it runs")
        self.imports.add(name)
        return self.node(module, name)

    def _cell(self, name: str, cell: Any, path: str) -> Node:
        try:
            value = cell.cell_contents
        except ValueError:
            return ("empty cell",)
        return self.node(value, f"{path}.{name}")

    def _global(self, function: types.FunctionType, name: str) -> Node:
        held = function.__globals__
        if name in held:
            return self.node(held[name], f"{held.get('__name__', '?')}.{name}")
        if hasattr(builtins, name):
            value = getattr(builtins, name)
            if isinstance(value, types.FunctionType) or describe.dispatcher_parts(value) is not None:
                return self.node(value, f"builtins.{name}")  # somebody has put it there
            return ("builtin", name)
        return ("missing",)

    def _collect(self, code: types.CodeType) -> None:
        for one in describe.nested_code(code):
            self.found.update(one.co_names)

    def _code(self, code: types.CodeType, path: str) -> Node:
        operations, numbers, used = describe.operations(code)
        constants = tuple(
            self._code(one, path) if isinstance(one, types.CodeType) else self.node(one, path) for one in used
        )
        return (
            "code",
            operations,
            numbers,
            constants,
            code.co_names,
            code.co_varnames,
            code.co_freevars,
            code.co_cellvars,
            code.co_flags & ~HAS_DOCSTRING,
            (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount),
            getattr(code, "co_exceptiontable", b""),
            (code.co_filename, code.co_firstlineno, code.co_linetable) if self.positions else (),
        )


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
