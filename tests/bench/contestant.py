"""Who compiles: plain numba, numba's own cache, two pools of processes, and the farm on stores of three kinds.

Each is used as its own documentation shows. What one cannot do is told as a sentence, and not measured.
"""

import functools
import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from workload import Call, Workload


class Kind(Enum):
    """What does the compiling."""

    NUMBA = "numba"
    CACHED = "cached"
    POOL = "pool"
    LOKY = "loky"
    FARM = "farm"


class Stock(Enum):
    """What lies in the cache directory when a run begins; a copy of its own for each run."""

    EMPTY = "empty"
    LIBRARY = "library"
    """numba's own functions alone, as an earlier run of this workload left them."""
    FULL = "full"
    """Everything that an earlier run of this workload left."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to get machine code. `pool_up`: its workers run, and have compiled something, before the clock does."""

    name: str
    about: str
    kind: Kind
    stock: Stock = Stock.EMPTY
    workers: int = 2
    pool_up: bool = False

    def cannot(self, workload: Workload) -> str | None:
        """Why this one cannot do this workload, or None."""
        missing = workload.missing()
        if missing is not None:
            return missing
        if workload.package is not None:
            if self.kind in (Kind.POOL, Kind.LOKY):
                return "cannot: it wants a list of functions and types, which a package does not give before it has run"
            if self.pool_up:
                return "cannot: the pool would start in the middle of the import"
        if self.kind is Kind.LOKY and importlib.util.find_spec("loky") is None:
            return "loky is not installed: pip install -e '.[bench]'"
        return None

    def environment(self, cache: str) -> dict[str, str]:
        """Variables of a process that uses this cache directory."""
        given = {"NUMBA_CACHE_DIR": os.path.join(cache, "numba")}
        if self.kind is Kind.FARM:
            given |= {"FARM_CACHE_DIR": os.path.join(cache, "farm"), "FARM_WORKERS": str(self.workers)}
        return given


CONTESTANTS: Final = {
    one.name: one
    for one in (
        Contestant("numba", "plain numba", Kind.NUMBA),
        Contestant("cache-empty", "numba cache=True, first run", Kind.CACHED),
        Contestant("cache-full", "numba cache=True, later run", Kind.CACHED, Stock.FULL),
        Contestant("pool", "ProcessPoolExecutor, home-made", Kind.POOL),
        Contestant("loky", "the same on loky", Kind.LOKY),
        Contestant("farm-empty", "farm, empty store", Kind.FARM),
        Contestant("farm-library", "farm, numba's functions stored", Kind.FARM, Stock.LIBRARY),
        Contestant("farm-full", "farm, full store", Kind.FARM, Stock.FULL),
        Contestant("farm-up", "farm, numba's functions stored, one worker, up", Kind.FARM, Stock.LIBRARY, 1, True),
    )
}


@dataclass(slots=True)
class Run:
    """What one run gave. Seconds since the clock started: when `import numba` was done, or the pool was up."""

    results: list[Any]
    installed_s: float = 0.0
    """Everything was machine code; for who compiles in the call, when all were called."""
    ready_s: float = 0.0
    """And all were called once."""
    import_s: float | None = None
    """A package's import returned."""
    first_s: float | None = None
    """Its first call returned."""
    counted: dict[str, Any] | None = None
    """The farm's counters."""


class Clock:
    """Seconds since it was started."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.started = time.perf_counter()

    def __call__(self) -> float:
        return time.perf_counter() - self.started


Runner = Callable[[Contestant, Workload, Clock], Run]


def run_functions(contestant: Contestant, workload: Workload, clock: Clock) -> Run:
    """Have a workload's functions compiled, and call each once."""
    assert workload.functions is not None
    with _compiler(contestant, clock) as (decorator, compile_all, counted):
        calls = workload.functions(decorator)
        compile_all(workload, calls)
        run = Run([], installed_s=clock())
        run.results = [function(*arguments) for function, arguments in calls]
        run.ready_s = clock()
        run.counted = counted()
        return run


