"""The functions whose first call is measured, and what they are called with: see bench_first_calls.

Each is one kind of thing that programs give to numba, light or heavy. They are decorated with whatever
`demo_compiler.use` was told before this module is imported, as the demo's kernels are: those are here too, and
libraries that are decorated by `farm.enable()` instead.

Where it can be had, a function gives the same bits in Python and as machine code: whole numbers stay below 2**63,
and of floating point there is what IEEE 754 rounds in one way only.
"""

import sys
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import demo_data_kernels
import demo_kernels
import first_calls_data
import first_calls_numbers
from demo_compiler import Kernel
from first_calls_case import CASES as OWN
from first_calls_case import Case, Random

_MODULES: Final = (first_calls_numbers, first_calls_data)
"""What fills the list."""


# -- libraries -----------------------------------------------------------------------------------------


def _stump() -> Any:
    import stumpy

    return stumpy.stump, lambda random: (random.random(800), 50)


def _rolling() -> Any:
    import stumpy

    return stumpy.core.rolling_nanstd, lambda random: (random.random(20_000), 50)


def _simplex() -> Any:
    from quantecon.optimize import linprog_simplex

    def make(random: Random) -> tuple[Any, ...]:
        return random.random(30), random.random((40, 30)), 10.0 + random.random(40)

    return linprog_simplex, make


def _tauchen() -> Any:
    from quantecon.markov import tauchen

    def stationary(n: int, rho: float, sigma: float) -> Any:
        chain = tauchen(n, rho, sigma)
        return chain.P, chain.stationary_distributions

    return stationary, lambda random: (60, 0.9, 0.1)


def _lemke() -> Any:
    from quantecon.game_theory import lemke_howson, random_game

    return lemke_howson, lambda random: (random_game((40, 40), random_state=3),)


def _celltree() -> Any:
    from demo_celltree import triangles
    from numba_celltree import CellTree2d

    def locate(vertices: Any, faces: Any, points: Any) -> Any:
        return CellTree2d(vertices, faces, fill_value=-1).locate_points(points)

    return locate, lambda random: (*triangles(random, 30), random.uniform(-0.05, 1.05, (250, 2)))


def _kernel(kernel: Kernel) -> Case:
    return Case(kernel.name, "the demo's", lambda: (kernel.function, kernel.make_batch))


CASES: Final = (
    *OWN,
    *(_kernel(one) for one in (*demo_kernels.KERNELS, *demo_data_kernels.KERNELS)),
    Case("celltree.locate_points", "numba-celltree", _celltree, "numba_celltree"),
    Case("stumpy.stump", "stumpy", _stump, "stumpy"),
    Case("stumpy.rolling_nanstd", "stumpy", _rolling, "stumpy"),
    Case("quantecon.linprog_simplex", "quantecon", _simplex, "quantecon"),
    Case("quantecon.tauchen", "quantecon", _tauchen, "quantecon"),
    Case("quantecon.lemke_howson", "quantecon", _lemke, "quantecon"),
)
