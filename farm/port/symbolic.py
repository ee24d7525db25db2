"""A pickle as plain structure: what it would build, without building it, and two of them compared.

Guarantees: nothing that the pickle names is imported or called. Classes and functions are `Named`, what they would be
called with is a `Made`. Sharing is expanded: a string that one process interned and another did not is the same string.

Positions are not compared, nor docstrings: a key has none, so that one artifact serves a function wherever it lies.
"""

import io
import pickle
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from farm.port.renaming import Renaming, masked

Difference = tuple[str, str, str]
"""Where, and the two values as text."""

PROTOCOL_2_OR_LATER: Final = b"\x80"
SHOWN_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class Named:
    """What a pickle gets by name."""

    module: str
    name: str


@dataclass(slots=True, eq=False)
class Made:
    """What a pickle would make: a call, what is then set on it, and what is put into it."""

    made_by: Any
    arguments: Any
    state: list[Any] = field(default_factory=list)
    items: list[Any] = field(default_factory=list)

    def append(self, item: Any) -> None:
        self.items.append(item)

    def extend(self, items: Any) -> None:
        self.items.extend(items)

    def add(self, item: Any) -> None:
        self.items.append(item)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items.append((key, value))


LOCATION: Final = Named("numba.core.ir", "Loc")
PLACE: Final = Named("farm.port.places", "locate")
CODE_BY: Final = Named("numba.cloudpickle.cloudpickle", "_builtin_type")
TYPE: Final = Named("numba.core.types.abstract", "_type_reconstructor")
OF_ONE_PROCESS: Final = ("_code", "_cache", "_depth", "_impl_keys")
"""What attributes of a numba type end in that count the types of one process, or remember what was asked of one."""
PLAIN: Final = Named("", "a plain value")
POSITIONS_IN_CODE: Final = {18: (10, 13, 14), 16: (10, 12, 13)}
"""File, first line and line table among the arguments of a code object: of Python 3.11 and later, and of 3.10."""
CONSTANTS_IN_CODE: Final = 7
NOT_COMPARED: Final = tuple(f"[{name!r}]" for name in ("__doc__", "__file__", "annotation", "doc", "firstlineno"))
"""Attributes that are positions or are for people."""


class _Reader(pickle._Unpickler):  # the one in Python: its steps can be replaced
    stack: list[Any]
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(pickle._Unpickler.dispatch)

    def find_class(self, module: str, name: str) -> Named:
        return Named(module, name)

    def persistent_load(self, pid: Any) -> Made:
        return Made("persistent", pid)

    def load_call(self) -> None:
        arguments = self.stack.pop()
        self.stack[-1] = Made(self.stack[-1], arguments)

    def load_call_with_keywords(self) -> None:
        keywords, arguments = self.stack.pop(), self.stack.pop()
        self.stack[-1] = Made(self.stack[-1], (arguments, keywords))

    def load_state(self) -> None:
        state = self.stack.pop()
        self.stack[-1].state.append(state)

    dispatch[pickle.REDUCE[0]] = dispatch[pickle.NEWOBJ[0]] = load_call
    dispatch[pickle.NEWOBJ_EX[0]] = load_call_with_keywords
    dispatch[pickle.BUILD[0]] = load_state


def read(data: bytes) -> Any:
    """The structure of a pickle. Raises anything if it is none."""
    return _Reader(io.BytesIO(data)).load()


def read_exception(data: bytes) -> Any:
    """The structure of what numba freezes for a `raise`: class, arguments, position; of that, the function's name."""
    found = read(data)
    match found:
        case (kind, arguments, (str() as function, str(), int())):
            return kind, arguments, function
    return found


def differences(first: Any, second: Any, where: str, renaming: Renaming) -> Iterator[Difference]:
    """Where two structures differ, outermost first."""
    waiting: list[tuple[Any, Any, str]] = [(first, second, where)]
    seen: dict[tuple[int, int], object] = {}  # with the two themselves, so that no id is used twice
    while waiting:
        one, other, place = waiting.pop()
        if (id(one), id(other)) in seen:
            continue
        seen[id(one), id(other)] = one, other
        inner = _inner(one, other, place)
        if inner is None:
            if not _equal(one, other, renaming):
                yield place, shown(one), shown(other)
        elif isinstance(inner, str):
            yield place, shown(one), f"{shown(other)}: {inner}"
        else:
            waiting.extend(reversed(inner))


