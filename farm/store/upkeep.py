"""The store's housekeeping: measuring, trimming, sweeping, quarantine.

Guarantees: a file that disappears under these functions is no error, as other processes keep house too.
They scan the whole directory, so they are work for an idle worker and not for the front.
"""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from farm.job.key import CompileKey
from farm.reasons import MissReason
from farm.store.artifact import Miss
from farm.store.lock import LockOutcome, key_lock

SUFFIX: Final = ".farm"
TRIM_TO: Final = 0.9
YOUNG_S: Final = 60.0
"""Younger entries stay: their front may not have loaded them yet."""
STALE_S: Final = 3600.0
"""Older temporary files and idle lock files are swept: no write takes an hour."""
QUARANTINE_MAX_FILES: Final = 16
QUARANTINE_MAX_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class StoreStats:
    """What lies in a store: number and bytes of its artifacts, and number of files in quarantine.

    The uses are in seconds since the epoch, and may be an hour old; None without artifacts.
    """

    entries: int = 0
    bytes: int = 0
    quarantined: int = 0
    oldest_use: float | None = None
    newest_use: float | None = None


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What one trim did. `outcome` is BUSY if another process is trimming, and then nothing was done."""

    outcome: LockOutcome = LockOutcome.ACQUIRED
    entries_removed: int = 0
    bytes_removed: int = 0
    temporaries_removed: int = 0
    locks_removed: int = 0


@dataclass(frozen=True, slots=True)
class Verified:
    """How many artifacts are whole, and (key, why) of the others."""

    good: int
    bad: tuple[tuple[str, Miss], ...]


class Places:
    """The names inside one store."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.temporary = base / "tmp"
        self.quarantine = base / "quarantine"
        self.locks = base / "locks"

    def entry(self, key: CompileKey) -> Path:
        return self.base / key.hex[:2] / f"{key.hex}{SUFFIX}"

    def lock(self, key: CompileKey) -> Path:
        return self.locks / f"{key.hex}.lock"

    def entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Every artifact file with its status."""
        for directory in _names(self.base):
            if len(directory) == 2:
                yield from _files(self.base / directory, SUFFIX)


def measure(places: Places) -> StoreStats:
    """Count the files and their bytes, and look when they were used."""
    found = [status for _, status in places.entries()]
    uses = [_used_at(status) for status in found]
    return StoreStats(
        entries=len(found),
        bytes=sum(status.st_size for status in found),
        quarantined=sum(1 for _ in _files(places.quarantine)),
        oldest_use=min(uses, default=None),
        newest_use=max(uses, default=None),
    )


def clear(places: Places) -> int:
    """Remove artifacts and quarantine, but not what others are writing or holding."""
    removed = sum(_unlink(path) for path, _ in places.entries())
    for path, _ in _files(places.quarantine):
        _unlink(path)
    return removed


def remove_temporaries(places: Places, prefix: str) -> int:
    """Remove the temporary files whose names begin so."""
    return sum(_unlink(places.temporary / name) for name in _names(places.temporary) if name.startswith(prefix))


def trim(places: Places, size_max_bytes: int, now: float, lock_mode: int) -> Trimmed:
    """Remove the least recently used artifacts, if they are over the limit, down to 90 % of it."""
    with key_lock(places.locks / "trim.lock", 0, mode=lock_mode) as outcome:
        if outcome is not LockOutcome.ACQUIRED:
            return Trimmed(outcome)
        entries, freed = _evict(places, size_max_bytes, now)
        temporaries = sum(_unlink(path) for path, status in _files(places.temporary) if now - status.st_mtime > STALE_S)
        return Trimmed(outcome, entries, freed, temporaries, _sweep_locks(places, now))


def quarantine(places: Places, path: Path, reason: MissReason) -> None:
    """Move a bad file aside under a name that says why, and forget the oldest over the bound."""
    name = f"{path.stem}-{reason.name.lower()}-{secrets.token_hex(4)}{SUFFIX}"
    os.rename(path, places.quarantine / name)
    # By change time, which the renaming sets: the modification time is that of the writing.
    files = sorted(_files(places.quarantine), key=lambda file: file[1].st_ctime_ns, reverse=True)
    total = 0
    for count, (file, status) in enumerate(files, start=1):
        total += status.st_size
        if count > QUARANTINE_MAX_FILES or total > QUARANTINE_MAX_BYTES:
            _unlink(file)


def _evict(places: Places, size_max_bytes: int, now: float) -> tuple[int, int]:
    found = list(places.entries())
    total = sum(status.st_size for _, status in found)
    if total <= size_max_bytes:
        return 0, 0
    entries = freed = 0
    for path, status in sorted(found, key=lambda file: _used_at(file[1])):
        if total - freed <= size_max_bytes * TRIM_TO:
            break
        # A file from the far future, after the clock was set back, must not stay for ever.
        if abs(now - status.st_mtime) >= YOUNG_S and _unlink(path):
            entries += 1
            freed += status.st_size
    return entries, freed


def _used_at(status: os.stat_result) -> float:
    return max(status.st_atime, status.st_mtime)


def _sweep_locks(places: Places, now: float) -> int:
    removed = 0
    for path, status in _files(places.locks, ".lock"):
        if path.name == "trim.lock" or now - status.st_mtime <= STALE_S:
            continue
        # Held while it goes. One that opened it before and locks it after holds a lock that nobody else
        # sees; this costs a compile done twice, as the lock only saves work.
        with key_lock(path, 0) as outcome:
            if outcome is LockOutcome.ACQUIRED:
                removed += _unlink(path)
    return removed


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _files(directory: Path, suffix: str = "") -> Iterator[tuple[Path, os.stat_result]]:
    for name in _names(directory):
        if name.endswith(suffix):
            path = directory / name
            with suppress(OSError):
                status = os.lstat(path)
                if stat.S_ISREG(status.st_mode):
                    yield path, status


def _unlink(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True
