"""Who may write where we load from, and what happens to a directory that is exchanged while it is used."""

import os
import stat
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from farm.errors import StoreRefused
from farm.reasons import DegradedReason, MissReason
from farm.store import trust
from farm.store.artifact import Artifact, Miss, Stored
from farm.store.disk import DiskStore, StoreUnwritable
from farm.store.lock import LockOutcome
from farm.store.trust import Rule

Make = Callable[..., Artifact]
US, OTHER, GROUP, OTHER_GROUP = 23456, 23457, 23458, 23459
"""Users and groups that no machine has."""
EXCHANGE: Final = "import os, sys\na, b = sys.argv[1:]\nos.rename(a, a + '-away')\nos.rename(b, a)\n"


def code_of(found: Stored | Miss) -> bytes:
    assert isinstance(found, Stored), found
    return found.code


def entry(root: Path, artifact: Artifact) -> Path:
    return root / "v1" / artifact.key.hex[:2] / f"{artifact.key.hex}.farm"


# -- links ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["v1", "v1/tmp", "v1/quarantine", "v1/locks", "v1/{shard}"])
def test_nothing_outside_is_read_written_or_removed_through_a_link(
    root: Path, make: Make, tmp_path: Path, place: str
) -> None:
    """A link in the place of a directory leads to files that are old, and named as ours are."""
    outside, key = tmp_path / "outside", make("f").key
    names = (f"{key.hex}.farm", f"{'0' * 64}.farm", f"{key.hex}.lock", "letter", *(f"old {n}" for n in range(20)))
    for directory in (outside, *(outside / name for name in ("tmp", "quarantine", "locks", key.hex[:2]))):
        directory.mkdir()
        for name in names:
            (directory / name).write_bytes(b"mine")
            os.utime(directory / name, (0, 0))
    store = DiskStore(root, size_max_bytes=1)
    store.put(make("before"))
    link = root / place.format(shard=key.hex[:2])
    if link.is_dir():
        link.rename(tmp_path / "away")
    link.symlink_to(outside)
    before = sorted((str(path), path.stat().st_mtime_ns) for path in outside.rglob("*"))

    assert isinstance(store.get(key), Miss)
    with suppress(StoreUnwritable):
        store.put(make("f"))
    with store.lock(key, 0) as outcome:
        assert (outcome is LockOutcome.ACQUIRED) == (place not in {"v1", "v1/locks"})
    assert isinstance(store.get(make("before").key), Stored) == (place != "v1")
    store.remove_temp_of(1)
    with suppress(StoreUnwritable):
        store.trim()
    store.verify()
    store.stats()
    store.clear()
    assert sorted((str(path), path.stat().st_mtime_ns) for path in outside.rglob("*")) == before
    assert len(before) == 5 * len(names) + 4
    link.unlink()


def test_a_link_on_the_way_is_named_with_what_to_do(root: Path, make: Make, tmp_path: Path) -> None:
    store = DiskStore(root)
    store.put(make())
    (root / "v1").rename(tmp_path / "elsewhere")
    (root / "v1").symlink_to(tmp_path / "elsewhere")
    found = store.get(make().key)
    assert isinstance(found, Miss) and found.reason is MissReason.UNTRUSTED and "symbolic link" in found.detail
    with pytest.raises(StoreUnwritable, match="the whole cache directory may be a link") as caught:
        store.put(make())
    assert caught.value.reason is DegradedReason.STORE_REFUSED


def test_the_cache_directory_itself_may_be_a_link(root: Path, make: Make, tmp_path: Path) -> None:
    (tmp_path / "big").mkdir(mode=0o700)
    root.symlink_to(tmp_path / "big")
    store = DiskStore(root)
    store.put(make())
    assert isinstance(store.get(make().key), Stored) and entry(tmp_path / "big", make()).exists()


# -- exchanged while it is used ---------------------------------------------------------------------------


