"""The catalog: what it says of each artifact, from how little, and what it does with files that tell nothing."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from faulty import disk

from farm.job.key import CompileKey
from farm.reasons import MissReason
from farm.store import catalog
from farm.store.artifact import Artifact
from farm.store.catalog import Entry, Filter, Unreadable
from farm.store.disk import DiskStore
from farm.store.places import Places

Make = Callable[..., Artifact]


def told(artifact: Artifact, **meta: object) -> Artifact:
    return replace(artifact, meta={**artifact.meta, **meta})  # type: ignore[dict-item]


def put(root: Path, artifact: Artifact, used_at: float = 1e9) -> Path:
    DiskStore(root).put(artifact)
    path = root / "v1" / artifact.key.hex[:2] / f"{artifact.key.hex}.farm"
    os.utime(path, (used_at, used_at - 5))
    return path


def places_of(root: Path) -> Places:
    places = DiskStore(root).places
    assert places is not None
    return places


def test_an_entry_says_what_its_artifact_tells(root: Path, make: Make) -> None:
    about = {"function": "m.f", "signature": "(int64)", "package": "m", "compile_s": 1.5, "made_at": 9e8}
    path = put(root, told(make(), **about, target={"cpu": "znver4"}))
    (one,) = catalog.entries(places_of(root))
    assert isinstance(one, Entry)
    assert (one.function, one.signature, one.package, one.cpu) == ("m.f", "(int64)", "m", "znver4")
    assert (one.compile_s, one.made_at, one.used_at) == (1.5, 9e8, 1e9)
    assert one.size_bytes == path.stat().st_size and one.key == make().key
    assert one.description.sections["CODE"] == len(make().code) and not one.description.signed
    assert sum(one.description.sections.values()) < one.size_bytes


def test_an_artifact_of_an_earlier_version_tells_what_it_can(root: Path, make: Make) -> None:
    put(root, Artifact(make().key, {}, b"", b"", b""))
    (one,) = catalog.entries(places_of(root))
    assert isinstance(one, Entry)
    assert (one.function, one.package, one.cpu, one.compile_s) == ("?", "?", "?", 0.0)
    assert one.made_at == one.written_at == 1e9 - 5
    wrong = told(make(), function=3, compile_s=True, target=[], made_at="now")
    put(root, wrong)
    (one,) = catalog.entries(places_of(root))
    assert isinstance(one, Entry) and (one.function, one.compile_s, one.cpu, one.made_at) == ("?", 0.0, "?", 1e9 - 5)


def test_only_header_and_description_of_a_file_are_read(
    root: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root, replace(make(), code=b"x" * 1_000_000))
    places, read, real = places_of(root), list[int](), os.pread

    def pread(descriptor: int, length: int, offset: int) -> bytes:
        read.append(length)
        return real(descriptor, length, offset)

    monkeypatch.setattr(os, "pread", pread)
    assert len(list(catalog.entries(places))) == 1
    assert sum(read) < 1000


def test_looking_changes_nothing(root: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(root, make())
    put(root, make("bad")).write_bytes(b"garbage")
    before, store = path.stat(), DiskStore(root)
    with disk(monkeypatch) as counting:
        list(catalog.entries(places_of(root)))
        store.peek(make().key), store.peek(make("bad").key), store.peek(make("none").key)
    assert not {"write", "rename", "replace", "unlink", "utime", "mkdir"} & set(counting.by_name)
    assert path.stat().st_atime_ns == before.st_atime_ns and store.misses == {}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", MissReason.EMPTY),
        (b"garbage", MissReason.BAD_MAGIC),
        (None, MissReason.DIGEST_MISMATCH),
        ("cut", MissReason.TRUNCATED),
        ("other", MissReason.KEY_MISMATCH),
    ],
)
def test_what_cannot_be_read_is_given_with_its_reason(
    root: Path, make: Make, content: bytes | str | None, reason: MissReason
) -> None:
    path = put(root, make())
    data = path.read_bytes()
    at = data.index(b'"function"')
    made = {None: data[:at] + b"X" + data[at + 1 :], "cut": data[:-1], "other": data}
    target = path if content != "other" else path.with_name(f"{path.stem[:-2]}00.farm")
    target.write_bytes(content if isinstance(content, bytes) else made[content])
    (one,) = [one for one in catalog.entries(places_of(root)) if isinstance(one, Unreadable)]
    assert one.miss.reason is reason and one.name == target.name


def test_links_and_files_of_others_are_not_read(root: Path, make: Make, tmp_path: Path) -> None:
    path = put(root, make())
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert list(catalog.entries(places_of(root))) == []
    assert isinstance(catalog.entry(places_of(root), make().key), Unreadable)
    path.unlink()
    os.chmod(put(root, make()), 0o666)
    (one,) = catalog.entries(places_of(root))
    assert isinstance(one, Unreadable) and one.miss.reason is MissReason.UNTRUSTED


def test_a_file_whose_name_is_no_key_is_told_of(root: Path, make: Make) -> None:
    path = put(root, make())
    path.rename(path.with_name("readme.farm"))
    (one,) = catalog.entries(places_of(root))
    assert isinstance(one, Unreadable) and one.name == "readme.farm"


def test_filters_admit_what_fits_all_of_them(root: Path, make: Make) -> None:
    about = told(make(), function="pkg.sub.f", package="pkg", target={"cpu": "znver4"})
    put(root, about)
    (one,) = catalog.entries(places_of(root))
    assert isinstance(one, Entry)
    fits = [
        Filter(),
        Filter(function="f"),
        Filter(function="pkg.*"),
        Filter(function="*.sub.?"),
        Filter(package="pkg"),
        Filter(cpu="znver4"),
        Filter(used_before=1e9 + 1),
        Filter(used_after=1e9),
        Filter(function="f", package="pkg", cpu="znver4", used_before=1e9 + 1, used_after=1e9),
    ]
    others = [
        Filter(function="g"),
        Filter(function="sub"),
        Filter(function="F"),
        Filter(package="sub"),
        Filter(cpu="x"),
        Filter(used_before=1e9),
        Filter(used_after=1e9 + 1),
        Filter(function="f", package="other"),
    ]
    assert all(filter.admits(one) for filter in fits)
    assert not any(filter.admits(one) for filter in others)


def test_a_key_is_found_by_its_first_digits(root: Path, make: Make) -> None:
    key = make().key
    put(root, make())
    twin = CompileKey(key.hex[:10] + ("0" if key.hex[10] != "0" else "1") + key.hex[11:])
    put(root, replace(make(), key=twin))
    places = places_of(root)
    assert catalog.keys_that_begin(places, key.hex) == [key]
    assert catalog.keys_that_begin(places, key.hex[:11].upper()) == [key]
    assert {one.hex for one in catalog.keys_that_begin(places, key.hex[:6])} == {key.hex, twin.hex}
    assert catalog.keys_that_begin(places, ("0" if key.hex[0] != "0" else "1") * 6) == []
    for wrong in ("", "12345", "xyzxyz", key.hex + "0", "../../"):
        with pytest.raises(ValueError, match="6 to 64 hexadecimal digits"):
            catalog.keys_that_begin(places, wrong)


def test_a_store_that_goes_meanwhile_is_no_error(root: Path, make: Make) -> None:
    paths = [put(root, make(f"f{n}")) for n in range(20)]
    places = places_of(root)
    found = catalog.entries(places)
    next(found)
    for path in paths:
        path.unlink()
    assert len(list(found)) < 20
    assert catalog.entry(places, make("f0").key) is None


def test_a_shortened_entry_says_the_same_in_less(root: Path, make: Make) -> None:
    about = {"function": "m.f", "signature": "(int64)", "package": "m", "compile_s": 1.5, "made_at": 9e8, "module": "m"}
    put(root, told(make(), **about, target={"cpu": "znver4", "features": "+a" * 1000}, defined=["x"] * 1000))
    (one,) = catalog.entries(places_of(root))
    assert isinstance(one, Entry)
    short = one.shortened()
    for name in ("key", "size_bytes", "function", "signature", "package", "cpu", "compile_s", "made_at", "used_at"):
        assert getattr(short, name) == getattr(one, name), name
    assert short.meta["module"] == "m" and len(repr(short.meta)) < 300
