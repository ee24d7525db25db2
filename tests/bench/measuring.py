"""Runs a contestant on a workload, in a fresh process and with a cache directory of its own.

What an earlier run left in its directory is copied for each later one, so that no run sees what its rivals wrote.
"""

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bounded import clean_environment, reason_in, run_bounded
from contestant import CONTESTANTS, Contestant, Kind, Stock
from workload import Workload

from farm.store.catalog import Entry, entries
from farm.store.disk import DiskStore

HERE: Final = Path(__file__).parent
REPORT: Final = "report.json"
LIBRARY_PACKAGES: Final = ("numba",)


class Failed(Exception):
    """A run that gave nothing, and why."""


@dataclass(slots=True)
class Measuring:
    """Runs in one directory, which holds the made sources and what earlier runs stored."""

    directory: Path
    profile: bool = False
    number: int = 0

    def run(self, contestant: Contestant, workload: Workload) -> dict[str, Any]:
        """The report of one run. Raises Failed."""
        with self.cache_for(contestant, workload) as cache:
            report = self._measure(contestant, workload, cache)
            self._keep(contestant, workload, cache)
            return report

    def sources(self, workload: Workload) -> Path:
        """Where the workload's made module lies: written once, since numba's own cache looks at its date."""
        place = self.directory / "sources" / workload.name
        if not place.is_dir():
            place.mkdir(parents=True)
            workload.write(place)
        return place

    def _measure(self, contestant: Contestant, workload: Workload, cache: Path) -> dict[str, Any]:
        answer = cache / REPORT
        order = {
            "workload": workload.name,
            "contestant": contestant.name,
            "sources": str(self.sources(workload)),
            "report": str(answer),
            "profile": self.profile,
        }
        command = [sys.executable, str(HERE / "measured.py"), json.dumps(order)]
        code, said = run_bounded(command, clean_environment() | contestant.environment(str(cache)), workload.bound_s)
        if code is None:
            raise Failed(f"did not end within {workload.bound_s:g} s")
        if not answer.exists():
            raise Failed(reason_in(said) or f"ended with exit code {code}")
        report: dict[str, Any] = json.loads(answer.read_text())
        return report

    @contextmanager
    def cache_for(self, contestant: Contestant, workload: Workload) -> Iterator[Path]:
        """A cache directory for one run, with what it may find there; gone afterwards. Raises Failed."""
        self.number += 1
        cache = self.directory / "runs" / f"{self.number}"
        try:
            if contestant.stock is Stock.EMPTY:
                cache.mkdir(parents=True)
            else:
                seed = self._seed(contestant.kind, workload)
                if not seed.is_dir():
                    self.run(filler_for(contestant), workload)
                shutil.copytree(seed, cache)  # dates included: numba's own cache compares them
                if contestant.stock is Stock.LIBRARY:
                    keep_library(cache / "farm")
            yield cache
        finally:
            shutil.rmtree(cache, ignore_errors=True)

    def _seed(self, kind: Kind, workload: Workload) -> Path:
        return self.directory / "seeds" / f"{workload.name}-{kind.value}"

    def _keep(self, contestant: Contestant, workload: Workload, cache: Path) -> None:
        """Keep what the first run on an empty store has stored."""
        seed = self._seed(contestant.kind, workload)
        if contestant.stock is Stock.EMPTY and not seed.exists():
            seed.parent.mkdir(exist_ok=True)
            (cache / REPORT).unlink()
            cache.rename(seed)


def filler_for(contestant: Contestant) -> Contestant:
    """Who fills the store that this one finds."""
    return next(one for one in CONTESTANTS.values() if one.kind is contestant.kind and one.stock is Stock.EMPTY)


def keep_library(root: Path) -> tuple[int, int]:
    """Remove from a store what is not numba's own; how many artifacts were kept, and how many removed."""
    places = DiskStore(root).places
    kept = removed = 0
    for entry in [] if places is None else list(entries(places)):
        if isinstance(entry, Entry) and entry.package not in LIBRARY_PACKAGES:
            places.entry(entry.key).unlink()
            removed += 1
        else:
            kept += 1
    return kept, removed
