"""One artifact as bytes: what a finished compile leaves in a file, and what comes back over a pipe.

Guarantees: bytes that are damaged, cut short, or made for another key come back as a `Miss` with a reason,
never as an exception and never as content. Every byte of a file is covered by a check: the header by its
own digest, each section by the digest in the header. Nothing is handed out before its digest was compared,
because one flipped byte can kill the process inside LLVM. With a signing key nothing of a section is even
read before the signature was compared; without one, signed artifacts are read like others.

It does not map files (a truncation under the reader would be SIGBUS), and it never opens a path: it reads
a descriptor, or bytes, that somebody else has already decided to trust.

The format, version 1. Integers are big-endian.

    offset  size  what
         0     8  magic, 89 46 41 52 4D 0D 0A 1A: "FARM" between bytes that text-mode copies break
         8     2  format version, 1
        10     2  number of sections, 4
        12    32  the key, raw
        44    44  section META: tag "META", length (8), SHA-256 (32)
        88    44  section CODE
       132    44  section BITC
       176    44  section ENVI
       220    32  HMAC-SHA-256 of bytes 0 to 219 under the signing key, or 32 zeros: not signed
       252    32  SHA-256 of bytes 0 to 251
       284     .  the sections, one after the other in the order of the table, without gaps
                    META  JSON object, UTF-8, keys sorted
                    CODE  machine code, an object file
                    BITC  LLVM bitcode, used only when another compile links it
                    ENVI  the environment, opaque here

Offsets are not stored: they follow from the lengths, and what is not stored cannot contradict. One digest
over the whole file was discarded: it could not say where the damage is, and bitcode of many megabytes, which
is read once more when it is linked, could not be compared again on its own.
The signature has its place whether it is there or not: what a reader skips it cannot misjudge, and the
digest covers it, so that a reader without the key sees its damage too. It signs the sections by their digests.
SHA-256 was preferred to BLAKE2b as it is the faster one on CPUs with SHA instructions.
"""

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias, cast

from farm.job.key import CompileKey
from farm.reasons import MissReason
from farm.store.signing import SIGNATURE_BYTES, UNSIGNED, SigningKey

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"

MAGIC: Final = b"\x89FARM\r\n\x1a"
FORMAT_VERSION: Final = 1
TAGS: Final = (b"META", b"CODE", b"BITC", b"ENVI")
PREFIX: Final = struct.Struct(">8sHH32s")
ROW: Final = struct.Struct(">4sQ32s")
DIGEST_BYTES: Final = 32
TABLE_END: Final = PREFIX.size + len(TAGS) * ROW.size
HEADER_BYTES: Final = TABLE_END + SIGNATURE_BYTES + DIGEST_BYTES

KEPT_BITCODE_MAX_BYTES: Final = 16 << 20
"""Bitcode up to this size is kept as bytes: who links it later must not depend on a disk that has failed since, or on
a file server that has let the file go. Larger bitcode is kept as an open descriptor. A guess."""


@dataclass(frozen=True, slots=True)
class Miss:
    """Why there is no artifact. `detail` is for people and may name a path."""

    reason: MissReason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Digest:
    """What came out: the SHA-256 of the section table. It does not cover the key, which is what was asked for."""

    hex: str

    @classmethod
    def of(cls, encoded: bytes) -> "Digest":
        """The digest of encoded bytes that are known to be whole."""
        return cls(hashlib.sha256(encoded[PREFIX.size : TABLE_END]).hexdigest())


@dataclass(frozen=True, slots=True)
class Artifact:
    """The parts of one finished compile.

    Parameters
    ----------
    key
        What was asked for.
    meta
        Plain JSON values; a reader gets an equal dict.
    code, bitcode, environment
        Opaque bytes; any of them may be empty.
    """

    key: CompileKey
    meta: Mapping[str, JSON]
    code: bytes
    bitcode: bytes
    environment: bytes


def encode(artifact: Artifact, signing_key: SigningKey | None = None) -> bytes:
    """The bytes of an artifact, signed if there is a key. Equal artifacts give equal bytes.

    Raises
    ------
    ValueError, TypeError
        If `meta` holds what JSON cannot; a fault of the caller, not of a disk.
    """
    meta = json.dumps(dict(artifact.meta), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    sections = (meta, artifact.code, artifact.bitcode, artifact.environment)
    head = PREFIX.pack(MAGIC, FORMAT_VERSION, len(TAGS), bytes.fromhex(artifact.key.hex))
    for tag, section in zip(TAGS, sections, strict=True):
        head += ROW.pack(tag, len(section), hashlib.sha256(section).digest())
    head += UNSIGNED if signing_key is None else signing_key.sign(head)
    return b"".join((head, hashlib.sha256(head).digest(), *sections))


class Source(Protocol):
    """Bytes that can be read at an offset."""

    size: int

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end. May raise OSError."""


class BytesSource:
    """An artifact in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length]


