"""Generated functions give the same in Python, as machine code of the farm, and as machine code of numba.

The farm's and numba's results are compared to the last bit, types included; Python's by value. `make attacks` tries
more.
"""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from three_ways import Bench, Difference, equal
from written import Written, functions

AT_ONCE = 6
"""Functions in an example: the worker compiles some while this process compiles others."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("written")) as made:
        yield made


@pytest.mark.timeout(600)  # 20 s if all is well; making a failure small takes more
@settings(max_examples=12, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(written=st.lists(functions(), min_size=1, max_size=AT_ONCE))
def test_generated_functions_give_the_same_three_ways(bench: Bench, written: list[Written]) -> None:
    compared, found = bench.differences(written)
    assert compared == sum(len(one.calls) for one in written)
    assert found == [], "\n\n".join(map(str, found))


def test_a_difference_is_found_and_shown(bench: Bench) -> None:
    """An integer grows past 64 bits in Python."""
    grows = Written("def f(i, k):\n    return i * k\n", ((2, 3), (1 << 62, 4)))
    compared, found = bench.differences([grows])
    assert compared == 2
    assert found == [Difference(grows, (1 << 62, 4), found[0].gave)]
    assert [result for result, _ in found[0].gave.values()] == [1 << 64, 0, 0]
    assert "return i * k" in str(found[0]) and "fallback" in str(found[0])


@pytest.mark.parametrize(
    ("one", "other"),
    [(0.0, -0.0), (1.0, 1.0 + 2**-52), (1, True), (1, 1.0), ("a", "b"), ((1, 2), (1, 2, 3)), (float("nan"), 0.0)],
)
def test_what_is_almost_the_same_is_not(one: object, other: object) -> None:
    assert not equal(one, other, typed=False)
    assert equal(one, one, typed=True)
