"""Reads the symbol table of an ELF object: which symbols it defines and which it needs.

Enough of the format for what LLVM's MCJIT emits on 64-bit little-endian machines (System V ABI,
"Object Files"). Anything else raises ValueError, which makes a result not serialisable rather than
loaded unchecked: machine code with an unresolved symbol is a segfault in the process that loads it.
"""

import struct
from dataclasses import dataclass
from typing import Final

HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION: Final = struct.Struct("<IIQQQQIIQQ")
SYMBOL: Final = struct.Struct("<IBBHQQ")
SHT_SYMTAB: Final = 2
SHN_UNDEF: Final = 0
STB_LOCAL: Final = 0


@dataclass(frozen=True, slots=True)
class Symbols:
    """Names of the global and weak symbols that an object defines, and of those it needs."""

    defined: tuple[str, ...]
    undefined: tuple[str, ...]


def read_symbols(data: bytes) -> Symbols:
    """The symbols of one object file; ValueError if it is not one that this module can read."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF object")
    try:
        return _read(data)
    except (struct.error, IndexError) as error:
        raise ValueError(f"damaged ELF object: {error}") from error


def _read(data: bytes) -> Symbols:
    header = HEADER.unpack_from(data)
    offset, size, count = header[6], header[11], header[12]
    sections = [SECTION.unpack_from(data, offset + i * size) for i in range(count)]
    defined: set[str] = set()
    undefined: set[str] = set()
    for section in sections:
        if section[1] != SHT_SYMTAB:
            continue
        strings_at = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], SYMBOL.size):
            name_at, info, _, index, _, _ = SYMBOL.unpack_from(data, at)
            if info >> 4 == STB_LOCAL or not name_at:
                continue
            start = strings_at + name_at
            name = data[start : data.index(b"\0", start)].decode()
            (undefined if index == SHN_UNDEF else defined).add(name)
    return Symbols(tuple(sorted(defined)), tuple(sorted(undefined)))
