"""A table of texts: through rich on a terminal, else plain aligned lines that are never cut."""

from collections.abc import Iterable, Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_columns(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: frozenset[str] = frozenset()
) -> None:
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
