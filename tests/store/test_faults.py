"""Every call of the operating system that the store makes fails once, in every way that a disk fails.

No operation raises anything but StoreUnwritable; none leaves a descriptor, a temporary file or a wrong artifact; and
the next one, on a disk that works again, succeeds.
"""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from faulty import disk

from farm.errors import StoreRefused
from farm.reasons import DegradedReason, MissReason
from farm.store.artifact import Artifact, Miss, Stored
from farm.store.disk import DiskStore, StoreUnwritable
from farm.store.lock import LockOutcome

Make = Callable[..., Artifact]

NUMBERS: Final = (errno.EIO, errno.ENOSPC, errno.ENOENT, errno.ELOOP)
"""Those that the store tells apart: ENOSPC is a full disk, ENOENT an absence, ELOOP a link; EIO is all the others."""


def spoilt(root: Path, make: Make) -> None:
    """A store with a good artifact that was not read for long, a damaged one, and what the dead left."""
    store = DiskStore(root)
    for name in ("good", "bad"):
        store.put(make(name))
    (bad,) = root.rglob(f"{make('bad').key.hex}.farm")
    os.truncate(bad, 300)
    (good,) = root.rglob(f"{make('good').key.hex}.farm")
    os.utime(good, (0, 0))
    with store.lock(make("good").key, 0):
        pass
    stale = root / "v1" / "tmp" / "host-1-aa"
    stale.touch()
    for left in (stale, *(root / "v1" / "locks").iterdir()):
        os.utime(left, (0, 0))


OPERATIONS: Final[dict[str, Callable[[DiskStore, Make], object]]] = {
    "get": lambda store, make: store.get(make("good").key),
    "get what is damaged": lambda store, make: store.get(make("bad").key),
    "get what is not there": lambda store, make: store.get(make("none").key),
    "put": lambda store, make: store.put(make("new")),
    "contains": lambda store, make: store.contains(make("good").key),
    "stored keys": lambda store, make: list(store.stored_keys()),
    "trim": lambda store, make: store.trim(),
    "stats": lambda store, make: store.stats(),
    "verify": lambda store, make: store.verify(),
    "clear": lambda store, make: store.clear(),
    "remove what the dead left": lambda store, make: store.remove_temp_of(1),
}


@pytest.fixture(params=["a full store", "no store yet"])
def prepare(request: pytest.FixtureRequest, make: Make) -> Callable[[Path], None]:
    return (lambda root: spoilt(root, make)) if request.param == "a full store" else lambda root: None


@pytest.mark.parametrize("name", OPERATIONS)
def test_any_failing_call_of_any_operation_costs_a_compile_and_raises_nothing_else(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch, name: str, prepare: Callable[[Path], None]
) -> None:
    tried, ordinal, operation = 0, 0, OPERATIONS[name]
    while True:
        ordinal += 1
        reached = False
        for number in NUMBERS:
            root = tmp_path / f"{ordinal}-{number}"
            prepare(root)
            store = DiskStore(root, size_max_bytes=1, fsync=True)
            descriptors = os.listdir("/proc/self/fd")
            with disk(monkeypatch, ordinal, number) as faulty, suppress(StoreUnwritable):
                found = operation(store, make)
                assert not isinstance(found, Stored) or found.artifact() == make("good")
            reached = reached or faulty.failed is not None
            tried += faulty.failed is not None
            where = (name, faulty.failed, errno.errorcode[number])
            assert os.listdir("/proc/self/fd") == descriptors, where
            left = [path.name for path in root.glob("v1/tmp/*") if path.name != "host-1-aa"]
            assert not left or faulty.failed == "unlink", where
            store.put(make("after"))
            after = store.get(make("after").key)
            assert isinstance(after, Stored) and after.artifact() == make("after"), where
        if not reached:
            break
    assert tried == (ordinal - 1) * len(NUMBERS) >= len(NUMBERS)


