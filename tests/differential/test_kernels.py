"""Every kernel of the demo gives the same in Python, as machine code of the farm, and as machine code of numba."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numba
import pytest
from three_ways import equal, run

import farm

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import demo_compiler
from demo_report import agree, flatten

MODULES: Final = ("demo_kernels", "demo_data_kernels")


def kernels(decorator: Callable[..., Any]) -> dict[str, demo_compiler.Kernel]:
    """The demo's kernels under a decorator, in modules that nobody else has."""
    before = {name: sys.modules.pop(name) for name in MODULES if name in sys.modules}
    demo_compiler.use(decorator)
    try:
        found = [kernel for name in MODULES for kernel in importlib.import_module(name).KERNELS]
    finally:
        demo_compiler.use(numba.njit)
        for name in MODULES:
            sys.modules.pop(name, None)
        sys.modules.update(before)
    return {kernel.name: kernel for kernel in found}


def undecorated(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    return function or undecorated


Ways = dict[str, dict[str, demo_compiler.Kernel]]


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
