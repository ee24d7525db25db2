"""The key file: who may read it, what it must hold, and where the key does not come out."""

import copy
import os
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from farm.errors import SigningKeyRefused, StoreRefused
from farm.reasons import MissReason
from farm.store import signing
from farm.store.artifact import Artifact, Miss, Stored
from farm.store.disk import DiskStore
from farm.store.signing import KEY_MAX_BYTES, KEY_MIN_BYTES, UNSIGNED, SigningKey, read_key

Make = Callable[..., Artifact]
SECRET = b"sixteen bytes and a few"


def write_key(path: Path, secret: bytes = SECRET, mode: int = 0o600) -> Path:
    path.write_bytes(secret)
    path.chmod(mode)
    return path


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return write_key(tmp_path / "key")


def refusal(path: Path) -> SigningKeyRefused:
    with pytest.raises(SigningKeyRefused) as caught:
        read_key(path)
    return caught.value


def test_a_key_signs_and_recognises_its_own_signature_only(key_file: Path, tmp_path: Path) -> None:
    key, same = read_key(key_file), read_key(key_file)
    other = read_key(write_key(tmp_path / "other", SECRET + b"\n"))
    assert key.sign(b"data") == same.sign(b"data") != key.sign(b"date")
    assert same.accepts(b"data", key.sign(b"data"))
    for wrong in (other.sign(b"data"), key.sign(b"date"), UNSIGNED, b""):
        assert not key.accepts(b"data", wrong)


@pytest.mark.parametrize("mode", [0o640, 0o620, 0o610, 0o604, 0o602, 0o601, 0o644, 0o666])
def test_a_key_that_others_can_use_is_refused_with_the_chmod_to_run(tmp_path: Path, mode: int) -> None:
    refused = refusal(write_key(tmp_path / "key", mode=mode))
    assert f"mode is {mode:04o}" in refused.problem
    assert refused.remedy == f"run: chmod 600 {tmp_path / 'key'}"


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_key_that_its_owner_alone_can_use_is_read(tmp_path: Path, mode: int) -> None:
    assert isinstance(read_key(write_key(tmp_path / "key", mode=mode)), SigningKey)


def test_a_key_of_another_user_is_refused_and_one_of_roots_is_not(
    key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = key_file.stat().st_uid
    monkeypatch.setattr(signing.os, "geteuid", lambda: owner + 1)
    if owner == 0:
        assert isinstance(read_key(key_file), SigningKey)
        os.chown(key_file, 12345, -1)
        owner = 12345
    refused = refusal(key_file)
    assert f"belongs to user {owner}" in refused.problem and "chown" in refused.remedy


@pytest.mark.parametrize("length", [0, 1, KEY_MIN_BYTES - 1, KEY_MAX_BYTES + 1])
def test_a_file_of_the_wrong_size_is_no_key(tmp_path: Path, length: int) -> None:
    assert f"it has {length} bytes" in refusal(write_key(tmp_path / "key", b"k" * length)).problem


@pytest.mark.parametrize("length", [KEY_MIN_BYTES, KEY_MAX_BYTES])
def test_the_sizes_at_the_limits_are_keys(tmp_path: Path, length: int) -> None:
    assert isinstance(read_key(write_key(tmp_path / "key", b"k" * length)), SigningKey)


def test_what_is_no_file_is_refused_and_nothing_is_waited_for(tmp_path: Path, key_file: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "link").symlink_to(key_file)
    (tmp_path / "loose").mkdir(0o700)
    for name, problem in {
        "pipe": "not a regular file",
        "loose": "not a regular file",
        "link": "symbolic link",
        "missing": "does not exist",
    }.items():
        refused = refusal(tmp_path / name)
        assert problem in refused.problem and refused.remedy


def test_the_command_that_makes_a_key_makes_one(tmp_path: Path) -> None:
    path = tmp_path / "key"
    command = refusal(path).remedy.removeprefix("run: ")
    assert os.system(command) == 0
    assert isinstance(read_key(path), SigningKey)


def test_a_key_cut_while_it_is_read_is_refused_without_showing_it(
    key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signing.os, "read", lambda descriptor, length: SECRET[:-1])
    refused = refusal(key_file)
    assert "changed" in refused.problem
    shown = traceback.TracebackException.from_exception(refused, capture_locals=True)
    assert SECRET.decode()[:-1] not in "".join(shown.format())


def test_a_key_has_no_repr_and_does_not_travel(key_file: Path) -> None:
    key = read_key(key_file)
    assert repr(key) == str(key) == "<SigningKey>"
    for way in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="does not travel"):
            way(key)