@pytest.mark.parametrize("number", NUMBERS, ids=errno.errorcode.get)
def test_any_failing_call_while_a_lock_is_taken_is_an_outcome(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    ordinal, reached = 0, True
    while reached:
        ordinal += 1
        store = DiskStore(tmp_path / str(ordinal))
        with disk(monkeypatch, ordinal, number) as faulty, store.lock(make().key, 0) as outcome:
            assert isinstance(outcome, LockOutcome)
        reached = faulty.failed is not None
        with store.lock(make().key, 0) as again:
            assert again is LockOutcome.ACQUIRED, (faulty.failed, ordinal)
    assert ordinal > 10


@pytest.mark.parametrize("number", NUMBERS, ids=errno.errorcode.get)
def test_any_failing_call_while_a_store_is_opened_is_told_of_or_harmless(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    spoilt(tmp_path / "here", make)
    spoilt(tmp_path / "lower", make)
    ordinal, reached = 0, True
    while reached:
        ordinal += 1
        with disk(monkeypatch, ordinal, number) as faulty, suppress(StoreRefused, OSError):
            DiskStore(tmp_path / "here", lower=(tmp_path / "lower",))
        reached = faulty.failed is not None
    assert ordinal > 5
    assert isinstance(DiskStore(tmp_path / "here").get(make("good").key), Stored)


def test_a_lower_store_that_is_a_link_to_itself_costs_only_itself(root: Path, make: Make, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    DiskStore(tmp_path / "image").put(make())
    store = DiskStore(root, lower=(tmp_path / "loop", tmp_path / "image"))
    assert isinstance(store.get(make().key), Stored)


def test_a_root_that_is_a_link_to_itself_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(OSError):
        DiskStore(tmp_path / "loop")


PLACES: Final = ("", "v1", "v1/tmp", "v1/locks", "v1/quarantine", "v1/{shard}", "v1/{shard}/{file}")


@pytest.mark.parametrize("what", ["a file", "a link to nothing", "a link to itself", "a pipe"])
@pytest.mark.parametrize("place", PLACES)
def test_what_is_in_the_place_of_a_directory_costs_what_would_be_in_it(
    root: Path, make: Make, place: str, what: str
) -> None:
    key = make("f").key
    path = root / place.format(shard=key.hex[:2], file=f"{key.hex}.farm")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for directory in (*path.relative_to(root.parent).parents,):
        (root.parent / directory).chmod(0o700)
    if what == "a pipe":
        os.mkfifo(path)
    elif what == "a file":
        path.touch()
    else:
        path.symlink_to(path if what == "a link to itself" else path.parent / "nothing")
    # The cache directory itself may be a link, also to what is made only then.
    needed = "nothing" if (place, what) == ("", "a link to nothing") else place
    try:
        store = DiskStore(root)
    except (StoreRefused, OSError):
        assert needed == ""
        return
    assert isinstance(store.get(key), Miss) and not store.stats().bytes
    try:
        store.put(make("f"))
    except StoreUnwritable as problem:
        assert problem.reason in {DegradedReason.STORE_REFUSED, DegradedReason.STORE_UNWRITABLE}
        assert place not in {"v1/locks", "v1/quarantine", PLACES[-1]}, "what a put does not need"
    else:
        assert needed not in {"", "v1", "v1/tmp"} and isinstance(store.get(key), Stored)
    with store.lock(key, 0) as outcome:
        assert (outcome is LockOutcome.ACQUIRED) == (needed not in {"", "v1", "v1/locks"})
    with suppress(StoreUnwritable):
        store.trim()
    assert store.clear() in (0, 1)


def test_a_name_as_long_as_a_file_system_takes_is_a_store_and_a_longer_one_is_none(tmp_path: Path, make: Make) -> None:
    long = DiskStore(tmp_path / ("d" * 255) / ("e" * 255))
    long.put(make())
    assert isinstance(long.get(make().key), Stored)
    with pytest.raises(OSError):
        DiskStore(tmp_path / ("d" * 256))


def test_reads_of_a_disk_that_fails_say_unreadable(root: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DiskStore(root)
    store.put(make())
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "EIO")))
        found = store.get(make().key)
    assert isinstance(found, Miss) and found.reason is MissReason.UNREADABLE
    assert isinstance(store.get(make().key), Stored), "it was not set aside: its bytes may be good"
