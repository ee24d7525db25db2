"""The catalog: what lies in a store, artifact by artifact, from what each tells of itself.

Guarantees: of each file only its header and META are read and checked; nothing is written, touched or moved. Files
that come and go meanwhile are no error. What cannot be read is given as `Unreadable`, with its reason. What is read
is trusted as far as it would be loaded: by its owner and its modes.

It does not say that an artifact is whole: `DiskStore.verify` does.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

from farm.errors import StoreRefused
from farm.job.key import HEX_LENGTH, CompileKey
from farm.reasons import MissReason
from farm.store.artifact import JSON, Description, DescriptorSource, Miss, close, describe
from farm.store.places import SUFFIX, Places, file_name, files_in, names_in, walk

PREFIX_MIN: Final = 6
"""So many digits of a key say which one is meant, if no other begins so."""
LISTED: Final = frozenset({"function", "module", "signature", "package", "compile_s", "made_at"})
UNKNOWN: Final = "?"
"""In the place of what an artifact does not tell: made by an earlier version."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file that tells nothing, and why."""

    name: str
    miss: Miss


@dataclass(frozen=True, slots=True)
class Entry:
    """One artifact as it describes itself. Times are seconds since the epoch; the use may be an hour old."""

    description: Description
    used_at: float
    written_at: float

    @property
    def key(self) -> CompileKey:
        return self.description.key

    @property
    def size_bytes(self) -> int:
        return self.description.size_bytes

    @property
    def meta(self) -> dict[str, JSON]:
        return self.description.meta

    @property
    def function(self) -> str:
        """`module.qualname`."""
        return self._text("function")

    @property
    def signature(self) -> str:
        """`(types)`."""
        return self._text("signature")

    @property
    def package(self) -> str:
        """The top-level module that the function is from."""
        return self._text("package")

    @property
    def cpu(self) -> str:
        """The CPU that it was made for."""
        target = self.meta.get("target")
        found = target.get("cpu") if isinstance(target, dict) else None
        return printable(found) if isinstance(found, str) else UNKNOWN

    @property
    def compile_s(self) -> float:
        """What making it took."""
        return self._number("compile_s", 0.0)

    @property
    def made_at(self) -> float:
        """When it was made, by its own word; else when it was written."""
        return self._number("made_at", self.written_at)

    def shortened(self) -> "Entry":
        """The same with what a list needs of its description: 100,000 whole ones are over a gigabyte."""
        meta = {name: value for name, value in self.meta.items() if name in LISTED}
        meta["target"] = {"cpu": self.cpu}
        return replace(self, description=replace(self.description, meta=meta))

    def _text(self, name: str) -> str:
        found = self.meta.get(name)
        return printable(found) if isinstance(found, str) else UNKNOWN

    def _number(self, name: str, otherwise: float) -> float:
        found = self.meta.get(name)
        return float(found) if isinstance(found, (int, float)) and not isinstance(found, bool) else otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which artifacts are meant: all of these must fit. None for what does not matter.

    Parameters
    ----------
    function
        A pattern (`*`, `?`, `[]`) for `module.qualname`, or for the name after its last dot.
    package, cpu
        As the artifact has it.
    used_before, used_after
        Seconds since the epoch.
    """

    function: str | None = None
    package: str | None = None
    cpu: str | None = None
    used_before: float | None = None
    used_after: float | None = None

    def admits(self, entry: Entry) -> bool:
        """Whether this one is meant."""
        if self.function is not None:
            names = (entry.function, entry.function.rpartition(".")[2])
            if not any(fnmatchcase(name, self.function) for name in names):
                return False
        return (
            (self.package is None or entry.package == self.package)
            and (self.cpu is None or entry.cpu == self.cpu)
            and (self.used_before is None or entry.used_at < self.used_before)
            and (self.used_after is None or entry.used_at >= self.used_after)
        )


EVERYTHING: Final = Filter()


def printable(text: str) -> str:
    """A text of an artifact that a terminal takes for nothing but text: it may have come with a bundle."""
    return text if text.isprintable() else ascii(text)[1:-1]


def entries(places: Places) -> "Iterator[Entry | Unreadable]":
    """Every artifact of a store, in the order of their keys. Raises StoreRefused or OSError if the root has gone."""
    with places.opened() as base:
        for directory in sorted(name for name in names_in(base) if len(name) == 2):
            with suppress(OSError), walk(base, directory) as shard:
                for name, _ in sorted(files_in(shard, SUFFIX)):
                    found = _look(places, shard, name)
                    if found is not None:
                        yield found


def count(places: Places) -> int:
    """How many files there are, for whoever shows how far he is. Raises as `entries`."""
    with places.opened() as base:
        return sum(1 for _ in places.entries(base))


def entry(places: Places, key: CompileKey) -> Entry | Unreadable | None:
    """One artifact; None if there is none. Raises StoreRefused, or OSError."""
    try:
        with places.opened(key.hex[:2]) as shard:
            return _look(places, shard, file_name(key))
    except FileNotFoundError:
        return None


def content(places: Places, key: CompileKey) -> bytes | Miss:
    """The bytes of an artifact's file as they are, unchecked. Never raises."""
    try:
        with places.opened(key.hex[:2]) as shard:
            descriptor = places.rule.open_file(file_name(key), shard)
            if isinstance(descriptor, Miss):
                return descriptor
            source = DescriptorSource(descriptor)
            try:
                return source.read(0, source.size)
            finally:
                source.close()
    except FileNotFoundError:
        return Miss(MissReason.ABSENT)
    except (StoreRefused, OSError) as error:
        return Miss(MissReason.UNREADABLE, str(error))


def as_prefix(text: str) -> str:
    """The first digits of a key as a file's name has them. Raises ValueError for what is none."""
    digits = text.lower()
    if not PREFIX_MIN <= len(digits) <= HEX_LENGTH or set(digits) - set("0123456789abcdef"):
        raise ValueError(f"a key is given by {PREFIX_MIN} to {HEX_LENGTH} hexadecimal digits, not by {text!r}")
    return digits


def keys_that_begin(places: Places, prefix: str) -> list[CompileKey]:
    """The keys of a store that begin with these digits, sorted. Raises ValueError for what is no beginning of one."""
    text = as_prefix(prefix)
    found = []
    with suppress(FileNotFoundError), places.opened(text[:2]) as shard:
        for name in names_in(shard):
            if name.startswith(text) and name.endswith(SUFFIX):
                with suppress(ValueError):
                    found.append(CompileKey(name.removesuffix(SUFFIX)))
    return sorted(found, key=lambda key: key.hex)


def _look(places: Places, shard: int, name: str) -> Entry | Unreadable | None:
    """What one file tells; None if it has gone."""
    try:
        key = CompileKey(name.removesuffix(SUFFIX))
    except ValueError:
        return Unreadable(name, Miss(MissReason.BAD_MAGIC, "its name is no key"))
    descriptor = places.rule.open_file(name, shard)
    if isinstance(descriptor, Miss):
        return None if descriptor.reason is MissReason.ABSENT else Unreadable(name, descriptor)
    try:
        source = DescriptorSource(descriptor)
        status = source.status
    except OSError as error:
        close(descriptor)
        return Unreadable(name, Miss(MissReason.UNREADABLE, str(error.strerror)))
    try:
        found = describe(source, key)
    finally:
        source.close()
    if isinstance(found, Miss):
        return Unreadable(name, found)
    return Entry(found, max(status.st_atime, status.st_mtime), status.st_mtime)
