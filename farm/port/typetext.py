"""numba types as text that people read and compare, and back.

    int64, float64[:, ::1], Array(float64, 1, 'C', readonly=True), UniTuple(int64, 3), Optional(float64),
    NamedTuple('shop.prices:Quote', float64, int64), ListType(unicode_type), function('shop.prices:tax'),
    literal(3), Omitted(None), FunctionType(float64(float64)), Record(('x', float64, 0), size=8, aligned=True)

A text is read by Python's parser against a closed table of names: nothing of it is evaluated. It does import the
modules that it names. What has no such text is carried as a pickle beside it, `pickled(0, 'what it is')`; unpickling
runs code, so a text with pickles is to be trusted like a program.

Guarantee: what is written was read back, and was equal.
"""

import ast
import base64
import enum
import io
import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy
from numba import types
from numba.core.dispatcher import Dispatcher
from numba.core.typing.templates import Signature
from numba.experimental.jitclass.base import JitClassType

from farm.errors import told
from farm.port import describe
from farm.port.naming import NoSuchName, find, holds_path, name_of, pickle_holds_path

PICKLE_BYTES_MAX: Final = 1 << 16
"""A guess: a user's own numba type takes a few hundred bytes."""
_PREFERRED: Final = ("boolean", "none", "intp")


class NotWritable(ValueError):
    """A type that no text and no pickle brings back: the text says why."""


class NotReadable(ValueError):
    """A text that is no type, or names what is not there any more."""


def _named_types() -> dict[Any, str]:
    """A name in `numba.types` for each type that has one: the preferred, else its own, else the first that is long."""
    names: dict[Any, list[str]] = {}
    for name, kind in sorted(vars(types).items()):
        if isinstance(kind, types.Type) and not name.startswith("_"):
            names.setdefault(kind, []).append(name)
    return {
        kind: next((one for one in (*_PREFERRED[:2], str(kind)) if one in held), max(held, key=len))
        for kind, held in names.items()
    }


_NAMES: Final = _named_types()
_TYPES: Final = {name: kind for name, kind in vars(types).items() if isinstance(kind, types.Type)}


class TypeWriter:
    """Writes the types of one entry; `pickles` are what its texts refer to."""

    def __init__(self) -> None:
        self.pickles: list[str] = []

    def write(self, kind: Any) -> str:
        """The text of a type. Raises NotWritable."""
        try:
            text = self._text(kind)
            if same_type(read(text, self.pickles), kind):
                return text
        except (NotWritable, NotReadable):
            raise
        except Exception:  # a user's own type takes part: its equality, its pickling
            pass
        return self._pickled(kind)

    def _text(self, kind: Any) -> str:
        if isinstance(kind, Signature):
            return f"{self._text(kind.return_type)}({', '.join(map(self._text, kind.args))})"
        name = _NAMES.get(kind) if type(kind) in _NAMED_CLASSES else None
        if name is not None:
            return name
        writer = _WRITERS.get(type(kind))
        if writer is None:
            return self._pickled(kind)
        try:
            return writer(self, kind)
        except _NoText:
            return self._pickled(kind)

    def _pickled(self, kind: Any) -> str:
        label = str(kind)
        try:
            data = _pickle(kind)
            back = pickle.loads(data)
        except Exception as error:
            raise NotWritable(
                f"{_clean(label)} is not written as text, and does not pickle: {_clean(told(error))}"
            ) from None
        if not same_type(back, kind):
            raise NotWritable(f"{_clean(label)} is equal only to itself")
        if pickle_holds_path(data) or holds_path(label):
            raise NotWritable(f"a {type(kind).__name__} that holds a path of this machine")
        if len(data) > PICKLE_BYTES_MAX:
            raise NotWritable(f"{_clean(label)} takes {len(data)} bytes as a pickle")
        encoded = base64.b64encode(data).decode("ascii")
        if encoded not in self.pickles:
            self.pickles.append(encoded)
        return f"pickled({self.pickles.index(encoded)}, {label!r})"

    def types(self, kinds: Sequence[Any]) -> str:
        """Several, separated by commas."""
        return ", ".join(map(self._text, kinds))

    def value(self, value: Any) -> str:
        """The text of a literal or default value. Raises _NoText."""
        if type(value) is float and not math.isfinite(value):
            return f"float({str(value)!r})"
        if type(value) in (bool, int, float, str, bytes, type(None)):
            return repr(value)
        if type(value) is complex:
            return f"complex({self.value(value.real)}, {self.value(value.imag)})"
        if type(value) is tuple:
            items = ", ".join(map(self.value, value))
            return f"({items},)" if len(value) == 1 else f"({items})"
        if type(value) is slice:
            return f"slice({', '.join(map(self.value, (value.start, value.stop, value.step)))})"
        if isinstance(value, enum.Enum):
            return f"member({_name(type(value))!r}, {value.name!r})"
        if isinstance(value, numpy.generic) and value.dtype.kind in "biufc":
            return f"scalar({value.dtype.name!r}, {self.value(value.item())})"
        if isinstance(value, Dispatcher):
            return f"function({_name(value)!r})"
        raise _NoText()


