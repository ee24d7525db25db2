"""What was measured: every run of every contestant on every workload, and what was measured besides, as plain values.

Ratios are taken within one round, and medians of those: the machine is another one an hour later. What a contestant
could not do is kept as a sentence, and so is a run that failed or gave another result than plain numba.
"""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

FORMAT: Final = 1
REFERENCE: Final = "numba"
Report = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with the smallest and the largest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread | None":
        """None for nothing."""
        return cls(statistics.median(values), min(values), max(values)) if values else None


@dataclass(slots=True)
class Cell:
    """One contestant on one workload: a report, or a sentence, for each round."""

    cannot: str | None = None
    runs: list[Report | str] = field(default_factory=list)

    def values(self, measure: str) -> dict[int, float]:
        """One measure by round, of the runs that gave it."""
        found = {}
        for number, run in enumerate(self.runs):
            value = None if isinstance(run, str) else measured(run, measure)
            if value is not None:
                found[number] = value
        return found

    def problem(self) -> str | None:
        """Why there are no figures, or fewer than rounds."""
        said = [run for run in self.runs if isinstance(run, str)]
        return self.cannot or (said[0] if said else None)


def measured(run: Report, measure: str) -> float | None:
    """A measure of one run. `call_s`: from the end of a package's import until all was machine code."""
    if measure == "call_s":
        return None if run["import_s"] is None else run["ready_s"] - run["import_s"]
    value = run.get(measure)
    return None if value is None else float(value)


@dataclass(slots=True)
class Results:
    """Everything, by the names of workloads and contestants; `sections` by name, a report or a sentence per round."""

    about: dict[str, Any] = field(default_factory=dict)
    cells: dict[str, dict[str, Cell]] = field(default_factory=dict)
    sections: dict[str, list[Report | str]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    """What the other benches printed."""

    def cell(self, workload: str, contestant: str) -> Cell:
        """Its cell, made if there is none."""
        return self.cells.setdefault(workload, {}).setdefault(contestant, Cell())

    def ratios(
        self, workload: str, ours: str, theirs: str, measure: str, their_measure: str | None = None
    ) -> list[float]:
        """Ours over theirs, of the rounds in which both gave a figure."""
        row = self.cells.get(workload, {})
        above = row.get(ours, Cell()).values(measure)
        below = row.get(theirs, Cell()).values(their_measure or measure)
        return [above[number] / below[number] for number in sorted(above.keys() & below.keys()) if below[number]]

    def section_values(self, section: str, measure: str) -> list[float]:
        """One figure of a section, by round."""
        return [float(run[measure]) for run in self.sections.get(section, []) if not isinstance(run, str)]

    def wrong(self) -> list[str]:
        """A sentence for each run whose result is not plain numba's."""
        found = []
        for workload, row in self.cells.items():
            right = {run["digest"] for run in row.get(REFERENCE, Cell()).runs if not isinstance(run, str)}
            for name, cell in row.items():
                others = {run["digest"] for run in cell.runs if not isinstance(run, str)}
                if right and not others <= right:
                    found.append(f"{name} gave another result than plain numba for {workload}")
                if len(right) > 1:
                    found.append(f"plain numba gave {len(right)} different results for {workload}")
                    break
        return found

    def as_json(self, targets: list[dict[str, Any]]) -> str:
        """For machines."""
        table = {
            workload: {name: {"cannot": cell.cannot, "runs": cell.runs} for name, cell in row.items()}
            for workload, row in self.cells.items()
        }
        told = {
            "format": FORMAT,
            "about": self.about,
            "targets": targets,
            "wrong": self.wrong(),
            "workloads": table,
            "sections": self.sections,
            "texts": self.texts,
        }
        return json.dumps(told, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Results":
        """What `as_json` wrote. Raises ValueError for another format."""
        told = json.loads(text)
        if told.get("format") != FORMAT:
            raise ValueError(f"a bench of format {told.get('format')}, and this reads {FORMAT}")
        cells = {
            workload: {name: Cell(one["cannot"], one["runs"]) for name, one in row.items()}
            for workload, row in told["workloads"].items()
        }
        return cls(told["about"], cells, told["sections"], told["texts"])
