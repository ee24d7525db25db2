"""What is compiled: functions of our own making, the demo's kernels, and real packages.

A workload of functions is the same source for everybody: whoever compiles hands in a decorator and gets decorated
functions, each with arguments to call it with. A workload of a package is what a user's program does: import it, and
call it once. Arguments come from fixed seeds, so that results can be compared.
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np

TOOLS: Final = Path(__file__).parent.parent.parent / "tools"
SEED: Final = 20_250_101

Decorator = Callable[..., Any]
Call = tuple[Any, tuple[Any, ...]]
"""A decorated function and what it is called with."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload.

    Parameters
    ----------
    functions
        Decorates the functions and gives their calls; None for a package. Its directory is where `source` lies.
    source
        The text of the module that holds the functions, if it is made and not lying about.
    package, call
        What is imported, and what is then called once and gives a result; None for the import alone.
    bound_s
        A run that takes longer is ended. A guess: five times what plain numba takes on two busy cores.
    """

    name: str
    about: str
    functions: "Callable[[Decorator], list[Call]] | None" = None
    source: Callable[[], str] | None = None
    package: str | None = None
    call: Callable[[], Any] | None = None
    bound_s: float = 300.0

    def missing(self) -> str | None:
        """Why it cannot be done here, or None."""
        if self.package is not None and importlib.util.find_spec(self.package) is None:
            return f"{self.package} is not installed: pip install -e '.[bench]'"
        return None

    def write(self, directory: Path) -> None:
        """Put the made module there: once for all runs, as numba's own cache looks at a file's date."""
        if self.source is not None:
            (directory / f"{module_name(self.name)}.py").write_text(self.source())


def module_name(name: str) -> str:
    """The module that a made workload is in."""
    return f"made_{name}"


def digest(value: object) -> str:
    """What a result is compared by: equal for the same values to the last bit."""
    hashed = hashlib.sha256()
    for part in _parts(value):
        hashed.update(part)
    return hashed.hexdigest()[:16]


def _parts(value: Any) -> Iterable[bytes]:
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            yield from _parts(value.tolist())
        else:
            yield f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes()
    elif isinstance(value, dict) or type(value).__name__ == "Dict":
        yield from _parts(sorted((repr(key), value[key]) for key in value))
    elif isinstance(value, (list, tuple)) or type(value).__name__ == "List":
        yield f"{len(value)}".encode()
        for one in value:
            yield from _parts(one)
    else:
        yield repr(value).encode()


# -- functions of our own making --------------------------------------------------------------------------

HEAD: Final = "import numpy as np\n\n"
SORTED: Final = '''
def sorted_{n}(x, w):
    """Sorts, and asks for the middle and the spread."""
    y = np.sort(x) * {n}.5
    total = np.median(y) + np.std(w) * {k}.0
    for i in range(y.size):
        if i % {k} == 0:
            total += y[i] * w[i]
        else:
            total -= {n}.25
    return total
'''
SMALL: Final = '''
def small_{n}(x, w):
    """A loop and nothing else."""
    total = {n}.0
    for i in range(x.size):
        if i % {k} == 0:
            total += x[i] * w
        else:
            total -= {n}.5 * x[i]
    return total
'''
LIBRARY: Final = '''
def ordered(x):
    """Sorting and what rests on it."""
    y = np.sort(x)
    return np.median(y) + np.percentile(y, 30.0) + np.unique(y).size


def binned(x):
    """A histogram of arrays."""
    counts, edges = np.histogram(x, 12)
    return (counts * counts).sum() + edges[3] + np.median(x)


def grouped(x):
    """A dictionary that grows."""
    found = {}
    for i in range(x.size):
        key = int(x[i] * 10.0)
        if key in found:
            found[key] += x[i]
        else:
            found[key] = x[i]
    total = 0.0
    keys = list(found.keys())
    keys.sort()
    for key in keys:
        total += found[key] * key
    return total


def listed(x):
    """A list that grows, is sorted and reversed."""
    kept = [0.5]
    for i in range(x.size):
        if x[i] > 0.5:
            kept.append(x[i])
    kept.sort()
    kept.reverse()
    return kept[0] - kept[len(kept) // 2] + np.percentile(x, 70.0)
'''


def sorted_source(number: int = 24) -> str:
    """Distinct functions that all sort, and take a median and a standard deviation."""
    return HEAD + "\n".join(SORTED.format(n=n, k=n % 7 + 2) for n in range(1, number + 1))


def small_source(number: int = 40, first: int = 1) -> str:
    """Distinct functions that use nothing of numba's library, counted from `first`."""
    return HEAD + "\n".join(SMALL.format(n=n, k=n % 7 + 2) for n in range(first, first + number))