class _TypePickler(pickle.Pickler):
    """Without the numbers that numba gives to types as they come: the same text from every process."""

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, types.Type):
            return NotImplemented
        reduced = obj.__reduce__()
        match reduced:
            case (make, (reconstructor, arguments, dict() as state)):
                return make, (reconstructor, arguments, {name: state[name] for name in state if name != "_code"})
        return reduced


def _pickle(kind: Any) -> bytes:
    stream = io.BytesIO()
    _TypePickler(stream, protocol=4).dump(kind)
    return stream.getvalue()


class _NoText(Exception):
    """There is no readable text for this."""


def same_type(one: Any, other: Any) -> bool:
    """Equal, and of one class: numba calls some types of different classes equal."""
    return type(one) is type(other) and bool(one == other)


def _name(obj: object) -> str:
    name = name_of(obj)
    if name is None:
        raise NotWritable(f"{_clean(str(getattr(obj, '__qualname__', obj)))} is not found under its name")
    return name


def _clean(text: str) -> str:
    return "(a text with a path of this machine)" if holds_path(text) else text


def _array(writer: TypeWriter, kind: Any) -> str:
    dtype = writer.types([kind.dtype])
    if kind.mutable and kind.aligned and kind.ndim and isinstance(kind.dtype, (types.Number, types.Boolean)):
        axes = [":"] * kind.ndim
        if kind.layout != "A":
            axes[-1 if kind.layout == "C" else 0] = "::1"
        return f"{dtype}[{', '.join(axes)}]"
    more = ("" if kind.mutable else ", readonly=True") + ("" if kind.aligned else ", aligned=False")
    return f"Array({dtype}, {kind.ndim}, {kind.layout!r}{more})"


def _buffer(writer: TypeWriter, kind: Any) -> str:
    more = "" if kind.mutable else ", readonly=True"
    return f"{type(kind).__name__}({writer.types([kind.dtype])}, {kind.ndim}, {kind.layout!r}{more})"


def _record(writer: TypeWriter, kind: Any) -> str:
    fields = []
    for name, field in kind.fields.items():
        more = ""
        if field.alignment is not None or field.title is not None:
            more = f", {writer.value(field.alignment)}, {writer.value(field.title)}"
        fields.append(f"({name!r}, {writer.types([field.type])}, {field.offset}{more})")
    return f"Record({''.join(f'{one}, ' for one in fields)}size={kind.size}, aligned={kind.aligned})"


def _shape(_: TypeWriter, kind: Any) -> str:
    return f"NestedArray({_.types([kind.dtype])}, {tuple(kind.shape)!r})"


def _jitclass(_: TypeWriter, kind: Any) -> str:
    owner = describe.jitclass_of(kind.class_type)
    if owner is None:
        raise NotWritable(f"jitclass {kind.class_type.class_name} is not found in the module of its methods")
    return f"jitclass({_name(owner)!r})"


def _one(*attributes: str) -> "Callable[[TypeWriter, Any], str]":
    """Written as the class's name, with these types inside."""
    return lambda writer, kind: f"{type(kind).__name__}({writer.types([getattr(kind, one) for one in attributes])})"


def _reflected(writer: TypeWriter, kind: Any) -> str:
    return f"{type(kind).__name__}({writer.types([kind.dtype])}, reflected={kind.reflected})"


def _enumeration(writer: TypeWriter, kind: Any) -> str:
    return f"{type(kind).__name__}({_name(kind.instance_class)!r}, {writer.types([kind.dtype])})"


def _repeated(writer: TypeWriter, kind: Any) -> str:
    return f"{type(kind).__name__}({writer.types([kind.dtype])}, {kind.count})"


def _literal(writer: TypeWriter, kind: Any) -> str:
    return f"literal({writer.value(kind.literal_value)})"