def test_a_refusal_names_the_key_file_and_survives_pickling(tmp_path: Path) -> None:
    refused = refusal(tmp_path / "key")
    again = pickle.loads(pickle.dumps(refused))
    assert str(again) == str(refused) and str(refused).startswith(f"signing key file {tmp_path / 'key'} refused")
    assert isinstance(refused, StoreRefused)


# -- a store with a key -----------------------------------------------------------------------------------


def reason_of(found: Stored | Miss) -> MissReason | None:
    return found.reason if isinstance(found, Miss) else None


def entries(root: Path) -> list[Path]:
    return [path for path in root.rglob("*.farm") if "quarantine" not in path.parts]


def test_what_a_store_with_a_key_writes_it_reads_again_and_so_does_one_without(
    root: Path, make: Make, key_file: Path
) -> None:
    DiskStore(root, signing_key_file=key_file).put(make())
    for store in (DiskStore(root, signing_key_file=key_file), DiskStore(root)):
        found = store.get(make().key)
        assert isinstance(found, Stored) and found.artifact() == make()


@pytest.mark.parametrize(
    ("written_with", "reason"), [(None, MissReason.UNSIGNED), (b"o" * 16, MissReason.WRONGLY_SIGNED)]
)
def test_what_is_not_signed_with_the_key_is_a_miss_stays_and_is_rewritten_by_the_next_put(
    root: Path, make: Make, key_file: Path, tmp_path: Path, written_with: bytes | None, reason: MissReason
) -> None:
    other_file = None if written_with is None else write_key(tmp_path / "other", written_with)
    other = DiskStore(root, signing_key_file=other_file)
    other.put(make())
    store = DiskStore(root, signing_key_file=key_file)
    assert reason_of(store.get(make().key)) is reason
    assert store.misses == {reason: 1}
    assert store.verify().bad[0][1].reason is reason
    assert store.stats().quarantined == 0 and isinstance(other.get(make().key), Stored)
    store.put(make())
    assert isinstance(store.get(make().key), Stored)


def test_a_lower_store_must_be_signed_too(root: Path, make: Make, key_file: Path, tmp_path: Path) -> None:
    baked = tmp_path / "baked"
    DiskStore(baked).put(make("plain"))
    DiskStore(baked, signing_key_file=key_file).put(make("signed"))
    store = DiskStore(root, lower=(baked,), signing_key_file=key_file)
    assert reason_of(store.get(make("plain").key)) is MissReason.UNSIGNED
    assert isinstance(store.get(make("signed").key), Stored)


def test_damage_of_a_signed_artifact_is_damage_and_goes_to_quarantine(root: Path, make: Make, key_file: Path) -> None:
    store = DiskStore(root, signing_key_file=key_file)
    store.put(make())
    (path,) = entries(root)
    path.write_bytes(path.read_bytes()[:-1])
    assert reason_of(store.get(make().key)) is MissReason.TRUNCATED
    assert store.stats().quarantined == 1 and not entries(root)


def test_a_store_with_a_refused_key_is_refused_before_it_is_looked_at(root: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match="signing key file"):
        DiskStore(root, signing_key_file=tmp_path / "missing")
    assert not root.exists()


def test_the_key_is_in_no_file_of_the_store(root: Path, make: Make, key_file: Path) -> None:
    store = DiskStore(root, signing_key_file=key_file)
    store.put(make())
    assert SECRET not in repr(store).encode()
    files = [path for path in root.rglob("*") if path.is_file()]
    assert len(files) == 2
    for path in files:
        assert SECRET not in path.read_bytes() and SECRET.hex().encode() not in path.read_bytes()
