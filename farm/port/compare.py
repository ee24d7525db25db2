"""Compares what two compiles of one signature made, the second of them under the symbol base of the first.

    IDENTICAL   the machine code, the bitcode and the environment are the same bytes
    EQUIVALENT  the same but for one renaming of what is different each time (`port.renaming`)

Identical is what names nothing that differs each time. Not so: parallel code and generators (an address in a name);
object mode blocks (a dispatcher's identity); callers of other functions (an address in the annotation); what links a
callee that no library keeps, or one that was published again since (its names); what a worker made that had numba's
own functions in memory from an earlier job (names were counted otherwise); a function that has moved in its file, or
with it (positions); what has two copies of a callee in it, made at the same time by two workers (`port.merged`).
These are compared part by part: the machine code by symbols, relocations and what lies between; the bitcode by its
text; pickles, in either and in the environment, by the structure that they describe (`port.symbolic`). Nothing of
them is run.

Not compared: positions and docstrings, which no key has; the annotation, and the times and reports of the compiler.
"""

import hashlib
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import islice, zip_longest
from typing import Any, Final

import llvmlite.binding as llvm

from farm.port import elf, merged, symbolic
from farm.port.compile import Parts
from farm.port.renaming import Exact, Renaming, masked
from farm.port.symbolic import Difference, is_plain, shown


class Sameness(Enum):
    """How two compiles that made the same are alike."""

    IDENTICAL = "the same bytes"
    EQUIVALENT = "the same but for names that are different each time"


DESCRIBED: Final = ("defined", "undefined", "target", "classes")
"""What of the description says something about the machine code."""
DIFFERENCES_MAX: Final = 3
"""A guess: so many of each part are told; what follows is mostly their consequence."""
NAMES_IN_TEXT: Final = re.compile(r'c"[^"]*"|[@$%!]?"[^"]*"|[@$%][-\w$.]+|^[-\w$.]+(?=:)')
"""In LLVM's text: constants of bytes, quoted names and strings, names, and labels. A hexadecimal number elsewhere is a
value."""
GLOBAL: Final = ("@", "$", "!", '"')
"""How names begin that mean something outside a function. Others do not: numba numbers blocks as it goes."""
FUNCTION: Final = re.compile(r"^(?=define )", re.MULTILINE)
PICKLE: Final = re.compile(r"\.const\.pickledata\.([0-9a-f]{40})(\.sha1)?")
"""The symbol of a pickle, or of its digest. How long a pickle is depends on positions; what it says does not."""
SIZE: Final = re.compile(r'(?<=\bconstant )\[(\d+) x i8\](?= c")')
"""How long a constant text or a pickle is: the longer the numbers in it, or the path, the longer."""
UNSIZED: Final = "[i8]"
NUMBER: Final = re.compile(r"\bi32 (\d+)")
TEXT: Final = ".const."
"""What numba calls a constant text, and then the text itself."""
ALIGNMENT: Final = 16
"""Of what the compiler puts behind the last symbol of a section."""
ESCAPED: Final = re.compile(rb"\\([0-9A-Fa-f]{2})")


def compare(stored: Parts, again: Parts) -> Sameness | tuple[Difference, ...]:
    """How what is stored and what was compiled again are the same, or in what they differ. Never raises."""
    described = [
        (f"description, {name}", shown(stored.meta.get(name)), shown(again.meta.get(name)))
        for name in DESCRIBED
        if _description(stored.meta.get(name)) != _description(again.meta.get(name))
    ]
    pairs = {
        "machine code": (stored.code, again.code, _differences_of_code),
        "bitcode": (stored.bitcode, again.bitcode, _differences_of_bitcode),
        "environment": (stored.environment, again.environment, _differences_of_environment),
    }
    if not described and all(one == other for one, other, _ in pairs.values()):
        return Sameness.IDENTICAL
    found: list[Difference] = []
    renaming = Renaming()  # one for all parts: a name is the same name in each
    for name, (one, other, differences) in pairs.items():
        try:
            if one == other:
                if one is stored.code:  # then nothing may be called otherwise elsewhere
                    names = elf.read_symbols(one)
                    all(renaming.text(symbol, symbol) for symbol in (*names.defined, *names.undefined))
                continue
            first = islice(differences(one, other, renaming), DIFFERENCES_MAX)
            found += [(f"{name}, {where}", here, there) for where, here, there in first]
        except Exception as error:  # bytes that nothing can be made of: then they differ as bytes
            found.append((name, f"{len(one)} bytes", f"{len(other)} bytes ({type(error).__name__}: {error})"))
    differing = (*described, *found)
    if described and _same_when_merged(stored, again):
        return Sameness.EQUIVALENT
    return differing or Sameness.EQUIVALENT


