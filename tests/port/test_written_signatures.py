"""Signatures as people and manifests write them."""

import pytest
from numba import types

from farm.errors import SignatureError
from farm.port.dispatch import parse_signature


def test_one_type_in_parentheses_is_a_signature_as_manifests_write_it() -> None:
    assert parse_signature(" (float64[::1]) ") == ((types.float64[::1],), None)
    assert parse_signature("((int64, int64))") == ((types.int64, types.int64), None)


@pytest.mark.parametrize("wrong", ["int64", "(no_such_type)", "(int64", "(int64))", 3])
def test_what_is_no_signature_is_refused_with_what_was_wrong_with_it_as_it_stood(wrong: object) -> None:
    with pytest.raises(SignatureError, match="is not a signature") as caught:
        parse_signature(wrong)
    assert caught.value.text == str(wrong) and ",)" not in caught.value.detail