def close(descriptor: int) -> None:
    """Close what was only read. The kernel frees the number whatever it says, and there is nothing to be lost."""
    with suppress(OSError):
        os.close(descriptor)


class DescriptorSource:
    """An artifact in an opened file. Owns the descriptor and closes it when it is dropped. May raise OSError.

    Reads are positioned: a forked child that inherits the descriptor does not move ours.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.status = os.fstat(descriptor)
        self.size = self.status.st_size

    def read(self, offset: int, length: int) -> bytes:
        pieces: list[bytes] = []
        while length > 0:
            piece = os.pread(self._descriptor, length, offset)
            if not piece:
                break
            pieces.append(piece)
            offset += len(piece)
            length -= len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        """Close the descriptor; again is harmless."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            close(descriptor)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            self.close()


@dataclass(frozen=True, slots=True)
class Section:
    """One row of the section table, with the offset that follows from the rows before it."""

    offset: int
    length: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Stored:
    """An artifact that was read and found whole. Its bitcode is checked once more when it is asked for."""

    key: CompileKey
    digest: Digest
    meta: dict[str, JSON]
    code: bytes
    environment: bytes
    size_bytes: int
    _bitcode: Section = field(repr=False)
    _source: Source = field(repr=False)

    @property
    def compile_s(self) -> float | None:
        """What the compile took, as it says itself."""
        seconds = self.meta.get("compile_s")
        return seconds if isinstance(seconds, float) else None

    def bitcode(self) -> bytes | Miss:
        """The bitcode of the very file that was loaded: a file republished under the key has other symbol names."""
        return _section(self._source, "BITC", self._bitcode)

    def holds(self, source: Source) -> bool:
        """Whether `source` is still needed for the bitcode, and must not be closed."""
        return self._source is source

    def artifact(self) -> Artifact | Miss:
        """All parts; `encode` of it gives the bytes of the file again, its signature apart."""
        bitcode = self.bitcode()
        if isinstance(bitcode, Miss):
            return bitcode
        return Artifact(self.key, self.meta, self.code, bitcode, self.environment)


@dataclass(frozen=True, slots=True)
class Description:
    """What an artifact tells of itself, read without its other sections: those may be damaged."""

    key: CompileKey
    digest: Digest
    meta: dict[str, JSON]
    size_bytes: int
    sections: dict[str, int]
    """Bytes of each section, by its tag."""
    signed: bool


class _Damage(Exception):
    """Carries a Miss from where the damage shows to `read`."""

    def __init__(self, reason: MissReason, detail: str) -> None:
        super().__init__(reason, detail)
        self.miss = Miss(reason, detail)


def decode(data: bytes, key: CompileKey, signing_key: SigningKey | None = None) -> Stored | Miss:
    """Read an artifact from memory.

    One that came over the pipe needs no signature: the pipe has this process at one end and its own worker at the
    other, and whoever could write into it could as well write the pickled answer around the artifact.
    """
    return read(BytesSource(data), key, signing_key)


def read(source: Source, key: CompileKey, signing_key: SigningKey | None = None) -> Stored | Miss:
    """Read an artifact and check magic, version, length, digests, key, and the signature if there is a key for it.

    Never raises.
    """
    try:
        return _read(source, key, signing_key)
    except _Damage as damage:
        return damage.miss
    except (OSError, MemoryError) as error:
        return Miss(MissReason.UNREADABLE, f"{type(error).__name__}: {error}")


def describe(source: Source, key: CompileKey) -> Description | Miss:
    """Read and check the header and META, and nothing else. Never raises."""
    try:
        header = source.read(0, HEADER_BYTES)
        found, table, digest = _parse_header(header, source.size)
        if found != key.hex:
            raise _Damage(MissReason.KEY_MISMATCH, f"the file is for {found}, not for {key.hex}")
        meta = _parse_meta(_checked(source, "META", table[0]))
    except _Damage as damage:
        return damage.miss
    except (OSError, MemoryError) as error:
        return Miss(MissReason.UNREADABLE, f"{type(error).__name__}: {error}")
    lengths = {tag.decode(): section.length for tag, section in zip(TAGS, table, strict=True)}
    signed = header[TABLE_END : TABLE_END + SIGNATURE_BYTES] != UNSIGNED
    return Description(key, digest, meta, source.size, lengths, signed)


