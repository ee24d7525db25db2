"""Bundles: what comes out is what went in, byte for byte; and whatever is done to one, nothing bad gets in."""

import contextlib
import io
import json
import os
import random
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from farm.errors import BundleRefused
from farm.job.key import CompileKey
from farm.store import bundle, catalog
from farm.store.artifact import Artifact, Stored, encode
from farm.store.bundle import HEADER_NAME, Exported, Imported
from farm.store.catalog import Entry
from farm.store.disk import DiskStore
from farm.store.signing import SigningKey, read_key

Make = Callable[..., Artifact]
LIMIT = 10_000_000


def entries(store: DiskStore) -> list[Entry]:
    places = store.places
    return [] if places is None else [one for one in catalog.entries(places) if isinstance(one, Entry)]


def exported(store: DiskStore) -> tuple[bytes, Exported]:
    out = io.BytesIO()
    done = bundle.write(store, entries(store), out)
    return out.getvalue(), done


def imported(data: bytes, store: DiskStore, **how: Any) -> Imported:
    return bundle.read(io.BytesIO(data), store, **{"total_max_bytes": LIMIT, **how})


def contents(store: DiskStore) -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in store.root.rglob("v1/??/*.farm")}


@pytest.fixture
def filled(root: Path, make: Make) -> DiskStore:
    store = DiskStore(root)
    for n in range(3):
        store.put(make(f"f{n}", code=b"\x7fELF" + bytes([n]) * 1000))
    return store


@pytest.fixture
def other(tmp_path: Path) -> DiskStore:
    return DiskStore(tmp_path / "other")


def members(data: bytes) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    """As Python's own reader sees them."""
    plain = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
        return {one.name: (one, archive.extractfile(one).read()) for one in archive}  # type: ignore[union-attr]


def packed(parts: list[tuple[tarfile.TarInfo | str, bytes]], end: bytes = bytes(1024)) -> bytes:
    """A bundle of these members, as they are."""
    out = b""
    for about, content in parts:
        if isinstance(about, str):
            info = tarfile.TarInfo(about)
            info.size = len(content)
            about = info
        out += about.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)
    return zstandard.ZstdCompressor(write_checksum=True).compress(out + end)


def header(*artifacts: Artifact, **more: Any) -> tuple[str, bytes]:
    found = {one.key.hex: digest_of(one) for one in artifacts}
    return HEADER_NAME, json.dumps({"format": 1, "artifacts": found, **more}).encode()


def digest_of(artifact: Artifact) -> str:
    from farm.store.artifact import Digest

    return Digest.of(encode(artifact)).hex


def name_of(artifact: Artifact) -> str:
    return f"{artifact.key.hex}.farm"


def test_what_is_imported_is_what_was_exported(filled: DiskStore, other: DiskStore) -> None:
    data, done = exported(filled)
    assert (done.artifacts, done.left_out) == (3, ()) and done.bytes == sum(map(len, contents(filled).values()))
    assert imported(data, other) == Imported(put=3)
    assert contents(other) == contents(filled)
    assert imported(data, other) == Imported(kept=3)


def test_equal_artifacts_give_equal_bundles(filled: DiskStore, other: DiskStore) -> None:
    data, _ = exported(filled)
    imported(data, other)
    for path in other.root.rglob("*.farm"):
        os.utime(path, (1, 2))
        path.chmod(0o400)
    again, _ = exported(other)
    assert again == data


