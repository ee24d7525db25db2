"""A directory of artifacts, named by their keys.

    <root>/README.txt                 for whoever finds the directory
    <root>/v1/<2 hex>/<key>.farm      one file per artifact
    <root>/v1/tmp/                    <host>-<pid>-<random>, files that are being written
    <root>/v1/quarantine/             bad files, for whoever wants to know why
    <root>/v1/locks/                  one lock file per key, and trim.lock

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from farm.errors import StoreRefused, StoreVersionWarning
from farm.job.key import CompileKey
from farm.reasons import DegradedReason, MissReason
from farm.store import upkeep
from farm.store.artifact import FORMAT_VERSION, Artifact, DescriptorSource, Digest, Miss, Stored, encode, read
from farm.store.lock import LockOutcome, key_lock
from farm.store.signing import read_key
from farm.store.trust import Rule
from farm.store.upkeep import Places, StoreStats, Trimmed, Verified

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

README: Final = """\
This directory is a cache of numba-farm: machine code that numba compiled, one file per function and types.

It may be deleted at any time, as a whole or in part; what is missing is compiled again.
`farm cache stats` measures it, `farm cache clear` empties it.
Files are loaded as code. Keep the directory closed to everyone else (chmod 700).
"""


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
        self.root = root.resolve()
        self.size_max_bytes = size_max_bytes
        self.readonly = readonly
        self.misses: Counter[MissReason] = Counter()
        self.problems: list[StoreRefused | OSError] = []
        """Of lower directories that are left out: refused, or unreadable."""
        self._clock = clock
        self._fsync = fsync
        self._places = Places(self.root / f"v{FORMAT_VERSION}")
        self._rule = Rule(private=not readonly, gid=_gid(self.root, group))
        self._signing_key = None if signing_key_file is None else read_key(signing_key_file)
        self._root_checked = False
        self._newer: str | None = None
        self._look_at_root()
        self._lower: list[Places] = []
        for path in (path.resolve() for path in lower):
            places = Places(path / f"v{FORMAT_VERSION}")
            try:
                LOWER_RULE.check_directory(path)
                newer = _newer_version(path)
                if newer is not None:
                    _warn_of_newer(path, newer)
                    continue
                LOWER_RULE.check_directory(places.base)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (StoreRefused, OSError) as problem:  # one bad store of several must not cost the others
                self.problems.append(problem)
                continue
            self._lower.append(places)

    def get(self, key: CompileKey) -> Stored | Miss:
        """The artifact under a key: from the root, else from the first lower store that has a good one."""
        first = self._get_from_root(key)
        if isinstance(first, Stored):
            return first
        for places in self._lower:
            found = self._load(places.entry(key), key, LOWER_RULE)
            if isinstance(found, Stored):
                if first.reason is not MissReason.ABSENT:
                    self.misses[first.reason] += 1
                return found
            if first.reason is MissReason.ABSENT:
                first = found
        self.misses[first.reason] += 1
        return first

    def note(self, key: CompileKey, miss: Miss) -> None:
        """Count a miss that showed after `get`: damaged bitcode, or an artifact that could not be loaded.

        The file goes to quarantine only if its bytes are bad.
        """
        self.misses[miss.reason] += 1
        self._set_aside(self._places.entry(key), key, miss)

    def contains(self, key: CompileKey) -> bool:
        """Whether a file lies under the key. It says nothing about what is in it."""
        with suppress(StoreRefused, OSError):
            if self._look_at_root() and os.path.lexists(self._places.entry(key)):
                return True
        return any(os.path.lexists(places.entry(key)) for places in self._lower)

    def put(self, artifact: Artifact) -> Digest:
        """Store an artifact, in place of one that is there.

        Raises
        ------
        StoreUnwritable
            If that is not possible, with the reason. No part of the artifact stays behind.
        """
        self._must_be_writable()
        data = encode(artifact, self._signing_key)
        target = self._places.entry(artifact.key)
        temporary = self._places.temporary / f"{_host()}-{os.getpid()}-{secrets.token_hex(8)}"
        try:
            self._make_directories(target.parent)
            self._must_be_writable()  # once more: somebody else may have made the root just before us
            try:
                self._write(temporary, data)
                os.replace(temporary, target)
            except BaseException:
                with suppress(OSError):
                    temporary.unlink()
                raise
            if self._fsync:
                _fsync_directory(target.parent)
        except OSError as error:
            reason = DegradedReason.DISK_FULL if error.errno in FULL else DegradedReason.STORE_UNWRITABLE
            raise StoreUnwritable(reason, f"{target}: {error.strerror}") from error
        return Digest.of(data)

    @contextmanager
    def lock(self, key: CompileKey, timeout_s: float) -> Iterator[LockOutcome]:
        """Hold the lock of a key for the block, if the outcome is ACQUIRED. Look into the store again then."""
        try:
            self._must_be_writable()
            self._make_directories(self._places.locks)
            self._must_be_writable()
        except (StoreUnwritable, OSError):
            yield LockOutcome.UNAVAILABLE
            return
        with key_lock(self._places.lock(key), timeout_s, mode=self._rule.lock_mode) as outcome:
            yield outcome

    def stored_keys(self) -> Iterator[CompileKey]:
        """The keys of the root, in no order."""
        if self._is_readable():
            for path, _ in self._places.entries():
                with suppress(ValueError):
                    yield CompileKey(path.stem)

    def remove_temp_of(self, pid: int) -> int:
        """Remove what a process of this host was writing when it died; return how many files."""
        if self.readonly or not self._is_readable():
            return 0
        return upkeep.remove_temporaries(self._places, f"{_host()}-{pid}-")

    def trim(self) -> Trimmed:
        """Bring the store under its size limit, and sweep what the dead left. One process at a time."""
        self._must_be_writable()
        if not self._is_readable():
            return Trimmed()
        try:
            self._make_directories(self._places.locks)
        except OSError as error:
            raise StoreUnwritable(DegradedReason.STORE_UNWRITABLE, f"{self.root}: {error.strerror}") from error
        return upkeep.trim(self._places, self.size_max_bytes, self._clock(), self._rule.lock_mode)

    def clear(self) -> int:
        """Remove every artifact and the quarantine; return how many artifacts went."""
        self._must_be_writable()
        return upkeep.clear(self._places) if self._is_readable() else 0

    def stats(self) -> StoreStats:
        """What lies in the root."""
        return upkeep.measure(self._places) if self._is_readable() else StoreStats()

    def verify(self) -> Verified:
        """Read every artifact of the root to its last byte. Bad ones go to quarantine and are counted."""
        good = 0
        bad: list[tuple[str, Miss]] = []
        for key in self.stored_keys():
            path = self._places.entry(key)
            found: object = self._load(path, key, self._rule)
            if isinstance(found, Stored):
                found = found.bitcode()
            if not isinstance(found, Miss):
                good += 1
            elif found.reason is not MissReason.ABSENT:
                bad.append((key.hex, found))
                self.misses[found.reason] += 1
                self._set_aside(path, key, found)
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
        path = self._places.entry(key)
        found = self._load(path, key, self._rule, None if self.readonly else self._clock())
        if isinstance(found, Miss):
            self._set_aside(path, key, found)
        return found

    def _look_at_root(self) -> bool:
        """Whether the root exists and is ours to read. Judged once; until it exists, at every call."""
        if self._newer is not None:
            return False
        if self._root_checked:
            return True
        try:
            self._rule.check_directory(self.root)
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

    def _make_directories(self, *more: Path) -> None:
        """Make what is missing. Asked at every write, since a user may delete the cache at any time."""
        if all(path.is_dir() for path in (self._places.temporary, *more)):
            return
        self.root.parent.mkdir(parents=True, exist_ok=True)
        for path in (self.root, self._places.base, self._places.temporary, *more):
            try:
                os.mkdir(path, 0o700)
            except FileExistsError:
                continue
            if self._rule.gid is not None:
                os.chown(path, -1, self._rule.gid)
            os.chmod(path, self._rule.directory_mode)
            if path == self._places.base:
                with suppress(FileExistsError):
                    self._write(self.root / "README.txt", README.encode())

    def _write(self, path: Path, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
        try:
            if self._rule.gid is not None:
                os.fchown(descriptor, -1, self._rule.gid)
            os.fchmod(descriptor, self._rule.file_mode)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if self._fsync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _set_aside(self, path: Path, key: CompileKey, miss: Miss) -> None:
        if self.readonly or miss.reason not in DAMAGED:
            return
        # Another process may have put a good file here meanwhile: what is moved must still be bad.
        again = self._load(path, key, self._rule)
        bad = again.bitcode() if isinstance(again, Stored) else again
        if isinstance(bad, Miss) and bad.reason in DAMAGED:
            with suppress(OSError):
                self._make_directories(self._places.quarantine)
                upkeep.quarantine(self._places, path, bad.reason)

    def _load(self, path: Path, key: CompileKey, rule: Rule, touched_at: float | None = None) -> Stored | Miss:
        """Open, judge and read one file; set its access time if `touched_at` is an hour later."""
        descriptor = rule.open_file(path)
        if isinstance(descriptor, Miss):
            return descriptor
        source = DescriptorSource(descriptor)
        found = read(source, key, self._signing_key)
        if touched_at is not None and isinstance(found, Stored):
            with suppress(OSError):  # a file of another member of the group
                status = os.fstat(descriptor)
                if touched_at - status.st_atime >= TOUCH_S:
                    os.utime(descriptor, ns=(int(touched_at * 1e9), status.st_mtime_ns))
        if isinstance(found, Miss) or not found.holds(source):
            source.close()
        return found


LOWER_RULE: Final = Rule(private=False)


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
    warnings.warn(text, StoreVersionWarning, stacklevel=4)


def _gid(root: Path, group: str | None) -> int | None:
    if group is None:
        return None
    import grp

    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise StoreRefused(str(root), f"there is no group {group!r}", "set an existing group, or none") from None


def _host() -> str:
    """This host's name without the hyphens that separate the parts of a temporary name."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in socket.gethostname())[:64]


def _fsync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
