"""An outline: what a key covers, as short texts and digests under names, so that two keys can be compared in words.

It is read off the very bytes that the key covers (`farm.job.canonical`), so it cannot say anything else than they do:

    ("bytecode", digest)  ("constant 1", "3")  ("global GAIN", "2.5")  ("helper: bytecode", digest)
    ("argument 1", "int64")  ("flag fastmath", "{}")  ("setting OPT", "3")  ("extension ...", digest)

What belongs to a callee has the callee's name before it: ("helper: constant 1", "3"), ("helper/inner: global N", "7").
Made for artifacts that are published, and for `farm why`; never for a call. It is flat, sorted and bounded: what is
long is a digest, what is far down is the digest of all that is there. It enters no key, and says nothing about the
machine that it was made on: positions count as a digest. Constants of user code it holds as the machine code does.

Target and toolchain are not in it: an artifact tells them anyway.
"""

import base64
import binascii
import hashlib
import json
import re
import struct
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import numpy

Outline = tuple[tuple[str, str], ...]
"""(name, text), sorted by name; a name is there once."""

OUTLINE: Final = "outline"
"""Where an artifact's description has it."""
TEXT_MAX: Final = 60
"""Characters of one text; a longer one ends in a digest."""
NAME_MAX: Final = 100
ENTRIES_MAX: Final = 240
PACKED_MAX: Final = 4096
"""Characters of a packed outline. A guess: a twentieth of an ordinary artifact."""
UNPACKED_MAX: Final = 1 << 20
WEAK: Final = "#"
"""How a text begins that may differ because something else does: a place in the order of the walk."""
USUAL_PIPELINE: Final = "numba.core.compiler:Compiler"
ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]+|#[0-9a-f]{6,}")


def outline(parts: Mapping[str, bytes], arguments: tuple[Any, ...], return_type: Any | None) -> Outline:
    """The outline of a key's parts, for a signature of these types. Never raises: what cannot be read is a digest."""
    entries: Outline = ()
    limit = ENTRIES_MAX
    while limit:
        entries = _outline(parts, arguments, return_type, limit)
        if len(pack(entries)) <= PACKED_MAX:
            return entries
        limit //= 2
    return tuple((label, digest(part)) for label, part in sorted(parts.items()))


def pack(entries: Outline) -> str:
    """As one short text for an artifact's description."""
    data = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return base64.b64encode(zlib.compress(data, 9)).decode()


def unpack(text: object) -> Outline:
    """The outline in an artifact's description; empty if there is none, or it is damaged."""
    if not isinstance(text, str) or len(text) > 4 * PACKED_MAX:
        return ()
    try:
        data = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), UNPACKED_MAX)
        found = json.loads(data.decode("utf-8", "surrogatepass"))
        return tuple(sorted((str(name), str(value)) for name, value in found))
    except (ValueError, TypeError, zlib.error, binascii.Error, RecursionError):
        return ()


def digest(data: bytes | memoryview) -> str:
    """Enough of a digest to see that two things differ."""
    return hashlib.sha256(data).hexdigest()[:8]


def type_text(kind: object, length_max: int = TEXT_MAX) -> str:
    """A numba type's name without what differs from process to process."""
    return _short(ADDRESS.sub("*", str(kind)), length_max=length_max)


def _outline(parts: Mapping[str, bytes], arguments: tuple[Any, ...], return_type: Any | None, limit: int) -> Outline:
    reader = _Reader(limit)
    for number, kind in enumerate(arguments, start=1):
        reader.add("", f"argument {number}", type_text(kind))
    if return_type is not None:
        reader.add("", "return type", type_text(return_type))
    with suppress(Exception):  # bytes of another version of the walk: what was read so far is true all the same
        reader.flags(parts.get("flags", b""))
        reader.settings(parts.get("settings", b""))
    for label in ("function", "signature", "extensions"):
        try:
            reader.part(label, memoryview(parts.get(label, b"")))
        except Exception:
            reader.add("", label, digest(parts.get(label, b"")))
    return tuple(sorted(reader.entries.items()))