def _read(source: Source, key: CompileKey, signing_key: SigningKey | None) -> Stored:
    header = source.read(0, HEADER_BYTES)
    found, table, digest = _parse_header(header, source.size)
    if found != key.hex:
        raise _Damage(MissReason.KEY_MISMATCH, f"the file is for {found}, not for {key.hex}")
    if signing_key is not None:
        _check_signature(header, signing_key)
    meta, code, bitcode, environment = table
    parsed = _parse_meta(_checked(source, "META", meta))
    machine_code = _checked(source, "CODE", code)
    frozen = _checked(source, "ENVI", environment)
    size = source.size
    # Compared now, though it is used later or never: where it is used, in the middle of numba compiling a caller,
    # nobody could compile this function again.
    whole = _checked(source, "BITC", bitcode)
    if isinstance(source, DescriptorSource) and bitcode.length <= KEPT_BITCODE_MAX_BYTES:
        source = BytesSource(whole)
        bitcode = Section(0, bitcode.length, bitcode.sha256)
    return Stored(key, digest, parsed, machine_code, frozen, size, bitcode, source)


def _parse_header(header: bytes, size: int) -> tuple[str, list[Section], Digest]:
    """The key, the section table and the digest of a header that is whole and fits a file of `size` bytes."""
    if not header:
        raise _Damage(MissReason.EMPTY, "no bytes")
    if header[: len(MAGIC)] != MAGIC[: len(header)]:
        raise _Damage(MissReason.BAD_MAGIC, f"begins with {header[: len(MAGIC)].hex()}")
    if len(header) < HEADER_BYTES:
        raise _Damage(MissReason.TRUNCATED, f"{len(header)} bytes, a header has {HEADER_BYTES}")
    _, version, count, raw_key = PREFIX.unpack_from(header)
    if version > FORMAT_VERSION:
        raise _Damage(MissReason.NEWER_FORMAT, f"format version {version}, this is {FORMAT_VERSION}")
    body = header[:-DIGEST_BYTES]
    if version != FORMAT_VERSION or hashlib.sha256(body).digest() != header[-DIGEST_BYTES:]:
        raise _Damage(MissReason.DIGEST_MISMATCH, "the header is damaged")
    table = []
    end = HEADER_BYTES
    for index, expected in enumerate(TAGS):
        tag, length, sha256 = ROW.unpack_from(header, PREFIX.size + index * ROW.size)
        if tag != expected or count != len(TAGS):
            raise _Damage(MissReason.BAD_MAGIC, f"section {index} of {count} is {tag!r}")
        table.append(Section(end, length, sha256))
        end += length
    if size < end:
        raise _Damage(MissReason.TRUNCATED, f"{size} bytes of {end}")
    if size > end:
        raise _Damage(MissReason.DIGEST_MISMATCH, f"{size - end} bytes after the last section")
    return raw_key.hex(), table, Digest.of(header)


def _check_signature(header: bytes, signing_key: SigningKey) -> None:
    signature = header[TABLE_END : TABLE_END + SIGNATURE_BYTES]
    if signature == UNSIGNED:
        raise _Damage(MissReason.UNSIGNED, "its signature is 32 zeros")
    if not signing_key.accepts(header[:TABLE_END], signature):
        raise _Damage(MissReason.WRONGLY_SIGNED, "its signature does not fit the key and its header")


def _parse_meta(data: bytes) -> dict[str, JSON]:
    try:
        meta = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _Damage(MissReason.LOAD_FAILED, f"the metadata is not JSON: {error}") from None
    if not isinstance(meta, dict):
        raise _Damage(MissReason.LOAD_FAILED, "the metadata is not a JSON object")
    return cast("dict[str, JSON]", meta)


def _checked(source: Source, name: str, section: Section) -> bytes:
    data = source.read(section.offset, section.length)
    if len(data) < section.length:
        raise _Damage(MissReason.TRUNCATED, f"section {name}: {len(data)} bytes of {section.length}")
    if hashlib.sha256(data).digest() != section.sha256:
        raise _Damage(MissReason.DIGEST_MISMATCH, f"section {name}")
    return data


def _section(source: Source, name: str, section: Section) -> bytes | Miss:
    try:
        return _checked(source, name, section)
    except _Damage as damage:
        return damage.miss
    except (OSError, MemoryError) as error:
        return Miss(MissReason.UNREADABLE, f"{type(error).__name__}: {error}")