def _targets(file: elf.Object) -> Callable[[elf.Relocation], tuple[str, int]]:
    return _Laid(file).target


def _same_when_merged(stored: Parts, again: Parts) -> bool:
    """Whether they differ in nothing but how many copies of a callee are in them: then in what is defined, too."""
    try:
        described = [
            {masked(str(one)) for one in stored.meta[name]} == {masked(str(one)) for one in again.meta[name]}
            for name in ("defined", "undefined", "classes")
        ]
        return (
            all(described)
            and stored.meta["target"] == again.meta["target"]
            and merged.of_code(stored.code, _targets) == merged.of_code(again.code, _targets)
            and merged.of_bitcode(stored.bitcode, _bytes_of) == merged.of_bitcode(again.bitcode, _bytes_of)
            and merged.of_environment(stored.environment) == merged.of_environment(again.environment)
        )
    except Exception:  # bytes that nothing can be made of
        return False


def _description(value: Any) -> Any:
    return sorted(masked(str(one)) for one in value) if isinstance(value, list) else value


# -- machine code ------------------------------------------------------------------------------------------


def _differences_of_code(one: bytes, other: bytes, renaming: Renaming) -> Iterator[Difference]:
    here, there = _Laid(elf.read_object(one)), _Laid(elf.read_object(other))
    if here.file.machine != there.file.machine or len(here.file.sections) != len(there.file.sections):
        yield "sections", shown([s.name for s in here.file.sections]), shown([s.name for s in there.file.sections])
        return
    for a, b in zip_longest(here.symbols, there.symbols):
        if a is None or b is None or not _same_symbol(a, b, renaming):
            yield "symbols", shown(a), shown(b)
            return  # the rest is shifted
    for first, second in zip(here.file.sections, there.file.sections, strict=True):
        yield from _differences_of_sections(here, first, there, second, renaming)


class _Laid:
    """An object file with its symbols in the order in which they lie."""

    def __init__(self, file: elf.Object) -> None:
        self.file = file
        self.symbols = sorted(file.symbols, key=lambda s: (s.section, s.value, s.size, s.info, masked(s.name)))
        self._sized: dict[int, list[elf.Symbol]] = {}
        for symbol in self.symbols:
            if symbol.size:
                self._sized.setdefault(symbol.section, []).append(symbol)

    def pieces(self, section: elf.Section) -> list[tuple[str, int, bytes]]:
        """(symbol, offset, bytes) of what a section holds; without symbol what lies between, without padding."""
        found, end = list[tuple[str, int, bytes]](), 0
        for symbol in self._sized.get(section.index, []):
            if symbol.value >= end:
                found.append(("", end, section.content[end : symbol.value].strip(b"\0")))
                end = symbol.value + symbol.size
                found.append((symbol.name, symbol.value, section.content[symbol.value : end]))
        found.append(("", end, section.content[end:].strip(b"\0")))
        return [piece for piece in found if piece[0] or piece[2]]

    def target(self, relocation: elf.Relocation) -> tuple[str, int]:
        """A symbol and the distance from it; a section's own symbol is no help where sections are laid otherwise."""
        symbol, addend = relocation.symbol, relocation.addend
        if symbol.info & 0xF != elf.STT_SECTION:
            return symbol.name, addend
        return self.place(symbol.section, addend)

    def place(self, section: int, offset: int) -> tuple[str, int]:
        """The symbol that something in a section belongs to, or comes after, and how far from its start or end."""
        sized = self._sized.get(section, [])
        number = bisect_right(sized, offset, key=lambda symbol: symbol.value)
        if number == 0:
            return "", offset
        last = sized[number - 1]
        end = last.value + last.size
        return (last.name, offset - last.value) if offset < end else (f"after {last.name}", offset - _aligned(end))


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _same_symbol(one: elf.Symbol, other: elf.Symbol, renaming: Renaming) -> bool:
    kinds = [(symbol.info, symbol.other, symbol.section) for symbol in (one, other)]
    sized = one.size == other.size or one.name.startswith(TEXT)
    return kinds[0] == kinds[1] and sized and renaming.text(one.name, other.name)