def canonical(value: Any, above: tuple[int, ...] = ()) -> Any:
    """A structure of tuples that is equal for equal pickles, without what is not compared; for its repr."""
    if id(value) in above:
        return "itself"
    above = (*above, id(value))
    if isinstance(value, Made):
        parts = (value.made_by, _arguments(value), value.state, value.items)
        if value.made_by == LOCATION:
            parts = (value.made_by, _kind(_values(value)), [], [])
        return ("made", *(canonical(one, above) for one in parts))
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *(canonical(one, above) for one in value))
    if isinstance(value, dict):
        items = [(key, _kind(one) if f"[{key!r}]" in NOT_COMPARED else one) for key, one in value.items()]
        return ("dict", *((canonical(key, above), canonical(one, above)) for key, one in items))
    if isinstance(value, (set, frozenset)):
        return ("set", *sorted((canonical(one, above) for one in value), key=_order))
    return value


def is_plain(value: object) -> bool:
    """Whether a value is itself in the pickle, and nothing in it is made by a call."""
    if isinstance(value, (tuple, list)):
        return all(map(is_plain, value))
    return isinstance(value, (str, bytes, int, float, complex, type(None), type(...)))


def shown(value: object) -> str:
    """A value for a message."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."


def _equal(one: Any, other: Any, renaming: Renaming) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, str):
        return renaming.text(one, other)
    if isinstance(one, int) and not isinstance(one, bool):
        return renaming.number(one, other)
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other)
    if isinstance(one, complex):
        return struct.pack("dd", one.real, one.imag) == struct.pack("dd", other.real, other.imag)
    return bool(one == other)


def _inner(one: Any, other: Any, place: str) -> "list[tuple[Any, Any, str]] | str | None":
    """Pairs of what two containers hold; a text if they do not pair; None if they are no containers of one kind."""
    if type(one) is not type(other):
        return None
    if isinstance(one, Made):
        return _of_made(one, other, place)
    if isinstance(one, (list, tuple)):
        if len(one) != len(other):
            return f"{len(one)} and {len(other)} items"
        return [(a, b, f"{place}[{index}]") for index, (a, b) in enumerate(zip(one, other, strict=True))]
    if isinstance(one, dict):
        if len(one) != len(other):
            return f"{len(one)} and {len(other)} items"
        if all(isinstance(key, (str, int)) for key in (*one, *other)) and one.keys() == other.keys():
            pairs = [(one[key], other[key], f"{place}[{key!r}]") for key in one]
            return [(_kind(a), _kind(b), p) if p.endswith(NOT_COMPARED) else (a, b, p) for a, b, p in pairs]
        items = zip(one.items(), other.items(), strict=True)
        return [(a, b, f"{place}{{{index}}}") for index, (a, b) in enumerate(items)]
    if isinstance(one, (set, frozenset)):
        if len(one) != len(other):
            return f"{len(one)} and {len(other)} items"
        both = zip(sorted(one, key=_order), sorted(other, key=_order), strict=True)
        return [(a, b, f"{place}{{{index}}}") for index, (a, b) in enumerate(both)]
    if isinstance(one, bytes) and one != other and one[:1] == other[:1] == PROTOCOL_2_OR_LATER:
        try:
            return [(read(one), read(other), f"{place} unpickled")]
        except Exception:  # not a pickle after all
            return None
    return None


def _of_made(one: Made, other: Made, place: str) -> list[tuple[Any, Any, str]]:
    if one.made_by == other.made_by == LOCATION:
        return [(_kind(_values(one)), _kind(_values(other)), place)]
    return [
        (one.made_by, other.made_by, f"{place}.made_by"),
        (_arguments(one), _arguments(other), f"{place}.arguments"),
        (one.state, other.state, f"{place}.state"),
        (one.items, other.items, f"{place}.items"),
    ]


def _kind(value: Any) -> Any:
    """What is not compared must still be a plain value, and not something that is made when it is unpickled."""
    return PLAIN if is_plain(value) else value


def _values(made: Made) -> Any:
    return [made.arguments, made.items, [list(one.values()) if isinstance(one, dict) else one for one in made.state]]


def _arguments(made: Made) -> Any:
    """What a thing is made with, without positions and without what one process alone knows."""
    arguments, by = made.arguments, made.made_by
    if by == PLACE:
        content, part, offset, (function, file, line) = arguments
        return content, part, offset, function, _kind((file, line))
    if by == TYPE:
        how, what, state = arguments
        return how, what, {name: value for name, value in state.items() if not name.endswith(OF_ONE_PROCESS)}
    if isinstance(by, Made) and by.made_by == CODE_BY and by.arguments == ("CodeType",):
        constants = arguments[CONSTANTS_IN_CODE]
        if constants and isinstance(constants[0], str):  # the docstring
            arguments = (*arguments[:CONSTANTS_IN_CODE], constants[1:], *arguments[CONSTANTS_IN_CODE + 1 :])
        positions = POSITIONS_IN_CODE.get(len(arguments), ())
        return tuple(_kind(value) if index in positions else value for index, value in enumerate(arguments))
    return arguments


def _order(value: object) -> str:
    return masked(repr(value))
