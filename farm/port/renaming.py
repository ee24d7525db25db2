"""Names that are different each time: which parts of them are, and whether two texts say the same but for those.

numba puts into names what only one process, or one compile, has: the address of an object, the number of a compile
(`target.renew_symbol_names`), the identity of a dispatcher, a stand-in or a class, the digest of a pickle that holds
any of these, the hash of a constant. Two texts say the same if all else is equal and one renaming explains all of the
rest: what is called A here must be called B there, everywhere, and nothing else may be called B.
"""

import re
from typing import Final

VOLATILE: Final = re.compile(
    r"0x[0-9a-f]{6,16}(?![0-9a-f])"  # an address; in a mangled name too
    r"|B\d+v\d{10,}"  # a compile's number in a mangled name, with the length before it
    r"|\$\d{10,}"  # the same in numba's other names
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # a dispatcher's uuid
    r"|pickle(?:data|buf)\.[0-9a-f]{40}"  # a pickle in machine code, by its digest
    r"|(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])"  # a class that was pickled by value
    r"|\.bytes\.-?\d+"  # a constant of bytes, by its hash(): another under another hash seed
    r"|(?<=\n[0-9a-f]{16}\n)[0-9a-f]{16}(?=\n)"  # a stand-in's number
)
NUMBER: Final = re.compile(r"(?:B\d+v|\$)(\d+)")


class Renaming:
    """What is called how on the other side, as far as it was met."""

    def __init__(self) -> None:
        self._there: dict[str, str] = {}
        self._here: dict[str, str] = {}

    def text(self, one: str, other: str) -> bool:
        """Whether two texts say the same."""
        if VOLATILE.split(one) != VOLATILE.split(other):
            return False
        pairs = zip(VOLATILE.findall(one), VOLATILE.findall(other), strict=True)
        return all(self._paired(_bare(a), _bare(b)) for a, b in pairs)

    def name(self, one: str, other: str) -> bool:
        """Whether one may be the other's name: any may, if it is no other's."""
        return self._paired(one, other)

    def number(self, one: int, other: int) -> bool:
        """Whether two numbers are equal, or those of a compile whose names were met."""
        return one == other or self._there.get(str(one)) == str(other)

    def _paired(self, one: str, other: str) -> bool:
        return self._there.setdefault(one, other) == other and self._here.setdefault(other, one) == one


class Exact(Renaming):
    """Nothing is called differently: for what a user wrote."""

    def text(self, one: str, other: str) -> bool:
        return one == other

    def number(self, one: int, other: int) -> bool:
        return one == other


def masked(text: str) -> str:
    """The text without what is different each time: for sorting, and for sets of names."""
    return VOLATILE.sub("*", text)


def _bare(token: str) -> str:
    number = NUMBER.fullmatch(token)
    return token if number is None else number[1]