def _short(text: str, whole: bytes | memoryview | None = None, length_max: int = TEXT_MAX) -> str:
    if len(text) <= length_max:
        return text
    rest = digest(text.encode("utf-8", "surrogatepass") if whole is None else whole)
    return f"{text[: length_max - 12]}... {rest}"


# -- canonical bytes -----------------------------------------------------------------------------------------


def _tag(frame: memoryview) -> bytes:
    return bytes(frame[:1])


def _bodies(frame: memoryview) -> Iterator[memoryview]:
    """What one encoded value is made of: see `farm.job.canonical`."""
    at = 9
    while at < len(frame):
        end = at + 8 + int.from_bytes(frame[at : at + 8], "big")
        yield frame[at + 8 : end]
        at = end


def _string(frame: memoryview) -> str:
    (body,) = _bodies(frame)
    return str(body, "utf-8", "surrogatepass")


def _bytes(frame: memoryview) -> memoryview:
    (body,) = _bodies(frame)
    return body


def _value(frame: memoryview) -> str:
    """A plain value as people write it, shortened."""
    kind = _tag(frame)
    if kind in _FIXED:
        return _FIXED[kind]
    bodies = list(_bodies(frame)) if len(frame) <= 8 * TEXT_MAX or kind in b"sBag" else []
    if kind in _SCALARS:
        return _short(_SCALARS[kind](bodies), frame)
    if kind in _BRACKETS and (bodies or len(frame) == 9):
        opening, closing = _BRACKETS[kind]
        return _short(f"{opening}{', '.join(map(_value, bodies))}{closing}", frame)
    return digest(frame)


def _numpy_scalar(bodies: list[memoryview]) -> str:
    kind = numpy.dtype(str(_bytes(bodies[0]), "ascii"))  # a record's is no such text, and is a digest then
    return f"{kind}({numpy.frombuffer(bodies[1], kind)[0]})"


def _array_text(bodies: list[memoryview]) -> str:
    kind, shape, _, content = bodies
    name = str(_bytes(kind), "ascii") if _tag(kind) == b"v" else "record"
    return f"array of {name}, shape {_value(shape)}, {digest(content)}"


_FIXED: Final = {b"N": "None", b"E": "..."}
_BRACKETS: Final = {
    b"t": ("(", ")"),
    b"l": ("[", "]"),
    b"S": ("{", "}"),
    b"F": ("frozenset(", ")"),
    b"x": ("slice(", ")"),
    b"R": ("range(", ")"),
}
_SCALARS: Final = {
    b"b": lambda bodies: str(bodies[0] == b"1"),
    b"i": lambda bodies: ("" if bodies[1] == b"d" else "0x") + str(bodies[0], "ascii"),
    b"f": lambda bodies: repr(struct.unpack(">d", bodies[0])[0]),
    b"c": lambda bodies: repr(complex(*struct.unpack(">dd", bodies[0]))),
    b"s": lambda bodies: repr(str(bodies[0][: 4 * TEXT_MAX], "utf-8", "replace")),
    b"B": lambda bodies: repr(bytes(bodies[0][: 4 * TEXT_MAX])),
    b"g": _numpy_scalar,
    b"a": _array_text,
}


# -- the description -----------------------------------------------------------------------------------------