_Writer = Callable[[TypeWriter, Any], str]
_WRITERS: Final[Mapping[type, _Writer]] = {
    types.Array: _array,
    types.Bytes: _buffer,
    types.ByteArray: _buffer,
    types.MemoryView: _buffer,
    types.PyArray: _buffer,
    types.NestedArray: _shape,
    types.Record: _record,
    types.UniTuple: _repeated,
    types.StarArgUniTuple: _repeated,
    types.Tuple: lambda writer, kind: f"Tuple({writer.types(kind.types)})",
    types.StarArgTuple: lambda writer, kind: f"StarArgTuple({writer.types(kind.types)})",
    types.NamedTuple: lambda w, k: f"NamedTuple({', '.join([repr(_name(k.instance_class)), *map(w._text, k.types)])})",
    types.NamedUniTuple: lambda w, k: f"NamedUniTuple({_name(k.instance_class)!r}, {w.types([k.dtype])}, {k.count})",
    types.Optional: _one("type"),
    types.Omitted: lambda writer, kind: f"Omitted({writer.value(kind.value)})",
    types.IntegerLiteral: _literal,
    types.BooleanLiteral: _literal,
    types.StringLiteral: _literal,
    types.SliceLiteral: _literal,
    types.NPDatetime: lambda _, kind: f"NPDatetime({kind.unit!r})",
    types.NPTimedelta: lambda _, kind: f"NPTimedelta({kind.unit!r})",
    types.CharSeq: lambda _, kind: f"CharSeq({kind.count})",
    types.UnicodeCharSeq: lambda _, kind: f"UnicodeCharSeq({kind.count})",
    types.List: _reflected,
    types.Set: _reflected,
    types.ListType: _one("item_type"),
    types.DictType: _one("key_type", "value_type"),
    types.DType: _one("dtype"),
    types.NumberClass: _one("instance_type"),
    types.EnumMember: _enumeration,
    types.IntEnumMember: _enumeration,
    types.EnumClass: _enumeration,
    types.IntEnumClass: _enumeration,
    types.FunctionType: lambda writer, kind: f"FunctionType({writer._text(kind.signature)})",
    types.Dispatcher: lambda _, kind: f"function({_name(kind.dispatcher)!r})",
    types.ClassInstanceType: _jitclass,
}
_NAMED_CLASSES: Final = frozenset(map(type, _NAMES)) - _WRITERS.keys()


def write_signature(arguments: Sequence[Any], return_type: Any | None) -> tuple[str, str | None, list[str]]:
    """(`(types)`, the return type if there is one, the pickles that both refer to). Raises NotWritable."""
    writer = TypeWriter()
    texts = [writer.write(kind) for kind in arguments]
    returns = None if return_type is None else writer.write(return_type)
    return f"({', '.join(texts)})", returns, writer.pickles


def read_signature(text: str, returns: str | None, pickles: Sequence[str] = ()) -> tuple[tuple[Any, ...], Any | None]:
    """Argument types and return type of what `write_signature` gave. Raises NotReadable."""
    reader = _Reader(pickles)
    arguments = reader.read(f"_{text}", reader.arguments)
    return arguments, None if returns is None else reader.read(returns, reader.one_type)


def read(text: str, pickles: Sequence[str] = ()) -> Any:
    """The type of one text. Raises NotReadable."""
    reader = _Reader(pickles)
    return reader.read(text, reader.one_type)


class _Reader:
    """From Python's syntax tree to types, by the table alone."""

    def __init__(self, pickles: Sequence[str]) -> None:
        self._pickles = pickles

    def read(self, text: str, how: Callable[[ast.expr], Any]) -> Any:
        try:
            return how(ast.parse(text.strip(), mode="eval").body)
        except NotReadable:
            raise
        except NoSuchName as error:
            raise NotReadable(str(error)) from None
        except Exception as error:  # the parser's, a constructor's that was given nonsense, an import's, a pickle's
            raise NotReadable(f"{text!r} is no type: {told(error)}") from None

    def arguments(self, node: ast.expr) -> tuple[Any, ...]:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords):
            raise NotReadable("a signature is a list of types in parentheses")
        return tuple(map(self.one_type, node.args))

    def one_type(self, node: ast.expr) -> Any:
        found = self._value(node)
        if not isinstance(found, types.Type):
            raise NotReadable(f"{ast.unparse(node)} is no type")
        return found

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name) if name in _TYPES:
                return _TYPES[name]
            case ast.Tuple(elts=items):
                return tuple(map(self._value, items))
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.Subscript(value=inner, slice=ast.Tuple(elts=axes)):
                return self.one_type(inner)[tuple(map(_axis, axes))]
            case ast.Subscript(value=inner, slice=axis):
                return self.one_type(inner)[_axis(axis)]
            case ast.Call(func=ast.Name(id="pickled"), args=[ast.Constant(value=int() as place), _], keywords=[]):
                return pickle.loads(base64.b64decode(self._pickles[place], validate=True))
            case ast.Call(func=ast.Name(id=name), args=items, keywords=named) if name in _MAKERS:
                more = {one.arg: self._value(one.value) for one in named if one.arg is not None}
                if len(more) < len(named):
                    raise NotReadable(f"{ast.unparse(node)} is no type")
                return _MAKERS[name](*map(self._value, items), **more)
            case ast.Call(func=inner, args=items, keywords=[]):
                return self.one_type(inner)(*map(self.one_type, items))
        raise NotReadable(f"{ast.unparse(node)} is no type")


