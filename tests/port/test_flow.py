"""What is read off bytecode: statements, loops, and which exceptions a handler stops."""

import sys
from typing import Any

import numpy as np
import pytest

from farm.port.flow import Arguments, Flow, Kind, Statement, flow_of, is_vectorized


def straight(a: Any, b: Any) -> Any:
    c = a[0] + b
    a[1] = c
    return max(c, b, key=None)


def kinds(function: Any) -> list[Kind]:
    return [one.kind for one in flow_of(function.__code__).statements]


def named(function: Any, kind: Kind) -> list[Statement]:
    return [one for one in flow_of(function.__code__).statements if one.kind is kind]


def test_a_straight_function_is_read_in_order() -> None:
    # From 3.13 on a call with keywords makes a tuple of their names first.
    found = [kind for kind in kinds(straight) if kind not in {Kind.CONSTANT, Kind.ALIAS, Kind.BUILD}]
    parameters, rest = found[:2], found[2:]
    assert parameters == [Kind.PARAMETER] * 2
    assert rest == [Kind.ELEMENT, Kind.BINARY, Kind.SET_ITEM, Kind.GLOBAL, Kind.CALL, Kind.RETURN]
    (call,) = named(straight, Kind.CALL)
    assert isinstance(call.detail, Arguments) and [key for key, _ in call.detail.keywords] == ["key"]
    assert [one.detail for one in named(straight, Kind.PARAMETER)] == [0, 1]
    assert named(straight, Kind.GLOBAL)[0].detail == "max"


def test_no_object_of_numba_is_handed_out() -> None:
    for function in (straight, catches, loops, closes, makes):
        for one in flow_of(function.__code__).statements:
            values = (one.target, *one.inputs, one.detail)
            assert not [value for value in values if type(value).__module__.startswith("numba")], one


def closes(a: Any) -> Any:
    def inner(x: Any) -> Any:
        return x + a

    return inner(1)


def test_a_function_made_inside_names_what_it_captures_and_its_defaults() -> None:
    (made,) = named(closes, Kind.FUNCTION)
    assert made.inputs == ("a",) and made.detail.co_name == "inner"
    (captured,) = [one for one in flow_of(made.detail).statements if one.kind is Kind.CAPTURED]
    assert captured.detail == "a"


def makes(a: Any, b: Any) -> Any:
    d = {1: a}
    d["x"] = b
    s = a.T
    s.field = 3
    del a[0]
    a += b
    return [a, *b], -a, (lambda q=b: q)()


def test_each_statement_has_its_kind() -> None:
    found = set(kinds(makes))
    wanted = {Kind.BUILD, Kind.SET_ITEM, Kind.ATTRIBUTE, Kind.SET_ATTRIBUTE, Kind.DELETE_ITEM, Kind.INPLACE, Kind.UNARY}
    assert wanted <= found
    (made,) = named(makes, Kind.FUNCTION)
    assert made.inputs == ("b",)


def loops(n: int) -> int:
    while n > 0:
        n -= 1
    return n


def walks(a: Any) -> float:
    total = 0.0
    for x in a:
        total += x
    return total


def branches(n: int) -> int:
    if n > 3:
        return 1
    elif n > 2:
        n = 2
    return n and 4


def breaks_at_once(n: int) -> int:
    while True:
        return n


@pytest.mark.parametrize(
    ("function", "loop"), [(loops, True), (walks, True), (branches, False), (breaks_at_once, False)]
)
def test_a_loop_is_a_block_that_is_reached_from_itself(function: Any, loop: bool) -> None:
    assert flow_of(function.__code__).loops is loop


# -- handlers ----------------------------------------------------------------------------------------


def catches(a: Any) -> Any:
    try:
        a[0] = 1
    except Exception:
        a[0] = 2
    return a


def catches_two_kinds(a: Any) -> Any:
    try:
        a[0] = 1
    except ValueError:
        a[0] = 2
    except np.exceptions.AxisError:
        a[0] = 3