def library_source() -> str:
    """Four functions that use much of it."""
    return HEAD + LIBRARY


def made(name: str, *arguments: Any) -> Callable[[Decorator], list[Call]]:
    """Decorates every function of the made module, which lies on `sys.path`."""

    def functions(decorator: Decorator) -> list[Call]:
        module = importlib.import_module(module_name(name))
        return [(decorator(body), arguments) for body in _functions_of(module)]

    return functions


def _functions_of(module: ModuleType) -> list[Any]:
    return [one for one in vars(module).values() if getattr(one, "__module__", None) == module.__name__]


def floats(number: int) -> np.ndarray[Any, Any]:
    """Numbers from 0 to 1."""
    return np.random.default_rng(SEED).random(number)


# -- the demo's kernels --------------------------------------------------------------------------------------


def demo_kernels(decorator: Decorator) -> list[Call]:
    """Every kernel of the demo; options of a kernel's own decoration are kept."""
    if str(TOOLS) not in sys.path:
        sys.path.append(str(TOOLS))
    for name in ("demo_kernels", "demo_data_kernels"):  # decorated anew, if it was before
        sys.modules.pop(name, None)
    importlib.import_module("demo_compiler").use(decorator)
    kernels = [
        kernel for name in ("demo_kernels", "demo_data_kernels") for kernel in importlib.import_module(name).KERNELS
    ]
    random = np.random.default_rng(SEED)
    return [(kernel.function, _with_defaults(kernel.function, kernel.make_batch(random))) for kernel in kernels]


def _with_defaults(function: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Every argument spelt out, so that their types are a signature."""
    bound = inspect.signature(function.py_func).bind(*arguments)
    bound.apply_defaults()
    return bound.args


# -- real packages ----------------------------------------------------------------------------------------------


def _stumpy() -> Any:
    import stumpy

    return stumpy.stump(floats(400), 32)


def _celltree() -> Any:
    from numba_celltree import CellTree2d

    along = 24
    places = np.linspace(0.0, 1.0, along + 1)
    x, y = np.meshgrid(places, places)
    row, column = np.divmod(np.arange(along * along), along)
    corner = row * (along + 1) + column
    lower = np.stack([corner, corner + 1, corner + along + 2], axis=1)
    upper = np.stack([corner, corner + along + 2, corner + along + 1], axis=1)
    tree = CellTree2d(np.stack([x.ravel(), y.ravel()], axis=1), np.concatenate([lower, upper]), fill_value=-1)
    return tree.locate_points(np.random.default_rng(SEED).random((50, 2)))


def _sparse() -> Any:
    import sparse

    dense = floats(900).reshape(30, 30)
    left = sparse.GCXS.from_numpy(np.where(dense > 0.7, dense, 0.0))
    return (left @ left).todense()


def _quantecon() -> Any:
    import quantecon.game_theory as games

    payoffs = floats(18).reshape(2, 3, 3)
    return games.lemke_howson(games.NormalFormGame([games.Player(payoffs[0]), games.Player(payoffs[1])]))


def _workloads() -> list[Workload]:
    wave = floats(200), floats(200)[::-1].copy()
    return [
        Workload(
            "library4",
            "4 functions with sort, median, percentile, unique, histogram, dict and list",
            made("library4", wave[0]),
            library_source,
        ),
        Workload("sorted24", "24 functions with sort, median and std", made("sorted24", *wave), sorted_source),
        Workload("small40", "40 functions of loops", made("small40", wave[0], 1.5), small_source),
        Workload("demo", "the demo's 24 kernels", demo_kernels),
        Workload("stumpy", "stumpy: import, and one matrix profile", package="stumpy", call=_stumpy),
        Workload("celltree", "numba-celltree: import, and the first query", package="numba_celltree", call=_celltree),
        Workload("sparse", "sparse: import, and one product of matrices", package="sparse", call=_sparse),
        Workload("quantecon", "quantecon: import, and one lemke_howson", package="quantecon", call=_quantecon),
        Workload("pymatting", "pymatting: import, with its explicit signatures", package="pymatting"),
        Workload("tsdate", "tsdate: import, with its explicit signatures", package="tsdate"),
        Workload(
            "tiny",
            "2 functions of loops: to try the bench out",
            made("tiny", *wave),
            lambda: HEAD + "\n".join(SMALL.format(n=n, k=n).replace("* w", "* w[i]") for n in (2, 3)),
        ),
    ]


WORKLOADS: Final = {one.name: one for one in _workloads()}
QUICK: Final = ("tiny",)
"""For trying the bench out; left out of a whole run."""
