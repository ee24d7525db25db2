"""What an artifact is made of, with copies merged: for artifacts that no renaming turns into each other.

Two workers may publish one callee at the same time, under two names. A caller that links both, one directly and one
inside another callee, has two copies of what is in it; compiled again it has one. So everything that has a name is
given a colour: a digest of what it is, the names in it replaced by the colours of what they name, refined round by
round as in the refinement of graphs. Two artifacts are the same if their sets of colours are.

Stricter than it sounds: bodies that differ in one byte have two colours, and so has all that refers to them. Given up
here, and kept in `port.compare`: the order of things, unwinding tables, and where a jump table leads to.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import llvmlite.binding as llvm

from farm.port import elf, symbolic
from farm.port.renaming import masked

Target = tuple[str, int]
"""A symbol and the distance from it."""
ROUNDS: Final = 12
"""Names that reach each other over longer ways are told apart by what is nearer. A guess."""
PIECE: Final = re.compile(r"^define .*?^}|^@[^\n]*|^declare [^\n]*", re.MULTILINE | re.DOTALL)
"""A function, a constant or variable, what is outside."""
INTERNAL: Final = re.compile(r"(?:^| = )(?:define )?(?:internal|private)\b")
NAME: Final = re.compile(r'c"[^"]*"|[@$]"[^"]*"|[@$][-\w$.]+')
LOCAL: Final = re.compile(r'%"[^"]*"|%[-\w$.]+|^[-\w$.]+(?=:)', re.MULTILINE)
GROUP: Final = re.compile(r"(?<![\w\"])#\d+|![0-9]+")
SIZED: Final = re.compile(r"\[\d+ x i8\](?= c\")")
PICKLE: Final = re.compile(r"\.const\.pickledata\.[0-9a-f]{40}(?:\.\d+)?")
DIGEST: Final = re.compile(r"\.const\.pickledata\.[0-9a-f]{40}\.sha1(?:\.\d+)?")
I32: Final = re.compile(r"\bi32 (\d+)")
CONSTANT_POOL: Final = re.compile(r"\.l?rodata\.cst(\d+)")
SHF_EXECINSTR: Final = 4
COMMENT: Final = re.compile(r" *;.*$", re.MULTILINE)


@dataclass(slots=True)
class Entity:
    """Something that has a name: what it is, and what it refers to, in order."""

    what: Any
    refers_to: list[str] = field(default_factory=list)


def colours(entities: Mapping[str, Entity]) -> frozenset[str]:
    """What there is, copies once."""
    own = {name: _digest(entity.what) for name, entity in entities.items()}
    now = own
    for _ in range(ROUNDS):
        now = {
            name: _digest((own[name], [now.get(to, f"outside {masked(to)}") for to in entity.refers_to]))
            for name, entity in entities.items()
        }
    return frozenset(now.values())


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode(errors="surrogatepass")).hexdigest()


# -- bitcode -----------------------------------------------------------------------------------------------


def of_bitcode(data: bytes, bytes_of: Callable[[str], bytes]) -> frozenset[str]:
    """The colours of a module's functions and constants. Raises anything if it is none."""
    text = COMMENT.sub("", str(llvm.parse_bitcode(data)))
    found_groups = re.findall(r"^(?:attributes )?([#!]\d+) = (.*)$", text, re.MULTILINE)
    groups = {number: masked(said) for number, said in found_groups}
    sizes: set[str] = set()
    found: dict[str, Entity] = {}
    pieces = PIECE.findall(text)
    for piece in pieces:
        if (constant := re.search(r'\[(\d+) x i8\] c"', piece)) and piece.startswith("@.const.pickledata"):
            sizes.add(constant[1])
    for piece in pieces:
        names = NAME.findall(piece)
        own = next(name for name in names if name[0] == "@")
        found[_plain(own)] = _entity(piece, own, names, groups, sizes, bytes_of)
    return colours(found)


