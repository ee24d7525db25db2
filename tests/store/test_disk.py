"""The directory: what it writes, what it refuses, what it loses without harm."""

import errno
import os
import stat
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from farm.errors import StoreRefused, StoreVersionWarning
from farm.job.key import CompileKey
from farm.reasons import DegradedReason, MissReason
from farm.store.artifact import Artifact, Digest, Miss, Stored, encode
from farm.store.disk import DiskStore, StoreUnwritable

Make = Callable[..., Artifact]
KeyOf = Callable[[str], CompileKey]


def path_of(root: Path, key: CompileKey) -> Path:
    return root / "v1" / key.hex[:2] / f"{key.hex}.farm"


def reason_of(found: Stored | Miss) -> MissReason | None:
    return found.reason if isinstance(found, Miss) else None


def tree(root: Path) -> list[tuple[str, int, int]]:
    """Every path below with its size and times, to see that nothing was touched."""
    return [(str(p), p.lstat().st_size, p.lstat().st_mtime_ns) for p in sorted(root.rglob("*"))]


def publish(root: Path, artifact: Artifact, data: bytes) -> Path:
    """Put, then spoil: the file under the artifact's key gets other bytes."""
    DiskStore(root).put(artifact)
    path = path_of(root, artifact.key)
    path.write_bytes(data)
    return path


def test_not_set_writes_nothing(root: Path, key_of: KeyOf) -> None:
    store = DiskStore(root)
    assert reason_of(store.get(key_of("f"))) is MissReason.ABSENT
    assert not store.contains(key_of("f"))
    assert store.stats().entries == store.remove_temp_of(1) == store.clear() == store.verify().good == 0
    store.trim()
    assert not root.exists()


def test_read_only_writes_nothing(root: Path, make: Make) -> None:
    DiskStore(root).put(make("good"))
    publish(root, make("bad"), b"garbage")
    os.utime(path_of(root, make("good").key), (0, 0))
    before = tree(root)
    store = DiskStore(root, readonly=True)
    assert isinstance(store.get(make("good").key), Stored)
    assert reason_of(store.get(make("bad").key)) is MissReason.BAD_MAGIC
    for write in (lambda: store.put(make("new")), store.trim, store.clear):
        with pytest.raises(StoreUnwritable) as caught:
            write()
        assert caught.value.reason is DegradedReason.STORE_UNWRITABLE
    assert store.verify().good == 1
    assert tree(root) == before


def test_load_success(root: Path, make: Make) -> None:
    store = DiskStore(root)
    digest = store.put(make())
    found = store.get(make().key)
    assert isinstance(found, Stored)
    assert found.artifact() == make() and found.digest == digest == Digest.of(encode(make()))
    assert store.contains(make().key) and [key.hex for key in store.stored_keys()] == [make().key.hex]
    assert store.misses == {}


def test_load_missing(root: Path, make: Make, key_of: KeyOf) -> None:
    store = DiskStore(root)
    store.put(make())
    assert store.get(key_of("g")) == Miss(MissReason.ABSENT)
    assert store.misses == {MissReason.ABSENT: 1}


def test_load_key_mismatch(root: Path, make: Make) -> None:
    store = DiskStore(root)
    store.put(make("f"))
    path = publish(root, make("g"), encode(make("f")))
    assert reason_of(store.get(make("g").key)) is MissReason.KEY_MISMATCH
    assert not path.exists() and isinstance(store.get(make("f").key), Stored)


def test_load_empty_payload(root: Path, make: Make) -> None:
    publish(root, make(), b"")
    assert reason_of(DiskStore(root).get(make().key)) is MissReason.EMPTY


def test_two_targets_two_files(root: Path, make: Make) -> None:
    store = DiskStore(root)
    for target in ("cpu", "cpu-avx512"):
        store.put(make(target, code=target.encode()))
    assert store.stats().entries == 2
    for target in ("cpu", "cpu-avx512"):
        found = store.get(make(target).key)
        assert isinstance(found, Stored) and found.code == target.encode()


