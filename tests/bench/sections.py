"""What is measured beside the workloads: sections, which give figures in each round, and benches, which print once."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bounded import clean_environment, reason_in, run_bounded
from contestant import CONTESTANTS
from measuring import Failed, Measuring
from workload import WORKLOADS

HERE: Final = Path(__file__).parent
BOUND_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Section:
    """A program that prints one JSON document. `stock`: whose cache directory it finds its artifacts in, if any."""

    name: str
    about: str
    command: tuple[str, ...]
    stock: tuple[str, str] | None = None
    """A contestant and a workload."""

    def measure(self, runner: Measuring) -> dict[str, Any]:
        """Run it. Raises Failed."""
        if self.stock is None:
            return self._run(clean_environment())
        contestant, workload = CONTESTANTS[self.stock[0]], WORKLOADS[self.stock[1]]
        with runner.cache_for(contestant, workload) as cache:
            return self._run(clean_environment() | contestant.environment(str(cache)))

    def _run(self, environment: dict[str, str]) -> dict[str, Any]:
        script, *more = self.command
        code, said = run_bounded([sys.executable, str(HERE / script), *more], environment, BOUND_S)
        if code is None:
            raise Failed(f"did not end within {BOUND_S:g} s")
        if code:
            raise Failed(reason_in(said))
        found: dict[str, Any] = json.loads(said.splitlines()[-1])
        return found


SECTIONS: Final = {
    one.name: one
    for one in (
        Section("load", "loading one artifact, beside numba's _rebuild", ("bench_load.py", "--json")),
        Section("memory", "private memory of workers", ("footprint.py",)),
        Section("pace", "running time of compiled code", ("pace.py",), ("farm-library", "demo")),
    )
}


def benches() -> dict[str, Path]:
    """The benches that print for people, by the name after `bench_`."""
    return {path.stem.partition("_")[2]: path for path in sorted(HERE.glob("bench_*.py"))}


def run_bench(path: Path) -> str:
    """What a bench printed. Raises Failed."""
    code, said = run_bounded([sys.executable, str(path)], clean_environment(), BOUND_S)
    if code is None:
        raise Failed(f"did not end within {BOUND_S:g} s")
    if code:
        raise Failed(f"{reason_in(said)} (exit code {code})")
    return said