def test_a_bundle_is_a_plain_archive_that_names_no_machine(filled: DiskStore) -> None:
    found = members(exported(filled)[0])
    assert [*found] == [HEADER_NAME, *(f"{key}.farm" for key in sorted(contents(filled)))]
    for about, _ in found.values():
        owner = (about.uid, about.gid, about.uname, about.gname, about.mtime, about.mode)
        assert owner == (0, 0, "", "", 0, 0o644) and about.isreg()
    announced = json.loads(found[HEADER_NAME][1])
    assert announced["format"] == 1 and set(announced["artifacts"]) == set(contents(filled))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    some.dictionaries(
        some.text(min_size=1, max_size=5), some.tuples(some.binary(max_size=2000), some.binary(max_size=50)), max_size=6
    )
)
def test_any_artifacts_come_back(
    tmp_path_factory: pytest.TempPathFactory, parts: dict[str, tuple[bytes, bytes]]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    here, there = DiskStore(folder / "here"), DiskStore(folder / "there")
    for name, (code, bitcode) in parts.items():
        key = CompileKey.from_parts({"name": name.encode("utf-8", "surrogatepass")})
        here.put(Artifact(key, {"name": name}, code, bitcode, b""))
    data, done = exported(here)
    assert done.artifacts == len(parts) == imported(data, there).put
    assert contents(here) == contents(there)


def is_good(store: DiskStore, expected: dict[str, bytes]) -> bool:
    """Whether there is nothing in a store but whole artifacts of the bundle."""
    return all(expected.get(key) == data for key, data in contents(store).items())


def test_a_bundle_that_is_cut_off_anywhere_is_refused(filled: DiskStore, tmp_path: Path) -> None:
    """At whichever length: what came before is good and stays, and there is no other error."""
    data, _ = exported(filled)
    expected, refused = contents(filled), 0
    lengths = [*range(0, len(data), 7), *range(len(data) - 12, len(data))]
    for number, length in enumerate(lengths):
        store = DiskStore(tmp_path / f"cut{number}")
        try:
            imported(data[:length], store)
        except BundleRefused as error:
            refused += 1
            assert str(error)
        assert is_good(store, expected)
    assert refused >= len(lengths) - 12 > 50


def test_a_bundle_with_a_flipped_byte_brings_nothing_bad(filled: DiskStore, tmp_path: Path) -> None:
    data, _ = exported(filled)
    expected, unnoticed = contents(filled), []
    places = [*range(0, len(data), 5)]
    for number, at in enumerate(places):
        store = DiskStore(tmp_path / f"flip{number}")
        damaged = data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :]
        with contextlib.suppress(BundleRefused):
            if not imported(damaged, store).bad:
                unnoticed.append(at)
        assert is_good(store, expected)
    assert len(places) > 50
    assert set(unnoticed) <= {5}, "how much may be looked back at: it says nothing about the content"


def test_damage_inside_the_compression_brings_nothing_bad(filled: DiskStore, tmp_path: Path) -> None:
    """Flipped below zstandard's checksum: the archive's headers, the artifacts' own, names and contents."""
    plain = bytearray(zstandard.ZstdDecompressor().decompressobj().decompress(exported(filled)[0]))
    expected, rng = contents(filled), random.Random(5)
    places = [*range(0, 1100, 9), *rng.sample(range(1100, len(plain)), 100)]
    for number, at in enumerate(places):
        store = DiskStore(tmp_path / f"inside{number}")
        changed = bytearray(plain)
        changed[at] ^= rng.choice((0x01, 0x20, 0xFF))
        with contextlib.suppress(BundleRefused):
            imported(zstandard.ZstdCompressor().compress(bytes(changed)), store)
        assert is_good(store, expected)


@given(some.binary(max_size=2000))
def test_bytes_that_are_no_bundle_are_refused(data: bytes) -> None:
    nowhere = DiskStore(Path("/nonexistent/farm"))
    for given_bytes in (data, zstandard.ZstdCompressor().compress(data)):
        with pytest.raises(BundleRefused):
            imported(given_bytes, nowhere)


def odd(name: str, kind: bytes, size: int = 0, link: str = "") -> tarfile.TarInfo:
    about = tarfile.TarInfo(name)
    about.type, about.size, about.linkname = kind, size, link
    return about