def _axis(node: ast.expr) -> slice:
    match node:
        case ast.Slice(lower=None, upper=None, step=None):
            return slice(None)
        case ast.Slice(lower=None, upper=None, step=ast.Constant(value=1)):
            return slice(None, None, 1)
    raise NotReadable(f"{ast.unparse(node)} is no axis of an array: write : or ::1")


def _make_buffer(cls: Any) -> Callable[..., Any]:
    return lambda dtype, ndim, layout, readonly=False: cls(dtype, ndim, layout, readonly=readonly)


def _make_record(*fields: Any, size: int, aligned: bool) -> Any:
    described = []
    for name, kind, offset, *more in fields:
        alignment, title = more or (None, None)
        described.append((name, {"type": kind, "offset": offset, "alignment": alignment, "title": title}))
    return types.Record(described, size, aligned)


def _make_enumeration(cls: Any) -> Callable[..., Any]:
    return lambda name, dtype: cls(_class(name), dtype)


def _class(name: str) -> type:
    found = find(name)
    if not isinstance(found, type):
        raise NotReadable(f"{name} is no class any more")
    return found


def _member(name: str, member: str) -> Any:
    return _class(name)[member]  # type: ignore[index]


def _function(name: str) -> Any:
    found = find(name)
    if not isinstance(found, Dispatcher):
        raise NotReadable(f"{name} is no jitted function any more")
    return found


def _make_jitclass(name: str) -> Any:
    found = find(name)
    if not isinstance(found, JitClassType):
        raise NotReadable(f"{name} is no jitclass any more")
    return found.class_type.instance_type


def _make_omitted(value: Any) -> Any:
    return types.Omitted(_bare(value))


def _bare(value: Any) -> Any:
    """`function('m:f')` is a type where types stand, and the function itself where values do."""
    return value.dispatcher if isinstance(value, types.Dispatcher) else value


_MAKERS: Final[Mapping[str, Callable[..., Any]]] = {
    **{cls.__name__: cls for cls in (types.Array, types.NestedArray, types.UniTuple, types.StarArgUniTuple)},
    **{cls.__name__: cls for cls in (types.Optional, types.NPDatetime, types.NPTimedelta, types.CharSeq)},
    **{cls.__name__: cls for cls in (types.UnicodeCharSeq, types.List, types.Set, types.ListType, types.DictType)},
    **{cls.__name__: cls for cls in (types.DType, types.NumberClass, types.FunctionType)},
    **{cls.__name__: _make_buffer(cls) for cls in (types.Bytes, types.ByteArray, types.MemoryView, types.PyArray)},
    **{
        cls.__name__: _make_enumeration(cls)
        for cls in (types.EnumMember, types.IntEnumMember, types.EnumClass, types.IntEnumClass)
    },
    "Tuple": lambda *kinds: types.Tuple(kinds),
    "StarArgTuple": lambda *kinds: types.StarArgTuple(kinds),
    "NamedTuple": lambda name, *kinds: types.NamedTuple(kinds, _class(name)),
    "NamedUniTuple": lambda name, dtype, count: types.NamedUniTuple(dtype, count, _class(name)),
    "Record": _make_record,
    "Omitted": _make_omitted,
    "literal": lambda value: types.literal(value),
    "function": lambda name: types.Dispatcher(_function(name)),
    "jitclass": _make_jitclass,
    "member": _member,
    "scalar": lambda name, value: numpy.dtype(name).type(value),
    "float": float,
    "complex": complex,
    "slice": slice,
}
