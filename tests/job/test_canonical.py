"""The canonical encoding is injective over plain values and equal in every process."""

import itertools
import subprocess
import sys
from enum import Enum

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farm.errors import NotShippable
from farm.job.canonical import encode
from farm.reasons import RefusalReason


class Colour(Enum):
    RED = 1
    BLUE = 2


DISTINCT = [
    None,
    True,
    False,
    1,
    0,
    -1,
    1 << 70,
    1.0,
    0.0,
    -0.0,
    float("nan"),
    1j,
    complex(0.0, -0.0),
    "1",
    b"1",
    "",
    b"",
    (),
    [],
    {},
    set(),
    frozenset(),
    (1,),
    [1],
    (1, 2),
    ((1,), 2),
    ("ab", "c"),
    ("a", "bc"),
    Ellipsis,
    slice(1, 2),
    slice(1, 2, 1),
    range(3),
    range(0, 3, 2),
    Colour.RED,
    Colour.BLUE,
    numpy.float64(1),
    numpy.float32(1),
    numpy.int64(1),
    numpy.bool_(True),
    numpy.dtype("f4"),
    numpy.dtype(">f4"),
    numpy.zeros(4),
    numpy.zeros((2, 2)),
    numpy.zeros((2, 2), order="F"),
    numpy.zeros(4, "f4"),
    numpy.array([0.0, -0.0, 0, 0]),
    numpy.zeros(4, [("a", "f4"), ("b", "f4")]),
    numpy.zeros(4, [("b", "f4"), ("a", "f4")]),
    {1: 2},
    {2: 1},
    {True: 2},
]


def test_different_values_have_different_encodings() -> None:
    encoded = [encode(value) for value in DISTINCT]
    for (i, a), (j, b) in itertools.combinations(enumerate(encoded), 2):
        assert a != b, (DISTINCT[i], DISTINCT[j])


def test_order_of_sets_and_dicts_does_not_count() -> None:
    assert encode({"a": 1, "b": 2}) == encode({"b": 2, "a": 1})
    assert encode({"x", "y", "z"}) == encode({"z", "y", "x"})


def test_read_only_arrays_are_other_arrays() -> None:
    array = numpy.zeros(3)
    before = encode(array)
    array.flags.writeable = False
    assert encode(array) != before


@pytest.mark.parametrize("value", [object(), len, numpy.array([object()]), lambda: 0, (1, object())])
def test_what_is_not_plain_is_refused(value: object) -> None:
    with pytest.raises(NotShippable) as caught:
        encode(value)
    assert caught.value.reason is RefusalReason.UNKEYABLE


def test_hash_seed_does_not_count() -> None:
    code = "from farm.job.canonical import encode; print(encode({'a', 'b', 'c', ('d', frozenset('xyz'))}).hex())"
    texts = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(texts) == 1


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=8,
)


@given(PLAIN, PLAIN)
def test_equal_encodings_mean_equal_representations(a: object, b: object) -> None:
    assert (encode(a) == encode(b)) == (repr(a) == repr(b))
