"""A bundle: artifacts of a store as one file, to be taken to another store.

    one zstandard frame, with a checksum
        a tar archive (POSIX ustar): plain files, names in order, no times, no owners
            farm-bundle.json     {"format": 1, "artifacts": {key: digest}}, JSON with its keys sorted
            <key>.farm           an artifact's bytes, as they lie in a store

Guarantees of writing: the same artifacts give the same bytes (with one version of zstandard); no name of a machine or
a user is in it; the file appears whole or not at all; what cannot be read whole is left out and told of.
Guarantees of reading: nothing is put that was not read to its last digest, was not announced with this digest, or is
not signed with the key if there is one. No name leads anywhere: only names of the form above are taken, and only from
plain files; others are passed over and told of. Sizes are bounded, so a small file cannot become a large one. What is
wrong with the archive itself ends the reading as BundleRefused; what was read before is good and stays.

The archive is read here and not by `tarfile`: what that understands beside plain files (links, devices, long names,
headers of any size) is more than a bundle may have in it.
"""

import json
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any, Final

from farm.errors import BundleRefused
from farm.job.key import CompileKey
from farm.reasons import MissReason
from farm.store.artifact import Digest, Miss, Stored, decode
from farm.store.catalog import Entry, Unreadable, content, entry
from farm.store.disk import DiskStore
from farm.store.places import SUFFIX, file_name
from farm.store.signing import SigningKey

FORMAT: Final = 1
HEADER_NAME: Final = "farm-bundle.json"
MEMBER_NAME: Final = re.compile(r"([0-9a-f]{64})" + re.escape(SUFFIX))
LEVEL: Final = 9
BLOCK: Final = tarfile.BLOCKSIZE
HEADER_MAX_BYTES: Final = 64 << 20
"""140 bytes an artifact: for 400,000 of them."""
MEMBER_MAX_BYTES: Final = 256 << 20
"""A guess: the largest artifact seen has 2 MB. Each is in memory while it is checked."""
WINDOW_MAX_BYTES: Final = 128 << 20
"""What reading may keep of what it has read. Level 9 asks for 8 MiB at most."""
PIECE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Exported:
    """How many artifacts went into a bundle, of how many bytes; and (name, why) of what was left out."""

    artifacts: int
    bytes: int
    left_out: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Imported:
    """What became of the members of a bundle.

    Parameters
    ----------
    put
        Were put into the store.
    kept
        The store has them already, the same or newer.
    bad
        (name, why) of those that were passed over, and of announced ones that did not come.
    """

    put: int = 0
    kept: int = 0
    bad: list[tuple[str, str]] = field(default_factory=list)


# -- writing -------------------------------------------------------------------------------------------------


def write(store: DiskStore, chosen: Iterable[Entry], file: IO[bytes], step: Callable[[], object] = bool) -> Exported:
    """Write these artifacts of a store. Raises OSError of `file`, and BundleRefused if the store changes meanwhile."""
    import zstandard  # brings in a library that few programs need

    good, left_out = dict[str, Digest](), list[tuple[str, str]]()
    for one in sorted(chosen, key=lambda each: each.key.hex):
        found = store.peek(one.key)
        if isinstance(found, Miss):
            left_out.append((file_name(one.key), found.reason.value))
        else:
            good[one.key.hex] = found.digest
    header = {"format": FORMAT, "artifacts": {key: digest.hex for key, digest in good.items()}}
    size = 0
    compressor = zstandard.ZstdCompressor(level=LEVEL, threads=0, write_checksum=True, write_content_size=False)
    with compressor.stream_writer(file, closefd=False) as out:
        _write_member(out, HEADER_NAME, json.dumps(header, sort_keys=True, separators=(",", ":")).encode())
        for hex_key, digest in good.items():
            data = _bytes_of(store, CompileKey(hex_key), digest)
            _write_member(out, f"{hex_key}{SUFFIX}", data)
            size += len(data)
            step()
        out.write(bytes(2 * BLOCK))
    return Exported(len(good), size, tuple(left_out))


def _bytes_of(store: DiskStore, key: CompileKey, digest: Digest) -> bytes:
    """An artifact's bytes, signature included. They were checked once, and are the same still."""
    places = store.places
    data = Miss(MissReason.ABSENT) if places is None else content(places, key)
    found = data if isinstance(data, Miss) else decode(data, key)
    if isinstance(found, Miss) or isinstance(data, Miss) or found.digest != digest:
        raise BundleRefused(f"artifact {key.hex[:16]} changed while it was exported: try again")
    return data


def _write_member(out: Any, name: str, data: bytes) -> None:
    """As bytes of our own making: equal content gives equal bytes whatever made the file."""
    about = tarfile.TarInfo(name)
    about.size, about.mode = len(data), 0o644
    out.write(about.tobuf(tarfile.USTAR_FORMAT))
    out.write(data)
    out.write(bytes(-len(data) % BLOCK))


# -- reading -------------------------------------------------------------------------------------------------