def test_members_that_are_no_artifacts_are_passed_over_and_the_rest_comes(
    make: Make, other: DiskStore, tmp_path: Path
) -> None:
    good, last, unannounced = make("good"), make("last"), make("unannounced")
    data = encode(good)
    bad: list[tuple[tarfile.TarInfo | str, bytes]] = [
        (f"../{name_of(good)}", data),
        (f"/{name_of(good)}", data),
        (f"v1/{name_of(good)}", data),
        (name_of(good).upper(), data),
        (f"{name_of(good)}/", b""),
        ("readme.txt", b"x"),
        (odd(name_of(last), tarfile.FIFOTYPE, len(encode(last))), encode(last)),
        (odd(name_of(last), tarfile.SYMTYPE, link="/etc/passwd"), b""),
        (odd(name_of(last), tarfile.LNKTYPE, link=name_of(good)), b""),
        (odd(name_of(last), tarfile.CHRTYPE), b""),
        (odd(name_of(last), tarfile.DIRTYPE), b""),
        (odd("././@LongLink", tarfile.GNUTYPE_LONGNAME, 100), b"a" * 100),
        (odd("pax", tarfile.XHDTYPE, 30), b"30 path=../../../../etc/passwd"),
        (name_of(unannounced), encode(unannounced)),
        (name_of(last), data),
    ]
    found = imported(packed([header(good, last), (name_of(good), data), *bad]), other)
    assert found.put == 1 and set(contents(other)) == {good.key.hex}
    assert len(found.bad) == len(bad), found.bad
    assert not list(tmp_path.parent.glob("*.farm")) and sorted(os.listdir(other.root / "v1" / "tmp")) == []
    found = imported(packed([header(good, last), bad[0], (name_of(last), encode(last))]), other)
    assert (found.put, len(found.bad)) == (1, 2), "good's own member did not come"


@pytest.mark.parametrize("part", ["key", "code", "bitcode", "meta", "cut", "digest"])
def test_an_artifact_that_is_not_whole_is_passed_over(make: Make, other: DiskStore, part: str) -> None:
    artifact, last = make("f"), make("last")
    data = encode(artifact)
    changed = {
        "key": encode(replace(artifact, key=last.key)),
        "code": data.replace(b"\x7fELF code", b"\x7fELF c0de"),
        "bitcode": data.replace(b"BC bitcode", b"BC b1tcode"),
        "meta": data.replace(b'"function"', b'"functi0n"'),
        "cut": data[:-1],
        "digest": encode(replace(artifact, code=b"other")),  # whole, and not what was announced
    }[part]
    found = imported(
        packed([header(artifact, last), (name_of(artifact), changed), (name_of(last), encode(last))]), other
    )
    assert found.put == 1 and [name for name, _ in found.bad] == [name_of(artifact)] and found.bad[0][1]
    assert set(contents(other)) == {last.key.hex}


@pytest.mark.parametrize(
    "first",
    [
        ("other.json", b"{}"),
        (HEADER_NAME, b"no json"),
        (HEADER_NAME, b"[]"),
        (HEADER_NAME, b'{"artifacts": {}}'),
        (HEADER_NAME, b'{"format": 1}'),
        (HEADER_NAME, b'{"format": 2, "artifacts": {}}'),
        (HEADER_NAME, b'{"format": 1, "artifacts": []}'),
        (HEADER_NAME, b"[" * 100_000),
        (odd(HEADER_NAME, tarfile.SYMTYPE, link="x"), b""),
    ],
)
def test_what_does_not_begin_as_a_bundle_is_none(make: Make, other: DiskStore, first: Any) -> None:
    with pytest.raises(BundleRefused, match=r"no bundle|format 2"):
        imported(packed([first, (name_of(make()), encode(make()))]), other)
    assert not other.root.exists()


