"""Shadows: copies of the arrays that a body may write to, so that a body that is abandoned has changed nothing.

    plan_shadows(arguments, writes) -> Plan     what would be copied, or a sentence that says why it cannot be
    Plan.copy() -> Shadows                      copied
    Shadows.arguments                           what the body gets
    Shadows.keep()                              it finished or raised: what it changed reaches the caller's arrays
    Shadows.returned(value)                     what it returned, in terms of the caller's arrays

Guarantees:
- The caller's memory is not written before `keep`. `keep` writes what the body changed and nothing else. What has
  changed is seen byte by byte, by a second copy, made at the same time, never by the caller's memory: two threads may
  each fill a half of one array at once, and then each one's copy holds the other's half as it was before.
- Numbers are written whole: of two threads that write one element, one wins. By single bytes 1.0 and 2.0 over 0.0 would
  make 65536.0. Where arguments of unlike dtypes overlap, and in records, single bytes are written.
- Arrays that overlap in the caller's memory overlap in the same way in the copy, whether they are written or not.
- numba gives a shadow the type of its array: shape, strides, dtype, alignment and the writeable flag are the same.

What is copied is memory, from the first to the last byte that an array reaches: a column of a matrix costs nearly the
matrix. `Plan.size_bytes` says so beforehand. Copying may raise MemoryError.

Not done: what a body puts into a typed container of its own and returns is not turned back into the caller's arrays.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from farm.port.values import compiled_kind, is_code_or_type

Bytes: TypeAlias = "NDArray[np.uint8]"
Array: TypeAlias = "NDArray[Any]"

ALIGNMENT_BYTES: Final = 64
"""A copy lies at its original's address modulo this: more than any dtype asks for, and a cache line."""

CHUNK_BYTES: Final = 1 << 18
"""Compared at once, so that what is compared stays in the processor's cache, and the mask stays small. A guess."""

COPY_S: Final = 50e-6
"""Measured: 35 to 50 us for one small array, planned, copied and kept, on a busy machine."""

COPY_S_PER_BYTE: Final = 2.5e-9
"""Measured: copy 0.4 to 1.0 ns, keep 0.2 (nothing changed) to 1.7 (everything). A process whose memory the machine has
to find first pays up to 9 ns for its first copy; which it will be nobody can know."""

_ARRAYS: Final = (np.ndarray, np.memmap, np.recarray)
_DTYPE_KINDS: Final = frozenset("biufcmMSUV")
_PLAIN_BASES: Final = (int, float, complex, str, bytes, np.generic)
_PLAIN: Final[frozenset[type]] = frozenset(
    {
        *(int, float, complex, bool, str, bytes, type(None), slice, range),
        *(types.FunctionType, types.BuiltinFunctionType, type, np.ufunc),
        *(kind for kind in np.sctypeDict.values() if not issubclass(kind, (np.void, np.object_))),
    }
)
"""Exact types of values that hold no memory of a caller's."""
_QUIET: Final = _PLAIN | {np.ndarray}
"""Exact types that need no look where nothing is written."""


def copy_estimate_s(size_bytes: int) -> float:
    """Seconds that `Plan.copy` and `Shadows.keep` take, in memory that the process did not have before."""
    return COPY_S + COPY_S_PER_BYTE * size_bytes if size_bytes else 0.0


def plan_shadows(arguments: tuple[Any, ...], writes: frozenset[int]) -> Plan | str:
    """What has to be copied before a body gets these arguments, which may write to those at the positions `writes`.

    A str says why no copies can be made: the body must then not be abandoned.
    """
    if not writes and _QUIET.issuperset(map(type, arguments)):
        return Plan(arguments)
    survey = _Survey()
    for position, argument in enumerate(arguments):
        problem = survey.take(argument, position in writes)
        if problem:
            return f"argument {position + 1} {problem}"
    if not survey.written:
        return Plan(arguments)
    if survey.opaque:
        return f"an argument {survey.opaque}, which may refer to an array that is written"
    return Plan(arguments, tuple(survey.groups()))


