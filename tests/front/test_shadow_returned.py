"""What a body returns of its shadows comes back as the caller's own arrays and views of them."""

import gc
import weakref

import numpy as np
import pytest
from shadowed import PADDED, Pair, address, shadows_of

VIEWS = {
    "slice": lambda a: a[1:, ::2],
    "transpose": lambda a: a.T,
    "reshaped": lambda a: a.reshape(-1),
    "reversed": lambda a: a[::-1],
    "real": lambda a: a.real,
    "imaginary": lambda a: a.imag,
    "other dtype": lambda a: a.view(np.float64),
    "one element's view": lambda a: a[1:2, 3:4],
    "empty at the end": lambda a: a.reshape(-1)[a.size :],
    "whole": lambda a: a[...],
    "broadcast": lambda a: np.broadcast_to(a[0], (5, 4)),
    "diagonal": lambda a: np.diagonal(a),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_a_returned_view_is_the_same_view_of_the_callers_array(kind: str) -> None:
    array = np.arange(12).reshape(3, 4) * (1 + 2j)
    view = VIEWS[kind]
    shadows = shadows_of(array, writes={0})
    mapped, expected = shadows.returned(view(shadows.arguments[0])), view(array)
    assert address(mapped) == address(expected)
    assert (mapped.shape, mapped.strides, mapped.dtype) == (expected.shape, expected.strides, expected.dtype)
    assert mapped.flags.writeable == expected.flags.writeable


def test_returned_records_and_fields_are_the_callers() -> None:
    array = np.zeros(3, PADDED)
    shadows = shadows_of(array, writes={0})
    shadow = shadows.arguments[0]
    field, record = shadows.returned((shadow["value"], shadow[1]))
    field[0] = 5.0
    record["value"] = 6.0
    assert array["value"].tolist() == [5.0, 6.0, 0.0]
    as_records = array.view(np.recarray)
    again = shadows_of(as_records, writes={0})
    assert type(again.returned(again.arguments[0][1:])) is np.recarray


def test_a_returned_view_keeps_the_callers_array_alive() -> None:
    class Watched(np.ndarray):
        pass

    base = np.zeros(4).view(Watched)
    array = np.asarray(base)
    gone = weakref.ref(array.base)
    shadows = shadows_of(array, writes={0})
    view = shadows.returned(shadows.arguments[0][1:])
    del base, array, shadows
    gc.collect()
    assert gone() is not None and view.tolist() == [0.0] * 3
    del view
    gc.collect()
    assert gone() is None


def test_shadows_in_tuples_lists_and_dictionaries_come_back_as_the_callers_arrays() -> None:
    array, other = np.zeros(4), np.ones(2)
    shadows = shadows_of(array, other, writes={0})
    shadow = shadows.arguments[0]
    made = [shadow, [shadow], 1]
    made.append(made)
    table = {"a": shadow, 2: (shadow, 3)}
    unchanged = (1, (2, other))
    result = shadows.returned((made, table, Pair(shadow, other), unchanged))
    assert result[0] is made and made[0] is array and made[1][0] is array and made[3] is made
    assert result[1] is table and table["a"] is array and table[2] == (array, 3)
    assert type(result[2]) is Pair and result[2].left is array and result[2].right is other
    assert result[3] is unchanged


def test_what_a_body_made_comes_back_as_it_is() -> None:
    shadows = shadows_of(np.zeros(4), writes={0})
    for value in (np.zeros(4), shadows.arguments[0].copy(), np.zeros(0), np.zeros(1, PADDED)[0], "text", 5, {1}):
        assert shadows.returned(value) is value


def test_empty_views_are_mapped_though_two_copies_may_touch() -> None:
    base = np.zeros(4)
    arrays = base[:2], base[2:]
    shadows = shadows_of(*arrays, writes={0, 1})
    for array, shadow in zip(arrays, shadows.arguments, strict=True):
        for view in (lambda a: a[:0], lambda a: a[2:], lambda a: a[::-1][2:], lambda a: a.reshape(1, 2)[:, 2:]):
            assert address(shadows.returned(view(shadow))) == address(view(array))
