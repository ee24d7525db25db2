"""Trimming: who goes, who stays, what is swept."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from farm.job.key import CompileKey
from farm.store.artifact import Artifact, Stored, encode
from farm.store.disk import DiskStore
from farm.store.lock import LockOutcome, key_lock

Make = Callable[..., Artifact]
NOW = 2_000_000_000.0
NAMES = [f"f{n}" for n in range(10)]


def fill(root: Path, make: Make, *, age_s: float = 10_000) -> int:
    """Ten artifacts of one size, f0 the least recently used; return the size of one."""
    store = DiskStore(root)
    for n, name in enumerate(NAMES):
        store.put(make(name))
        used = NOW - age_s + n
        os.utime(path_of(root, make(name).key), (used, NOW - age_s))
    return len(encode(make("f0")))


def path_of(root: Path, key: CompileKey) -> Path:
    return root / "v1" / key.hex[:2] / f"{key.hex}.farm"


def kept(store: DiskStore, make: Make) -> list[str]:
    return [name for name in NAMES if store.contains(make(name).key)]


def test_a_store_under_its_limit_loses_nothing(root: Path, make: Make) -> None:
    size = fill(root, make)
    store = DiskStore(root, size_max_bytes=10 * size, clock=lambda: NOW)
    assert store.trim().entries_removed == 0 and kept(store, make) == NAMES


def test_the_least_recently_used_go_first_down_to_nine_tenths(root: Path, make: Make) -> None:
    size = fill(root, make)
    store = DiskStore(root, size_max_bytes=8 * size, clock=lambda: NOW)
    done = store.trim()
    assert kept(store, make) == NAMES[3:]
    assert (done.entries_removed, done.bytes_removed) == (3, 3 * size)
    assert store.stats().bytes <= 0.9 * 8 * size


def test_reading_makes_an_artifact_recently_used(root: Path, make: Make) -> None:
    size = fill(root, make)
    store = DiskStore(root, size_max_bytes=8 * size, clock=lambda: NOW)
    assert isinstance(store.get(make("f0").key), Stored)
    store.trim()
    assert kept(store, make) == ["f0", *NAMES[4:]]


def test_access_times_are_touched_at_most_hourly(root: Path, make: Make) -> None:
    DiskStore(root).put(make())
    path = path_of(root, make().key)
    # The kernel may set the access time itself, to now; hence the minute to either side of the hour.
    for idle_s, touched in ((3540, False), (3660, True), (7200, True)):
        os.utime(path, (time.time(), time.time() - 100))
        before = path.stat().st_atime
        now = before + idle_s
        assert isinstance(DiskStore(root, clock=lambda now=now: now).get(make().key), Stored)  # type: ignore[misc]
        assert abs(path.stat().st_atime - (now if touched else before)) < 60


def test_young_entries_stay(root: Path, make: Make) -> None:
    fill(root, make, age_s=59)
    store = DiskStore(root, size_max_bytes=0, clock=lambda: NOW)
    assert store.trim().entries_removed == 0
    assert DiskStore(root, size_max_bytes=0, clock=lambda: NOW + 1).trim().entries_removed == 10


def test_entries_from_the_far_future_do_not_stay_for_ever(root: Path, make: Make) -> None:
    fill(root, make, age_s=-10_000)
    assert DiskStore(root, size_max_bytes=0, clock=lambda: NOW).trim().entries_removed == 10


def test_after_the_clock_was_set_back_what_is_from_the_future_goes_first_and_not_what_is_new(
    root: Path, make: Make
) -> None:
    """It would count as the newest until that time comes, a year perhaps, in which nothing new could stay."""
    size = fill(root, make)
    store = DiskStore(root, size_max_bytes=8 * size, clock=lambda: NOW)
    for name in NAMES[:3]:
        os.utime(path_of(root, make(name).key), (NOW + 1e7, NOW + 1e7))
    assert store.trim().entries_removed == 3 and kept(store, make) == NAMES[3:]


def test_what_is_from_the_future_and_was_read_since_has_the_time_of_its_reading(root: Path, make: Make) -> None:
    size = fill(root, make)
    store = DiskStore(root, size_max_bytes=8 * size, clock=lambda: NOW)
    for name in NAMES[:4]:
        os.utime(path_of(root, make(name).key), (NOW + 1e7, NOW + 1e7))
    assert isinstance(store.get(make("f0").key), Stored)
    assert path_of(root, make("f0").key).stat().st_atime == NOW
    assert store.trim().entries_removed == 3 and kept(store, make) == ["f0", *NAMES[4:]]


def test_what_the_dead_left_in_the_future_is_swept_too(root: Path, make: Make) -> None:
    store = DiskStore(root, clock=lambda: NOW)
    with store.lock(make("old").key, 0):
        pass
    store.put(make())
    stale = root / "v1" / "tmp" / "host-1-aa"
    stale.touch()
    for path in (stale, root / "v1" / "locks" / f"{make('old').key.hex}.lock"):
        os.utime(path, (NOW + 3601, NOW + 3601))
    done = store.trim()
    assert (done.temporaries_removed, done.locks_removed) == (1, 1)


def test_one_trimmer_at_a_time(root: Path, make: Make) -> None:
    fill(root, make)
    store = DiskStore(root, size_max_bytes=0, clock=lambda: NOW)
    assert store.trim().outcome is LockOutcome.ACQUIRED
    fill(root, make)
    with key_lock(root / "v1" / "locks" / "trim.lock", 0) as mine:
        assert mine is LockOutcome.ACQUIRED
        assert store.trim().outcome is LockOutcome.BUSY
    assert kept(store, make) == NAMES


def test_what_the_dead_left_is_swept_after_an_hour(root: Path, make: Make) -> None:
    store = DiskStore(root, clock=lambda: NOW)
    store.put(make())
    with store.lock(make("held").key, 0), store.lock(make("old").key, 0), store.lock(make("new").key, 0):
        pass
    temporary, locks = root / "v1" / "tmp", root / "v1" / "locks"
    old, new = temporary / "host-1-aa", temporary / "host-2-bb"
    for path, age_s in (
        (old, 3601),
        (new, 3599),
        (locks / f"{make('held').key.hex}.lock", 3601),
        (locks / f"{make('old').key.hex}.lock", 3601),
        (locks / f"{make('new').key.hex}.lock", 3599),
    ):
        path.touch()
        os.utime(path, (NOW - age_s, NOW - age_s))
    with key_lock(locks / f"{make('held').key.hex}.lock", 0) as held:
        assert held is LockOutcome.ACQUIRED
        os.utime(locks / f"{make('held').key.hex}.lock", (NOW - 3601, NOW - 3601))
        done = store.trim()
    assert (done.temporaries_removed, done.locks_removed) == (1, 1)
    assert os.listdir(temporary) == [new.name]
    left = {make("held").key.hex, make("new").key.hex, "trim"}
    assert {path.stem for path in locks.iterdir()} == left
    new.unlink()
