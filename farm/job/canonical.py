"""The canonical encoding: one byte string for each plain value, and a different one for every other value.

Equal content gives equal bytes in every process, whatever PYTHONHASHSEED: sets and dicts are sorted by
the encoding of their items. Every value is framed as tag, length, body, so no two values share an
encoding. `True`, `1`, `1.0` and `-0.0` are four different values here, as they are to a compiler.

Raises NotShippable(UNKEYABLE) for anything that is not plain; it never falls back to `repr` or `hash`.
"""

import struct
from enum import Enum
from functools import lru_cache
from typing import Any, Final

import numpy

from farm.errors import NotShippable
from farm.reasons import RefusalReason

TEXT_MAX: Final = 64
"""Longer texts are not kept: tags and names, of which there are few, come again and again."""


def encode(value: object) -> bytes:
    """The canonical bytes of a plain value; see the module for what is plain."""
    encoder = _ENCODERS.get(type(value))
    if encoder is not None:
        return encoder(value)  # type: ignore[no-any-return]
    if value is None:
        return _frame(b"N")
    if value is Ellipsis:
        return _frame(b"E")
    if isinstance(value, Enum):
        return _frame(b"e", _class_name(type(value)), encode(value.name), encode(value.value))
    if isinstance(value, numpy.generic):
        if value.dtype.hasobject:
            raise NotShippable(RefusalReason.UNKEYABLE, f"a numpy scalar of type {value.dtype}")
        return _frame(b"g", encode_dtype(value.dtype), value.tobytes())
    if isinstance(value, numpy.dtype):
        return _frame(b"y", encode_dtype(value))
    raise NotShippable(RefusalReason.UNKEYABLE, f"a {type(value).__module__}.{type(value).__qualname__} object")


def encode_dtype(dtype: "numpy.dtype[Any]") -> bytes:
    """Byte order, kind, size, alignment, and for records the name, type and offset of every field."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return _frame(b"u", encode_dtype(base), encode(tuple(shape)))
    if dtype.fields is None or dtype.names is None:
        return _frame(b"v", dtype.str.encode())
    fields = [(name, *dtype.fields[name][:2]) for name in dtype.names]
    body = [part for name, kind, offset in fields for part in (encode(name), encode_dtype(kind), encode(offset))]
    return _frame(b"r", encode(dtype.itemsize), encode(dtype.isalignedstruct), *body)


def _frame(tag: bytes, *bodies: bytes) -> bytes:
    if len(bodies) == 1:  # most values: half the time of the general way
        length = len(bodies[0])
        return tag + (length + 8).to_bytes(8, "big") + length.to_bytes(8, "big") + bodies[0]
    body = b"".join(len(one).to_bytes(8, "big") + one for one in bodies)
    return tag + len(body).to_bytes(8, "big") + body


def _class_name(cls: type) -> bytes:
    return f"{cls.__module__}:{cls.__qualname__}".encode()


def _text(value: str) -> bytes:
    return _frame(b"s", value.encode("utf-8", "surrogatepass"))


_known_text = lru_cache(maxsize=4096)(_text)


def _float(value: float) -> bytes:
    return _frame(b"f", struct.pack(">d", value))


def _complex(value: complex) -> bytes:
    return _frame(b"c", struct.pack(">dd", value.real, value.imag))


def _array(value: "numpy.ndarray[Any, Any]") -> bytes:
    if value.dtype.hasobject:
        raise NotShippable(RefusalReason.UNKEYABLE, "an array of Python objects")
    flags = value.flags
    layout = ("C" if flags.c_contiguous else "") + ("F" if flags.f_contiguous else "") or "A"
    shape = encode(tuple(int(n) for n in value.shape))
    access = encode((layout, bool(flags.writeable), bool(flags.aligned)))
    return _frame(b"a", encode_dtype(value.dtype), shape, access, value.tobytes())


def _dict(value: dict[Any, Any]) -> bytes:
    return _frame(b"d", *(_frame(b"i", k, v) for k, v in sorted((encode(k), encode(v)) for k, v in value.items())))


_ENCODERS: dict[type, Any] = {
    bool: lambda v: _frame(b"b", b"1" if v else b"0"),
    int: lambda v: _frame(b"i", b"%d" % v if abs(v) < 1 << 64 else b"%x" % v, b"d" if abs(v) < 1 << 64 else b"x"),
    float: _float,
    complex: _complex,
    str: lambda v: _known_text(v) if len(v) <= TEXT_MAX else _text(v),
    bytes: lambda v: _frame(b"B", v),
    tuple: lambda v: _frame(b"t", *map(encode, v)),
    list: lambda v: _frame(b"l", *map(encode, v)),
    dict: _dict,
    set: lambda v: _frame(b"S", *sorted(map(encode, v))),
    frozenset: lambda v: _frame(b"F", *sorted(map(encode, v))),
    slice: lambda v: _frame(b"x", encode(v.start), encode(v.stop), encode(v.step)),
    range: lambda v: _frame(b"R", encode(v.start), encode(v.stop), encode(v.step)),
    numpy.ndarray: _array,
}
