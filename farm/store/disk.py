"""A directory of artifacts, named by their keys.

    <root>/README.txt                 for whoever finds the directory
    <root>/v1/<2 hex>/<key>.farm      one file per artifact
    <root>/v1/tmp/                    <host>-<pid>-<random>, files that are being written
    <root>/v1/quarantine/             bad files, for whoever wants to know why
    <root>/v1/locks/                  one lock file per key, and trim.lock
    <root>/v1/usage.jsonl             what programs got out of the store (`farm.store.usage`)

Guarantees: a file appears whole or not at all (it is written under another name and renamed). Readers take
no lock. Damage, loss and distrust cost a compile: `get` returns a `Miss`, with its reason counted in
`misses`, and raises nothing. What keeps `put` from writing is a `StoreUnwritable`, and then the artifact
goes over the pipe instead. Nothing is written, and no directory made, before the first `put` or lock.
With a signing key every artifact must be signed with it, in lower directories too. One that is not is left
where it is, as its bytes are whole and another program may read it; the next `put` takes its place.

It does not fsync unless told to: a file that a power cut left half is found by its digests.
"""

import errno
import os
import secrets
import socket
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from farm.config import Config
from farm.errors import StoreRefused, StoreVersionWarning
from farm.job.key import CompileKey
from farm.reasons import DegradedReason, MissReason
from farm.store import upkeep
from farm.store.artifact import FORMAT_VERSION, Artifact, DescriptorSource, Digest, Miss, Stored, close, encode, read
from farm.store.lock import LockOutcome, key_lock
from farm.store.places import LIST, LOCKS, SUFFIX, TEMPORARY, Places, file_name, remove
from farm.store.signing import read_key
from farm.store.trust import Rule, group_id
from farm.store.upkeep import StoreStats, Trimmed, Verified

VERSION: Final = f"v{FORMAT_VERSION}"
SIZE_MAX_BYTES: Final = 2 << 30
TOUCH_S: Final = 3600.0
"""Access times are set at most this often: a read should not become a write."""

