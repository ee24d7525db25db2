"""Every kernel of the demo gives the same in Python, as machine code of the farm, and as machine code of numba."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import numba
import pytest
from kernels import Kernel, agree, flatten, kernels
from three_ways import equal, run

import farm


def undecorated(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    return function or undecorated


Ways = dict[str, dict[str, Kernel]]


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    with farm.Farm(cache_dir=tmp_path_factory.mktemp("kernels"), workers=1, exit_grace_s=0) as barn:

        def through_the_farm(function: Any = None, **options: Any) -> Any:
            return farm.njit(function, farm=barn, mode="strict", **options)

        yield {"python": kernels(undecorated), "farm": kernels(through_the_farm), "numba": kernels(numba.njit)}
        stats = barn.stats()
        assert stats.local == stats.failed == stats.fallback_calls == 0, stats


NAMES: Final = sorted(kernels(undecorated))


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_gives_the_same_three_ways_and_writes_into_no_argument(ways: Ways, name: str) -> None:
    from demo_run import batch_of

    assert len(NAMES) >= 24
    batch = batch_of(ways["python"][name], NAMES.index(name), 0)
    gave = {way: run(found[name].function, batch) for way, found in ways.items()}
    for _, arguments in gave.values():
        assert agree(flatten(arguments), flatten(batch))
    assert equal(gave["farm"][0], gave["numba"][0], typed=True)
    # numpy adds up arrays in an order of its own, which machine code does not: hence the demo's tolerance.
    assert agree(flatten(gave["python"][0]), flatten(gave["farm"][0]))