class _Survey:
    """Goes through the arguments: which memory they reach, and what forbids copies."""

    __slots__ = ("looked_into", "opaque", "reaches", "written")

    def __init__(self) -> None:
        self.reaches: list[_Reach] = []
        self.written = False
        self.looked_into: set[int] = set()
        """Lists and sets, by identity: one may hold itself."""
        self.opaque: str | None = None
        """What an argument is that may hold memory of which nothing is known."""

    def take(self, value: Any, written: bool) -> str | None:
        """Notes a value and what is in it. Returns why no copies can be made, if so."""
        kind = type(value)
        if kind in _PLAIN:
            return None
        if kind in _ARRAYS:
            return self._take_array(value, written)
        if isinstance(value, np.void):
            return self._take_record(value, written)
        if isinstance(value, tuple):
            return self._take_tuple(value, written)
        compiled = compiled_kind(value)
        if compiled:
            return f"is a {compiled}, for which numba compiles code when Python uses it"
        if isinstance(value, (list, set)):
            if written:
                return f"is a {'list' if isinstance(value, list) else 'set'} that the body may write to"
            return self._look_into(value)
        if isinstance(value, np.ndarray):
            return f"is a {kind.__name__}, which a plain array cannot stand for"
        if isinstance(value, (enum.Enum, np.dtype, type, *_PLAIN_BASES)) or is_code_or_type(value):
            return None
        if written:
            return f"is a {kind.__name__}, which the body may write to and nobody can copy"
        self.opaque = self.opaque or f"is a {kind.__name__}"
        return None

    def _take_array(self, array: Array, written: bool) -> str | None:
        dtype = array.dtype
        if dtype.hasobject or dtype.kind not in _DTYPE_KINDS:
            return f"is an array of {dtype}, whose elements are not in its memory"
        if array.size and dtype.itemsize:
            self._note(_reach_of_array(array), written and array.flags.writeable)
        return None

    def _take_record(self, record: np.void, written: bool) -> str | None:
        if record.dtype.hasobject:
            return "is a record that holds objects"
        if record.dtype.names is not None and record.dtype.itemsize:
            self._note(_reach_of_record(record), written and bool(record.flags.writeable))
        return None

    def _take_tuple(self, values: tuple[Any, ...], written: bool) -> str | None:
        if type(values) is not tuple and (not hasattr(values, "_fields") or getattr(values, "__dict__", None)):
            return f"is a {type(values).__name__}, a tuple with more in it than its values"
        for value in values:
            problem = self.take(value, written)
            if problem:
                return problem if problem.startswith("holds ") else f"holds what {problem}"
        return None

    def _look_into(self, values: Any) -> str | None:
        """A list or set that is only read: it stays as it is, so it must not hold memory that is written."""
        if set(map(type, values)) <= _PLAIN or id(values) in self.looked_into:
            return None
        self.looked_into.add(id(values))
        for value in values:
            before = len(self.reaches)
            problem = self.take(value, False)
            if problem:
                return f"holds what {problem}"
            if len(self.reaches) > before:
                self.opaque = self.opaque or f"is a {type(values).__name__} of {type(value).__name__}"
        return None

    def _note(self, reach: _Reach, written: bool) -> None:
        reach.written = written
        self.written = self.written or written
        self.reaches.append(reach)

    def groups(self) -> Iterator[_Group]:
        """What overlaps belongs together. Where nothing is written, nothing is copied."""
        together: list[_Reach] = []
        end = 0
        for reach in sorted(self.reaches, key=lambda reach: reach.low):
            if together and reach.low >= end:
                yield from _group(together, end)
                together = []
            together.append(reach)
            end = max(end, reach.high) if len(together) > 1 else reach.high
        yield from _group(together, end)


def _group(together: list[_Reach], high: int) -> Iterator[_Group]:
    if any(reach.written for reach in together):
        yield _Group(together[0].low, high, tuple(together))


@dataclass(slots=True)
class _Reach:
    """The memory that an argument reaches: addresses from `low` to below `high`; its first element is at `first`."""

    value: Any
    first: int
    low: int
    high: int
    written: bool = False


