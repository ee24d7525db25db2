"""Sheet: what was measured as one HTML file that needs nothing else, and as plain lines for a terminal.

The page has the look of the farm's other page, no script at all, and forbids itself to load anything.
"""

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from typing import Any, Final

from contestant import CONTESTANTS
from results import Cell, Results, Spread
from svg import Bar, bars
from wanted import Found
from workload import WORKLOADS

from farm.observe.page import read_template

STYLE: Final = """
tbody th { white-space: nowrap; }
.chart { width: 100%; max-width: 1100px; height: auto; font-size: 14px; }
.chart text { fill: var(--text); font-variant-numeric: tabular-nums; }
.chart text.dim { fill: var(--dim); }
.chart .plain { fill: var(--dim); } .chart .kept { fill: #2e8b57; } .chart .missed { fill: #c0392b; }
.chart .spread { stroke: var(--text); stroke-width: 1.5; fill: none; }
.chart .mark { stroke: var(--focus); stroke-width: 3; }
pre { background: var(--panel); padding: 8px 12px; border-radius: 6px; overflow-x: auto; font-size: .85rem; }
.wrong { border: 2px solid #c0392b; border-radius: 6px; padding: 8px 12px; }
"""
MEASURES: Final = (("import_s", "import"), ("first_s", "first call"), ("ready_s", "machine code"))
HEADS: Final = ("target", "median (smallest to largest)", "", "in processor time")
LIST_MAX: Final = 90
WAYS: Final = {
    True: "reached",
    False: "missed",
    None: "not known",
}


def seconds(spread: Spread) -> str:
    """`9.31 s (9.12 to 9.80)`."""
    return f"{spread.median:.2f} s ({spread.low:.2f} to {spread.high:.2f})"


def figure(found: Found) -> str:
    """A row's figure in words."""
    if found.spread is None:
        return found.why
    unit = f" {found.wanted.unit}" if found.wanted.unit else ""
    digits = 1 if found.wanted.unit else 3
    spread = found.spread
    return f"{spread.median:.{digits}f}{unit} ({spread.low:.{digits}f} to {spread.high:.{digits}f})"


def _bound(found: Found) -> str:
    return f"{found.wanted.bound:g} {found.wanted.unit}".strip()


def _processor(found: Found) -> str:
    return "" if found.processor is None else f"{found.processor:.2f}"


def page(results: Results, targets: Sequence[Found]) -> str:
    """The whole page."""
    style = read_template().style + STYLE
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    about = ", ".join(f"{name} {value}" for name, value in results.about.items())
    body = [
        f"<header><h1>What compiling costs</h1><p class='meta'>{escape(about)}</p></header>",
        _wrong(results.wrong()),
        _targets(targets),
        *(_workload(name, row) for name, row in results.cells.items()),
        *(_section(name, runs) for name, runs in results.sections.items()),
        *(
            f"<section><h2>{escape(name)}</h2><pre>{escape(text)}</pre></section>"
            for name, text in results.texts.items()
        ),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>What compiling costs - farm bench</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def _wrong(sentences: Sequence[str]) -> str:
    if not sentences:
        return ""
    items = "".join(f"<li>{escape(one)}</li>" for one in sentences)
    return f'<section class="wrong"><h2>Wrong results</h2><ul>{items}</ul></section>'


def _targets(targets: Sequence[Found]) -> str:
    rows = [
        Bar(
            found.wanted.name,
            None if found.spread is None else found.spread.median / found.wanted.bound,
            0.0 if found.spread is None else found.spread.low / found.wanted.bound,
            0.0 if found.spread is None else found.spread.high / found.wanted.bound,
            figure(found),
            1.0,
            found.reached,
        )
        for found in targets
        if found.spread is not None
    ]
    cells = [
        (found.wanted.name, _bound(found), figure(found), WAYS[found.reached], _processor(found)) for found in targets
    ]
    return (
        '<section id="targets"><h2>Targets</h2>'
        "<p>A bar is a figure over its target: what ends left of the line has reached it.</p>"
        + bars("Figures over their targets", rows)
        + _table(("what", *HEADS), cells)
        + "</section>"
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>' + "".join(f"<td>{escape(one)}</td>" for one in row[1:]) + "</tr>"
        for row in rows
    )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Figures">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _label(contestant: str) -> str:
    known = CONTESTANTS.get(contestant)
    return contestant if known is None else known.about


def _workload(name: str, row: dict[str, Cell]) -> str:
    title = WORKLOADS[name].about if name in WORKLOADS else name
    drawn, cells = [], []
    for contestant, cell in row.items():
        spread = Spread.of(list(cell.values("ready_s").values()))
        if spread is None:
            drawn.append(Bar(_label(contestant), None, text=(cell.problem() or "not measured")[:LIST_MAX]))
        else:
            drawn.append(Bar(_label(contestant), spread.median, spread.low, spread.high, seconds(spread)))
        cells.append((_label(contestant), *_measures(cell), _used(cell), cell.problem() or ""))
    heads = ("compiled by", *(told for _, told in MEASURES), "processor", "")
    return f"<section><h2>{escape(title)}</h2>{bars(title, drawn)}{_table(heads, cells)}</section>"


def _measures(cell: Cell) -> list[str]:
    found = []
    for measure, _ in MEASURES:
        spread = Spread.of(list(cell.values(measure).values()))
        found.append("" if spread is None else seconds(spread))
    return found


def _used(cell: Cell) -> str:
    spread = Spread.of(list(cell.values("processor_s").values()))
    return "" if spread is None else f"{spread.median:.1f} s"


def _section(name: str, runs: Sequence[Any]) -> str:
    good = [run for run in runs if not isinstance(run, str)]
    told = [run for run in runs if isinstance(run, str)]
    rows = [(key, _values([run[key] for run in good])) for key in (good[0] if good else {})]
    text = "".join(f"<p>{escape(one)}</p>" for one in told)
    return f"<section><h2>{escape(name)}</h2>{_table(('figure', 'median (smallest to largest)'), rows)}{text}</section>"


def _values(values: Sequence[Any]) -> str:
    if all(isinstance(one, (int, float)) for one in values):
        spread = Spread.of([float(one) for one in values])
        return "" if spread is None else f"{spread.median:.4g} ({spread.low:.4g} to {spread.high:.4g})"
    if all(isinstance(one, dict) for one in values):
        return ", ".join(f"{key} {_values([one[key] for one in values if key in one])}" for key in values[0])
    return ", ".join(sorted({str(one) for one in values}))


def lines(results: Results, targets: Sequence[Found]) -> list[str]:
    """The same in plain aligned lines, which are never cut."""
    said: list[str] = []
    for name, row in results.cells.items():
        said += ["", WORKLOADS[name].about if name in WORKLOADS else name]
        table = [
            (_label(contestant), *_measures(cell), (cell.problem() or "")[:LIST_MAX])
            for contestant, cell in row.items()
        ]
        said += _aligned([("", *(told for _, told in MEASURES), ""), *table])
    for name, runs in results.sections.items():
        good = [run for run in runs if not isinstance(run, str)]
        said += ["", name, *(f"  {run}" for run in runs if isinstance(run, str))]
        said += _aligned([(key, _values([run[key] for run in good])) for key in (good[0] if good else {})])
    known = [one for one in targets if one.spread is not None or one.why != "not measured"]
    if known:
        said += ["", "Targets"]
        said += _aligned(
            [
                ("", *HEADS),
                *((one.wanted.name, _bound(one), figure(one), WAYS[one.reached], _processor(one)) for one in known),
            ]
        )
    return said + [f"WRONG: {one}" for one in results.wrong()]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
