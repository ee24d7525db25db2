"""Charts as SVG: bars side by side, each with its spread and with what it is said to be. Nothing is loaded or run.

Colours are the page's own variables, so that a chart follows its light and dark scheme; each bar is told as text too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

LETTER: Final = 7.8
"""What a letter takes of 14 pixels, in the widest fonts that a browser may choose."""
WIDTH: Final = 1100
TEXT: Final = 250
STEP: Final = 28
BAR: Final = 16


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar. `value` None: there is none, and `text` says why. `mark`: where a bound lies."""

    label: str
    value: float | None
    low: float = 0.0
    high: float = 0.0
    text: str = ""
    mark: float | None = None
    good: bool | None = None
    """Whether it keeps its bound; None if there is none."""


def bars(title: str, rows: Sequence[Bar]) -> str:
    """Horizontal bars from zero, on one scale."""
    most = max((max(row.high, row.value or 0.0, row.mark or 0.0) for row in rows), default=0.0) or 1.0
    label = 16 + LETTER * max((len(row.label) for row in rows), default=0)
    scale = (WIDTH - label - TEXT) / most
    drawn = "".join(_row(row, number * STEP, label, scale) for number, row in enumerate(rows))
    return (
        f'<svg class="chart" role="img" viewBox="0 0 {WIDTH} {STEP * len(rows) + 4}" xmlns="http://www.w3.org/2000/svg">'
        f"<title>{escape(title)}</title>{drawn}</svg>"
    )


def _row(row: Bar, top: float, label: float, scale: float) -> str:
    middle, parts = top + STEP / 2, []
    parts.append(f'<text x="{label - 8:.1f}" y="{middle + 5:.1f}" text-anchor="end">{escape(row.label)}</text>')
    end = 0.0
    if row.value is not None:
        kind = {None: "plain", True: "kept", False: "missed"}[row.good]
        width = max(1.0, row.value * scale)
        parts.append(
            f'<rect class="{kind}" x="{label:.1f}" y="{middle - BAR / 2:.1f}" width="{width:.1f}"'
            f' height="{BAR}" rx="2"/>'
        )
        end = max(row.value, row.high) * scale
        if row.high > row.low:
            low, high = label + row.low * scale, label + row.high * scale
            parts.append(f'<path class="spread" d="M{low:.1f} {middle:.1f}H{high:.1f}"/>')
            parts += [f'<path class="spread" d="M{x:.1f} {middle - 4:.1f}V{middle + 4:.1f}"/>' for x in (low, high)]
    if row.mark is not None:
        x = label + row.mark * scale
        parts.append(f'<path class="mark" d="M{x:.1f} {top + 2:.1f}V{top + STEP - 2:.1f}"/>')
        end = max(end, row.mark * scale)
    dim = ' class="dim"' if row.value is None else ""
    parts.append(f'<text{dim} x="{label + end + 8:.1f}" y="{middle + 5:.1f}">{escape(row.text)}</text>')
    return "".join(parts)