def _reach_of_array(array: Array) -> _Reach:
    first = _address(array)
    if array.flags.c_contiguous:
        return _Reach(array, first, first, first + array.nbytes)
    low = high = first
    for length, stride in zip(array.shape, array.strides, strict=True):
        if stride < 0:
            low += (length - 1) * stride
        else:
            high += (length - 1) * stride
    return _Reach(array, first, low, high + array.itemsize)


def _reach_of_record(record: np.void) -> _Reach:
    first = _address_of_record(record)
    return _Reach(record, first, first, first + record.dtype.itemsize)


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _address_of_record(record: np.void) -> int:
    return _address(np.frombuffer(record.data, np.uint8))


class _Memory:
    """Memory of a caller's, as numpy asks for it. Whoever views it keeps alive what it belongs to."""

    __slots__ = ("__array_interface__", "owners")

    def __init__(self, low: int, high: int, owners: tuple[Any, ...]) -> None:
        self.__array_interface__ = {"data": (low, False), "shape": (high - low,), "typestr": "|u1", "version": 3}
        self.owners = owners


@dataclass(frozen=True, slots=True)
class _Group:
    """Arguments that overlap, of which at least one is written."""

    low: int
    high: int
    reaches: tuple[_Reach, ...]

    def unit_bytes(self) -> int:
        """Bytes that are written together: a number's, or one half of a complex one's. 1 if the arguments differ."""
        sizes = {_number_bytes(reach.value) for reach in self.reaches}
        size_bytes = sizes.pop()
        if sizes or self.low % size_bytes:
            return 1
        steps = [step for reach in self.reaches for step in (reach.first - self.low, *reach.value.strides)]
        return 1 if any(step % size_bytes for step in steps) else size_bytes

    def window(self) -> Bytes:
        return np.asarray(_Memory(self.low, self.high, tuple(reach.value for reach in self.reaches)))


def _number_bytes(value: Any) -> int:
    kind, size_bytes = value.dtype.kind, int(value.dtype.itemsize)
    size_bytes = size_bytes // 2 if kind == "c" else size_bytes
    return size_bytes if kind in "iufcmM" and size_bytes in (2, 4, 8) else 1


class Plan:
    """What would be copied for one call. It holds the arguments."""

    __slots__ = ("_groups", "arguments", "size_bytes")

    def __init__(self, arguments: tuple[Any, ...], groups: tuple[_Group, ...] = ()) -> None:
        self.arguments: Final = arguments
        self._groups: Final = groups
        self.size_bytes: Final[int] = sum([group.high - group.low for group in groups]) if groups else 0
        """Bytes that `copy` copies. It allocates twice as many."""

    def copy(self) -> Shadows:
        """Copies what the arguments hold now."""
        return Shadows(self.arguments, tuple(_Block(group) for group in self._groups))


class _Block:
    """The copy of a group's memory, with views of it in place of the arguments."""

    __slots__ = ("end", "memory", "originals", "owner", "pristine", "shadows", "start", "unit", "window")

    def __init__(self, group: _Group) -> None:
        size_bytes = group.high - group.low
        self.window: Final = group.window()
        self.unit: Final = np.dtype(f"u{group.unit_bytes()}")
        self.owner: Final[Bytes] = np.empty(size_bytes + ALIGNMENT_BYTES, np.uint8)
        shift = (group.low - _address(self.owner)) % ALIGNMENT_BYTES
        self.memory: Final[Bytes] = self.owner[shift : shift + size_bytes]
        self.pristine: Bytes | None = self.window.copy()
        self.memory[...] = self.pristine
        """From the second copy, not from the window: another thread may write there meanwhile."""
        self.start: Final = _address(self.memory)
        self.end: Final = self.start + size_bytes
        self.shadows: Final[dict[int, Any]] = {}
        self.originals: Final[dict[int, Any]] = {}
        for reach in group.reaches:
            key = id(reach.value)
            if key not in self.shadows:
                self.shadows[key] = shadow = _same(reach.value, self.memory, reach.first - group.low)
                self.originals[id(shadow)] = reach.value

    def keep(self) -> None:
        """Writes what has changed. When it is interrupted it can be called again."""
        pristine = self.pristine
        if pristine is None:
            return
        for start in range(0, pristine.size, CHUNK_BYTES):
            now = self.memory[start : start + CHUNK_BYTES].view(self.unit)
            changed = now != pristine[start : start + CHUNK_BYTES].view(self.unit)
            if changed.any():
                np.putmask(self.window[start : start + CHUNK_BYTES].view(self.unit), changed, now)
        self.pristine = None

    def holds(self, value: Any, address: int, size_bytes: int) -> bool:
        """Whether a view lies in this copy. One without a byte may begin where this ends and another begins."""
        if size_bytes:
            return self.start <= address < self.end
        while getattr(value, "base", None) is not None:
            value = value.base
        return value is self.owner