def _differences_of_sections(
    here: _Laid, one: elf.Section, there: _Laid, other: elf.Section, renaming: Renaming
) -> Iterator[Difference]:
    made = [(section.kind, section.flags, section.alignment) for section in (one, other)]
    if made[0] != made[1] or not renaming.text(one.name, other.name):
        yield f"section {one.name}", shown((one.name, *made[0])), shown((other.name, *made[1]))
        return
    sizes = _pickle_sizes(here, there)
    for a, b in zip_longest(here.pieces(one), there.pieces(other)):
        if a is None or b is None:
            yield f"section {one.name}", shown(a), shown(b)
            return
        (name, _, first), (_, _, second) = a, b
        if first != second:
            where = f"{name or 'between symbols'} in {one.name}"
            yield from _differences_of_pieces(name, first, second, where, sizes, renaming)
    for x, y in zip_longest(one.relocations, other.relocations):
        if x is None or y is None or not _same_relocation(here, one, x, there, other, y, renaming):
            yield f"relocations of {one.name}", shown(x), shown(y)
            return


def _differences_of_pieces(
    name: str, one: bytes, other: bytes, where: str, sizes: set[tuple[int, int]], renaming: Renaming
) -> Iterator[Difference]:
    pickled = PICKLE.fullmatch(name)
    if pickled is not None and pickled[2] is None:
        if hashlib.sha1(one).hexdigest() != pickled[1]:
            yield where, "another pickle than its name says", shown(other)
            return
        yield from _differences_of_pickles(one, other, where, renaming)
        return
    if pickled is not None and one.hex() == pickled[1]:
        return  # the digest of a pickle, which is in the name too, which was compared
    if name.startswith(TEXT) and name[len(TEXT) :].encode().startswith(one.rstrip(b"\0")):
        if not renaming.text(one.decode("latin-1"), other.decode("latin-1")):
            yield where, shown(one), shown(other)
        return
    at = _first_difference(one, other, sizes)
    if at is not None:
        yield f"{where}, byte {at}", one[at : at + 16].hex(" "), other[at : at + 16].hex(" ")


def _first_difference(one: bytes, other: bytes, sizes: set[tuple[int, int]]) -> int | None:
    """Where two pieces differ first, but for numbers that say how long a pickle is."""
    if len(one) != len(other):
        return min(len(one), len(other))
    at = 0
    while at < len(one):
        if one[at] != other[at]:
            starts = [s for s in range(max(0, at - 3), at + 1) if (_number(one, s), _number(other, s)) in sizes]
            if not starts:
                return at
            at = starts[0] + 3
        at += 1
    return None