class _Reader:
    """Takes the encoded nodes of `farm.job.reach` apart, what is near the function before what is far."""

    def __init__(self, limit: int) -> None:
        self.entries: dict[str, str] = {}
        self._limit = limit
        self._waiting: deque[tuple[memoryview, str, str]] = deque()

    def add(self, owner: str, name: str, text: str) -> None:
        full = f"{owner}: {name}" if owner else name
        if len(full) > NAME_MAX:
            full = f"{full[: NAME_MAX - 9]} {digest(full.encode('utf-8', 'surrogatepass'))}"
        while full in self.entries and self.entries[full] != text:
            full += "'"
        self.entries[full] = text

    def flags(self, part: bytes) -> None:
        for one in part.decode().split(";"):
            name, found, value = one.partition("=")
            if found:
                self.add("", f"flag {name}", _short(value))

    def settings(self, part: bytes) -> None:
        for item in _bodies(memoryview(part)):
            name, value = _bodies(item)
            self.add("", f"setting {_string(name)}", _value(value))

    def part(self, label: str, frame: memoryview) -> None:
        if label == "extensions":
            self._extensions(frame)
        elif label == "signature":
            arguments, returned = self._items(list(_bodies(frame))[1])
            for number, one in enumerate(self._items(list(_bodies(arguments))[1]), start=1):
                self._functions_in(one, f"argument {number}")
            self._functions_in(returned, "return type")
        else:
            self._waiting.append((frame, "", ""))
        self._read_waiting()

    def _read_waiting(self) -> None:
        rest = hashlib.sha256()
        left = 0
        while self._waiting:
            frame, owner, name = self._waiting.popleft()
            if len(self.entries) < self._limit:
                self._function(frame, owner)
            elif len(self.entries) < 2 * self._limit:
                self.add(owner, name or "content", digest(frame))
            else:
                rest.update(frame)
                left += 1
        if left:
            self.add("", f"{left} more callees", rest.hexdigest()[:8])

    def _extensions(self, frame: memoryview) -> None:
        _, installed, others = _bodies(frame)
        for pair in _bodies(installed):
            home, version = map(_string, _bodies(pair))
            self.add("", f"extension {home}", version)
        for one in _bodies(others):
            kind, how, place, content = _bodies(one)
            name = f"extension {_string(kind)} {_value(how).strip(chr(39))} {_value(place)}"
            self.add("", name, digest(content))

    @staticmethod
    def _items(frame: memoryview) -> list[memoryview]:
        return list(_bodies(frame))

    def _functions_in(self, node: memoryview, owner: str) -> None:
        """Functions in a type: a first-class function, a tuple of them."""
        if b"function" not in bytes(node):
            return
        found = self._items(node)
        if found and _tag(found[0]) == b"s" and _string(found[0]) in ("dispatcher", "function"):
            self._waiting.append((node, owner, ""))
            return
        for one in found:
            if _tag(one) == b"t" and len(one) > 9:
                self._functions_in(one, owner)

    def _function(self, node: memoryview, owner: str) -> None:
        tag, *content = self._items(node)
        match _string(tag):
            case "dispatcher":
                pipeline, kind, function, options, local_types, explicit = content
                if _string(pipeline) != USUAL_PIPELINE:
                    self.add(owner, "pipeline", f"{_short(_string(pipeline))} {digest(kind)}")
                for option in self._items(self._items(options)[1]):
                    option_name, value = self._items(option)
                    self.add(owner, f"option {self._text(option_name).strip(chr(39))}", self._text(value))
                for label, part in (("types of local variables", local_types), ("explicit signatures", explicit)):
                    if len(self._items(part)) > 1 and len(self._items(self._items(part)[1])):
                        self.add(owner, label, digest(part))
                self._function(function, owner)
            case "function":
                self._body(content, owner)
            case "code":
                self._code(content, owner)
            case _:
                self.add(owner, "content", self._text(node))

    def _body(self, content: list[memoryview], owner: str) -> None:
        name, module, code, defaults, keyword_defaults, cells, global_names, wrapped, seen = content
        self.add(owner, "name", _string(name))
        if _tag(module) != b"N":
            self.add(owner, "module", _string(module))
        parts = self._items(code)[1:]
        self._code(parts, owner)
        kind, *values = self._items(defaults)
        for number, item in enumerate(self._items(values[0]) if _string(kind) == "tuple" else (), start=1):
            self._named(item, owner, f"default {number}")
        kind, *values = self._items(keyword_defaults)
        for pair in self._items(values[0]) if _string(kind) == "dict" else ():
            key, value = self._items(pair)
            self._named(value, owner, f"default {self._text(key).strip(chr(39))}")
        for free, cell in zip(map(_string, self._items(parts[5])), self._items(cells), strict=True):
            self._named(cell, owner, free, "variable ")
        for entry in self._items(global_names):
            used, value = self._items(entry)
            self._named(value, owner, _string(used), "global ")
        for label, one in (("wrapped function", wrapped), ("attributes and imports", seen)):
            if len(one) > 9 and self._text(one) != "None":
                self.add(owner, label, digest(one))

    def _code(self, parts: list[memoryview], owner: str) -> None:
        operations, numbers, constants, names, variables, _, cells, flags, counts, exceptions, positions = parts
        whole = hashlib.sha256()
        for one in (operations, names, cells, flags, counts, exceptions):
            whole.update(one)
        self.add(owner, "bytecode", whole.hexdigest()[:8])
        self.add(owner, "order of constants", WEAK + digest(numbers))
        self.add(owner, "local variables", _short(", ".join(map(_string, self._items(variables))), variables))
        if len(positions) > 9:
            self.add(owner, "position", digest(positions))
        for number, one in enumerate(self._items(constants), start=1):
            if _string(self._items(one)[0]) == "code":
                self._waiting.append((one, f"{owner}/inner {number}" if owner else f"inner {number}", ""))
            else:
                self._named(one, owner, f"constant {number}")

    def _named(self, node: memoryview, owner: str, name: str, kind: str = "") -> None:
        """What a name stands for: a function has entries of its own, a module one for each attribute."""
        tag, *content = self._items(node)
        match _string(tag):
            case "dispatcher" | "function":
                self._waiting.append((node, f"{owner}/{name}" if owner else name, kind + name))
            case "module":
                self._attributes(content[0], owner, name, kind)
            case "installed":
                self.add(owner, f"module {name}", _short(f"{_string(content[0])} {_string(content[1])}", node))
                self._attributes(content[2], owner, name, kind)
            case "tuple" | "list" if b"function" in bytes(node):
                for number, item in enumerate(self._items(content[0])):
                    self._named(item, owner, f"{name}[{number}]", kind)
            case "intrinsic" | "cfunc" | "stencil":
                self.add(owner, kind + name, f"{_string(tag)} {digest(node)}")
            case _:
                self.add(owner, kind + name, self._text(node))

    def _attributes(self, entries: memoryview, owner: str, name: str, kind: str) -> None:
        for one in self._items(entries):
            label, value = self._items(one)
            self._named(value, owner, f"{name}.{_string(label)}", kind)

    def _text(self, node: memoryview) -> str:
        """A node that is no function."""
        tag, *content = self._items(node)
        kind = _string(tag)
        match kind:
            case "plain":
                return _value(_bytes(content[0]))
            case "array":
                return _value(_bytes(content[0]))
            case "enum":
                return f"{self._text(content[0])}.{_string(content[1])}"
            case "again" | "class again":
                return f"{WEAK}{_value(content[0])}"
            case "builtin":
                return "a builtin"
            case "missing":
                return "not defined"
            case "empty cell":
                return "empty"
            case "named":
                module, name, version = map(_string, content)
                return _short(f"{module}.{name} of {version}", node)
            case "class":
                return _short(f"class {_string(content[0])}.{_string(content[1])} {digest(node)}", node)
            case "tuple" | "list":
                brackets = "()" if kind == "tuple" else "[]"
                if len(node) <= 64 * TEXT_MAX:
                    inside = ", ".join(map(self._text, self._items(content[0])))
                    return _short(f"{brackets[0]}{inside}{brackets[1]}", node)
            case _ if kind.startswith("type "):
                items = self._items(self._items(content[0])[1])
                if len(items) == 1 and _string(self._items(items[0])[0]) == "plain":
                    return _short(f"type {self._text(items[0]).strip(chr(39))}", node)
                return f"type {kind.rpartition(':')[2]} {digest(node)}"
        return f"{kind} {digest(node)}"
