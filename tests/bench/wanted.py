"""What the farm must show: each row a ratio within one run, or a figure, and the bound that it must keep."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from results import Results, Spread


@dataclass(frozen=True, slots=True)
class Wanted:
    """One row. `workload` and `contestants`, or `section`, are what has to be measured for it."""

    name: str
    bound: float
    values: Callable[[Results], list[float]]
    workload: str | None = None
    contestants: tuple[str, ...] = ()
    section: str | None = None
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A row with what was measured; None if nothing was, for the reason `why`."""

    wanted: Wanted
    spread: Spread | None
    rounds: int
    why: str = ""
    processor: float | None = None
    """The same ratio in processor seconds, of all processes: what is worked, however the machine is shared."""

    @property
    def reached(self) -> bool | None:
        """None if it is not known."""
        return None if self.spread is None else self.spread.median <= self.wanted.bound

    def told(self) -> dict[str, Any]:
        """As plain values."""
        spread = self.spread
        return {
            "name": self.wanted.name,
            "target": self.wanted.bound,
            "unit": self.wanted.unit,
            "median": None if spread is None else spread.median,
            "low": None if spread is None else spread.low,
            "high": None if spread is None else spread.high,
            "rounds": self.rounds,
            "processor": self.processor,
            "reached": self.reached,
            "why_not": self.why,
        }


def _ratio(name: str, bound: float, workload: str, ours: str, theirs: str, measure: str, their: str = "") -> Wanted:
    return Wanted(
        name,
        bound,
        lambda results: results.ratios(workload, ours, theirs, measure, their or None),
        workload=workload,
        contestants=(ours, theirs),
    )


def _figure(name: str, bound: float, section: str, measure: str, unit: str = "") -> Wanted:
    return Wanted(name, bound, lambda results: results.section_values(section, measure), section=section, unit=unit)


WANTED: Final = (
    _ratio("4 functions, library stored, one worker, up: of numba", 0.2, "library4", "farm-up", "numba", "ready_s"),
    _ratio(
        "24 functions, library stored, start included: of numba", 0.5, "sorted24", "farm-library", "numba", "ready_s"
    ),
    _ratio("24 functions, empty store, start included: of numba", 0.8, "sorted24", "farm-empty", "numba", "ready_s"),
    _ratio("24 functions, empty store: of the home-made pool", 0.8, "sorted24", "farm-empty", "pool", "ready_s"),
    _ratio(
        "40 functions, full store, new process: of cache=True", 0.2, "small40", "farm-full", "cache-full", "ready_s"
    ),
    _figure("load of one artifact: of numba's _rebuild", 0.17, "load", "ratio"),
    _ratio("stumpy's stump, library stored: of numba", 0.62, "stumpy", "farm-library", "numba", "call_s"),
    _ratio("stumpy's stump, full store: of numba", 0.05, "stumpy", "farm-full", "numba", "call_s"),
    _ratio(
        "numba-celltree's first query, library stored: of numba", 0.7, "celltree", "farm-library", "numba", "call_s"
    ),
    _ratio("numba-celltree's first query, full store: of numba", 0.05, "celltree", "farm-full", "numba", "call_s"),
    _ratio("import pymatting, empty store: returns, of numba", 0.25, "pymatting", "farm-empty", "numba", "import_s"),
    _ratio(
        "import pymatting, empty store: compiled, of numba",
        0.6,
        "pymatting",
        "farm-empty",
        "numba",
        "ready_s",
        "import_s",
    ),
    _ratio("import tsdate, empty store: returns, of numba", 0.25, "tsdate", "farm-empty", "numba", "import_s"),
    _ratio(
        "import tsdate, empty store: compiled, of numba", 0.6, "tsdate", "farm-empty", "numba", "ready_s", "import_s"
    ),
    _figure("private memory of a fresh idle worker", 30.0, "memory", "idle_mb", "MB"),
    _figure("running time of the demo's kernels: of numba's code", 1.02, "pace", "mean"),
)


def look(results: Results) -> list[Found]:
    """Every row."""
    found = []
    for wanted in WANTED:
        values = wanted.values(results)
        why = "" if values else _why(wanted, results)
        found.append(Found(wanted, Spread.of(values), len(values), why, _processor(wanted, results)))
    return found


def _processor(wanted: Wanted, results: Results) -> float | None:
    if wanted.workload is None:
        return None
    spread = Spread.of(results.ratios(wanted.workload, *wanted.contestants, "processor_s"))
    return None if spread is None else spread.median


def _why(wanted: Wanted, results: Results) -> str:
    if wanted.section is not None:
        said = [run for run in results.sections.get(wanted.section, []) if isinstance(run, str)]
        return said[0] if said else "not measured"
    row = results.cells.get(wanted.workload or "", {})
    problems = [row[name].problem() for name in wanted.contestants if name in row]
    return next((one for one in problems if one), "not measured")
