"""What a call costs: compiled, against the same function under numba; pending, above the Python body.

Ratios and differences from one process, in alternating blocks, as medians: machines are shared and noisy.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

import farm
from farm.testing import InlinePool, MemoryStore

ROUNDS = 41
CALLS = 20_000


def scalar(a):
    return a + 1


def three_arrays(a, b, c):
    return a


def sums(a, b, c):
    total = 0.0
    for i in range(3):
        total += a[i] + b[i] + c[i]
    return total


def writes(a, b, c):
    for i in range(3):
        c[i] = a[i] + b[i]


def seconds(function: Callable[..., Any], arguments: tuple[Any, ...], calls: int = CALLS) -> float:
    """Seconds per call."""
    loop = range(calls)
    started = time.perf_counter()
    for _ in loop:
        function(*arguments)
    return (time.perf_counter() - started) / calls


def compiled_ratio(barn: farm.Farm, body: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    """Farm over numba, both compiled and past the farm's probation."""
    ours, numbas = farm.njit(body, farm=barn, mode="strict"), numba.njit(body)
    for _ in range(100):
        ours(*arguments), numbas(*arguments)
    ratios = []
    for number in range(ROUNDS):
        order = (ours, numbas) if number % 2 else (numbas, ours)
        spent = {one: seconds(one, arguments) for one in order}
        ratios.append(spent[ours] / spent[numbas])
    return statistics.median(ratios)


def pending_cost(body: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    """Seconds that a call costs above its body while its compile is pending."""
    with tempfile.TemporaryDirectory() as folder, farm.Farm(cache_dir=folder, workers=1) as barn:
        ours = farm.njit(body, farm=barn, fallback="python")
        ours(*arguments)
        differences = []
        while barn.requests.all() and len(differences) < ROUNDS:
            differences.append(seconds(ours, arguments, 2000) - seconds(body, arguments, 2000))
        if len(differences) < 5:
            raise SystemExit("the compile was over before five rounds were measured: try again")
        return statistics.median(differences)


def auto_above_python(body: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    """Seconds that a pending call costs more under fallback="auto" than under "python"; nothing compiles meanwhile."""
    with farm.Farm(pool=InlinePool(held=True), store=MemoryStore()) as barn:
        auto, python = (farm.njit(body, farm=barn, fallback=kind) for kind in ("auto", "python"))
        auto(*arguments), python(*arguments)
        differences = []
        for number in range(ROUNDS):
            order = (auto, python) if number % 2 else (python, auto)
            spent = {one: seconds(one, arguments, 5000) for one in order}
            differences.append(spent[auto] - spent[python])
        assert barn.pending_now == 2
        return statistics.median(differences)


def main() -> None:
    arrays = (np.zeros(3), np.zeros(3), np.zeros(3))
    with tempfile.TemporaryDirectory() as folder, farm.Farm(cache_dir=folder, workers=1) as barn:
        print(f"compiled call, scalar:         {compiled_ratio(barn, scalar, (1,)):.3f} of numba's (target 1.02)")
        print(
            f"compiled call, three arrays:   {compiled_ratio(barn, three_arrays, arrays):.3f} of numba's (target 1.02)"
        )
    print(f"pending call, scalar:          {pending_cost(scalar, (1,)) * 1e6:.2f} us above the body (target 1.5)")
    print(f"pending call, three arrays:    {pending_cost(three_arrays, arrays) * 1e6:.2f} us above the body (target 4)")
    for body, what in ((three_arrays, "without a loop"), (sums, "that sums"), (writes, "that writes")):
        above = auto_above_python(body, arrays) * 1e6
        print(f"auto against python, three arrays, a body {what}: {above:.2f} us more (target 3)")


if __name__ == "__main__":
    main()