def read(
    file: IO[bytes],
    store: DiskStore,
    *,
    total_max_bytes: int,
    signing_key: SigningKey | None = None,
    step: Callable[[], object] = bool,
    report: Imported | None = None,
) -> Imported:
    """Put the artifacts of a bundle into a store.

    Parameters
    ----------
    total_max_bytes
        What all of it may have when it is unpacked.
    signing_key
        What is not signed with it is passed over.
    report
        Is filled in as it goes: what was done before an exception is in it.

    Raises
    ------
    BundleRefused
        If this is no bundle, or it is cut off, damaged or too large: from there on nothing can be read.
    StoreUnwritable
        If the store cannot be written.
    """
    done = Imported() if report is None else report
    archive = _Archive(file, total_max_bytes)
    members = archive.members()
    announced = _header(archive, members)
    for name, size, is_plain in members:
        key = MEMBER_NAME.fullmatch(name)
        problem: str | None
        if not is_plain:
            problem = "it is no plain file"
        elif key is None:
            problem = "it has no name that an artifact has"
        elif size > MEMBER_MAX_BYTES:
            problem = f"it has {size} bytes, and no artifact may have more than {MEMBER_MAX_BYTES}"
        else:
            data = archive.content(size)
            problem = _take(CompileKey(key[1]), data, announced, store, signing_key, done)
            announced.pop(key[1], None)
        if problem is not None:
            done.bad.append((_shown(name), problem))
        step()
    done.bad += [(f"{key}{SUFFIX}", "it was announced and is not there") for key in sorted(announced)]
    return done


def _header(archive: "_Archive", members: "Iterator[tuple[str, int, bool]]") -> dict[str, str]:
    """The announced artifacts: digests by keys."""
    for name, size, is_plain in members:
        if name != HEADER_NAME or not is_plain or size > HEADER_MAX_BYTES:
            break
        with suppress(ValueError, TypeError, KeyError, RecursionError, AttributeError):
            header = json.loads(archive.content(size))
            if header["format"] != FORMAT:
                raise BundleRefused(f"it is a bundle of format {str(header['format'])[:20]}, and this reads {FORMAT}")
            found = {str(key): str(digest) for key, digest in header["artifacts"].items()}
            return found
        break
    raise BundleRefused(f"it is no bundle: it does not begin with {HEADER_NAME}")


def _take(
    key: CompileKey,
    data: bytes,
    announced: dict[str, str],
    store: DiskStore,
    signing_key: SigningKey | None,
    done: Imported,
) -> str | None:
    """Put one artifact, if it is good and the store has no newer one; else why not."""
    found = decode(data, key, signing_key)
    if isinstance(found, Stored):
        bitcode = found.bitcode()
        if isinstance(bitcode, Miss):
            found = bitcode
    if isinstance(found, Miss):
        return found.reason.value
    if announced.get(key.hex) != found.digest.hex:
        return "the bundle did not announce it with this digest"
    if _has(store, key, found, signing_key):
        done.kept += 1
        return None
    store.put_encoded(key, data)
    done.put += 1
    return None


def _has(store: DiskStore, key: CompileKey, brought: Stored, signing_key: SigningKey | None) -> bool:
    """Whether what the store has is to be kept: whole, and not older than what is brought."""
    places = store.places
    there = None if places is None else entry(places, key)
    if there is None or isinstance(there, Unreadable):
        return False
    own = store.peek(key)
    if not isinstance(own, Stored):
        return False
    if own.digest == brought.digest:
        return True
    made_at = brought.meta.get("made_at")
    return not isinstance(made_at, (int, float)) or there.made_at >= made_at


class _Archive:
    """The members of a compressed tar archive, one after the other, within bounds."""

    def __init__(self, file: IO[bytes], total_max_bytes: int) -> None:
        import zstandard

        self._errors = (zstandard.ZstdError, MemoryError)
        decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_MAX_BYTES)
        self._stream = decompressor.stream_reader(file, read_across_frames=False, closefd=False)
        self._left = total_max_bytes
        self._unread = 0
        """Bytes of the member at hand that nobody has asked for, its padding included."""

    def members(self) -> Iterator[tuple[str, int, bool]]:
        """(name, size, whether it is a plain file) of each member. Raises BundleRefused where it is damaged."""
        while True:
            self._skip()
            block = self._exactly(BLOCK)
            if not any(block):
                self._end()
                return
            try:
                about = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            except (tarfile.TarError, ValueError, OverflowError) as error:
                raise BundleRefused(f"it is damaged: {error}") from None
            if about.size < 0:
                raise BundleRefused("it is damaged: a member of less than nothing")
            self._unread = about.size + -about.size % BLOCK
            is_plain = about.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not about.name.endswith("/")
            yield about.name, about.size, is_plain

    def content(self, size: int) -> bytes:
        """The content of the member at hand."""
        data = self._exactly(size)
        self._unread -= size
        return data

    def _skip(self) -> None:
        while self._unread:
            self._unread -= len(self._exactly(min(PIECE, self._unread)))

    def _end(self) -> None:
        """To the end of the frame, whose checksum covers all that was read."""
        while piece := self._read(PIECE):
            if any(piece):
                raise BundleRefused("it is damaged: something comes after its end")

    def _exactly(self, size: int) -> bytes:
        pieces, left = [], size
        while left:
            piece = self._read(min(left, PIECE))
            if not piece:
                raise BundleRefused("it is cut off")
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def _read(self, size: int) -> bytes:
        try:
            piece: bytes = self._stream.read(size)
        except self._errors as error:
            raise BundleRefused(f"it is damaged, or no bundle: {error}") from None
        self._left -= len(piece)
        if self._left < 0:
            raise BundleRefused("it has more in it than is allowed: farm cache import --max-size")
        return piece


def _shown(name: str) -> str:
    """A name that anybody may have chosen, for people."""
    return ascii(name)[1:-1][:100]
