"""What is said of bodies: whether a call may be given up and done again, what they write to, whether they loop."""

import types
from typing import Any

import aliases
import numba
import numpy as np
import pytest
import refused_bodies  # noqa: F401  # its cases
from bodies import CASES, Case, Point, hooked
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernels import kernels
from quiet_bodies import changes_a_copy, sums
from writing_bodies import begins_with_an_item

import farm
from farm.job.restart import DIMENSIONS_MAX, Restart, restart_of


def described(found: Restart) -> tuple[object, ...]:
    nested = {position for position, _, most in found.unless if most == DIMENSIONS_MAX}
    parts = {(position, most) for position, _, most in found.unless if most < DIMENSIONS_MAX}
    return found.writes - nested - {position for position, _ in parts}, parts, nested, found.loops


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.function.__name__)
def test_what_is_said_of_a_body(case: Case) -> None:
    found = restart_of(case.function)
    assert (found.reason or "").startswith(case.reason or "") and (found.reason is None) == (case.reason is None), found
    assert described(found) == (case.writes, case.parts, case.nested, case.loops)


# -- the demo's kernels ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def functions() -> dict[str, Any]:
    """The demo's kernels, decorated by the farm."""
    return {name: kernel.function for name, kernel in kernels(farm.njit).items()}


def test_all_kernels_of_the_demo_can_be_done_again_and_need_hardly_a_copy(functions: dict[str, Any]) -> None:
    found = {name: restart_of(function) for name, function in functions.items()}
    assert len(found) == 24 and {name: one.reason for name, one in found.items() if one.reason} == {}
    nested = {name: {place for place, _, most in one.unless if most == DIMENSIONS_MAX} for name, one in found.items()}
    assert {name: places for name, places in nested.items() if places} == {
        "n_body": {0, 1, 2, 3},
        "cholesky_solve": {1},
        "revenue_by_customer": {1},
    }
    always = {name: described(one)[0] for name, one in found.items()}
    assert not any(always.values()), always
    parts = {name: described(one)[1] for name, one in found.items()}
    # Of an array with more dimensions `amount[i]` is a row, and `matrix[i, j]` too, which `+=` would change.
    assert {name: places for name, places in parts.items() if places} == {
        "revenue_by_customer": {(1, 1), (1, 2)},
        "cholesky_solve": {(0, 2)},
    }
    assert all(one.loops for one in found.values())


# -- beside the table --------------------------------------------------------------------------------


def test_what_is_written_to_depends_on_what_the_arguments_can_hold() -> None:
    found = restart_of(changes_a_copy)
    assert (found.writes, found.unless) == ({0}, {(0, 0, DIMENSIONS_MAX)})
    assert found.writes_to((np.zeros(3),)) == found.writes_to((3.0,)) == frozenset()
    for container in ((np.zeros(3),), [np.zeros(3)], {0: np.zeros(3)}, np.zeros(1, "i8,i8")[0], object()):
        assert found.writes_to((container,)) == {0}, container


def test_an_item_of_an_array_is_no_part_of_it_but_a_row_is() -> None:
    found = restart_of(begins_with_an_item)
    assert found.writes == {0}
    for number in (np.zeros(3), np.float64(1), 3, np.zeros(())):
        assert found.writes_to((number,)) == frozenset()
    for holder in (np.zeros((3, 3)), [1, 2], np.zeros(3, "i8,i8"), (np.zeros(3),)):
        assert found.writes_to((holder,)) == {0}, holder


def test_codes_are_those_of_the_body_of_what_is_in_it_and_of_what_it_calls() -> None:
    def calls(a: Any) -> Any:
        return hooked(a), sums(a), sorted(a, key=lambda x: -x)

    (nested,) = (one for one in calls.__code__.co_consts if isinstance(one, types.CodeType))
    found = restart_of(calls)
    assert found.reason is None
    assert found.codes == {calls.__code__, nested, hooked.py_func.__code__, sums.__code__}


def test_what_makes_a_named_tuple_belongs_to_the_codes() -> None:
    def turned(a: Any) -> Any:
        return Point(a.y, a.x)

    found = restart_of(turned)
    assert found.reason is None and found.codes == {turned.__code__, Point.__new__.__code__}


def test_which_of_the_callees_loop_is_known() -> None:
    def part(a: Any) -> Any:
        return a + 1

    def calls(a: Any) -> Any:
        return part(a) + sums(a)

    def among_others(a: Any) -> Any:
        return part(a) + calls(a)

    assert restart_of(among_others).looping == {among_others.__code__, calls.__code__, sums.__code__}
    assert restart_of(part).looping == frozenset()


def test_a_dispatcher_is_its_python_function() -> None:
    assert restart_of(hooked) == restart_of(hooked.py_func)
    assert restart_of(numba.njit(sums)) == restart_of(sums)


class Hostile:
    """Its attributes raise, whatever is asked."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __call__(self) -> None: ...


@pytest.mark.parametrize("make", [lambda: None, lambda: len, lambda: int, lambda: np.add, lambda: Hostile, Hostile])
def test_no_question_raises(make: Any) -> None:
    assert restart_of(make()).reason == "it is no Python function"


def test_a_function_that_reaches_a_hostile_object_is_given_up() -> None:
    scope: dict[str, Any] = {"hostile": Hostile(), "__name__": "hostile"}
    exec("def asks(a):\n    return hostile.attribute(a)\ndef calls(a):\n    return hostile(a)", scope)
    for name in ("asks", "calls"):
        found = restart_of(scope[name])
        assert found.reason is not None and found.codes == {scope[name].__code__}


def test_a_chain_of_a_thousand_callees_is_refused_or_followed() -> None:
    scope: dict[str, Any] = {"__name__": "chain"}
    lines = ["def f0(a):\n    a[0] = 1"]
    lines += [f"def f{i}(a):\n    f{i - 1}(a)" for i in range(1, 1000)]
    exec("\n".join(lines), scope)
    for depth in (10, 999):
        found = restart_of(scope[f"f{depth}"])
        assert found.writes == {0} and (found.reason is None or depth == 999)


def test_globals_are_looked_up_anew_for_each_function() -> None:
    source = "def f(a):\n    g(a)"
    code = compile(source, "<same>", "exec")
    quiet: dict[str, Any] = {"__name__": "quiet", "g": fill_first_item}
    loud: dict[str, Any] = {"__name__": "loud", "g": print}
    for scope in (quiet, loud):
        exec(code, scope)
    assert quiet["f"].__code__ == loud["f"].__code__
    assert restart_of(quiet["f"]).reason is None and restart_of(quiet["f"]).writes == {0}
    assert restart_of(loud["f"]).reason == "it calls print"


def fill_first_item(a: Any) -> None:
    a[0] = 1


# -- functions that nobody wrote ---------------------------------------------------------------------


@pytest.mark.timeout(300)
@given(source=aliases.sources(), dimensions=st.integers(1, 3))
@settings(max_examples=250, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_a_body_changes_was_said_to_be_written(source: str, dimensions: int) -> None:
    judged = aliases.judge(source, dimensions)
    assert judged.changed <= judged.said.writes_to(judged.values) <= judged.said.writes, judged
    assert judged.left_globals_alone or judged.said.reason is not None, judged
