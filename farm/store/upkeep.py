"""The store's housekeeping: measuring, trimming, sweeping, quarantine.

Guarantees: a file that disappears under these functions is no error, as other processes keep house too. What is
removed lies in the store: no symbolic link is followed on the way to it. That the store has gone, or is not ours any
more, is raised: an OSError or a StoreRefused.
They scan the whole directory, so they are work for an idle worker and not for the front.
"""

import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from farm.job.key import CompileKey
from farm.store import usage
from farm.store.artifact import Miss
from farm.store.lock import LockOutcome, key_lock
from farm.store.places import (
    LOCKS,
    QUARANTINE,
    SUFFIX,
    TEMPORARY,
    Places,
    file_name,
    files_in,
    names_in,
    remove,
    walk,
)

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


def measure(places: Places) -> StoreStats:
    """Count the files and their bytes, and look when they were used."""
    with places.opened() as base:
        found = [status for _, _, status in places.entries(base)]
        quarantined = _count(base, QUARANTINE)
    uses = [max(status.st_atime, status.st_mtime) for status in found]
    return StoreStats(
        entries=len(found),
        bytes=sum(status.st_size for status in found),
        quarantined=quarantined,
        oldest_use=min(uses, default=None),
        newest_use=max(uses, default=None),
    )


def clear(places: Places) -> int:
    """Remove artifacts and quarantine, but not what others are writing or holding."""
    with places.opened() as base:
        removed = sum(_remove_entry(base, directory, name) for directory, name, _ in list(places.entries(base)))
        with suppress(OSError), walk(base, QUARANTINE) as aside:
            for name, _ in files_in(aside):
                remove(aside, name)
    return removed


def remove_temporaries(places: Places, prefix: str) -> int:
    """Remove the temporary files whose names begin so."""
    with places.opened(TEMPORARY) as temporary:
        return sum(remove(temporary, name) for name in names_in(temporary) if name.startswith(prefix))


def trim(places: Places, size_max_bytes: int, now: float, lock_mode: int) -> Trimmed:
    """Remove the least recently used artifacts, if they are over the limit, down to 90 % of it."""
    with key_lock(places.base / LOCKS / "trim.lock", 0, mode=lock_mode) as outcome:
        if outcome is not LockOutcome.ACQUIRED:
            return Trimmed(outcome)
        with places.opened() as base:
            entries, freed = _evict(places, base, size_max_bytes, now)
            temporaries = 0
            with suppress(OSError), walk(base, TEMPORARY) as directory:
                for name, status in files_in(directory):
                    temporaries += _is_stale(status, now) and remove(directory, name)
            usage.shorten(places)
            return Trimmed(outcome, entries, freed, temporaries, _sweep_locks(places, base, now))


def set_aside(places: Places, key: CompileKey, word: str) -> None:
    """Move an artifact to quarantine, whatever its bytes say. Raises StoreRefused, or OSError."""
    with places.opened(key.hex[:2]) as shard:
        quarantine(places, shard, key, word)


def quarantine(places: Places, shard: int, key: CompileKey, word: str) -> None:
    """Move a bad file aside under a name that says why, and forget the oldest over the bound. May raise OSError."""
    aside = f"{key.hex}-{word}-{secrets.token_hex(4)}{SUFFIX}"
    with places.opened(QUARANTINE, make=True) as directory:
        os.rename(file_name(key), aside, src_dir_fd=shard, dst_dir_fd=directory)
        # By change time, which the renaming sets: the modification time is that of the writing.
        files = sorted(files_in(directory), key=lambda file: file[1].st_ctime_ns, reverse=True)
        total = 0
        for count, (name, status) in enumerate(files, start=1):
            total += status.st_size
            if count > QUARANTINE_MAX_FILES or total > QUARANTINE_MAX_BYTES:
                remove(directory, name)


def _evict(places: Places, base: int, size_max_bytes: int, now: float) -> tuple[int, int]:
    found = list(places.entries(base))
    total = sum(status.st_size for _, _, status in found)
    if total <= size_max_bytes:
        return 0, 0
    entries = freed = 0
    for directory, name, status in sorted(found, key=lambda file: _used_at(file[2], now)):
        if total - freed <= size_max_bytes * TRIM_TO:
            break
        if abs(now - status.st_mtime) >= YOUNG_S and _remove_entry(base, directory, name):
            entries += 1
            freed += status.st_size
    return entries, freed


def _used_at(status: os.stat_result, now: float) -> float:
    """When a file was used last. A time that has not come yet says nothing: the clock was set back since, and what it
    marks would otherwise count as the newest until that time comes, while all that is new is removed."""
    return max((at for at in (status.st_atime, status.st_mtime) if at <= now + YOUNG_S), default=0.0)


def _is_stale(status: os.stat_result, now: float) -> bool:
    # In either direction, for the same reason.
    return abs(now - status.st_mtime) > STALE_S


def _sweep_locks(places: Places, base: int, now: float) -> int:
    removed = 0
    with suppress(OSError), walk(base, LOCKS) as directory:
        for name, status in files_in(directory, ".lock"):
            if name == "trim.lock" or not _is_stale(status, now):
                continue
            # Held while it goes. One that opened it before and locks it after holds a lock that nobody else
            # sees; this costs a compile done twice, as the lock only saves work.
            with key_lock(places.base / LOCKS / name, 0) as outcome:
                if outcome is LockOutcome.ACQUIRED:
                    removed += remove(directory, name)
    return removed


def _count(base: int, name: str) -> int:
    try:
        with walk(base, name) as directory:
            return sum(1 for _ in files_in(directory))
    except OSError:
        return 0


def _remove_entry(base: int, directory: str, name: str) -> bool:
    try:
        with walk(base, directory) as shard:
            return remove(shard, name)
    except OSError:
        return False