@pytest.fixture
def exchanged_after(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Between a judgement and the use of what was judged another process puts something else in its place."""

    def arrange(judgement: str, place: Path, instead: Path) -> list[str]:
        real, done = getattr(Rule, judgement), list[str]()

        def judge(rule: Rule, *what: object) -> object:
            verdict = real(rule, *what)
            if not done:
                done.append(judgement)
                subprocess.run([sys.executable, "-S", "-c", EXCHANGE, str(place), str(instead)], check=True)
            return verdict

        monkeypatch.setattr(trust.Rule, judgement, judge)
        return done

    return arrange


def two_stores(root: Path, make: Make) -> tuple[DiskStore, Path]:
    """A store, and another one that is open to everybody and has other code under the same key."""
    evil = root.parent / "evil"
    DiskStore(evil).put(make("f", code=b"evil"))
    for directory in (evil, *(path for path in evil.rglob("*") if path.is_dir())):
        directory.chmod(0o777)
    store = DiskStore(root)
    store.put(make("f", code=b"good"))
    return store, evil


@pytest.mark.concurrency
def test_a_root_exchanged_between_its_judgement_and_the_read_is_not_read(
    root: Path, make: Make, exchanged_after: Callable[..., list[str]]
) -> None:
    store, evil = two_stores(root, make)
    done = exchanged_after("judge", root, evil)
    assert code_of(store.get(make("f").key)) == b"good" and done
    assert stat.S_IMODE(root.stat().st_mode) == 0o777, "it was exchanged"
    after = store.get(make("f").key)
    assert isinstance(after, Miss) and after.reason is MissReason.UNTRUSTED, "judged at each use"
    with pytest.raises(StoreUnwritable) as caught:
        store.put(make("new"))
    assert caught.value.reason is DegradedReason.STORE_REFUSED


@pytest.mark.concurrency
@pytest.mark.parametrize("what", ["trim", "clear"])
def test_in_a_root_exchanged_while_it_is_swept_nothing_is_removed(
    root: Path, make: Make, exchanged_after: Callable[..., list[str]], what: str
) -> None:
    store, evil = two_stores(root, make)
    store.size_max_bytes = 1
    for path in (entry(root, make("f")), entry(evil, make("f"))):
        os.utime(path, (0, 0))
    done = exchanged_after("judge", root, evil)
    with suppress(StoreUnwritable):
        store.clear() if what == "clear" else store.trim()
    assert done and stat.S_IMODE(root.stat().st_mode) == 0o777, "it was exchanged"
    assert entry(root, make("f")).exists(), "and lost nothing"


@pytest.mark.concurrency
def test_a_root_exchanged_between_its_judgement_and_the_write_is_not_written(
    root: Path, make: Make, exchanged_after: Callable[..., list[str]]
) -> None:
    store, evil = two_stores(root, make)
    before = sorted(map(str, evil.rglob("*")))
    done = exchanged_after("judge", root, evil)
    with suppress(StoreUnwritable):
        store.put(make("new"))
    assert done and sorted(str(path).replace(str(root), str(evil)) for path in root.rglob("*")) == before


@pytest.mark.concurrency
def test_a_file_exchanged_between_its_judgement_and_the_read_is_not_read(
    root: Path, make: Make, exchanged_after: Callable[..., list[str]]
) -> None:
    store, evil = two_stores(root, make)
    entry(evil, make("f")).chmod(0o666)
    done = exchanged_after("_problem_of_file", entry(root, make("f")), entry(evil, make("f")))
    assert code_of(store.get(make("f").key)) == b"good" and done
    found = store.get(make("f").key)
    assert isinstance(found, Miss) and found.reason is MissReason.UNTRUSTED


@pytest.mark.concurrency
def test_a_lower_store_exchanged_between_its_judgement_and_the_read_is_not_read(
    root: Path, make: Make, tmp_path: Path, exchanged_after: Callable[..., list[str]]
) -> None:
    _, evil = two_stores(tmp_path / "image", make)
    store = DiskStore(root, lower=(tmp_path / "image",))
    assert isinstance(store.get(make("none").key), Miss)  # the root is not there: what is judged next is the lower one
    done = exchanged_after("judge", tmp_path / "image", evil)
    assert code_of(store.get(make("f").key)) == b"good" and done
    assert isinstance(store.get(make("f").key), Miss), "judged at each use"


# -- owners and groups ------------------------------------------------------------------------------------

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away and become somebody")


def as_user(act: Callable[[], bool], *, uid: int = US, groups: tuple[int, ...] = ()) -> None:
    """In a child that is an ordinary user, as this process may be already: `act` must return True."""
    if (child := os.fork()) == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups(groups)
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            os._exit(0 if act() else 1)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that everybody can reach: the temporary directory of a test is closed to others."""
    with tempfile.TemporaryDirectory(prefix="farm-trust-", dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        yield Path(directory)


def give(root: Path, uid: int, gid: int, mode: int, file_mode: int) -> None:
    for path in (root, *root.rglob("*")):
        os.chown(path, uid, gid)
        os.chmod(path, mode if path.is_dir() else file_mode)


@needs_root
@pytest.mark.parametrize(
    ("owner", "mode", "file_mode", "serves"),
    [
        (0, 0o755, 0o644, True),
        (US, 0o755, 0o644, True),
        (OTHER, 0o755, 0o644, False),
        (0, 0o775, 0o644, False),
        (0, 0o757, 0o644, False),
        (0, 0o755, 0o664, False),
        (0, 0o755, 0o646, False),
    ],
)
def test_a_lower_store_is_roots_or_ours_and_closed_to_the_writing_of_others(
    public: Path, make: Make, owner: int, mode: int, file_mode: int, serves: bool
) -> None:
    image = public / "image"
    DiskStore(image).put(make())
    give(image, owner, OTHER_GROUP, mode, file_mode)

    def act() -> bool:
        store = DiskStore(public / "mine", lower=(image,))
        found = store.get(make().key)
        told = bool(store.problems) or (isinstance(found, Miss) and found.reason is MissReason.UNTRUSTED)
        return isinstance(found, Stored) is serves and told is not serves

    as_user(act)


@needs_root
@pytest.mark.parametrize("owner", [0, OTHER])
def test_the_store_that_is_written_is_nobody_elses_not_even_roots(public: Path, make: Make, owner: int) -> None:
    DiskStore(public / "cache").put(make())
    give(public / "cache", owner, US, 0o700, 0o600)

    def act() -> bool:
        try:
            DiskStore(public / "cache")
        except StoreRefused as refused:
            return f"belongs to user {owner}" in str(refused)
        return False

    as_user(act)


@needs_root
@pytest.mark.parametrize(
    ("mode", "gid", "serves"),
    [(0o2770, GROUP, True), (0o2771, GROUP, False), (0o2775, GROUP, False), (0o2770, OTHER_GROUP, False)],
)
def test_a_shared_store_admits_its_group_and_nobody_else(
    public: Path, make: Make, monkeypatch: pytest.MonkeyPatch, mode: int, gid: int, serves: bool
) -> None:
    monkeypatch.setattr("farm.store.disk.group_id", lambda root, group: GROUP)
    DiskStore(public / "cache").put(make())
    give(public / "cache", OTHER, gid, mode, 0o640)

    def act() -> bool:
        try:
            store = DiskStore(public / "cache", group="ours")
        except StoreRefused as refused:
            return not serves and "refused" in str(refused)
        store.put(make("of a member"))
        return serves and isinstance(store.get(make().key), Stored)

    as_user(act, groups=(GROUP, OTHER_GROUP))


@needs_root
@pytest.mark.parametrize(
    ("owner", "gid", "file_mode", "serves"),
    [
        (OTHER, GROUP, 0o640, True),
        (OTHER, OTHER_GROUP, 0o644, False),
        (OTHER, GROUP, 0o660, False),
        (US, OTHER_GROUP, 0o600, True),
    ],
)
def test_in_a_shared_store_a_file_is_a_members_and_nobody_can_change_it(
    public: Path, make: Make, monkeypatch: pytest.MonkeyPatch, owner: int, gid: int, file_mode: int, serves: bool
) -> None:
    monkeypatch.setattr("farm.store.disk.group_id", lambda root, group: GROUP)
    DiskStore(public / "cache").put(make())
    give(public / "cache", OTHER, GROUP, 0o2770, file_mode)
    os.chown(entry(public / "cache", make()), owner, gid)

    def act() -> bool:
        found = DiskStore(public / "cache", group="ours").get(make().key)
        return isinstance(found, Stored) is serves

    as_user(act, groups=(GROUP, OTHER_GROUP))


@pytest.mark.parametrize("place", ["", "v1", "v1/tmp", "v1/{shard}", "v1/locks"])
def test_what_an_ordinary_user_may_not_enter_costs_a_compile(public: Path, make: Make, place: str) -> None:
    DiskStore(public / "cache").put(make())
    with DiskStore(public / "cache").lock(make().key, 0):
        pass
    if os.geteuid() == 0:
        give(public / "cache", US, US, 0o700, 0o600)
    closed = public / "cache" / place.format(shard=make().key.hex[:2])
    os.chmod(closed, 0)

    def act() -> bool:
        store = DiskStore(public / "cache")
        found, missed = store.get(make().key), {"", "v1", "v1/{shard}"}
        try:
            store.put(make())
            wrote = True
        except StoreUnwritable as problem:
            wrote = problem.reason is not DegradedReason.STORE_UNWRITABLE
        with store.lock(make().key, 0) as outcome:
            locked = outcome is LockOutcome.ACQUIRED
        as_told = isinstance(found, Miss) and found.reason is MissReason.UNREADABLE
        return (
            as_told == (place in missed)
            and wrote == (place == "v1/locks")
            and locked == (place[3:] in {"tmp", "{shard}"})
        )

    try:
        as_user(act)
    finally:
        os.chmod(closed, 0o700)
