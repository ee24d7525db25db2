"""A key and the parts that it is made of."""

import pytest

from farm.job.key import CompileKey


def test_a_key_is_made_again_from_the_digests_of_its_parts() -> None:
    key = CompileKey.from_parts({"b": b"2", "a": b"1"})
    again = CompileKey.from_digests(dict(key.parts))
    assert again == key and again.parts == key.parts
    assert CompileKey.from_digests(dict(reversed(key.parts))) == key
    other = CompileKey.from_digests({**dict(key.parts), "a": "00" * 32})
    assert other != key and key.first_difference(other) == "a"


def test_what_is_no_digest_is_a_value_error() -> None:
    with pytest.raises(ValueError):
        CompileKey.from_digests({"a": "no hexadecimal"})
