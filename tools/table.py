"""Tables and progress: through rich on a terminal; elsewhere plain aligned lines that are never cut."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

T = TypeVar("T")
LINE_EVERY: Final = 10_000
"""So many of a thing that is done by the thousand are one line, where no terminal shows a bar."""
SHOWN_FROM: Final = 2000
"""Fewer are done before anybody asks how far it is: 0.2 s."""


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: frozenset[str] = frozenset()) -> None:
    """Print rows below their headings; columns named in `right` are aligned to the right."""
    found = [[*row] for row in rows]
    console = Console(highlight=False)
    if console.is_terminal:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for name in headings:
            table.add_column(name, justify="right" if name in right else "left", overflow="fold")
        for row in found:
            table.add_row(*map(Text, row))
        console.print(table)
        return
    lines = [[*headings], *found]
    widths = [max(len(line[at]) for line in lines) for at in range(len(headings))]
    for line in lines:
        cells = (
            text.rjust(width) if name in right else text.ljust(width)
            for name, text, width in zip(headings, line, widths, strict=True)
        )
        click.echo("  ".join(cells).rstrip())


def print_json(document: Any) -> None:
    """Print one JSON document, and nothing else."""
    click.echo(json.dumps(document, indent=2, sort_keys=True))


@contextmanager
def progress(what: str, total: int, every: int = LINE_EVERY) -> Iterator["Progress"]:
    """How far something is, on standard error: a bar on a terminal, else a line for each `every` that are done."""
    console = Console(stderr=True)
    if total < min(SHOWN_FROM, every):
        yield Progress()
    elif console.is_terminal:
        from rich.progress import Progress as Bar

        with Bar(console=console, transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield Progress(lambda done: bar.update(task, completed=done))
    else:

        def line(done: int) -> None:
            if done % every == 0 or done == total:
                click.echo(f"{what}: {done} of {total}", err=True)
                sys.stderr.flush()

        yield Progress(line)


class Progress:
    """Counts what is done."""

    def __init__(self, show: Any = None) -> None:
        self._show = show
        self.done = 0

    def of(self, things: Iterable[T]) -> Iterator[T]:
        """The things, each counted when the next one is asked for."""
        for one in things:
            yield one
            self.step()

    def step(self) -> None:
        """One more is done."""
        self.done += 1
        if self._show is not None:
            self._show(self.done)