def run_package(contestant: Contestant, workload: Workload, clock: Clock) -> Run:
    """Import a package and call it, until all that it asked for is machine code."""
    assert workload.package is not None
    farm = None
    if contestant.kind is Kind.FARM:
        import farm

        farm.enable()
    elif contestant.kind is Kind.CACHED:
        _cache_everything()
    importlib.import_module(workload.package)
    run = Run([], import_s=clock())
    if workload.call is not None:
        run.results = [workload.call()]
        run.first_s = clock()
    if farm is not None:
        _until_machine_code(workload, farm, run)
        run.counted = _counters(farm.stats())
    run.installed_s = run.ready_s = clock()
    if farm is not None:
        farm.default_farm().close(0.0)
    return run


def _until_machine_code(workload: Workload, farm: Any, run: Run) -> None:
    """Wait; and call again, until a call asks for nothing new: the first one ran in Python what was not there."""
    before = -1
    while True:
        farm.wait()
        stats = farm.stats()
        settled = stats.compiled + stats.loaded + stats.local + stats.failed
        if settled == before or workload.call is None:
            return
        before = settled
        run.results[0] = workload.call()


def _cache_everything() -> None:
    import numba

    for name in ("jit", "njit"):
        own = getattr(numba, name)
        setattr(numba, name, functools.partial(_cached, own))


def _cached(own: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    return own(*arguments, **{**options, "cache": True})


Compiler = tuple[Callable[..., Any], Callable[[Workload, list[Call]], None], Callable[[], dict[str, Any] | None]]


@contextmanager
def _compiler(contestant: Contestant, clock: Clock) -> Iterator[Compiler]:
    """The decorator, what compiles everything before the first call, and what tells the counters."""
    if contestant.kind is Kind.FARM:
        with _farm(contestant, clock) as compiler:
            yield compiler
        return
    import numba

    if contestant.kind is Kind.CACHED:
        yield functools.partial(_cached, numba.njit), _in_the_call, _nothing
    elif contestant.kind is Kind.NUMBA:
        yield numba.njit, _in_the_call, _nothing
    else:
        import homemade

        with _executor(contestant) as executor:

            def compile_all(workload: Workload, calls: list[Call]) -> None:
                homemade.compile_with(executor, workload.name, calls)
                for function, _ in calls:
                    homemade.stop_compiling(function)

            yield numba.njit, compile_all, _nothing


def _in_the_call(workload: Workload, calls: list[Call]) -> None:
    """Nothing: the first call compiles."""


def _nothing() -> None:
    return None


@contextmanager
def _executor(contestant: Contestant) -> Iterator[Any]:
    if contestant.kind is Kind.LOKY:
        from loky import get_reusable_executor

        executor = get_reusable_executor(max_workers=contestant.workers)
        try:
            yield executor
        finally:
            executor.shutdown(wait=True)
    else:
        from concurrent.futures import ProcessPoolExecutor

        with ProcessPoolExecutor(contestant.workers) as executor:
            yield executor


@contextmanager
def _farm(contestant: Contestant, clock: Clock) -> Iterator[Compiler]:
    from homemade import signature

    import farm

    with farm.Farm() as barn:
        if contestant.pool_up:
            farm.njit(_nothing_much, farm=barn).submit("int64(int64)").result()
            clock.restart()

        def decorate(body: Any = None, **options: Any) -> Any:
            return farm.njit(body, farm=barn, **options)

        def compile_all(workload: Workload, calls: list[Call]) -> None:
            if contestant.stock is not Stock.FULL:  # then a call loads what it needs
                farm.compile_all(
                    [(function, signature(function, given)) for function, given in calls], raise_errors=True
                )

        yield decorate, compile_all, lambda: _counters(barn.stats())


def _nothing_much(x: int) -> int:
    return x + 1


def _counters(stats: Any) -> dict[str, Any]:
    counted = {
        name: getattr(stats, name)
        for name in ("compiled", "loaded", "local", "failed", "rejected", "fallback_calls", "compile_s", "load_s")
    }
    counted["misses"] = {reason.name: number for reason, number in stats.misses.items()}
    counted["degraded"] = {reason.name: number for reason, number in stats.degraded.items()}
    return counted
