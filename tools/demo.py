"""The demo: one loop with two dozen kernels, three times, each time in its own process; then a real library.

    (a) farm, empty store     calls run in Python while workers compile
    (b) farm, filled store    what (a) compiled is loaded
    (c) plain numba           every first call compiles, and the loop stands still

For each run: the longest step of the loop, the time until every kernel gave its first result, and the time
until all run machine code. Exit status 0 only if all runs reached machine code, computed the same results, and
(b) compiled nothing.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# The demo's modules are found beside this one, whether it runs as a script or as farm.tools.demo.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import click
from demo_report import Arrays, Progress, Report, differences, load_results
from demo_view import LiveView, PlainView, View, comparison_table, load_line, make_console
from rich.console import Console

HERE: Final = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Variant:
    """One of the runs that are compared."""

    letter: str
    name: str
    compiler: str
    expects_filled_store: bool = False

    @property
    def title(self) -> str:
        """What it is called in the tables."""
        return f"({self.letter}) {self.name}"


VARIANTS: Final = (
    Variant("a", "farm, empty store", "farm"),
    Variant("b", "farm, filled store", "farm", expects_filled_store=True),
    Variant("c", "plain numba", "numba"),
)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is run: a script, which takes the arguments that `demo_run.arguments` names."""

    name: str
    script: str
    more: tuple[str, ...] = ()
    goal: float | None = None
    """(a)'s longest step is to be at most one part in this many of (c)'s."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run's report and results."""

    variant: Variant
    report: Report
    results: Mapping[str, Arrays]


class RunFailed(Exception):
    """A run's process ended badly; its last words are the message."""


def perform(subject: Subject, variant: Variant, directory: Path, view: View, limit_s: float) -> Outcome:
    """Run one variant in its own process, showing how it goes. Raises RunFailed."""
    report, results, errors = (directory / f"{subject.name}-{variant.letter}.{end}" for end in ("json", "npz", "err"))
    command = [sys.executable, str(HERE / subject.script), "--compiler", variant.compiler]
    command += ["--report", str(report), "--results", str(results), "--limit-s", str(limit_s), *subject.more]
    # (b) finds what (a) left, and (c) nothing.
    command += ["--cache", str(directory / f"{subject.name}-{variant.compiler}")]
    view.start(f"{subject.name}: {variant.title}")
    with (
        errors.open("w") as error_file,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=error_file, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            for line in process.stdout:
                view.show(Progress.from_json(line))
        except BaseException:
            process.kill()
            raise
        finally:
            view.stop()
    if process.returncode != 0:
        last_lines = "\n".join(errors.read_text().splitlines()[-20:])
        raise RunFailed(f"{subject.name}: {variant.title} ended with status {process.returncode}\n{last_lines}")
    return Outcome(variant, Report.read(report), load_results(results))


def faults(outcomes: Sequence[Outcome]) -> list[str]:
    """What is wrong with the runs, in words; nothing if all is well."""
    found = []
    reference = outcomes[-1]
    for outcome in outcomes:
        title, report = outcome.variant.title, outcome.report
        if report.all_machine_code_s is None:
            found.append(f"{title} did not reach machine code for everything in its time")
        if report.compared == 0:
            found.append(f"{title} compared no results")
        found += [f"{title} disagrees with itself: {what}" for what in report.disagreements[:5]]
        if outcome is not reference:
            different = list(differences(outcome.results, reference.results))
            found += [f"{title} and {reference.variant.title} differ: {what}" for what in different[:5]]
        if outcome.variant.expects_filled_store and report.compiled + report.local:
            found.append(f"{title} compiled {report.compiled} in workers and {report.local} in its own process")
    return found


def conclude(console: Console, subject: Subject, outcomes: Sequence[Outcome]) -> bool:
    """Print the comparison of one subject's runs; whether all is well."""
    console.print()
    runs = [(outcome.variant.title, outcome.report) for outcome in outcomes]
    console.print(comparison_table(console, f"{subject.name}, compared; in seconds ({load_line()})", runs))
    for outcome in outcomes:
        report = outcome.report
        slow = f"{report.steps_over_100_ms} of {report.steps:,} steps over 100 ms"
        console.print(f"{outcome.variant.title}: longest step was {report.longest_step}; {slow}", soft_wrap=True)
        for note in report.notes:
            console.print(f"    {note}", soft_wrap=True)
    ratio = outcomes[-1].report.longest_step_s / outcomes[0].report.longest_step_s
    judged = "" if subject.goal is None else f"; wanted: at most 1/{subject.goal:g}"
    console.print(f"Longest step: (a)'s is 1/{ratio:.1f} of (c)'s{judged}.", soft_wrap=True)
    found = faults(outcomes)
    for fault in found:
        console.print(f"FAULT: {fault}", soft_wrap=True, markup=False)
    if not found:
        count = len(outcomes[0].results)
        within = sum(outcome.report.compared for outcome in outcomes)
        console.print(
            f"All runs computed the same: {count} results between the runs, {within:,} repeated steps within them; "
            f"(b) compiled nothing.",
            soft_wrap=True,
        )
    console.print()
    return not found


@click.command(help=__doc__.partition("\n\n")[0])
@click.option("--plain/--no-plain", default=None, help="Plain text; the default if the output is not a terminal.")
@click.option("--only", multiple=True, metavar="KERNEL", help="Run these kernels only, and not the library.")
@click.option("--limit-s", default=300.0, show_default=True, help="Seconds after which a run waits for its compiles.")
def main(plain: bool | None, only: tuple[str, ...], limit_s: float) -> None:
    """Run the demo."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that a run's process ends too
    plain = not sys.stdout.isatty() if plain is None else plain
    console = make_console(plain=plain)
    view: View = PlainView(console) if plain else LiveView(console)
    kernels = f"{len(only)} kernels" if only else "24 kernels"
    subjects = [Subject(kernels, "demo_run.py", ("--only", *only) if only else (), goal=10.0)]
    if not only:
        subjects.append(Subject("numba-celltree", "demo_celltree.py"))
    good = True
    with tempfile.TemporaryDirectory(prefix="farm-demo-") as name:
        for subject in subjects:
            try:
                outcomes = [perform(subject, variant, Path(name), view, limit_s) for variant in VARIANTS]
            except RunFailed as failure:
                console.print(str(failure), markup=False, soft_wrap=True)
                good = False
            else:
                good = conclude(console, subject, outcomes) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
