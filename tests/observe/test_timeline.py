"""A timeline as lanes, as a trace, and as a page."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from farm.observe.fallbacks import FallbackTime
from farm.observe.page import page_of, read_template, seconds_text
from farm.observe.timeline import FRONT, FunctionCost, Kind, Note, Span, Timeline, lanes_of
from farm.observe.trace import trace_of

EVIL = "</script><b>&@@DATA@@\udcff"


def span(began: float, ended: float, group: str = FRONT, kind: Kind = Kind.LOADED, **more: Any) -> Span:
    return Span(**{"name": "f", "group": group, "kind": kind, "began_s": began, "ended_s": ended, **more})


def timeline(*spans: Span, **more: Any) -> Timeline:
    fields = {"program": "p.py", "pid": 7, "python": "3.11", "began_at": 0.0, "length_s": 9.0, "spans": spans, **more}
    return Timeline(**fields)


def test_nothing_overlaps_in_a_lane_and_no_span_is_lost() -> None:
    spans = [span(start / 3, start / 3 + length) for start in range(30) for length in (0.1, 1.0, 2.0)]
    lanes = lanes_of(spans)
    for lane in lanes:
        assert all(one.ended_s <= two.began_s for one, two in zip(lane.spans, lane.spans[1:], strict=False))
    assert sorted(map(repr, spans)) == sorted(repr(one) for lane in lanes for one in lane.spans)
    assert [lane.number for lane in lanes] == list(range(len(lanes))) and len(lanes) < 15


def test_the_programs_lanes_come_first_and_workers_in_the_order_of_their_first_jobs() -> None:
    spans = [span(1, 2, "worker 9"), span(2, 3, "worker 3"), span(3, 4, f"{FRONT}: Python, T"), span(5, 6)]
    assert [lane.group for lane in lanes_of(spans)] == [FRONT, f"{FRONT}: Python, T", "worker 9", "worker 3"]


def test_a_trace_has_a_complete_event_for_each_span_and_names_for_all_it_mentions() -> None:
    spans = (
        span(1.0, 1.5, "worker 9", Kind.COMPILED, worker=9, queued_s=0.25),
        span(2.0, 2.25, name=EVIL, detail="12 KiB"),
        span(2.125, 2.5),
    )
    trace = json.loads(trace_of(timeline(*spans, notes=(Note(0.5, "the disk is full"),))))
    complete = [one for one in trace["traceEvents"] if one["ph"] == "X"]
    found = {(one["name"], one["pid"], one["ts"], one["dur"], one["args"]["result"]) for one in complete}
    assert found == {
        ("f", 9, 1_000_000, 500_000, "compiled by a worker"),
        (EVIL, 7, 2_000_000, 250_000, "loaded"),
        ("f", 7, 2_125_000, 375_000, "loaded"),
    }
    assert {one["args"].get("queued_s") for one in complete} == {0.25, None}
    names = {(one["name"], one["pid"]): one["args"] for one in trace["traceEvents"] if one["ph"] == "M"}
    assert names["process_name", 7] == {"name": "p.py"} and names["process_name", 9] == {"name": "worker 9"}
    threads = {(one["pid"], one["tid"]) for one in trace["traceEvents"] if one["name"] == "thread_name"}
    assert {(one["pid"], one["tid"]) for one in complete} == threads and len(threads) == 3
    assert [one["name"] for one in trace["traceEvents"] if one["ph"] == "i"] == ["the disk is full"]


def test_an_empty_trace_can_be_read() -> None:
    assert json.loads(trace_of(timeline()))["traceEvents"][0]["name"] == "process_name"


class Elements(HTMLParser):
    """The elements of a page, and the text in them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = [""]
        self.texts: dict[str, list[str]] = {}
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        self.tags.append("")

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.tags[-1], []).append(data)


@pytest.fixture(scope="module")
def page() -> Elements:
    evil = timeline(
        span(1, 2, name=EVIL, detail=EVIL),
        span(1, 3, EVIL),
        program=EVIL,
        notes=(Note(1.0, EVIL),),
        counters={"compiled": 1, EVIL: 2},
        degraded={EVIL: 1},
        functions=(FunctionCost(function=EVIL, compiled=1, loaded=0, local=0, compile_s=1.0, load_s=0.0, saved_s=0.0),),
        fallbacks={EVIL: FallbackTime(1, 1.0, 1.0)},
    )
    return Elements(page_of(evil, read_template()))


def test_a_page_shows_names_as_text_whatever_they_are(page: Elements) -> None:
    assert "b" not in page.tags and page.tags.count("script") == 2
    shown = EVIL.encode("utf-8", "replace").decode()
    for tag in ("h1", "title", "th", "td"):
        assert any(shown in text for text in page.texts[tag]), tag
    assert not {"<", ">", "&"} & set(page.texts["script"][0]), "nothing in it can end the element"
    data = json.loads(page.texts["script"][0])
    assert data["names"] == [EVIL, "f"] and {one[6] for one in data["spans"]} == {EVIL, ""}


def test_a_page_may_load_nothing_and_runs_its_own_script_only(page: Elements) -> None:
    policy = next(value for name, value in page.attributes if name == "content" and "default-src" in str(value))
    assert policy is not None and policy.startswith("default-src 'none'; ")
    script = "".join(page.texts["script"][1:])
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy and "unsafe" not in policy
    links = [value for name, value in page.attributes if name in ("src", "href")]
    assert links == ["data:,"]
    template = read_template()
    assert not re.search(r"https?:|//[a-z]|@import|url\(|innerHTML|eval\(", template.style + template.script)
    assert not any(name.startswith("on") for name, _ in page.attributes)


def test_the_page_has_no_more_than_ten_functions_and_the_dearest_first() -> None:
    costs = [
        FunctionCost(function=f"f{n}", compiled=1, loaded=0, local=0, compile_s=float(n), load_s=0.0, saved_s=0.0)
        for n in range(14)
    ]
    texts = Elements(page_of(timeline(functions=tuple(costs)), read_template())).texts["th"]
    assert [text for text in texts if re.fullmatch(r"f\d+", text)] == [f"f{n}" for n in range(13, 3, -1)]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0 s"), (0.0045, "4.5 ms"), (12.34, "12.3 s"), (200.0, "3 min 20 s")]
)
def test_seconds_are_written_as_people_do(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_the_template_is_installed_with_the_package() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no reader of TOML")
    root = Path(__file__).parents[2]
    data = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["farm.observe"]
    there = {path.name for path in (root / "farm" / "observe").iterdir() if path.suffix in (".html", ".css", ".js")}
    assert there == set(data)
