"""Reads an ELF object file: its symbols, and its sections with what is to be relocated in them.

Enough of the format for what LLVM's MCJIT emits on 64-bit little-endian machines (System V ABI,
"Object Files"). Anything else raises ValueError, which makes a result not serialisable rather than
loaded unchecked: machine code with an unresolved symbol is a segfault in the process that loads it.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

T = TypeVar("T")

HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION: Final = struct.Struct("<IIQQQQIIQQ")
SYMBOL: Final = struct.Struct("<IBBHQQ")
RELOCATION: Final = struct.Struct("<QQq")
SHT_SYMTAB: Final = 2
SHT_STRTAB: Final = 3
SHT_RELA: Final = 4
SHT_NOBITS: Final = 8
SHN_UNDEF: Final = 0
STB_LOCAL: Final = 0
STT_SECTION: Final = 3


@dataclass(frozen=True, slots=True)
class Symbols:
    """Names of the global and weak symbols that an object defines, and of those it needs."""

    defined: tuple[str, ...]
    undefined: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Symbol:
    """One row of the symbol table. A section's own symbol has the section's name."""

    name: str
    info: int
    other: int
    section: int
    value: int
    size: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """What is written into a section when its address and the symbol's are known."""

    offset: int
    kind: int
    symbol: Symbol
    addend: int


@dataclass(frozen=True, slots=True)
class Section:
    """One section. Tables of symbols, names and relocations are left out: they are in the other values."""

    index: int
    name: str
    kind: int
    flags: int
    alignment: int
    content: bytes
    relocations: tuple[Relocation, ...]


@dataclass(frozen=True, slots=True)
class Object:
    """An object file, but for the order of its names."""

    machine: int
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]


def read_symbols(data: bytes) -> Symbols:
    """The symbols of one object file; ValueError if it is not one that this module can read."""
    return _checked(data, _read_symbols)


def read_object(data: bytes) -> Object:
    """All of an object file; ValueError if it is not one that this module can read."""
    return _checked(data, _read_object)


def _checked(data: bytes, read: Callable[[bytes], T]) -> T:
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF object")
    try:
        return read(data)
    except (struct.error, IndexError) as error:
        raise ValueError(f"damaged ELF object: {error}") from error


def _section_table(data: bytes) -> list[tuple[int, ...]]:
    header = HEADER.unpack_from(data)
    offset, size, count = header[6], header[11], header[12]
    return [SECTION.unpack_from(data, offset + i * size) for i in range(count)]


def _name(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()


def _symbol_rows(data: bytes, sections: list[tuple[int, ...]]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Each row of the symbol tables, after the place where the names of its table begin."""
    for section in sections:
        if section[1] == SHT_SYMTAB:
            strings_at = sections[section[6]][4]
            for at in range(section[4], section[4] + section[5], SYMBOL.size):
                yield strings_at, SYMBOL.unpack_from(data, at)


def _read_symbols(data: bytes) -> Symbols:
    sections = _section_table(data)
    defined: set[str] = set()
    undefined: set[str] = set()
    for strings_at, (name_at, info, _, index, _, _) in _symbol_rows(data, sections):
        if info >> 4 == STB_LOCAL or not name_at:
            continue
        name = _name(data, strings_at + name_at)
        (undefined if index == SHN_UNDEF else defined).add(name)
    return Symbols(tuple(sorted(defined)), tuple(sorted(undefined)))


def _read_object(data: bytes) -> Object:
    header, table = HEADER.unpack_from(data), _section_table(data)
    names_at = table[header[13]][4]
    names = [_name(data, names_at + row[0]) for row in table]
    symbols: list[Symbol] = []
    for strings_at, (name_at, info, other, index, value, size) in _symbol_rows(data, table):
        name = names[index] if info & 0xF == STT_SECTION else _name(data, strings_at + name_at)
        symbols.append(Symbol(name, info, other, index, value, size))
    relocations: dict[int, list[Relocation]] = {}
    for row in table:
        if row[1] == SHT_RELA:
            into = relocations.setdefault(row[7], [])
            for at in range(row[4], row[4] + row[5], RELOCATION.size):
                offset, info, addend = RELOCATION.unpack_from(data, at)
                into.append(Relocation(offset, info & 0xFFFFFFFF, symbols[info >> 32], addend))
    sections = [
        Section(
            index,
            names[index],
            kind,
            flags,
            alignment,
            b"" if kind == SHT_NOBITS else data[offset : offset + size],
            tuple(relocations.get(index, ())),
        )
        for index, (_, kind, flags, _, offset, size, _, _, alignment, _) in enumerate(table)
        if kind not in (SHT_SYMTAB, SHT_STRTAB, SHT_RELA)
    ]
    return Object(header[2], tuple(sections), tuple(symbols))
