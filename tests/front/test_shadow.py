"""Shadows of arguments: what they share, what is kept of them, what comes back, and what cannot have one."""

import enum
import threading
from collections import namedtuple
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba.experimental import jitclass
from numba.typed import Dict, List
from shadowed import PADDED, Pair, address, plan_of, shadows_of

from farm.front.shadow import CHUNK_BYTES, Plan, copy_estimate_s, plan_shadows

PACKED = np.dtype([("flag", "u1"), ("value", "f8")])
WAIT_S = 60.0


class Colour(enum.IntEnum):
    RED = 1


@jitclass([("size", numba.int64)])
class Box:
    def __init__(self) -> None:
        self.size = 1


@numba.njit
def jitted(x):
    return x


def records(dtype: np.dtype) -> np.ndarray:
    """With padding of zeros: numpy leaves there what the memory held."""
    array = np.zeros(2, dtype)
    array["flag"], array["value"] = [1, 3], [2.5, 4.5]
    return array


def misaligned() -> np.ndarray:
    return np.arange(33, dtype=np.uint8)[1:].view(np.float64)


ARRAYS = {
    "contiguous": lambda: np.arange(6.0),
    "two dimensions": lambda: np.arange(12.0).reshape(3, 4),
    "fortran": lambda: np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "transposed part": lambda: np.arange(60.0).reshape(3, 4, 5)[1:, ::2, 1:4].T,
    "column": lambda: np.arange(12, dtype=np.int32).reshape(3, 4)[:, 2],
    "reversed": lambda: np.arange(6.0)[::-1],
    "stride of zero": lambda: np.lib.stride_tricks.as_strided(np.arange(3.0), (4, 3), (0, 8)),
    "no dimension": lambda: np.array(3.5),
    "misaligned": misaligned,
    "padded records": lambda: records(PADDED),
    "packed records": lambda: records(PACKED),
    "field of records": lambda: records(PACKED)["value"],
    "record array": lambda: records(PADDED).view(np.recarray),
    "big-endian": lambda: np.arange(6, dtype=">i4"),
    "complex": lambda: np.arange(6) * 1j,
    "dates": lambda: np.array(["2001-02-03", "NaT"], "M8[D]"),
    "texts": lambda: np.array(["a", "bcd"]),
    "bytes": lambda: np.array([b"a", b"bcd"]),
    "booleans": lambda: np.array([True, False]),
    "over a bytearray": lambda: np.frombuffer(bytearray(range(16)), np.int16),
    "one long dimension of one": lambda: np.arange(12.0).reshape(12, 1)[::3],
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_a_shadow_is_to_numba_and_numpy_what_its_array_is(kind: str) -> None:
    array = ARRAYS[kind]()
    before = array.tobytes()
    shadow = shadows_of(array, writes={0}).arguments[0]
    assert shadow is not array and not np.shares_memory(shadow, array)
    assert type(shadow) is type(array) and shadow.dtype is array.dtype
    assert (shadow.shape, shadow.strides) == (array.shape, array.strides)
    assert str(shadow.flags).replace("OWNDATA : False", "") == str(array.flags).replace("OWNDATA : True", "").replace(
        "OWNDATA : False", ""
    )
    assert shadow.tobytes() == before
    assert address(shadow) % 64 == address(array) % 64
    if kind != "big-endian":  # numba has no type for it
        assert numba.typeof(shadow) == numba.typeof(array)


@pytest.mark.parametrize("kind", ARRAYS)
def test_what_a_body_writes_is_in_the_array_after_keep_and_not_before(kind: str) -> None:
    array = ARRAYS[kind]()
    expected = ARRAYS[kind]()
    before = array.tobytes()
    for other in (expected, (shadows := shadows_of(array, writes={0})).arguments[0]):
        other[...] = other.reshape(-1)[-1]
    assert array.tobytes() == before
    shadows.keep()
    assert array.tobytes() == expected.tobytes()
    assert shadows.returned(shadows.arguments[0]) is array


@pytest.mark.parametrize("array", [np.zeros(0), np.zeros((3, 0, 2)), np.zeros(3, "V0")], ids=repr)
def test_an_array_without_a_byte_costs_nothing(array: np.ndarray) -> None:
    plan = plan_of(array, writes={0})
    assert plan.size_bytes == 0
    assert plan.copy().arguments[0] is array


def test_arguments_that_hold_no_memory_are_passed_as_they_are() -> None:
    arguments = (
        *(1, 2.5, 3j, True, "text", b"bytes", None, slice(1, 2), range(3), Colour.RED),
        *(np.float32(1), np.datetime64("2001-02-03"), np.timedelta64(1, "D"), np.str_("a"), np.bool_(True)),
        *(len, plan_of, jitted, np.add, int, np.dtype("f8"), numba.float64, (), (1, (2, "x")), Pair(1, 2)),
    )
    array = np.zeros(2)
    shadows = shadows_of(*arguments, array, writes=set(range(len(arguments) + 1)))
    assert all(new is old for new, old in zip(shadows.arguments[:-1], arguments, strict=True))
    assert shadows.arguments[-1] is not array


def test_lists_and_sets_that_are_only_read_are_passed_as_they_are() -> None:
    arguments = ([1, 2], {1.0}, [(1, 2)], [[1]], np.zeros(2))
    assert shadows_of(*arguments, writes={4}).arguments[:4] == arguments[:4]


def test_a_list_that_holds_itself_is_looked_into_once() -> None:
    endless: list[Any] = [1]
    endless.append(endless)
    assert shadows_of(endless, np.zeros(2), writes={1}).arguments[0] is endless
    endless.append([np.zeros(2)])
    why = plan_shadows((endless, np.zeros(2)), frozenset({1}))
    assert why == "an argument is a list of ndarray, which may refer to an array that is written"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([1.0], "list that the body may write to"),
        ({1.0}, "set that the body may write to"),
        (List([1.0]), "typed list"),
        (Dict.empty(numba.int64, numba.int64), "typed dictionary"),
        (Box(), "jitclass instance"),
        (np.array([None]), "array of object"),
        (np.array([(None, 1)], [("a", "O"), ("b", "i4")])[0], "record that holds objects"),
        (np.array([(None, 1)], [("a", "O"), ("b", "i4")]), "whose elements are not in its memory"),
        (np.ma.zeros(3), "MaskedArray"),
        (bytearray(3), "bytearray, which the body may write to"),
        (np.random.default_rng(1), "Generator"),
        ((1, (np.zeros(2), [1])), "holds what is a list"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_what_cannot_be_copied_is_refused_where_it_may_be_written_with_the_reason(value: Any, words: str) -> None:
    why = plan_shadows((1, value), frozenset({1}))
    assert isinstance(why, str) and words in why and "argument 2" in why


@pytest.mark.parametrize("value", [List([1.0]), Dict.empty(numba.int64, numba.int64), Box(), (List([1]),)])
def test_what_numba_compiles_code_for_in_the_calling_thread_is_refused_anywhere(value: Any) -> None:
    for writes in (set(), {0}):
        why = plan_shadows((np.zeros(2), value), frozenset(writes))
        assert isinstance(why, str) and "numba compiles code" in why


@pytest.mark.parametrize("value", [bytearray(3), [np.zeros(2)], [[np.zeros(2)]], [object()], object()])
def test_what_may_refer_to_a_written_array_is_refused_only_beside_one(value: Any) -> None:
    assert isinstance(plan_shadows((np.zeros(2), value), frozenset({0})), str)
    assert isinstance(plan_shadows((np.zeros(2), value), frozenset()), Plan)


def test_nothing_written_means_nothing_copied() -> None:
    arguments = (np.zeros(2), (np.zeros(3), 1), np.zeros(2, PADDED)[0])
    plan = plan_shadows(arguments, frozenset())
    assert isinstance(plan, Plan)
    shadows = plan.copy()
    assert plan.size_bytes == 0 and shadows.arguments is arguments
    assert shadows.returned(arguments[1]) is arguments[1]
    shadows.keep()


def test_an_array_that_cannot_be_written_is_not_copied() -> None:
    array = np.zeros(2)
    array.flags.writeable = False
    assert plan_of(array, np.zeros(2), writes={0}).size_bytes == 0


def test_what_overlaps_a_written_array_goes_with_it_and_what_does_not_stays() -> None:
    base, apart = np.arange(16.0), np.arange(3.0)
    frozen = base[2:6]
    frozen.flags.writeable = False
    arguments = (base[:4], apart, frozen, (base[5:8], 1), base[8:])
    plan = plan_of(*arguments, writes={0})
    assert plan.size_bytes == 8 * 8
    first, same, second, (third, _), beyond = plan.copy().arguments
    assert same is apart and beyond is arguments[4]
    assert not second.flags.writeable and third.flags.writeable
    first[2] = -1.0
    assert second[0] == -1.0
    assert address(second) - address(first) == 16 and address(third) - address(second) == 24
    assert base[2] == 2.0


def test_arrays_that_only_touch_are_copied_apart() -> None:
    base = np.arange(8.0)
    plan = plan_of(base[:4], base[4:], writes={0})
    assert plan.size_bytes == 32 and plan.copy().arguments[1].base is base


def test_one_object_passed_twice_is_one_shadow() -> None:
    array = np.zeros(3)
    shadows = shadows_of(array, array[:], (array,), writes={0})
    first, other, (again,) = shadows.arguments
    assert first is again and first is not other and np.shares_memory(first, other)


def test_a_star_parameter_is_written_as_a_whole_and_a_namedtuple_keeps_its_type() -> None:
    left, right = np.zeros(2), np.zeros(3)
    shadows = shadows_of((left, Pair(right, 1)), writes={0})
    assert type(shadows.arguments[0][1]) is Pair
    shadows.arguments[0][1].left[:] = 7
    shadows.keep()
    assert right.tolist() == [7] * 3 and left.tolist() == [0] * 2


def test_a_tuple_with_more_in_it_than_its_values_is_refused() -> None:
    class Named(namedtuple("Named", "x")):
        pass

    named = Named(np.zeros(2))
    assert isinstance(plan_shadows((named,), frozenset({0})), Plan)
    named.more = 1
    assert "more in it" in str(plan_shadows((named,), frozenset({0})))


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("dtype", [PADDED, np.dtype((np.record, PADDED))], ids=["void", "record"])
def test_a_record_is_shadowed_where_it_lies(own: bool, dtype: np.dtype) -> None:
    array = np.array([(1, 2.5), (3, 4.5)], dtype)
    record = array[1].copy() if own else array[1]
    shadows = shadows_of(array, record, writes={1})
    copied, shadow = shadows.arguments
    assert type(shadow) is type(record) and numba.typeof(shadow) == numba.typeof(record)
    shadow["value"] = 9.0
    assert (copied is array) is own and record["value"] == 4.5
    assert own or copied[1]["value"] == 9.0
    shadows.keep()
    assert record["value"] == 9.0 and array[1]["value"] == (4.5 if own else 9.0)
    assert shadows.returned(shadow) is record


def test_the_extent_of_a_column_is_what_copying_costs() -> None:
    matrix = np.zeros((1000, 1000))
    assert plan_of(matrix[:, 3], writes={0}).size_bytes == 999 * 8000 + 8


@pytest.mark.parametrize(
    ("array", "size_bytes"),
    [
        (np.zeros(9)[::-1], 72),
        (np.zeros(9)[::-4], 72),
        (np.zeros((3, 4))[::-1, 1:3], 80),
        (np.broadcast_to(np.zeros(3), (5, 3)), 0),
        (np.zeros(3, PADDED)["value"], 40),
    ],
    ids=["reversed", "reversed steps", "part of rows", "read-only", "field"],
)
def test_no_byte_beyond_what_an_array_reaches_is_copied(array: np.ndarray, size_bytes: int) -> None:
    assert plan_of(array, writes={0}).size_bytes == size_bytes


def test_a_record_that_cannot_be_written_is_not_copied() -> None:
    array = np.zeros(3, PADDED)
    array.flags.writeable = False
    record = array[1]
    assert plan_of(record, writes={0}).size_bytes == 0
    array.flags.writeable = True
    shadow = shadows_of(array, record, writes={0}).arguments[1]
    assert not shadow.flags.writeable and not record.flags.writeable


def test_a_memory_mapped_file_is_written_through(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "numbers", dtype=np.int32, mode="w+", shape=(5,))
    shadows = shadows_of(mapped, writes={0})
    assert type(shadows.arguments[0]) is np.ndarray
    assert numba.typeof(shadows.arguments[0]) == numba.typeof(mapped)
    shadows.arguments[0][2] = 5
    shadows.keep()
    assert shadows.returned(shadows.arguments[0]) is mapped
    mapped.flush()
    assert np.fromfile(tmp_path / "numbers", np.int32).tolist() == [0, 0, 5, 0, 0]


def test_nan_payloads_signed_zeros_and_padding_are_kept_exactly() -> None:
    array = np.array([np.nan, 0.0, 1.0])
    records = np.zeros(2, PADDED)
    shadows = shadows_of(array, records, writes={0, 1})
    shadows.arguments[0].view(np.uint64)[0] ^= 1
    shadows.arguments[0][1] = -0.0
    shadows.arguments[1].view(np.uint8)[3] = 77
    shadows.keep()
    assert array.view(np.uint64)[0] & 1 == 1 and np.signbit(array[1])
    assert records.view(np.uint8)[3] == 77


@pytest.mark.parametrize("size_bytes", [1, 7, 8, 9, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES + 3])
def test_keep_writes_the_bytes_that_changed_and_no_others(size_bytes: int) -> None:
    random = np.random.default_rng(size_bytes)
    array = random.integers(0, 256, size_bytes, dtype=np.uint8)
    shadows = shadows_of(array, writes={0})
    changed = random.random(size_bytes) < 0.3
    changed[[0, -1]] = True
    shadows.arguments[0][changed] += 1
    meanwhile = array + np.uint8(100)
    expected = np.where(changed, shadows.arguments[0], meanwhile)
    array[...] = meanwhile  # by another thread, as it were
    shadows.keep()
    assert np.array_equal(array, expected)


def test_keep_does_not_write_to_memory_that_nothing_changed_in_and_not_twice() -> None:
    array = np.arange(4)
    shadows = shadows_of(array, writes={0})
    shadows.arguments[0][0] = 10
    shadows.keep()
    assert array.tolist() == [10, 1, 2, 3]
    array[:] = 5
    shadows.keep()
    assert array.tolist() == [5] * 4
    untouched = shadows_of(array, writes={0})
    array[1] = 6
    untouched.keep()
    assert array.tolist() == [5, 6, 5, 5]


@pytest.mark.concurrency
def test_two_threads_that_fill_two_halves_of_one_array_lose_nothing() -> None:
    array = np.zeros(3 * CHUNK_BYTES, np.uint8)
    middle = len(array) // 2 + 3
    both_copied, both_filled = threading.Barrier(2), threading.Barrier(2)
    errors: list[BaseException] = []

    def fill(part: slice, value: int) -> None:
        try:
            shadows = shadows_of(array, writes={0})
            both_copied.wait(WAIT_S)
            shadows.arguments[0][part] = value
            both_filled.wait(WAIT_S)
            shadows.keep()
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=fill, args=(slice(None, middle), 1)),
        threading.Thread(target=fill, args=(slice(middle, None), 2)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert not errors
    assert (array[:middle] == 1).all() and (array[middle:] == 2).all()


WHOLE = {
    "floats": (np.zeros(4), 1.0, 2.0, True),
    "integers": (np.zeros(4, np.int32), 300, 5, True),
    "complex": (np.zeros(4, complex), 1 + 1j, 2 + 2j, True),
    "dates": (np.zeros(4, "M8[s]"), np.datetime64(300, "s"), np.datetime64(5, "s"), True),
    "column": (np.zeros((4, 3))[:, 1], 1.0, 2.0, True),
    "misaligned": (np.zeros(33, np.uint8)[1:].view(np.float64), 1.0, 2.0, False),
    "field": (np.zeros(4, PACKED)["value"], 1.0, 2.0, False),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_of_two_runs_that_write_one_number_the_last_wins_and_no_third_comes_out(kind: str) -> None:
    array, one, other, whole = WHOLE[kind]
    array = array.copy() if whole and array.base is None else array
    first, last = (shadows_of(array, writes={0}) for _ in range(2))
    first.arguments[0][0], last.arguments[0][0] = one, other
    first.arguments[0][1], last.arguments[0][2] = one, other
    first.keep()
    last.keep()
    assert array[1] == one and array[2] == other
    assert (array[0] == np.array(other, array.dtype)) is np.bool_(whole)


def test_where_unlike_arrays_overlap_single_bytes_are_written() -> None:
    array = np.zeros(4)
    first, last = (shadows_of(array, array.view(np.uint8), writes={0, 1}) for _ in range(2))
    first.arguments[1][0], last.arguments[1][1] = 1, 2
    first.keep()
    last.keep()
    assert array.view(np.uint8)[:3].tolist() == [1, 2, 0]


def test_the_second_copy_is_freed_by_keep_and_all_of_it_with_the_shadows() -> None:
    import tracemalloc

    array = np.zeros(1 << 20, np.uint8)
    tracemalloc.start()
    try:
        shadows = shadows_of(array, writes={0})
        copied = tracemalloc.get_traced_memory()[0]
        shadows.keep()
        kept = tracemalloc.get_traced_memory()[0]
        del shadows
        left = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert copied > 2 * array.nbytes > kept + 4096 > array.nbytes > left * 10


def test_an_estimate_grows_with_the_bytes_and_nothing_costs_nothing() -> None:
    assert copy_estimate_s(0) == 0.0
    assert 0 < copy_estimate_s(1) < copy_estimate_s(10**6) < copy_estimate_s(10**8) < 10
