"""Page: a timeline as one HTML file that needs nothing else, no network and no other file.

Guarantees: whatever a program calls its functions is shown as text. The page forbids itself to load anything, and to
run any script but its own, which is admitted by its digest.
"""

import base64
import hashlib
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any, Final

from farm.observe.stats import hit_rate
from farm.observe.timeline import Kind, Timeline, lanes_of
from farm.reasons import DegradedReason

FUNCTIONS_MAX: Final = 10
FALLBACKS_MAX: Final = 50
NOTES_MAX: Final = 100
_PLACE: Final = re.compile(r"@@([A-Z]+)@@")


@dataclass(frozen=True, slots=True)
class Template:
    """The page without its content, its style and its script."""

    page: str
    style: str
    script: str


def read_template() -> Template:
    """What lies beside this module. Read before it is needed: at the end of a program it is late for a surprise."""
    here = files("farm.observe")
    page, style, script = (here.joinpath(f"report.{kind}").read_text("utf-8") for kind in ("html", "css", "js"))
    return Template(page, style, script)


def page_of(timeline: Timeline, template: Template) -> str:
    """The whole page."""
    policy = (
        f"default-src 'none'; script-src '{_digest(template.script)}'; style-src '{_digest(template.style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    places = {
        "POLICY": policy,
        "STYLE": template.style,
        "SCRIPT": template.script,
        "DATA": _json(data_of(timeline)),
        "TITLE": escape(timeline.program),
        "META": escape(_meta(timeline)),
        "TILES": _tiles(timeline),
        "FUNCTIONS": _functions(timeline),
        "FALLBACKS": _fallbacks(timeline),
        "COUNTERS": _counters(timeline),
        "DEGRADED": _degraded(timeline),
        "NOTES": _notes(timeline),
    }
    # In one go: what is put in is not looked at again.
    text = _PLACE.sub(lambda place: places[place[1]], template.page)
    return text.encode("utf-8", "replace").decode("utf-8")


def data_of(timeline: Timeline) -> dict[str, Any]:
    """What the page's script draws. A span is [lane, kind, begin, length, name, queued or null, detail]."""
    kinds, lanes = list(Kind), lanes_of(timeline.spans)
    names: dict[str, int] = {}
    return {
        "length": timeline.length_s,
        "kinds": [[kind.name, kind.value] for kind in kinds],
        "lanes": [[lane.group, lane.number] for lane in lanes],
        "spans": [
            [
                number,
                kinds.index(span.kind),
                round(span.began_s, 6),
                round(span.ended_s - span.began_s, 6),
                names.setdefault(span.name, len(names)),
                None if span.queued_s is None else round(span.queued_s, 6),
                span.detail[:1000],
            ]
            for number, lane in enumerate(lanes)
            for span in lane.spans
        ],
        "names": list(names),
    }


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json(value: object) -> str:
    """As a script element may hold it: nothing in it ends the element."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _meta(timeline: Timeline) -> str:
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(timeline.began_at))
    text = (
        f"process {timeline.pid}, Python {timeline.python}, recorded for {seconds_text(timeline.length_s)} from {began}"
    )
    return text + (f"; {timeline.missing} spans were too many and are left out" if timeline.missing else "")


def seconds_text(seconds: float) -> str:
    """`12.3 s`, `4.5 ms`, `3 min 20 s`."""
    if seconds >= 120:
        return f"{int(seconds // 60)} min {seconds % 60:.0f} s"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.1f} ms" if seconds else "0 s"


def _tiles(timeline: Timeline) -> str:
    counted = timeline.counters
    known = {"compiled", "loaded", "local"} <= counted.keys()
    rate = hit_rate(counted) if known else None
    own_s = sum(times.own_s for times in timeline.fallbacks.values())
    calls = f"{int(counted.get('fallback_calls', 0)):,} ({int(counted.get('fallback_avoided', 0)):,} more avoided)"
    tiles = (
        ("compiled by workers", f"{int(counted.get('compiled', 0))}"),
        ("from the store", f"{int(counted.get('loaded', 0))}" + ("" if rate is None else f" ({100 * rate:.0f} %)")),
        ("compiled in the program", f"{int(counted.get('local', 0))}"),
        ("compiling saved", seconds_text(counted.get("saved_s", 0.0))),
        ("calls in Python", calls),
        ("time in Python", seconds_text(own_s)),
    )
    return "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in tiles)


def _table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], nothing: str, *, texts: bool = False
) -> str:
    """A heading and a table below it, or a sentence if there are no rows. `texts`: of more than numbers."""
    cell = '<td class="text">' if texts else "<td>"
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>' + "".join(f"{cell}{escape(one)}</td>" for one in row[1:]) + "</tr>"
        for row in rows
    )
    if not body:
        return f"<h2>{escape(caption)}</h2><p>{escape(nothing)}</p>"
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
    # It can be scrolled sideways where there is no room, with the keyboard as well.
    return (
        f'<h2>{escape(caption)}</h2><div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _functions(timeline: Timeline) -> str:
    ordered = sorted(timeline.functions, key=lambda one: -(one.compile_s + one.load_s))
    rows = [
        (
            one.function,
            seconds_text(one.compile_s),
            seconds_text(one.load_s),
            seconds_text(one.saved_s),
            f"{one.compiled + one.local} / {one.loaded}",
        )
        for one in ordered[:FUNCTIONS_MAX]
        if one.compile_s or one.load_s
    ]
    heads = ("function", "compiling", "loading", "saved", "compiled / loaded")
    return _table("Most expensive functions", heads, rows, "Nothing was compiled or loaded.")


def _fallbacks(timeline: Timeline) -> str:
    ordered = sorted(timeline.fallbacks.items(), key=lambda one: -one[1].own_s)
    rows = [
        (name, seconds_text(times.own_s), seconds_text(times.total_s), f"{times.calls:,}")
        for name, times in ordered[:FALLBACKS_MAX]
    ]
    heads = ("function", "itself", "in all", "calls")
    return _table("Time in Python", heads, rows, "No call ran in Python.")


def _counters(timeline: Timeline) -> str:
    rows = [
        (name, seconds_text(value) if name.endswith("_s") else f"{int(value):,}") for name, value in _numbers(timeline)
    ]
    return _table("Counters", ("counter", "meanwhile"), rows, "Nothing was counted.")


def _numbers(timeline: Timeline) -> list[tuple[str, float]]:
    return [(name, value) for name, value in timeline.counters.items() if value]


def _degraded(timeline: Timeline) -> str:
    texts: Mapping[str, str] = {one.name: one.value for one in DegradedReason}
    rows = [(texts.get(name, name), str(times)) for name, times in timeline.degraded.items()]
    return _table("Degradations", ("what", "times"), rows, "The farm worked at its best.")


def _notes(timeline: Timeline) -> str:
    rows = [(f"{note.at_s:.3f} s", note.text) for note in timeline.notes[:NOTES_MAX]]
    return _table("Notes", ("at", "what"), rows, "None.", texts=True) if rows else ""
