"""What the demo shows: a live table on a terminal, plain lines anywhere else, and the comparison at the end."""

import os
import time
from collections.abc import Sequence
from typing import Final, Protocol

from demo_report import Progress, Report, Row
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

PLAIN_WIDTH: Final = 110
AROUND_THE_ROWS: Final = 6  # lines of a live table that are not rows: title, borders, header, the last line
DONE: Final = ("machine code", "loaded", "compiled here")
STYLES: Final = {
    "machine code": "green",
    "loaded": "green",
    "compiled here": "yellow",
    "compiling": "cyan",
    "failed": "red",
}


class View(Protocol):
    """Shows one run while it goes on."""

    def start(self, title: str) -> None:
        """A run begins."""

    def show(self, progress: Progress) -> None:
        """It got this far."""

    def stop(self) -> None:
        """It has ended."""


def make_console(*, plain: bool) -> Console:
    """Where everything is printed."""
    return Console(width=PLAIN_WIDTH, no_color=True, highlight=False) if plain else Console(highlight=False)


def new_table(console: Console, title: str) -> Table:
    """A table that fits into 80 columns; a rule under its headings on a terminal, and none elsewhere."""
    return Table(
        title=title,
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD if console.is_terminal else None,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )


def function_table(console: Console, title: str, progress: Progress, rows_max: int | None = None) -> Table:
    """One line per function. If they do not fit, those that are done make room for the others."""
    table = new_table(console, title)
    table.add_column("kernel", no_wrap=True)
    table.add_column("state", no_wrap=True, min_width=14)
    headings = ("fallback\ncalls", "swit-\nched", "wait-\ned", "compiled\ncalls", "compile\nseconds", "worker\n")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    shown = fitting(progress.rows, rows_max)
    for row in shown:
        table.add_row(
            row.name,
            row.state,
            f"{row.fallback_calls:,}",
            str(row.switched),
            str(row.waited),
            f"{row.compiled_calls:,}",
            f"{row.compile_s:.2f}" if row.compile_s else "-",
            "-" if row.worker is None else str(row.worker),
            style=STYLES.get(row.state) if console.is_terminal else None,
        )
    hidden = len(progress.rows) - len(shown)
    table.caption = (
        f"{progress.elapsed_s:.1f} s, {progress.steps:,} steps, longest {1e3 * progress.longest_step_s:.0f} ms"
        + (f"; {hidden} more that are done" if hidden else "")
    )
    return table


def fitting(rows: Sequence[Row], rows_max: int | None) -> list[Row]:
    """At most `rows_max` rows in their order, those that are not done before those that are."""
    if rows_max is None or len(rows) <= rows_max:
        return list(rows)
    places = sorted(range(len(rows)), key=lambda i: (rows[i].state in DONE, i))[: max(rows_max, 1)]
    return [rows[i] for i in sorted(places)]


class LiveView:
    """The table on a terminal, redrawn in place, and printed whole once the run has ended."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._title = ""
        self._last: Progress | None = None
        self._live: Live | None = None

    def start(self, title: str) -> None:
        """A run begins."""
        self._title, self._last = title, None
        self._live = Live(console=self.console, auto_refresh=False, transient=True)
        self._live.start()

    def show(self, progress: Progress) -> None:
        """It got this far."""
        self._last = progress
        if self._live is not None:
            rows_max = self.console.height - AROUND_THE_ROWS
            self._live.update(function_table(self.console, self._title, progress, rows_max), refresh=True)

    def stop(self) -> None:
        """It has ended."""
        if self._live is not None:
            self._live.stop()
        if self._last is not None:
            self.console.print(function_table(self.console, self._title, self._last))


class PlainView:
    """A line when a run begins, one every few seconds, and the table once it has ended."""

    EVERY_S: Final = 5.0

    def __init__(self, console: Console) -> None:
        self.console = console
        self._title = ""
        self._last: Progress | None = None
        self._shown_s = 0.0

    def start(self, title: str) -> None:
        """A run begins."""
        self._title, self._last, self._shown_s = title, None, time.monotonic()
        self.console.print(f"{title} ...", soft_wrap=True)

    def show(self, progress: Progress) -> None:
        """It got this far."""
        self._last = progress
        if time.monotonic() - self._shown_s > self.EVERY_S:
            self._shown_s = time.monotonic()
            done = sum(row.state in DONE for row in progress.rows)
            self.console.print(
                f"  {progress.elapsed_s:5.1f} s  {progress.steps} steps, {done} of {len(progress.rows)} run machine "
                f"code, longest step {1e3 * progress.longest_step_s:.0f} ms",
                soft_wrap=True,
            )

    def stop(self) -> None:
        """It has ended."""
        if self._last is not None:
            self.console.print(function_table(self.console, self._title, self._last))
            self.console.print()


def comparison_table(console: Console, title: str, reports: Sequence[tuple[str, Report]]) -> Table:
    """The runs side by side, in seconds: longest step, until every first result, until all is machine code."""
    table = new_table(console, title)
    table.add_column("run", no_wrap=True)
    for heading in ("longest\nstep", "first\nresults", "machine\ncode", "com-\npiled", "loaded\n", "local\n"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("Python\ncalls", "swit-\nched", "wait-\ned"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, report in reports:
        machine_code_s = report.all_machine_code_s
        table.add_row(
            name,
            f"{report.longest_step_s:.3f}",
            f"{report.all_results_s:.2f}",
            "never" if machine_code_s is None else f"{machine_code_s:.2f}",
            str(report.compiled),
            str(report.loaded),
            str(report.local),
            f"{report.fallback_calls:,}",
            str(report.switched),
            str(report.waited),
        )
    return table


def load_line() -> str:
    """How busy the machine is: the figures depend on it."""
    return f"{os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f}"
