"""Printing: rows of a label and a text, plain when nobody looks, and sizes, times and paths as people write them.

A text is never cut: a terminal gets it folded in its column, a pipe or file gets it whole, on one line.
"""

from datetime import datetime
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

Row = tuple[str, str]

LABEL_WIDTH: Final = 10
"""The longest label, "quarantine"."""


def print_row(label: str, text: str, *, style: str = "bold") -> None:
    """Print a text with its label before it. `style` is rich's, for the label on a terminal."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.print(Text(f"{label:<{LABEL_WIDTH}}  {text}"), soft_wrap=True)
        return
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=LABEL_WIDTH)
    table.add_column(overflow="fold")
    table.add_row(Text(label, style), Text(text))
    console.print(table)


def size_text(size_bytes: int) -> str:
    """`1.5 MiB`: the units in which the setting cache_size_max_bytes is written."""
    if size_bytes < 1024:
        return f"{size_bytes} bytes"
    size = float(size_bytes)
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} TiB"


def count_text(number: int, noun: str) -> str:
    """`1 artifact`, `2 artifacts`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def time_text(seconds_since_epoch: float) -> str:
    """Local time to the minute."""
    return datetime.fromtimestamp(seconds_since_epoch).strftime("%Y-%m-%d %H:%M")


def path_text(path: Path) -> str:
    """A path that any output can show, also one whose bytes are no text."""
    return click.format_filename(path)
