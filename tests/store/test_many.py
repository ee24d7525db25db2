"""A store with 100,000 artifacts: what a call asks of the disk does not grow, and a trim keeps no call waiting."""

import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from faulty import disk

from farm.store.artifact import Artifact, Stored, encode
from farm.store.disk import DiskStore
from farm.store.lock import LockOutcome
from farm.store.upkeep import QUARANTINE_MAX_FILES

Make = Callable[..., Artifact]
ENTRIES: Final = 100_000
LINKS: Final = 1000
"""So many names for one file: file systems have a limit."""
MEMORY: Final = "/dev/shm" if os.path.isdir("/dev/shm") else None
NOW: Final = 2_000_000_000.0


@pytest.fixture(scope="module")
def full() -> Iterator[Path]:
    """In memory, where that is possible. The oldest are those of the first shards."""
    base = Path(tempfile.mkdtemp(prefix="farm-many-", dir=MEMORY))
    shards = [base / "v1" / f"{number:02x}" for number in range(256)]
    for directory in (base / "v1" / "tmp", *shards):
        directory.mkdir(parents=True, mode=0o700)
    (base / "v1").chmod(0o700)
    for number in range(ENTRIES):
        shard = shards[number * 256 // ENTRIES]
        path = shard / f"{shard.name}{secrets.token_hex(31)}.farm"
        if number % LINKS == 0:
            path.write_bytes(b"x" * 1000)
            os.utime(path, (NOW - 1e6 + number, NOW - 1e6 + number))
            first = path
        else:
            os.link(first, path)
    yield base
    shutil.rmtree(base)


def asked(
    monkeypatch: pytest.MonkeyPatch, store: DiskStore, operation: Callable[[DiskStore], object]
) -> dict[str, int]:
    """What an operation asks of the operating system, by the names of the calls."""
    with disk(monkeypatch) as counting:
        operation(store)
    return dict(counting.by_name)


@pytest.mark.parametrize("name", ["get", "get what is not there", "get what is damaged", "put", "lock", "contains"])
def test_a_call_asks_the_same_of_a_full_store_as_of_an_empty_one(
    full: Path, make: Make, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def damaged(store: DiskStore) -> object:
        return store.get(make("damaged").key)

    def lock(store: DiskStore) -> None:
        with store.lock(make("f").key, 0) as outcome:
            assert outcome is LockOutcome.ACQUIRED

    operation: dict[str, Callable[[DiskStore], object]] = {
        "get": lambda store: store.get(make("f").key),
        "get what is not there": lambda store: store.get(make("none").key),
        "get what is damaged": damaged,
        "put": lambda store: store.put(make("f")),
        "lock": lock,
        "contains": lambda store: store.contains(make("f").key),
    }
    counts, small = [], Path(tempfile.mkdtemp(prefix="farm-few-", dir=MEMORY))
    for place in (small, full):
        store = DiskStore(place)
        shutil.rmtree(place / "v1" / "quarantine", ignore_errors=True)
        for artifact in (make("f"), make("damaged")):
            store.put(artifact)
        (path,) = place.glob(f"v1/??/{make('damaged').key.hex}.farm")
        path.write_bytes(encode(make("damaged"))[:-1])
        lock(store)
        counts.append(asked(monkeypatch, store, operation[name]))
        store.put(make("damaged"))
    shutil.rmtree(small)
    few, many = (sum(each.values()) for each in counts)
    # Where a shard is not there yet, its files are not looked for.
    assert 3 < few <= many <= few + 3 < 60, counts


def test_a_trim_looks_at_each_artifact_once_and_opens_none(
    full: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DiskStore(full, clock=lambda: NOW)
    before = store.stats()
    assert before.entries >= ENTRIES
    store.size_max_bytes = before.bytes - 1
    with disk(monkeypatch) as counting:
        done = store.trim()
    assert 0.09 * ENTRIES < done.entries_removed < 0.11 * ENTRIES
    looks = counting.by_name["stat"] + counting.by_name["lstat"]
    assert before.entries <= looks < before.entries + 100
    assert counting.by_name["unlink"] == done.entries_removed + done.locks_removed
    assert counting.by_name["pread"] == counting.by_name["read"] == 0
    # Directories: each shard once to list it, and the one of each file that goes.
    assert counting.by_name["open"] < done.entries_removed + 1000
    assert store.stats().bytes <= 0.9 * before.bytes
    assert len(list((full / "v1" / "00").iterdir())) == 0, "the oldest have gone"


@pytest.mark.concurrency
def test_a_trim_in_the_middle_of_its_work_keeps_no_call_waiting(
    full: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking, publishing, locking and setting aside go on; only another trim does not, and says so."""
    store = DiskStore(full, size_max_bytes=1_000_000, clock=lambda: NOW)
    in_the_middle, go_on = threading.Event(), threading.Event()
    real = os.unlink

    def unlink(*what: object, **where: object) -> None:
        if threading.current_thread() is trimmer and not in_the_middle.is_set():
            in_the_middle.set()
            assert go_on.wait(60)
        real(*what, **where)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "unlink", unlink)
    trimmer = threading.Thread(target=store.trim)
    trimmer.start()
    done = threading.Event()

    def calls() -> None:
        other = DiskStore(full)
        other.put(make("meanwhile"))
        assert isinstance(other.get(make("meanwhile").key), Stored)
        with other.lock(make("meanwhile").key, 0) as outcome:
            assert outcome is LockOutcome.ACQUIRED
        (path,) = full.glob(f"v1/??/{make('meanwhile').key.hex}.farm")
        path.write_bytes(b"damaged")
        assert not isinstance(other.get(make("meanwhile").key), Stored)
        assert other.stats().quarantined <= QUARANTINE_MAX_FILES
        assert other.trim().outcome is LockOutcome.BUSY
        done.set()

    caller = threading.Thread(target=calls)
    try:
        assert in_the_middle.wait(60)
        caller.start()
        assert done.wait(60), "a call waits for the trim"
    finally:
        go_on.set()
        trimmer.join(60)
        caller.join(60)
    assert not trimmer.is_alive() and store.stats().bytes <= 0.9 * 1_000_000
