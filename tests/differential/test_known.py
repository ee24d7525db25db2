"""Where Python and machine code are known to differ: the README lists each kind, and the farm always gives what numba
gives."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numba
import numpy as np
import pytest
from three_ways import equal, run

import farm

README: Final = (Path(__file__).parents[2] / "README.md").read_text()
HEADING: Final = "## Where a fallback's result differs"


def times_four(i: int) -> int:
    return i * 4


def shifted(i: int) -> int:
    return 1 << i


def to_the_power(i: int) -> int:
    return 2**i


def squared(a: Any) -> Any:
    return a[0] * a[0]


def quotient(a: Any) -> Any:
    return a[0] / a[1]


def whole(x: float) -> int:
    return int(x)


def fourth_of_two(a: Any) -> Any:
    return a[:2][3]


def logarithm(x: float) -> float:
    return math.log(x)


def exponential(x: float) -> float:
    return math.exp(x)


def root(x: float) -> Any:
    return x**0.5


def added_up(a: Any) -> Any:
    return a.sum()


def rounded(x: float) -> float:
    return round(x, 2)


def one_or_more(x: float) -> float:
    n: float = 1
    if x > 0:
        n = 2.5
    return n


def inverted(b: bool) -> Any:
    return ~b


def drawn(i: int) -> Any:
    return np.random.random() * i


KNOWN: Final = [
    ("integers over 64 bits", times_four, (1 << 62,)),
    ("integers over 64 bits", shifted, (70,)),
    ("integers over 64 bits", to_the_power, (70,)),
    ("a negative power of an integer", to_the_power, (-1,)),
    ("integers of fewer bits", squared, (np.array([100_000], np.int32),)),
    ("division by zero", quotient, (np.array([1.0, 0.0]),)),
    ("`int()` of a float that does not fit", whole, (1e20,)),
    ("`int()` of a float that does not fit", whole, (math.nan,)),
    ("an index out of bounds", fourth_of_two, (np.arange(4),)),
    ("`math` outside its domain", logarithm, (0.0,)),
    ("`math` outside its domain", exponential, (1000.0,)),
    ("a root of a negative number", root, (-8.0,)),
    ("sums by numpy", added_up, (np.random.default_rng(0).random(1000),)),
    ("`round` to some digits", rounded, (2.675,)),
    ("a variable of two types", one_or_more, (-1.0,)),
    ("`~` of a boolean", inverted, (True,)),
]


@pytest.fixture(scope="module")
def barn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[farm.Farm]:
    with farm.Farm(cache_dir=tmp_path_factory.mktemp("known"), workers=1, exit_grace_s=0) as made:
        yield made


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")  # of Python's side
@pytest.mark.parametrize(("kind", "function", "arguments"), KNOWN)
def test_a_known_difference_is_listed_and_the_farm_gives_what_numba_gives(
    barn: farm.Farm, kind: str, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    python, reference = run(function, arguments), run(numba.njit(function), arguments)
    machine = run(farm.njit(function, farm=barn, mode="strict"), arguments)
    assert equal(machine, reference, typed=True)
    assert not equal(python, machine, typed=True), f"no longer a difference: {kind}"
    section = README.partition(HEADING)[2].partition("\n## ")[0]
    assert f"\n| {kind} " in section


def test_every_listed_difference_is_tried() -> None:
    section = README.partition(HEADING)[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0].strip("| ") for line in section.splitlines() if line.startswith("| ")]
    untried = {"what", "numpy's scalars", "`np.random`", "reductions with `fastmath` or `parallel`"}
    assert set(rows) - untried == {kind for kind, _, _ in KNOWN}


def test_machine_code_gives_pythons_scalars_and_has_random_numbers_of_its_own(barn: farm.Farm) -> None:
    given, array = farm.njit(times_first, farm=barn, mode="strict"), np.arange(3)
    assert (type(times_first(array)), type(given(array))) == (np.int64, int)
    np.random.seed(7)
    first = drawn(1)
    np.random.seed(7)
    assert farm.njit(drawn, farm=barn, mode="strict")(1) != first


def times_first(a: Any) -> Any:
    return a[1] * 2