DAMAGED: Final = frozenset(
    {
        MissReason.BAD_MAGIC,
        MissReason.TRUNCATED,
        MissReason.EMPTY,
        MissReason.KEY_MISMATCH,
        MissReason.DIGEST_MISMATCH,
        MissReason.NEWER_FORMAT,
        MissReason.LOAD_FAILED,
    }
)
"""Reasons that lie in the bytes of a file, which is then moved to quarantine. Files we could not open stay."""

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class StoreUnwritable(Exception):
    """The artifact was not stored. Never leaves the farm: the caller delivers the bytes another way."""

    def __init__(self, reason: DegradedReason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail

    def __str__(self) -> str:
        return f"{self.reason.value}: {self.detail}"


class DiskStore:
    """One writable directory, and lower ones that are only read.

    Parameters
    ----------
    root
        The directory; it is made at the first write.
    lower
        Directories looked into, in order, when `root` has no artifact.
    size_max_bytes
        What `trim` keeps the store under.
    readonly
        Write nothing: no artifact, no access time, no lock, no quarantine.
    group
        Name of a group whose members share the store, or None for this user alone.
    signing_key_file
        What is put is signed with the key in it, and what is not signed with it is a miss; None for neither.
    clock
        Seconds since the epoch.
    fsync
        Whether a new file is forced to the disk before and after its renaming.

    Raises
    ------
    StoreRefused
        If a directory exists and others could write to it, or the group does not exist.
    SigningKeyRefused
        If the key's file is not private, or holds no key. It is a StoreRefused.
    """

    def __init__(
        self,
        root: Path,
        *,
        lower: tuple[Path, ...] = (),
        size_max_bytes: int = SIZE_MAX_BYTES,
        readonly: bool = False,
        group: str | None = None,
        signing_key_file: Path | None = None,
        clock: Callable[[], float] = time.time,
        fsync: bool = False,
    ) -> None:
        # Resolved once: a symbolic link in the path that is changed later does not lead us elsewhere.
        self.root = _resolved(root)
        self.size_max_bytes = size_max_bytes
        self.readonly = readonly
        self.misses: Counter[MissReason] = Counter()
        self.problems: list[StoreRefused | OSError] = []
        """Of lower directories that are left out: refused, or unreadable."""
        self._clock = clock
        self._fsync = fsync
        self._rule = Rule(private=not readonly, gid=group_id(self.root, group))
        self._places = Places(self.root, VERSION, self._rule)
        self._signing_key = None if signing_key_file is None else read_key(signing_key_file)
        self._root_checked = False
        self._newer: str | None = None
        self._look_at_root()
        self._lower: list[Places] = []
        for given in lower:
            try:
                path = _resolved(given)
                places = Places(path, VERSION, LOWER_RULE)
                newer = _newer_version(path)
                if newer is not None:
                    _warn_of_newer(path, newer)
                    continue
                places.check()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except StoreRefused as problem:  # one bad store of several must not cost the others
                self.problems.append(problem)
                continue
            except OSError as problem:
                self.problems.append(OSError(problem.errno, problem.strerror, str(given)))
                continue
            self._lower.append(places)

    def get(self, key: CompileKey) -> Stored | Miss:
        """The artifact under a key: from the root, else from the first lower store that has a good one."""
        first = self._get_from_root(key)
        if isinstance(first, Stored):
            return first
        for places in self._lower:
            found = self._get_from(places, key)
            if isinstance(found, Stored):
                if first.reason is not MissReason.ABSENT:
                    self.misses[first.reason] += 1
                return found
            if first.reason is MissReason.ABSENT:
                first = found
        self.misses[first.reason] += 1
        return first

    def peek(self, key: CompileKey) -> Stored | Miss:
        """As `get`, but nothing is counted, touched or moved."""
        places = self.places
        found = Miss(MissReason.ABSENT) if places is None else self._get_from(places, key)
        for lower in self._lower:
            if isinstance(found, Stored):
                break
            below = self._get_from(lower, key)
            found = below if isinstance(below, Stored) or found.reason is MissReason.ABSENT else found
        return found

    @property
    def places(self) -> Places | None:
        """The directories of the root; None if there is none, or it is not ours to read."""
        return self._places if self._is_readable() else None

    def note(self, key: CompileKey, miss: Miss) -> None:
        """Count a miss that showed after `get`: damaged bitcode, or an artifact that could not be loaded.

        The file goes to quarantine only if its bytes are bad.
        """
        self.misses[miss.reason] += 1
        self._set_aside(key, miss)

    def contains(self, key: CompileKey) -> bool:
        """Whether a file lies under the key. It says nothing about what is in it."""
        if self._newer is not None:
            return _lies_in(self._lower, key)
        return _lies_in((self._places, *self._lower), key)

    def put(self, artifact: Artifact) -> Digest:
        """Store an artifact, in place of one that is there.

        Raises
        ------
        StoreUnwritable
            If that is not possible, with the reason. No part of the artifact stays behind.
        """
        data = encode(artifact, self._signing_key)
        self.put_encoded(artifact.key, data)
        return Digest.of(data)

    def put_encoded(self, key: CompileKey, data: bytes) -> None:
        """Store the bytes of an artifact as they are: whoever hands them in has read them. Raises as `put`."""
        self._must_be_writable()
        target, name = self._places.entry(key), file_name(key)
        temporary = f"{_host()}-{os.getpid()}-{secrets.token_hex(8)}"
        try:
            with (
                self._places.opened(TEMPORARY, make=True) as before,
                self._places.opened(target.parent.name, make=True) as shard,
            ):
                self._must_be_writable()  # once more: somebody else may have made the root just before us
                try:
                    self._places.write(before, temporary, data, fsync=self._fsync)
                    os.replace(temporary, name, src_dir_fd=before, dst_dir_fd=shard)
                except BaseException:
                    remove(before, temporary)
                    raise
                if self._fsync:
                    _fsync_directory(shard)
        except StoreRefused as refused:
            raise StoreUnwritable(DegradedReason.STORE_REFUSED, str(refused)) from refused
        except OSError as error:
            reason = DegradedReason.DISK_FULL if error.errno in FULL else DegradedReason.STORE_UNWRITABLE
            raise StoreUnwritable(reason, f"{target}: {error.strerror}") from error

    @contextmanager
    def lock(self, key: CompileKey, timeout_s: float) -> Iterator[LockOutcome]:
        """Hold the lock of a key for the block, if the outcome is ACQUIRED. Look into the store again then."""
        try:
            self._must_be_writable()
            with self._places.opened(LOCKS, make=True):
                self._must_be_writable()
        except (StoreUnwritable, StoreRefused, OSError):
            yield LockOutcome.UNAVAILABLE
            return
        with key_lock(self._places.lock(key), timeout_s, mode=self._rule.lock_mode) as outcome:
            yield outcome

    def stored_keys(self) -> Iterator[CompileKey]:
        """The keys of the root, in no order."""
        if self._is_readable():
            with suppress(StoreRefused, OSError), self._places.opened() as base:
                for _, name, _ in self._places.entries(base):
                    with suppress(ValueError):
                        yield CompileKey(name.removesuffix(SUFFIX))

    def remove_temp_of(self, pid: int) -> int:
        """Remove what a process of this host was writing when it died; return how many files."""
        if self.readonly or not self._is_readable():
            return 0
        with suppress(StoreRefused, OSError):
            return upkeep.remove_temporaries(self._places, f"{_host()}-{pid}-")
        return 0

    def trim(self) -> Trimmed:
        """Bring the store under its size limit, and sweep what the dead left. One process at a time."""
        self._must_be_writable()
        if not self._is_readable():
            return Trimmed()
        try:
            with self._places.opened(LOCKS, make=True):
                pass
            return upkeep.trim(self._places, self.size_max_bytes, self._clock(), self._rule.lock_mode)
        except StoreRefused as refused:
            raise StoreUnwritable(DegradedReason.STORE_REFUSED, str(refused)) from refused
        except OSError as error:
            raise StoreUnwritable(DegradedReason.STORE_UNWRITABLE, f"{self.root}: {error.strerror}") from error

    def clear(self) -> int:
        """Remove every artifact and the quarantine; return how many artifacts went."""
        self._must_be_writable()
        if self._is_readable():
            with suppress(StoreRefused, OSError):
                return upkeep.clear(self._places)
        return 0

    def stats(self) -> StoreStats:
        """What lies in the root."""
        if self._is_readable():
            with suppress(StoreRefused, OSError):
                return upkeep.measure(self._places)
        return StoreStats()

    def verify(self, step: Callable[[], object] = bool) -> Verified:
        """Read every artifact of the root to its last byte. Bad ones go to quarantine and are counted.

        `step` is called after each.
        """
        good = 0
        bad: list[tuple[str, Miss]] = []
        for key in self.stored_keys():
            found: object = self._get_from(self._places, key)
            if isinstance(found, Stored):
                found = found.bitcode()
            if not isinstance(found, Miss):
                good += 1
            elif found.reason is not MissReason.ABSENT:
                bad.append((key.hex, found))
                self.misses[found.reason] += 1
                self._set_aside(key, found)
            step()
        return Verified(good, tuple(bad))

    def __repr__(self) -> str:
        kind = " read-only" if self.readonly else ""
        return f"<DiskStore {self.root}{kind}, {len(self._lower)} lower>"

    def _get_from_root(self, key: CompileKey) -> Stored | Miss:
        try:
            if not self._look_at_root():
                if self._newer is not None:
                    return Miss(MissReason.NEWER_FORMAT, f"{self.root} holds {self._newer}")
                return Miss(MissReason.ABSENT)
        except StoreRefused as refused:
            return Miss(MissReason.UNTRUSTED, str(refused))
        except OSError as error:
            return Miss(MissReason.UNREADABLE, f"{self.root}: {error.strerror}")
        found = self._get_from(self._places, key, None if self.readonly else self._clock())
        if isinstance(found, Miss):
            self._set_aside(key, found)
        return found

    def _get_from(self, places: Places, key: CompileKey, touched_at: float | None = None) -> Stored | Miss:
        try:
            with places.opened(key.hex[:2]) as shard:
                return self._load(places, shard, key, touched_at)
        except FileNotFoundError:
            return Miss(MissReason.ABSENT)
        except StoreRefused as refused:
            return Miss(MissReason.UNTRUSTED, str(refused))
        except OSError as error:
            return Miss(MissReason.UNREADABLE, f"{places.entry(key)}: {error.strerror}")

    def _look_at_root(self) -> bool:
        """Whether the root exists and is ours to read. Judged once; until it exists, at every call."""
        if self._newer is not None:
            return False
        if self._root_checked:
            return True
        try:
            self._places.check()
        except FileNotFoundError:
            return False
        self._newer = _newer_version(self.root)
        self._root_checked = True
        if self._newer is not None:
            _warn_of_newer(self.root, self._newer)
        return self._newer is None

    def _is_readable(self) -> bool:
        try:
            return self._look_at_root()
        except (StoreRefused, OSError):
            return False

    def _must_be_writable(self) -> None:
        if self.readonly:
            raise StoreUnwritable(DegradedReason.STORE_UNWRITABLE, f"{self.root} is used read-only")
        try:
            self._look_at_root()
        except StoreRefused as refused:
            raise StoreUnwritable(DegradedReason.STORE_REFUSED, str(refused)) from refused
        except OSError as error:
            raise StoreUnwritable(DegradedReason.STORE_UNREADABLE, f"{self.root}: {error.strerror}") from error
        if self._newer is not None:
            raise StoreUnwritable(DegradedReason.STORE_NEWER_FORMAT, f"{self.root} holds {self._newer}")

    def _set_aside(self, key: CompileKey, miss: Miss) -> None:
        if self.readonly or miss.reason not in DAMAGED:
            return
        # Another process may have put a good file here meanwhile: what is moved must still be bad.
        with suppress(StoreRefused, OSError), self._places.opened(key.hex[:2]) as shard:
            again = self._load(self._places, shard, key)
            bad = again.bitcode() if isinstance(again, Stored) else again
            if isinstance(bad, Miss) and bad.reason in DAMAGED:
                upkeep.quarantine(self._places, shard, key, bad.reason.name.lower())

    def _load(self, places: Places, shard: int, key: CompileKey, touched_at: float | None = None) -> Stored | Miss:
        """Open, judge and read one file; set its access time if `touched_at` is an hour away from it."""
        descriptor = places.rule.open_file(file_name(key), shard)
        if isinstance(descriptor, Miss):
            return descriptor
        try:
            source = DescriptorSource(descriptor)
        except OSError as error:
            close(descriptor)
            return Miss(MissReason.UNREADABLE, f"{file_name(key)}: {error.strerror}")
        found = read(source, key, self._signing_key)
        if touched_at is not None and isinstance(found, Stored):
            with suppress(OSError):  # a file of another member of the group
                status = os.fstat(descriptor)
                if abs(touched_at - status.st_atime) >= TOUCH_S:
                    os.utime(descriptor, ns=(int(touched_at * 1e9), status.st_mtime_ns))
        if isinstance(found, Miss) or not found.holds(source):
            source.close()
        return found


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What a DiskStore is opened with, as plain values: they travel to a worker, and the signing key does not."""

    root: Path
    lower: tuple[Path, ...] = ()
    size_max_bytes: int = SIZE_MAX_BYTES
    readonly: bool = False
    group: str | None = None
    signing_key_file: Path | None = None

    @classmethod
    def of(cls, config: Config, root: Path) -> "StoreSettings":
        """What a farm with these settings opens `root` with."""
        return cls(
            root,
            lower=config.lower_cache_dirs,
            size_max_bytes=config.cache_size_max_bytes,
            readonly=config.readonly,
            group=config.shared_group,
            signing_key_file=config.signing_key_file,
        )

    def open(self) -> DiskStore:
        """The store. Raises as DiskStore does."""
        return DiskStore(
            self.root,
            lower=self.lower,
            size_max_bytes=self.size_max_bytes,
            readonly=self.readonly,
            group=self.group,
            signing_key_file=self.signing_key_file,
        )


LOWER_RULE: Final = Rule(private=False)


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except RuntimeError as error:  # before Python 3.13: a symbolic link that leads to itself
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error


def _lies_in(stores: Iterable[Places], key: CompileKey) -> bool:
    for places in stores:
        with suppress(StoreRefused, OSError), places.opened(key.hex[:2]) as shard:
            os.stat(file_name(key), dir_fd=shard, follow_symlinks=False)
            return True
    return False


def _newer_version(root: Path) -> str | None:
    """The name of the newest format directory in `root`, if it is newer than ours."""
    try:
        names = os.listdir(root)
    except OSError:
        return None
    newest = max((int(name[1:]) for name in names if name[:1] == "v" and name[1:].isdecimal()), default=0)
    return f"v{newest}" if newest > FORMAT_VERSION else None


def _warn_of_newer(root: Path, name: str) -> None:
    text = f"{root} was written by a newer farm ({name}): it counts as empty"
    with suppress(Warning):  # made an error by the program: it counts as empty all the same
        warnings.warn(text, StoreVersionWarning, stacklevel=4)


def _host() -> str:
    """This host's name without the hyphens that separate the parts of a temporary name."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in socket.gethostname())[:64]


def _fsync_directory(directory: int) -> None:
    descriptor = os.open(".", LIST, dir_fd=directory)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