def catches_in_a_loop(a: Any) -> Any:
    for i in range(3):
        try:
            a[i] = 1
        except Exception:
            continue
    else:
        return 3


def catches_twice(a: Any) -> Any:
    try:
        try:
            a[0] = 1
        except ValueError:
            a[0] = 3
    except Exception:
        a[0] = 2


def catches_and_names(a: Any) -> Any:
    try:
        a[0] = 1
    except ValueError as error:
        raise TypeError(error) from error


def catches_all(a: Any) -> Any:
    try:
        a[0] = 1
    except:  # noqa: E722
        a[0] = 2


def catches_base(a: Any) -> Any:
    try:
        a[0] = 1
    except BaseException:
        a[0] = 2


def catches_several_at_once(a: Any) -> Any:
    try:
        a[0] = 1
    except (ValueError, KeyError):
        a[0] = 2


def tidies(a: Any) -> Any:
    try:
        a[0] = 1
    finally:
        a[0] = 2


def leaves_by_finally(a: Any) -> Any:
    for _ in range(3):
        try:
            a[0] = 1
        finally:
            break  # noqa: B012


def begins_a_block(a: Any) -> Any:
    with np.errstate(all="ignore"):
        a[0] = 1


def comprehends(a: Any) -> Any:
    x = 3
    found = [x for x in a if x], {x for x in a}, {x: [y for y in a] for x in a}
    return x, found


STOPPED = [
    (straight, set()),
    (loops, set()),
    (catches, {("Exception",)}),
    (catches_two_kinds, {("ValueError", "np.exceptions.AxisError")}),
    (catches_in_a_loop, {("Exception",)}),
    (catches_twice, {("ValueError",), ("Exception",)}),
    (catches_all, {None}),
    (catches_base, {("BaseException",)}),
    (catches_several_at_once, {None}),
    (tidies, {None}),
    (leaves_by_finally, {None}),
    (begins_a_block, {None}),
    (comprehends, set()),
]


@pytest.mark.parametrize(("function", "stopped"), STOPPED, ids=lambda one: getattr(one, "__name__", ""))
def test_what_the_handlers_stop(function: Any, stopped: set[tuple[str, ...] | None]) -> None:
    assert set(flow_of(function.__code__).handlers) - {()} == stopped


@pytest.mark.skipif(sys.version_info < (3, 11), reason="3.10 has no table of handlers to read")
def test_handlers_that_only_tidy_up_are_seen_and_stop_nothing() -> None:
    assert () in flow_of(catches.__code__).handlers


# -- what is refused ---------------------------------------------------------------------------------


def test_what_numba_cannot_read_has_a_reason_of_one_line() -> None:
    def takes_apart(a: Any) -> Any:
        first, *_ = a
        return first

    found = flow_of(takes_apart.__code__)
    assert found.refused == "Use of unsupported opcode (UNPACK_EX) found" and found.statements == ()


def test_a_variable_of_an_outer_scope_that_is_set_is_named() -> None:
    n = 1

    def inner() -> None:
        nonlocal n
        n = 2

    def outer() -> Any:
        m = 2

        def reads() -> int:
            return m

        return reads()

    assert flow_of(inner.__code__).sets_outside == "n" and n == 1
    assert flow_of(outer.__code__).sets_outside is None
    scope: dict[str, Any] = {}
    exec("def f():\n    global thing\n    thing = 1", scope)
    assert flow_of(scope["f"].__code__).sets_outside == "thing"


def test_a_code_object_is_read_once() -> None:
    assert flow_of(straight.__code__) is flow_of(straight.__code__)
    assert isinstance(flow_of(straight.__code__), Flow)


def test_only_numbas_ufuncs_are_vectorized() -> None:
    import numba

    assert not is_vectorized(np.add)
    assert is_vectorized(numba.vectorize(lambda x: x + 1))
    assert is_vectorized(numba.guvectorize("(n)->(n)")(lambda a, b: None))