def _same(value: Any, memory: Bytes, offset: int) -> Any:
    """The array or record that is in `memory` at `offset` what `value` is where it lies."""
    if isinstance(value, np.void):
        place: Array = np.ndarray((), value.dtype, memory, offset)
        place.flags.writeable = value.flags.writeable
        return place[()]
    array: Array = np.ndarray(value.shape, value.dtype, memory, offset, value.strides)
    if not value.flags.writeable:
        array.flags.writeable = False
    return array.view(np.recarray) if isinstance(value, np.recarray) else array


class Shadows:
    """The copies of one call's arguments."""

    __slots__ = ("_blocks", "_originals", "arguments")

    def __init__(self, arguments: tuple[Any, ...], blocks: tuple[_Block, ...]) -> None:
        self._blocks: Final = blocks
        self._originals: Final = {key: value for block in blocks for key, value in block.originals.items()}
        shadows = {key: value for block in blocks for key, value in block.shadows.items()}
        replace = _Replacing(lambda value: shadows.get(id(value), value))
        self.arguments: Final[tuple[Any, ...]] = replace(arguments) if blocks else arguments

    def keep(self) -> None:
        """Writes what the body changed to the caller's memory. A second time nothing happens."""
        for block in self._blocks:
            block.keep()

    def returned(self, value: Any) -> Any:
        """A body's return value as the caller may have it: no shadow and no view of one is in it.

        Lists and dictionaries in it stay the same objects and are changed, tuples are made anew.
        """
        return _Replacing(self._original)(value) if self._blocks else value

    def _original(self, value: Any) -> Any:
        own = self._originals.get(id(value))
        if own is not None:
            return own
        if isinstance(value, np.ndarray):
            address, size_bytes = _address(value), value.nbytes
        elif isinstance(value, np.void) and value.dtype.names is not None:
            address, size_bytes = _address_of_record(value), value.dtype.itemsize
        else:
            return value
        for block in self._blocks:
            if block.holds(value, address, size_bytes):
                return _same(value, block.window, address - block.start)
        return value


class _Replacing:
    """Goes through tuples, lists and dictionaries, and puts other arrays and records in."""

    __slots__ = ("_other", "_seen")

    def __init__(self, other: Callable[[Any], Any]) -> None:
        self._other = other
        self._seen: set[int] = set()
        """Lists and dictionaries that were met: one may hold itself."""

    def __call__(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if isinstance(value, (np.ndarray, np.void)):
            return self._other(value)
        if isinstance(value, tuple):
            values = [self(item) for item in value]
            if all(new is old for new, old in zip(values, value, strict=True)):
                return value
            return tuple(values) if kind is tuple else tuple.__new__(kind, values)
        if kind is list and not set(map(type, value)) <= _PLAIN and self._is_new(value):
            for index, item in enumerate(value):
                new = self(item)
                if new is not item:
                    value[index] = new
        elif kind is dict and self._is_new(value):
            for key, item in value.items():
                new = self(item)
                if new is not item:
                    value[key] = new
        return value

    def _is_new(self, container: Any) -> bool:
        if id(container) in self._seen:
            return False
        self._seen.add(id(container))
        return True