def _entity(
    piece: str,
    own: str,
    names: list[str],
    groups: dict[str, str],
    sizes: set[str],
    bytes_of: Callable[[str], bytes],
) -> Entity:
    constants = [_constant(_plain(own), bytes_of(name)) for name in names if name.startswith('c"')]
    local: dict[str, int] = {}
    body = NAME.sub("@", SIZED.sub("[i8]", piece))
    body = LOCAL.sub(lambda m: f"%{local.setdefault(m[0].strip('%').strip(chr(34)), len(local))}", body)
    body = I32.sub(lambda m: "i32 size" if m[1] in sizes else m[0], body)
    body = _expanded(body, groups)
    called = "" if INTERNAL.search(piece[:200]) else masked(_plain(own))
    return Entity((called, body, constants), [_plain(name) for name in names if name[0] in "@$"])


def _expanded(text: str, groups: dict[str, str], depth: int = 3) -> str:
    """With what attribute groups and metadata say, in place of their numbers."""
    if depth == 0:
        return GROUP.sub("!", text)
    return GROUP.sub(lambda m: _expanded(groups.get(m[0], "?"), groups, depth - 1), text)


def _plain(name: str) -> str:
    return name[1:].strip('"')


def _constant(name: str, content: bytes) -> object:
    if PICKLE.fullmatch(name):
        return masked(repr(symbolic.canonical(symbolic.read_exception(content))))
    if DIGEST.fullmatch(name):
        return "a pickle's digest"
    return masked(content.decode("latin-1"))


# -- machine code ------------------------------------------------------------------------------------------


def of_code(data: bytes, targets: Callable[[elf.Object], Callable[[elf.Relocation], Target]]) -> frozenset[str]:
    """The colours of an object file's functions and constants; ValueError if it is none."""
    file = elf.read_object(data)
    target = targets(file)
    sections = {section.index: section for section in file.sections}
    sizes = {s.size.to_bytes(4, "little") for s in file.symbols if PICKLE.fullmatch(s.name)}
    found: dict[str, Entity] = {}
    for symbol in file.symbols:
        if symbol.section == elf.SHN_UNDEF or symbol.info & 0xF == elf.STT_SECTION or not symbol.name:
            continue
        section = sections.get(symbol.section)
        called = "" if symbol.info >> 4 == elf.STB_LOCAL else masked(symbol.name)
        place = "" if section is None else masked(section.name)
        if section is None or not section.content or not symbol.size:
            found[symbol.name] = Entity((called, symbol.info, place, symbol.size))
            continue
        start, end = symbol.value, symbol.value + symbol.size
        content: object = section.content[start:end]
        if section.flags & SHF_EXECINSTR:
            content = _without(section.content[start:end], sizes)
        elif symbol.name.startswith(".const.") and not symbol.name.startswith(".const.picklebuf"):
            content = _constant(symbol.name, section.content[start:end])
        else:
            content = _without(section.content[start:end], sizes)
        entity = found[symbol.name] = Entity(None)
        where = []
        for relocation in section.relocations:
            if start <= relocation.offset < end:
                name, distance = target(relocation)
                if name.startswith("after ") or not name:
                    where.append((relocation.offset - start, relocation.kind, _pooled(sections, relocation)))
                else:
                    where.append((relocation.offset - start, relocation.kind, distance))
                    entity.refers_to.append(name)
        entity.what = (called, symbol.info, place, content, where)
    return colours(found)


def _pooled(sections: Mapping[int, elf.Section], relocation: elf.Relocation) -> object:
    """A constant without a name: its bytes, if the section says how many these are."""
    section = sections.get(relocation.symbol.section)
    pool = None if section is None else CONSTANT_POOL.fullmatch(section.name)
    if section is None or pool is None:
        return "a table"
    return section.content[relocation.addend : relocation.addend + int(pool[1])]


def _without(content: bytes, sizes: Iterable[bytes]) -> bytes:
    """The bytes with zeros for numbers that say how long a pickle is."""
    for size in sizes:
        content = content.replace(size, bytes(4))
    return content


# -- the environment ---------------------------------------------------------------------------------------


def of_environment(data: bytes) -> tuple[str, frozenset[str]]:
    """The environment as text, and the environments that are referred to, copies once."""
    state = dict(symbolic.read(data))
    referenced = frozenset(masked(repr(symbolic.canonical(one))) for one in state.pop("referenced"))
    return masked(repr(symbolic.canonical(state))), referenced
