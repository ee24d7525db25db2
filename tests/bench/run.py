"""The bench: everything that the farm is measured against, side by side in one run.

    make bench WHAT="--only sorted24 --rounds 3"

Prints a line for each thing measured, then a table for each workload and the targets. Writes `bench.json` for machines
and `bench.html`, one file with charts, after each measurement: all of it is there when it is interrupted. Each is a
process of its own with its own cache; contestants take turns, in reversed order in every other round.
The exit code is 0 if all was measured, 1 if something failed or gave a wrong result, 2 for wrong usage.
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import choice
import llvmlite
import numba
import numpy
import sheet
from contestant import CONTESTANTS
from measuring import Failed, Measuring
from results import Results
from sections import SECTIONS, benches, run_bench
from wanted import look
from workload import WORKLOADS

ROOT: Final = Path(__file__).parent.parent.parent
ROUNDS: Final = 5
Step = tuple[str, Callable[[], str]]
"""What it is called, and what does it and says how it went."""


@dataclass(slots=True)
class Bench:
    """One run of the bench."""

    chosen: choice.Choice
    rounds: int
    runner: Measuring
    results: Results = field(default_factory=Results)
    failed: int = 0

    def steps(self, number: int) -> Iterator[Step]:
        """What is measured in one round, in its order."""
        pairs = list(self.chosen.pairs)
        if number % 2:  # the machine slows down and speeds up, and whoever is last must not always meet the same
            order = {name: place for place, name in enumerate(WORKLOADS)}
            pairs.sort(key=lambda pair: (order[pair[0]], -list(CONTESTANTS).index(pair[1])))
        for workload, contestant in pairs:
            cell = self.results.cell(workload, contestant)
            cell.cannot = CONTESTANTS[contestant].cannot(WORKLOADS[workload])
            if cell.cannot is None:
                yield f"{workload}, {contestant}", lambda one=workload, other=contestant: self._pair(one, other)
        for section in self.chosen.sections:
            yield section, lambda name=section: self._section(name)
        for bench in self.chosen.benches if number == 0 else ():
            yield f"bench_{bench}", lambda name=bench: self._bench(name)

    def _pair(self, workload: str, contestant: str) -> str:
        runs = self.results.cell(workload, contestant).runs
        try:
            runs.append(self.runner.run(CONTESTANTS[contestant], WORKLOADS[workload]))
        except Failed as problem:
            runs.append(str(problem))
            raise
        run = runs[-1]
        return run if isinstance(run, str) else f"{run['ready_s']:.2f} s"

    def _section(self, name: str) -> str:
        runs = self.results.sections.setdefault(name, [])
        try:
            runs.append(SECTIONS[name].measure(self.runner))
        except Failed as problem:
            runs.append(str(problem))
            raise
        return "done"

    def _bench(self, name: str) -> str:
        try:
            self.results.texts[name] = run_bench(benches()[name])
        except Failed as problem:
            self.results.texts[name] = str(problem)
            raise
        return "done"

    def run(self, tell: Callable[[str], None], write: Callable[[], None]) -> None:
        """All rounds."""
        started = time.monotonic()
        for number in range(self.rounds):
            steps = list(self.steps(number))
            for place, (name, act) in enumerate(steps, start=1):
                try:
                    said = act()
                except Failed as problem:
                    said = f"FAILED: {problem}"
                    self.failed += 1
                minutes = (time.monotonic() - started) / 60
                where = f"round {number + 1} of {self.rounds}, {place} of {len(steps)}, {minutes:.1f} min"
                tell(f"{where}: {name}: {said}")
                write()


def about(rounds: int) -> dict[str, object]:
    """What the figures hold for."""
    return {
        "rounds": rounds,
        "Python": platform.python_version(),
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "numpy": numpy.__version__,
        "system": platform.platform(),
        "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load at the start": round(os.getloadavg()[0], 1),
        "at": time.strftime("%Y-%m-%d %H:%M"),
    }


def show_names() -> None:
    """Every name that a word may choose."""
    for title, known in (
        ("workloads", {name: one.about for name, one in WORKLOADS.items()}),
        ("contestants", {name: one.about for name, one in CONTESTANTS.items()}),
        ("sections", {name: one.about for name, one in SECTIONS.items()}),
        ("benches", {name: path.name for name, path in benches().items()}),
    ):
        print(title)
        for name, told in known.items():
            print(f"  {name:<14} {told}")


def parse(words: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*", help="the same as --only")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="names, or parts of them; see --list")
    parser.add_argument("--rounds", type=int, help=f"how often each is measured (default: {ROUNDS}; quick: 1)")
    parser.add_argument("--quick", action="store_true", help="one round of little things, in about a minute")
    parser.add_argument("--list", action="store_true", help="show the names and do nothing")
    parser.add_argument("--profile", action="store_true", help="also keep a profile of each program, in bench.json")
    parser.add_argument("--out", type=Path, default=ROOT / "build", metavar="DIRECTORY", help="where the results go")
    options = parser.parse_args(words)
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds must be 1 or more")
    if options.quick and (options.only or options.words):
        parser.error("--quick chooses by itself: leave out --only")
    return options


def main(words: list[str]) -> int:
    """The exit code."""
    options = parse(words)
    if options.list:
        show_names()
        return 0
    try:
        chosen = choice.quick() if options.quick else choice.chosen([*options.words, *options.only])
    except choice.UnknownWord as problem:
        print(problem, file=sys.stderr)
        return 2
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    with tempfile.TemporaryDirectory(prefix="farm-bench-") as directory:
        bench = Bench(chosen, rounds, Measuring(Path(directory), options.profile), Results(about(rounds)))

        def write() -> None:
            options.out.mkdir(parents=True, exist_ok=True)
            targets = look(bench.results)
            (options.out / "bench.json").write_text(bench.results.as_json([one.told() for one in targets]))
            (options.out / "bench.html").write_text(sheet.page(bench.results, targets))

        bench.run(lambda line: print(line, file=sys.stderr, flush=True), write)
    print(*sheet.lines(bench.results, look(bench.results)), sep="\n")
    print(f"\n{options.out / 'bench.json'}\n{options.out / 'bench.html'}")
    return 1 if bench.failed or bench.results.wrong() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
