"""The manifest: which functions a program used with which types, as a text file that people read, compare and merge.

    {"farm-manifest": 1}
    {"function": "shop.prices:total", "signature": "(float64[::1], int64)"}
    {"function": "__main__:run", "signature": "(Array(float64, 2, 'C'))", "program": "shop.py"}

JSON lines: a header with the version, then one entry per function and signature, sorted. No paths of a machine and no
times, so that two runs of one program write the same bytes. An entry that cannot be asked for again says why, in
`reason`. A manifest of a newer version is refused: an old reader would leave out what it does not know.

A manifest names modules, which whoever uses it imports, and may hold pickles: it is to be trusted like a program.
"""

import errno
import json
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from farm.errors import ManifestError

HEADER: Final = "farm-manifest"
VERSION: Final = 1
LOCK_S: Final = 10.0
"""A guess: writing takes milliseconds. Who waited so long writes without the lock, and may lose another's entries."""
_POLL_S: Final = 0.01
_TEXTS: Final = ("function", "signature", "returns", "program", "reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """One function with one signature.

    Parameters
    ----------
    function
        `module:qualname`; what is not found by a name has one that no module holds, and a reason.
    signature, returns
        The types as `farm.port.typetext` writes them; a return type only if one was declared.
    flags
        What numba handed down from the caller, if jitted code asked for it: sorted (name, value) pairs, as JSON.
    program
        The file name of the program, or `-m module`, if anything in the entry belongs to `__main__`.
    pickles
        What `signature` and `returns` refer to, in base64.
    reason
        Why it cannot be asked for again; None if it can.
    """

    function: str
    signature: str
    returns: str | None = None
    flags: str | None = None
    program: str | None = None
    pickles: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def identity(self) -> tuple[str, ...]:
        """Two entries with one identity ask for the same. It is their order in a file, too."""
        parts = (self.function, self.program, self.signature, self.returns, self.flags)
        return (*(part or "" for part in parts), *self.pickles)

    def line(self) -> str:
        """As one line of JSON."""
        held: dict[str, Any] = {"function": self.function, "signature": self.signature}
        if self.returns is not None:
            held["returns"] = self.returns
        if self.flags is not None:
            held["flags"] = json.loads(self.flags)
        if self.program is not None:
            held["program"] = self.program
        if self.pickles:
            held["pickles"] = list(self.pickles)
        if self.reason is not None:
            held["reason"] = self.reason
        return json.dumps(held, ensure_ascii=False)

    @classmethod
    def parse(cls, line: str) -> "ManifestEntry":
        """Raises ValueError."""
        held = json.loads(line)
        if not isinstance(held, dict):
            raise ValueError("not an object")
        texts = {name: held.pop(name) for name in _TEXTS if name in held}
        flags, pickles = held.pop("flags", None), held.pop("pickles", [])
        if held:
            raise ValueError(f"{sorted(held)[0]!r} means nothing here")
        if not {"function", "signature"} <= texts.keys() or not all(isinstance(one, str) for one in texts.values()):
            raise ValueError("an entry has a function and a signature, as text")
        if not isinstance(pickles, list) or not all(isinstance(one, str) for one in pickles):
            raise ValueError("pickles are a list of texts")
        if flags is not None and not isinstance(flags, dict):
            raise ValueError("flags are an object")
        return cls(**texts, flags=None if flags is None else flags_text(flags), pickles=tuple(pickles))


def flags_text(flags: dict[str, Any]) -> str:
    """Flags in the one form in which they are compared."""
    return json.dumps(flags, sort_keys=True)


def merged(*groups: Iterable[ManifestEntry]) -> tuple[ManifestEntry, ...]:
    """Every entry once, in order. What one of them can ask for again counts before what another could not."""
    found: dict[tuple[str, ...], ManifestEntry] = {}
    for group in groups:
        for entry in group:
            known = found.get(entry.identity)
            if known is None or (known.reason is not None and (entry.reason is None or entry.reason < known.reason)):
                found[entry.identity] = entry
    return tuple(found[identity] for identity in sorted(found))


def text_of(entries: Iterable[ManifestEntry]) -> str:
    """The whole file."""
    lines = [json.dumps({HEADER: VERSION}), *(entry.line() for entry in merged(entries))]
    return "\n".join(lines) + "\n"


def parse(text: str, where: str) -> tuple[ManifestEntry, ...]:
    """The entries of a whole file, as they come. `where` names it in errors. Raises ManifestError."""
    lines = text.splitlines()
    try:
        header = json.loads(lines[0]) if lines else None
    except ValueError:
        header = None
    version = header.get(HEADER) if isinstance(header, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise ManifestError(where, f"its first line is not {json.dumps({HEADER: VERSION})}: it is no manifest")
    if version > VERSION:
        raise ManifestError(where, f"it has version {version}, and this farm reads up to {VERSION}: use a newer farm")
    entries = []
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        try:
            entries.append(ManifestEntry.parse(line))
        except ValueError as error:
            raise ManifestError(where, f"line {number} is no entry: {error}") from None
        except RecursionError:
            raise ManifestError(where, f"line {number} is no entry: it is too deep") from None
    return tuple(entries)


def read(path: Path) -> tuple[ManifestEntry, ...]:
    """The entries of a file. Raises ManifestError, also if the file cannot be read."""
    try:
        return parse(path.read_bytes().decode(), str(path))
    except UnicodeDecodeError:
        raise ManifestError(str(path), "it is not text in UTF-8: it is no manifest") from None
    except OSError as error:
        raise ManifestError(str(path), f"it cannot be read: {error.strerror}") from None


def write(path: Path, entries: Iterable[ManifestEntry]) -> None:
    """Write a file whole, or leave it as it was. Raises ManifestError."""
    with _beside(path) as temporary:
        temporary.write_bytes(text_of(entries).encode())
        os.replace(temporary, path)


def require_writable(path: Path) -> None:
    """Raises ManifestError if a file could not be written here. Tried, as only the system knows what it permits."""
    with _beside(path) as temporary:
        temporary.touch()


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """The name of a file in the same directory, which is gone afterwards."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        yield temporary
    except OSError as error:
        raise ManifestError(str(path), f"it cannot be written: {error.strerror}") from None
    finally:
        with suppress(OSError):
            temporary.unlink()


def add(path: Path, entries: Iterable[ManifestEntry]) -> None:
    """Merge entries into a file, which need not exist; other processes may do the same. Raises ManifestError."""
    with _alone(path.parent):
        known = read(path) if path.exists() else ()
        together = merged(known, entries)
        if together != known or not path.exists():
            write(path, together)


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """One process after the other: the directory itself is locked, so that no lock file stays beside the manifest."""
    try:
        import fcntl

        descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    except (ImportError, OSError):  # not a system that has it, or the writing will say what is wrong
        yield
        return
    try:
        end = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES) or time.monotonic() >= end:
                    break  # a file system without locks, or a holder that does not end
                time.sleep(_POLL_S)
            else:
                break
        yield
    finally:
        os.close(descriptor)  # which frees the lock
