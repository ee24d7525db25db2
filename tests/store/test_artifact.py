"""Bytes in, bytes out, and every kind of damage between."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farm.job.key import CompileKey
from farm.reasons import MissReason
from farm.store import artifact as format_
from farm.store.artifact import (
    HEADER_BYTES,
    TABLE_END,
    Artifact,
    DescriptorSource,
    Digest,
    Miss,
    Stored,
    decode,
    encode,
    read,
)
from farm.store.signing import SigningKey

Make = Callable[..., Artifact]

KEY, OTHER_KEY = SigningKey(b"k" * 16), SigningKey(b"o" * 16)
SIGNED_AND_READ = pytest.mark.parametrize(
    ("signed", "read_with"), [(None, None), (KEY, None), (KEY, KEY)], ids=["unsigned", "signed", "signed, with the key"]
)


def outcome(data: bytes, key: CompileKey, signing_key: SigningKey | None = None) -> Artifact | Miss:
    """Read everything, bitcode too."""
    found = decode(data, key, signing_key)
    return found.artifact() if isinstance(found, Stored) else found


def resealed(data: bytes) -> bytes:
    """With a header digest that fits, as only a writer with other intentions would make it."""
    body = data[: HEADER_BYTES - 32]
    return body + hashlib.sha256(body).digest() + data[HEADER_BYTES:]


def test_a_resealed_flip_of_every_byte_is_a_miss_with_the_key(make: Make) -> None:
    """Digests are no secret: who changes a file can make them fit again, and cannot make the signature fit."""
    one = make()
    data = encode(one, KEY)
    tried = 0
    for position in range(TABLE_END + 32):
        changed = bytearray(data)
        changed[position] ^= 0x01
        assert isinstance(outcome(resealed(bytes(changed)), one.key, KEY), Miss), position
        tried += 1
    assert tried == 252


@SIGNED_AND_READ
def test_what_is_encoded_is_decoded(make: Make, signed: SigningKey | None, read_with: SigningKey | None) -> None:
    one = make()
    assert outcome(encode(one, signed), one.key, read_with) == one


@given(
    meta=st.dictionaries(st.text(), st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists)),
    sections=st.tuples(st.binary(), st.binary(), st.binary()),
)
def test_any_artifact_survives_the_trip(meta: dict[str, format_.JSON], sections: tuple[bytes, bytes, bytes]) -> None:
    one = Artifact(CompileKey.from_parts({}), meta, *sections)
    assert outcome(encode(one), one.key) == one


def test_the_header_has_the_size_that_the_description_gives() -> None:
    assert (TABLE_END, HEADER_BYTES) == (220, 284)


def test_equal_artifacts_have_equal_bytes_whatever_the_order_of_their_metadata(make: Make) -> None:
    one = make()
    other = Artifact(one.key, dict(reversed(list(one.meta.items()))), one.code, one.bitcode, one.environment)
    assert encode(one) == encode(other)


def test_the_digest_names_what_came_out_and_not_what_was_asked_for(
    make: Make, key_of: Callable[..., CompileKey]
) -> None:
    one = make()
    other_key = Artifact(key_of("other"), one.meta, one.code, one.bitcode, one.environment)
    other_code = Artifact(one.key, one.meta, b"other", one.bitcode, one.environment)
    assert Digest.of(encode(one)) == Digest.of(encode(other_key)) != Digest.of(encode(other_code))
    found = decode(encode(one), one.key)
    assert isinstance(found, Stored) and found.digest == Digest.of(encode(one))


@SIGNED_AND_READ
def test_a_file_cut_at_every_length_is_a_miss(
    make: Make, signed: SigningKey | None, read_with: SigningKey | None
) -> None:
    one = make()
    data = encode(one, signed)
    found = [outcome(data[:length], one.key, read_with) for length in range(len(data))]
    reasons = [miss.reason for miss in found if isinstance(miss, Miss)]
    assert len(reasons) == len(data) > 300
    assert reasons == [MissReason.EMPTY] + [MissReason.TRUNCATED] * (len(data) - 1)


@SIGNED_AND_READ
@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_a_flip_of_every_byte_is_a_miss(
    make: Make, mask: int, signed: SigningKey | None, read_with: SigningKey | None
) -> None:
    one = make()
    data = encode(one, signed)
    tried = 0
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= mask
        found = outcome(bytes(damaged), one.key, read_with)
        assert isinstance(found, Miss), position
        assert found.reason in {MissReason.BAD_MAGIC, MissReason.NEWER_FORMAT, MissReason.DIGEST_MISMATCH}, position
        tried += 1
    assert tried == len(data) > 300


def test_load_empty_payload(make: Make) -> None:
    assert outcome(b"", make().key) == Miss(MissReason.EMPTY, "no bytes")
    empty = Artifact(make().key, {}, b"", b"", b"")
    assert outcome(encode(empty), empty.key) == empty


def test_bytes_after_the_end_are_a_miss(make: Make) -> None:
    one = make()
    found = outcome(encode(one) + b"\0", one.key)
    assert isinstance(found, Miss) and found.reason is MissReason.DIGEST_MISMATCH


def test_something_else_is_not_an_artifact(make: Make) -> None:
    for data in (b"#!/bin/sh\n", b"x" * 1000):
        found = outcome(data, make().key)
        assert isinstance(found, Miss) and found.reason is MissReason.BAD_MAGIC


def test_a_newer_format_says_so(make: Make) -> None:
    one = make()
    data = encode(one)
    found = outcome(resealed(data[:8] + b"\0\2" + data[10:]), one.key)
    assert isinstance(found, Miss) and found.reason is MissReason.NEWER_FORMAT


def test_a_length_beyond_the_file_is_a_miss_and_allocates_nothing(make: Make) -> None:
    one = make()
    data = encode(one)
    found = outcome(resealed(data[:48] + b"\xff" * 8 + data[56:]), one.key)
    assert isinstance(found, Miss) and found.reason is MissReason.TRUNCATED


@pytest.mark.parametrize("meta", [b"[1]", b"{", b"\xff", b"[" * 100_000])
def test_metadata_that_is_no_json_object_is_a_miss(make: Make, meta: bytes) -> None:
    one = make()
    head = format_.PREFIX.pack(format_.MAGIC, 1, 4, bytes.fromhex(one.key.hex))
    for tag, section in zip(format_.TAGS, (meta, b"", b"", b""), strict=True):
        head += format_.ROW.pack(tag, len(section), hashlib.sha256(section).digest())
    head += bytes(32)
    found = outcome(head + hashlib.sha256(head).digest() + meta, one.key)
    assert isinstance(found, Miss) and found.reason is MissReason.LOAD_FAILED


def test_metadata_that_json_cannot_hold_is_the_writers_error(make: Make) -> None:
    with pytest.raises(ValueError):
        encode(Artifact(make().key, {"x": float("nan")}, b"", b"", b""))


@pytest.mark.parametrize("kept_max", [0, 1 << 20], ids=["descriptor", "bytes"])
def test_bitcode_comes_from_the_file_that_was_loaded(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_max: int
) -> None:
    monkeypatch.setattr(format_, "KEPT_BITCODE_MAX_BYTES", kept_max)
    path = tmp_path / "a"
    path.write_bytes(encode(make(bitcode=b"first")))
    source = DescriptorSource(os.open(path, os.O_RDONLY))
    found = read(source, make().key)
    assert isinstance(found, Stored) and found.holds(source) == (kept_max == 0)
    (tmp_path / "b").write_bytes(encode(make(bitcode=b"second")))
    os.replace(tmp_path / "b", path)
    assert found.bitcode() == b"first"
    path.unlink()
    assert found.artifact() == make(bitcode=b"first")
    source.close()
    source.close()


def test_bitcode_damaged_after_the_load_is_a_miss(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format_, "KEPT_BITCODE_MAX_BYTES", 0)
    path = tmp_path / "a"
    path.write_bytes(encode(make()))
    source = DescriptorSource(os.open(path, os.O_RDONLY))
    found = read(source, make().key)
    assert isinstance(found, Stored)
    os.truncate(path, 300)
    missed = found.bitcode()
    assert isinstance(missed, Miss) and missed.reason is MissReason.TRUNCATED
    source.close()
    missed = found.bitcode()
    assert isinstance(missed, Miss) and missed.reason is MissReason.UNREADABLE


def test_with_a_key_an_unsigned_artifact_is_a_miss_of_its_own(make: Make) -> None:
    one = make()
    found = outcome(encode(one), one.key, KEY)
    assert isinstance(found, Miss) and found.reason is MissReason.UNSIGNED


def test_a_signature_of_another_key_or_of_another_artifact_is_a_miss_of_its_own(make: Make) -> None:
    one = make()
    own, other = encode(one, KEY), encode(make(code=b"other"), KEY)
    moved = resealed(other[:TABLE_END] + own[TABLE_END : TABLE_END + 32] + other[TABLE_END + 32 :])
    for data in (encode(one, OTHER_KEY), moved):
        found = outcome(data, one.key, KEY)
        assert isinstance(found, Miss) and found.reason is MissReason.WRONGLY_SIGNED


def test_with_a_key_nothing_of_a_section_is_read_before_the_signature_fits(make: Make) -> None:
    """What is parsed from a file that somebody else wrote is an attack on the parser."""
    read_at: list[int] = []

    class Watched(format_.BytesSource):
        def read(self, offset: int, length: int) -> bytes:
            read_at.append(offset)
            return super().read(offset, length)

    for data in (encode(make()), encode(make(), OTHER_KEY)):
        assert isinstance(read(Watched(data), make().key, KEY), Miss)
    assert read_at == [0, 0]


def test_the_digest_is_the_same_with_and_without_a_signature(make: Make) -> None:
    assert Digest.of(encode(make())) == Digest.of(encode(make(), KEY))