def test_a_bad_file_is_set_aside_counted_and_rewritten(root: Path, make: Make) -> None:
    path = publish(root, make(), encode(make())[:-1])
    store = DiskStore(root)
    assert reason_of(store.get(make().key)) is MissReason.TRUNCATED
    assert store.misses == {MissReason.TRUNCATED: 1} and store.stats().quarantined == 1
    (aside,) = (root / "v1" / "quarantine").iterdir()
    assert aside.name.startswith(f"{make().key.hex}-truncated-") and not path.exists()
    store.put(make())
    assert isinstance(store.get(make().key), Stored)


def test_the_quarantine_is_bounded_by_files(root: Path, make: Make) -> None:
    store = DiskStore(root)
    for n in range(20):
        publish(root, make(), f"garbage {n}".encode())
        assert reason_of(store.get(make().key)) is MissReason.BAD_MAGIC
    assert store.stats().quarantined == 16 and store.misses == {MissReason.BAD_MAGIC: 20}


def test_the_quarantine_is_bounded_by_bytes(root: Path, make: Make) -> None:
    store = DiskStore(root)
    for _ in range(4):
        path = publish(root, make(), b"x")
        os.truncate(path, 10 << 20)
        assert reason_of(store.get(make().key)) is MissReason.BAD_MAGIC
    assert store.stats().quarantined == 3


def test_verify_reads_to_the_last_byte(root: Path, make: Make) -> None:
    store = DiskStore(root)
    store.put(make("good"))
    data = bytearray(encode(make("bad")))
    data[data.index(b"BC bitcode")] ^= 1
    publish(root, make("bad"), bytes(data))
    report = store.verify()
    assert report.good == 1
    assert [(key, miss.reason) for key, miss in report.bad] == [(make("bad").key.hex, MissReason.DIGEST_MISMATCH)]
    assert store.stats().entries == store.stats().quarantined == 1


def test_a_file_cut_at_every_length_is_a_miss_and_the_next_put_heals_it(root: Path, make: Make) -> None:
    store = DiskStore(root)
    data = encode(make())
    for length in range(len(data)):
        publish(root, make(), data[:length])
        assert reason_of(store.get(make().key)) is (MissReason.TRUNCATED if length else MissReason.EMPTY)
    assert store.misses == {MissReason.EMPTY: 1, MissReason.TRUNCATED: len(data) - 1}
    assert len(data) > 300 and store.stats().quarantined == 16
    store.put(make())
    assert isinstance(store.get(make().key), Stored)


def test_a_flip_of_every_byte_of_a_file_is_a_miss(root: Path, make: Make) -> None:
    """Of the bitcode too, which is used when a caller is compiled, where it is too late to compile this one again."""
    store = DiskStore(root)
    data = encode(make())
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        publish(root, make(), bytes(damaged))
        assert isinstance(store.get(make().key), Miss), position
        assert not path_of(root, make().key).exists(), position
    assert sum(store.misses.values()) == len(data) > 300


def test_a_good_file_that_could_not_be_loaded_stays(root: Path, make: Make) -> None:
    store = DiskStore(root)
    store.put(make())
    for reason in (MissReason.SYMBOL_MISSING, MissReason.LOAD_FAILED):
        store.note(make().key, Miss(reason, "somewhere"))
        assert store.misses[reason] == 1 and store.contains(make().key)


def test_stats_tell_the_oldest_and_the_newest_use(root: Path, make: Make) -> None:
    store = DiskStore(root)
    assert (store.stats().oldest_use, store.stats().newest_use) == (None, None)
    for name, used_at in (("f", 1e9), ("g", 2e9), ("h", 3e9)):
        store.put(make(name))
        (path,) = root.rglob(f"{make(name).key.hex}.farm")
        os.utime(path, (used_at, 5e8))
    assert (store.stats().oldest_use, store.stats().newest_use) == (1e9, 3e9)


def test_clear_leaves_no_artifact(root: Path, make: Make) -> None:
    store = DiskStore(root)
    store.put(make("f"))
    store.put(make("g"))
    assert store.clear() == 2 and store.stats().entries == 0
    store.put(make("f"))
    assert isinstance(store.get(make("f").key), Stored)