def test_a_small_file_does_not_become_a_large_one(
    make: Make, other: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whatever it is hidden: a member, its header, what is passed over, or what comes after the end."""
    zeros = bytes(20_000_000)
    good = make()
    bombs = [
        [(HEADER_NAME, zeros)],
        [header(good), (name_of(good), zeros)],
        [header(good), (odd("pax", tarfile.XHDTYPE, len(zeros)), zeros)],
        [header(good), ("junk", zeros)],
    ]
    for bomb in bombs:
        with pytest.raises(BundleRefused, match="more in it than is allowed"):
            imported(packed(bomb), other)  # type: ignore[arg-type]
    with pytest.raises(BundleRefused, match="more in it than is allowed"):
        imported(packed([header()], zeros), other)
    monkeypatch.setattr(bundle, "MEMBER_MAX_BYTES", 1000)
    found = imported(packed([header(good), (name_of(good), bytes(2000))]), other)
    assert found.put == 0 and "2000 bytes" in found.bad[0][1]
    assert not other.root.exists()


def test_something_after_the_end_is_refused(make: Make, other: DiskStore) -> None:
    with pytest.raises(BundleRefused, match="after its end"):
        imported(packed([header()], bytes(1024) + b"x" * 512), other)


def test_a_newer_artifact_is_not_overwritten_and_a_bad_one_is(make: Make, other: DiskStore, root: Path) -> None:
    def of(made_at: float | None, code: bytes) -> Artifact:
        artifact = make(code=code)
        meta = artifact.meta if made_at is None else {**artifact.meta, "made_at": made_at}
        return replace(artifact, meta=meta)

    def brings(artifact: Artifact) -> Imported:
        return imported(packed([header(artifact), (name_of(artifact), encode(artifact))]), other)

    assert brings(of(100.0, b"a")).put == 1
    assert brings(of(50.0, b"older")).kept == 1
    assert brings(of(100.0, b"as old")).kept == 1
    assert brings(of(None, b"who knows")).kept == 1
    assert brings(of(200.0, b"newer")).put == 1
    stored = other.get(make().key)
    assert isinstance(stored, Stored) and stored.code == b"newer"
    (path,) = other.root.rglob("*.farm")
    path.write_bytes(b"garbage")
    assert brings(of(50.0, b"older")).put == 1


def test_with_a_signing_key_only_what_is_signed_with_it_comes(make: Make, tmp_path: Path, other: DiskStore) -> None:
    files = [tmp_path / "one.key", tmp_path / "two.key"]
    for n, path in enumerate(files):
        path.write_bytes(bytes([n]) * 32)
        path.chmod(0o600)
    keys: list[SigningKey] = [read_key(path) for path in files]
    signed = DiskStore(tmp_path / "signed", signing_key_file=files[0])
    signed.put(make())
    data, _ = exported(DiskStore(signed.root))
    assert "signed with another key" in imported(data, other, signing_key=keys[1]).bad[0][1]
    plain = packed([header(make()), (name_of(make()), encode(make()))])
    assert "not signed" in imported(plain, other, signing_key=keys[0]).bad[0][1]
    assert not other.root.exists()
    assert imported(data, other, signing_key=keys[0]).put == 1
    assert contents(other) == contents(signed), "its signature comes with it"


def test_what_is_damaged_is_left_out_of_a_bundle(filled: DiskStore) -> None:
    chosen = entries(filled)
    path = next(filled.root.rglob("*.farm"))
    path.write_bytes(path.read_bytes()[:-1] + b"X")
    out = io.BytesIO()
    done = bundle.write(filled, chosen, out)
    assert done.artifacts == 2 and [name for name, _ in done.left_out] == [path.name]
    assert len(members(out.getvalue())) == 3


def test_a_store_that_changes_while_it_is_exported_is_told_of(filled: DiskStore, make: Make) -> None:
    chosen = entries(filled)

    def change() -> None:
        for n in range(3):
            filled.put(make(f"f{n}", code=b"changed"))

    with pytest.raises(BundleRefused, match="changed while it was exported"):
        bundle.write(filled, chosen, io.BytesIO(), change)
