"""CompileKey: the name of everything that determines a piece of machine code.

A key is the SHA-256 of labelled parts in a canonical encoding. It never covers pickle bytes, which
differ from process to process, and never `hash()`. The parts stay with the key, so that a key can say
which part of it differs from another's.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

HEX_LENGTH = 64


@dataclass(frozen=True, slots=True)
class CompileKey:
    """What was asked for. Two keys are equal exactly if their digests are.

    Parameters
    ----------
    hex
        64 lower-case hexadecimal digits: the SHA-256 over the labelled parts.
    parts
        (label, SHA-256 of the part) in the order of the encoding; empty for a key read from disk.
    """

    hex: str
    parts: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.hex) != HEX_LENGTH or set(self.hex) - set("0123456789abcdef"):
            raise ValueError(f"a key is {HEX_LENGTH} lower-case hexadecimal digits, not {self.hex!r}")

    @classmethod
    def from_parts(cls, parts: dict[str, bytes]) -> "CompileKey":
        """The key over labelled, canonically encoded parts; labels are hashed in sorted order."""
        return cls.from_digests({label: cls.digest(part) for label, part in parts.items()})

    @staticmethod
    def digest(part: bytes) -> str:
        """The SHA-256 of one part, canonically encoded."""
        return hashlib.sha256(part).hexdigest()

    @classmethod
    def from_digests(cls, digests: Mapping[str, str]) -> "CompileKey":
        """The key over parts of which only the SHA-256 is known, as an artifact tells them. Raises ValueError."""
        whole = hashlib.sha256()
        for label in sorted(digests):
            name = label.encode()
            whole.update(len(name).to_bytes(4, "big") + name + bytes.fromhex(digests[label]))
        return cls(whole.hexdigest(), tuple((label, digests[label]) for label in sorted(digests)))

    def first_difference(self, other: "CompileKey") -> str | None:
        """The label of the first part in which the two keys differ, or None if they do not."""
        mine, theirs = dict(self.parts), dict(other.parts)
        for label in sorted(mine.keys() | theirs.keys()):
            if mine.get(label) != theirs.get(label):
                return label
        return None