def test_a_store_deleted_under_us_is_made_again(root: Path, make: Make) -> None:
    store = DiskStore(root)
    store.put(make())
    for path in sorted(root.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    root.rmdir()
    assert reason_of(store.get(make().key)) is MissReason.ABSENT
    store.put(make())
    assert isinstance(store.get(make().key), Stored)


def test_everything_is_private_and_explained(root: Path, make: Make) -> None:
    previous = os.umask(0)
    try:
        DiskStore(root).put(make())
    finally:
        os.umask(previous)
    modes = {stat.S_IMODE(p.stat().st_mode) for p in (root, *root.rglob("*")) if p.is_dir()}
    assert modes == {0o700} and stat.S_IMODE(path_of(root, make().key).stat().st_mode) == 0o600
    assert "numba-farm" in (root / "README.txt").read_text()


def test_with_fsync_the_artifact_is_the_same(root: Path, make: Make) -> None:
    store = DiskStore(root, fsync=True)
    store.put(make())
    assert isinstance(store.get(make().key), Stored)


@pytest.mark.parametrize("mode", [0o777, 0o755, 0o750, 0o701])
def test_world_writable_refused(root: Path, mode: int) -> None:
    root.mkdir()
    root.chmod(mode)
    with pytest.raises(StoreRefused, match=f"chmod 700 {root}"):
        DiskStore(root)


def test_a_root_that_opens_to_others_later_costs_a_compile_and_no_call(root: Path, make: Make) -> None:
    store = DiskStore(root)
    root.mkdir()
    root.chmod(0o777)
    assert reason_of(store.get(make().key)) is MissReason.UNTRUSTED
    with pytest.raises(StoreUnwritable) as caught:
        store.put(make())
    assert caught.value.reason is DegradedReason.STORE_REFUSED and list(root.iterdir()) == []


def test_a_file_that_others_can_write_is_not_read(root: Path, make: Make) -> None:
    store = DiskStore(root)
    store.put(make())
    path_of(root, make().key).chmod(0o622)
    assert reason_of(store.get(make().key)) is MissReason.UNTRUSTED


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_somebody_else_is_not_read(root: Path, make: Make) -> None:
    store = DiskStore(root)
    store.put(make())
    os.chown(path_of(root, make().key), 12345, -1)
    assert reason_of(store.get(make().key)) is MissReason.UNTRUSTED
    os.chown(root, 12345, -1)
    with pytest.raises(StoreRefused, match="chown"):
        DiskStore(root)


def test_symlink_refused(root: Path, make: Make, tmp_path: Path) -> None:
    store = DiskStore(root)
    store.put(make())
    path = path_of(root, make().key)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert reason_of(store.get(make().key)) is MissReason.UNTRUSTED
    store.put(make())
    assert not path.is_symlink() and isinstance(store.get(make().key), Stored)


@pytest.mark.parametrize("kind", ["directory", "pipe"])
def test_what_is_no_file_is_a_miss_at_once(root: Path, make: Make, kind: str) -> None:
    path = publish(root, make(), b"")
    path.unlink()
    path.mkdir() if kind == "directory" else os.mkfifo(path)
    assert reason_of(DiskStore(root).get(make().key)) is MissReason.UNTRUSTED


def test_a_lower_store_serves_what_the_root_lacks_and_is_not_written(root: Path, make: Make, tmp_path: Path) -> None:
    lower = tmp_path / "image"
    DiskStore(lower).put(make("baked"))
    publish(lower, make("bad"), b"garbage")
    before = tree(lower)
    store = DiskStore(root, lower=(tmp_path / "none", lower))
    assert isinstance(store.get(make("baked").key), Stored) and store.contains(make("baked").key)
    assert reason_of(store.get(make("bad").key)) is MissReason.BAD_MAGIC
    store.put(make("new"))
    assert tree(lower) == before and not DiskStore(lower).contains(make("new").key)


def test_a_good_lower_artifact_stands_in_for_a_bad_one(root: Path, make: Make, tmp_path: Path) -> None:
    DiskStore(tmp_path / "image").put(make())
    publish(root, make(), b"garbage")
    store = DiskStore(root, lower=(tmp_path / "image",))
    assert isinstance(store.get(make().key), Stored)
    assert store.misses == {MissReason.BAD_MAGIC: 1}


def test_a_lower_store_may_be_read_by_all_but_not_written(root: Path, make: Make, tmp_path: Path) -> None:
    lower = tmp_path / "image"
    DiskStore(lower).put(make())
    lower.chmod(0o755)
    assert isinstance(DiskStore(root, lower=(lower,)).get(make().key), Stored)
    lower.chmod(0o775)
    good = tmp_path / "good"
    DiskStore(good).put(make())
    store = DiskStore(root, lower=(lower, good))
    (problem,) = store.problems
    assert isinstance(problem, StoreRefused) and "chmod go-w" in str(problem)
    assert isinstance(store.get(make().key), Stored)


def test_an_unknown_group_is_refused(root: Path) -> None:
    with pytest.raises(StoreRefused, match="no group"):
        DiskStore(root, group="no-such-group-here")


def test_a_group_is_admitted(root: Path, make: Make) -> None:
    import grp

    store = DiskStore(root, group=grp.getgrgid(os.getegid()).gr_name)
    store.put(make())
    assert stat.S_IMODE(root.stat().st_mode) == 0o2770
    assert stat.S_IMODE(path_of(root, make().key).stat().st_mode) == 0o640
    assert isinstance(DiskStore(root, group=grp.getgrgid(os.getegid()).gr_name).get(make().key), Stored)


def test_a_newer_store_counts_as_empty_and_is_said_once(root: Path, make: Make) -> None:
    DiskStore(root).put(make())
    (root / "v2").mkdir()
    with pytest.warns(StoreVersionWarning, match="v2") as said:
        store = DiskStore(root)
        assert reason_of(store.get(make().key)) is reason_of(store.get(make().key)) is MissReason.NEWER_FORMAT
        with pytest.raises(StoreUnwritable) as caught:
            store.put(make())
    assert len(said) == 1 and caught.value.reason is DegradedReason.STORE_NEWER_FORMAT
    assert not store.contains(make().key) and store.stats().entries == 0


def test_a_newer_lower_store_counts_as_empty(root: Path, make: Make, tmp_path: Path) -> None:
    DiskStore(tmp_path / "image").put(make())
    (tmp_path / "image" / "v3").mkdir()
    with pytest.warns(StoreVersionWarning, match="v3"):
        store = DiskStore(root, lower=(tmp_path / "image",))
    assert reason_of(store.get(make().key)) is MissReason.ABSENT


def test_an_older_store_beside_ours_says_nothing(root: Path, make: Make) -> None:
    DiskStore(root).put(make())
    (root / "v0").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(DiskStore(root).get(make().key), Stored)


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, DegradedReason.DISK_FULL),
        (errno.EDQUOT, DegradedReason.DISK_FULL),
        (errno.EIO, DegradedReason.STORE_UNWRITABLE),
    ],
)
def test_disk_full_leaves_nothing_behind(
    root: Path, make: Make, monkeypatch: pytest.MonkeyPatch, number: int, reason: DegradedReason
) -> None:
    store = DiskStore(root)
    store.put(make("before"))

    def refuse(descriptor: int, data: bytes) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch, pytest.raises(StoreUnwritable) as caught:
        patch.setattr(os, "write", refuse)
        store.put(make("f"))
    assert caught.value.reason is reason
    assert os.listdir(root / "v1" / "tmp") == [] and not store.contains(make("f").key)


