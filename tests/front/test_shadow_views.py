"""Views that nobody wrote, over buffers that they share: what is done through shadows against what is done in place."""

from typing import Any

import numpy as np
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as some

from farm.front.shadow import Plan, plan_shadows

BUFFER_BYTES = 96
DTYPES = [np.dtype(name) for name in ("u1", "i2", "<f4", ">i4", "f8", "c16")] + [
    np.dtype([("flag", "u1"), ("value", "f8")], align=True),
    np.dtype([("flag", "u1"), ("value", "f8")]),
]


@some.composite
def layouts(draw: some.DrawFn) -> tuple[Any, ...]:
    """Where a view lies: buffer, first byte, dtype, shape of the whole (1-d or 2-d), and what is taken of it."""
    dtype = draw(some.sampled_from(DTYPES))
    offset = draw(some.integers(0, 24))
    room = (BUFFER_BYTES - offset) // dtype.itemsize
    columns = draw(some.integers(1, room))
    shape = draw(some.sampled_from([(columns,), (room // columns, columns)]))
    steps = some.sampled_from([1, 2, 3, -1, -2])
    bounds = some.sampled_from([*[None] * 9, 0, 1, 2, 3, 5, -1, -2, -4])
    parts = tuple(slice(draw(bounds), draw(bounds), draw(steps)) for _ in shape)
    return (
        draw(some.integers(0, 1)),
        offset,
        dtype,
        shape,
        parts,
        draw(some.booleans()),
        draw(some.integers(0, 4)) == 4,
    )


def view(buffers: list[np.ndarray], layout: tuple[Any, ...]) -> np.ndarray:
    which, offset, dtype, shape, parts, transposed, frozen = layout
    whole: np.ndarray = np.ndarray(shape, dtype, buffers[which], offset)
    taken = whole[parts]
    taken = taken.T if transposed else taken
    taken.flags.writeable = not frozen
    return taken


def derived(array: np.ndarray, how: int) -> Any:
    """What a body might return of an argument."""
    if how == 0 or array.ndim == 0 or not array.size:
        return array
    if how == 1:
        return array[::-1]
    if how == 2:
        return (array.T, [array[:1]])
    if how == 3 and array.dtype.names:
        return array["value"]
    if how == 4 and array.dtype.names:
        return array.reshape(-1)[:1][0] if array.ndim == 1 else array[0, 0]
    return array.real if array.dtype.kind == "c" else array[..., 1:]


def held(arrays: tuple[Any, ...]) -> list[bytes]:
    """The bytes of all elements, padding included: `tobytes` leaves out what is between fields."""
    return [as_bytes(array).tobytes() for array in arrays]


def as_bytes(array: np.ndarray) -> np.ndarray:
    interface = {**array.__array_interface__, "typestr": "|u1", "descr": [("", "|u1")], "strides": (*array.strides, 1)}
    interface["shape"] = (*array.shape, array.itemsize)

    class Raw:
        __array_interface__ = interface

    return np.asarray(Raw())


def flat(value: Any) -> list[Any]:
    return [inner for item in value for inner in flat(item)] if isinstance(value, (tuple, list)) else [value]


def place(value: Any, buffers: list[np.ndarray]) -> tuple[Any, ...]:
    """Where an array or a record lies, relative to the buffers, and what it is."""
    array = np.asarray(value)
    starts = [buffer.__array_interface__["data"][0] for buffer in buffers]
    first = array.__array_interface__["data"][0]
    where = [(i, first - start) for i, start in enumerate(starts) if 0 <= first - start < BUFFER_BYTES]
    return (where, type(value), array.shape, array.strides, array.dtype, array.flags.writeable)


def buffers_of(content: bytes) -> list[np.ndarray]:
    """Two buffers at addresses of their own, aligned the same way each time."""
    made = []
    for part in (content[:BUFFER_BYTES], content[BUFFER_BYTES:]):
        memory = np.empty(BUFFER_BYTES + 64, np.uint8)
        shift = -memory.__array_interface__["data"][0] % 64
        made.append(memory[shift : shift + BUFFER_BYTES])
        made[-1][:] = np.frombuffer(part, np.uint8)
    return made


def write(array: np.ndarray, at: int, content: bytes, whole: bool) -> None:
    if not array.size or not array.flags.writeable:
        return
    value = np.frombuffer((content * 16)[: array.dtype.itemsize], array.dtype)[0]
    if whole:
        array[...] = value
    else:
        array[np.unravel_index(at % array.size, array.shape)] = value


WRITES = some.tuples(some.integers(0, 3), some.integers(0, 95), some.binary(min_size=1, max_size=16), some.booleans())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    content=some.binary(min_size=2 * BUFFER_BYTES, max_size=2 * BUFFER_BYTES),
    shape=some.lists(layouts(), min_size=1, max_size=4),
    written=some.sets(some.integers(0, 3), min_size=1),
    changes=some.lists(WRITES, max_size=8),
    returns=some.lists(some.tuples(some.integers(0, 3), some.integers(0, 5)), max_size=4),
)
def test_a_run_on_shadows_leaves_and_returns_what_a_run_in_place_does(
    content: bytes, shape: list[Any], written: set[int], changes: list[Any], returns: list[Any]
) -> None:
    in_place, kept = buffers_of(content), buffers_of(content)
    originals = tuple(view(in_place, layout) for layout in shape)
    arguments = tuple(view(kept, layout) for layout in shape)
    count = len(shape)
    written = {number % count for number in written}
    plan = plan_shadows(arguments, frozenset(written))
    assert isinstance(plan, Plan)
    shadows = plan.copy()
    for array, shadow in zip(originals, shadows.arguments, strict=True):
        assert (array.flags.aligned, array.flags.c_contiguous) == (shadow.flags.aligned, shadow.flags.c_contiguous)
    before = [buffer.tobytes() for buffer in kept]
    for number, at, value, whole in changes:
        if number % count in written:
            write(originals[number % count], at, value, whole)
            write(shadows.arguments[number % count], at, value, whole)
            assert held(originals) == held(shadows.arguments)
    assert [buffer.tobytes() for buffer in kept] == before
    shadows.keep()
    assert [buffer.tobytes() for buffer in kept] == [buffer.tobytes() for buffer in in_place]
    for number, how in returns:
        expected = flat(derived(originals[number % count], how))
        got = flat(shadows.returned(derived(shadows.arguments[number % count], how)))
        assert [place(value, kept) for value in got] == [place(value, in_place) for value in expected]
    event(f"copied: {plan.size_bytes > 0}; changed: {before != [buffer.tobytes() for buffer in kept]}")
