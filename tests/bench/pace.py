"""How fast compiled code runs: the demo's kernels compiled by the farm, beside numba's, in one process. JSON.

Numba's own functions come from the store, as bitcode that is linked: so inlining is what this shows. Blocks of calls
alternate; each pair gives a ratio of processor time, and their median counts. The arguments are what makes a call take
5 to 100 ms in Python.
"""

import json
import statistics
import time
from collections.abc import Callable
from typing import Any, Final

import numba
from homemade import signature
from workload import Call, demo_kernels

import farm

PAIRS: Final = 21
BLOCK_S: Final = 0.008


def block_s(function: Callable[..., Any], arguments: tuple[Any, ...], calls: int) -> float:
    """Processor seconds of so many calls."""
    started = time.process_time()
    for _ in range(calls):
        function(*arguments)
    return time.process_time() - started


def ratio(ours: Call, theirs: Call) -> float:
    """Ours over theirs, both compiled."""
    arguments = theirs[1]
    for function, _ in (ours, theirs):
        block_s(function, arguments, 60)  # past the farm's probation
    calls = max(1, round(BLOCK_S * 20 / max(1e-9, block_s(theirs[0], arguments, 20))))
    ratios = []
    for number in range(PAIRS):
        order = (ours, theirs) if number % 2 else (theirs, ours)
        spent = {id(function): block_s(function, arguments, calls) for function, _ in order}
        ratios.append(spent[id(ours[0])] / spent[id(theirs[0])])
    return statistics.median(ratios)


def main() -> dict[str, Any]:
    numbas = demo_kernels(numba.njit)
    for function, arguments in numbas:
        function(*arguments)
    with farm.Farm() as barn:
        ours = demo_kernels(lambda body=None, **options: farm.njit(body, farm=barn, **options))
        farm.compile_all([(function, signature(function, given)) for function, given in ours], raise_errors=True)
        stats = barn.stats()
    kernels = {mine[0].__name__: ratio(mine, theirs) for mine, theirs in zip(ours, numbas, strict=True)}
    worst = max(kernels, key=lambda name: kernels[name])
    return {
        "mean": statistics.geometric_mean(kernels.values()),
        "worst": kernels[worst],
        "worst_kernel": worst,
        "over_2_percent": sum(one > 1.02 for one in kernels.values()),
        "kernels": kernels,
        "compiled": stats.compiled,
        "loaded": stats.loaded,
        "local": stats.local,
    }


if __name__ == "__main__":
    print(json.dumps(main()))