def test_a_write_in_small_pieces_is_whole(root: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
        DiskStore(root).put(make())
    assert isinstance(DiskStore(root).get(make().key), Stored)


def test_a_root_that_cannot_be_made_is_unwritable(tmp_path: Path, make: Make) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = DiskStore(tmp_path / "other")
    (tmp_path / "other").symlink_to(tmp_path / "file")
    assert isinstance(store.get(make().key), Miss)
    with pytest.raises(StoreUnwritable):
        store.put(make())


def test_temporary_files_of_one_process_are_removed(root: Path, make: Make) -> None:
    store = DiskStore(root)
    store.put(make())
    temporary = root / "v1" / "tmp"
    from farm.store.disk import _host

    names = [f"{_host()}-12-aa", f"{_host()}-12-bb", f"{_host()}-123-aa", f"{_host()}x-12-aa"]
    for name in names:
        (temporary / name).touch()
    assert store.remove_temp_of(12) == 2
    assert sorted(os.listdir(temporary)) == sorted(names[2:])
    for name in names[2:]:
        (temporary / name).unlink()


def test_nobody_is_told_to_change_the_mode_of_a_directory_that_is_no_cache(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(StoreRefused, match="run: chmod 700"):
        DiskStore(shared)
    (shared / "somebody's file").touch()
    with pytest.raises(StoreRefused, match="directory of your own"):
        DiskStore(shared)