def _number(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _pickle_sizes(here: _Laid, there: _Laid) -> set[tuple[int, int]]:
    return {
        (a.size, b.size)
        for a, b in zip(here.symbols, there.symbols, strict=True)
        if a.size != b.size and PICKLE.fullmatch(a.name)
    }


def _same_relocation(
    here: _Laid,
    one: elf.Section,
    x: elf.Relocation,
    there: _Laid,
    other: elf.Section,
    y: elf.Relocation,
    renaming: Renaming,
) -> bool:
    (a, from_a), (b, from_b) = here.place(one.index, x.offset), there.place(other.index, y.offset)
    (c, to_c), (d, to_d) = here.target(x), there.target(y)
    placed = (x.kind, from_a, to_c) == (y.kind, from_b, to_d)
    return placed and renaming.text(a, b) and renaming.text(c, d)


# -- bitcode -----------------------------------------------------------------------------------------------


def _differences_of_bitcode(one: bytes, other: bytes, renaming: Renaming) -> Iterator[Difference]:
    here, there = (str(llvm.parse_bitcode(data)) for data in (one, other))
    ours, theirs = ([int(found[1]) for found in SIZE.finditer(text)] for text in (here, there))
    sizes = set(zip(ours, theirs, strict=False))  # two of other numbers differ, and are found to
    number = 1
    for first, second in zip_longest(FUNCTION.split(here), FUNCTION.split(there)):
        if first is None or second is None:
            yield f"line {number}", shown(first), shown(second)
            return
        if first != second:
            found = _differences_of_text(first.splitlines(), second.splitlines(), number, sizes, renaming)
            difference = next(found, None)
            if difference is not None:
                yield difference
                yield from found
                return  # the rest is shifted
        number += first.count("\n")


def _differences_of_text(
    here: list[str], there: list[str], number: int, sizes: set[tuple[int, int]], renaming: Renaming
) -> Iterator[Difference]:
    """Differences of one function, or of what lies between functions."""
    inside = Renaming()
    for at, (a, b) in enumerate(zip_longest(here, there), start=number):
        if a is None or b is None:
            yield f"line {at}", shown(a), shown(b)
            return
        first, second = (SIZE.sub(UNSIZED, line) for line in (a, b))
        second = _with_sizes_of(first, second, sizes)
        if NAMES_IN_TEXT.split(first) != NAMES_IN_TEXT.split(second):
            yield f"line {at}", shown(a), shown(b)
            return
        for x, y in zip(NAMES_IN_TEXT.findall(first), NAMES_IN_TEXT.findall(second), strict=True):
            if x.startswith('c"'):
                if x != y:
                    name = first.partition(" = ")[0].strip('@"')
                    yield from _differences_of_pieces(name, _bytes_of(x), _bytes_of(y), f"line {at}", set(), renaming)
            elif x[0] in GLOBAL and not first.startswith(f"{x}:"):
                if not renaming.text(x, y):
                    yield f"line {at}", shown(x), shown(y)
            elif not inside.name(x.strip('%"'), y.strip('%"')):
                yield f"line {at}", shown(x), shown(y)


def _with_sizes_of(first: str, second: str, sizes: set[tuple[int, int]]) -> str:
    """The second line with the first one's numbers where these say how long a pickle is."""
    numbers = NUMBER.findall(first)
    if len(numbers) != len(NUMBER.findall(second)):
        return second
    left = iter(numbers)

    def number(match: re.Match[str]) -> str:
        there = next(left)
        return f"i32 {there}" if (int(there), int(match[1])) in sizes else match[0]

    return NUMBER.sub(number, second)


def _bytes_of(constant: str) -> bytes:
    """What `c"..."` stands for."""
    text = constant[2:-1].encode("latin-1").replace(b"\\\\", b"\\5C")
    return ESCAPED.sub(lambda match: bytes([int(match[1], 16)]), text)


def _differences_of_pickles(one: bytes, other: bytes, where: str, renaming: Renaming) -> Iterator[Difference]:
    here, there = symbolic.read_exception(one), symbolic.read_exception(other)
    yield from symbolic.differences(here, there, f"{where} unpickled", renaming)


# -- the environment ---------------------------------------------------------------------------------------


def _differences_of_environment(one: bytes, other: bytes, renaming: Renaming) -> Iterator[Difference]:
    here, there = symbolic.read(one), symbolic.read(other)
    yield from symbolic.differences(here, there, "", renaming)
    # Once more without any renaming: what looks like an address in a user's own text is the user's.
    for a, b in zip(_constants(here), _constants(there), strict=True):
        if is_plain(a) or is_plain(b):
            yield from symbolic.differences(a, b, "constants", Exact())


def _constants(state: dict[str, Any]) -> list[Any]:
    return [one for environment in (state["environment"], *state["referenced"]) for one in environment[1]]
