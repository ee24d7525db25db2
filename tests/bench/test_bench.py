"""The bench itself: small runs by real processes, its ratios, its choice by words, its page."""

import json
import os
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import bounded
import choice
import numba
import numpy as np
import psutil
import pytest
import sheet
import wanted
import workload
from contestant import CONTESTANTS, Contestant, Kind
from homemade import signature
from measuring import Failed, Measuring, filler_for, keep_library
from results import Cell, Results, Spread
from svg import Bar, bars
from workload import WORKLOADS, Workload

from farm.job.key import CompileKey
from farm.store.artifact import Artifact
from farm.store.disk import DiskStore

HERE = Path(__file__).parent


def report(ready_s: float, digest: str = "a", import_s: float | None = None) -> dict[str, Any]:
    return {"ready_s": ready_s, "import_s": import_s, "processor_s": ready_s, "digest": digest, "first_s": None}


def results_of(cells: dict[str, dict[str, Cell]]) -> Results:
    return Results({"rounds": 2}, cells)


def bench(*words: str, out: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(HERE / "run.py"), *words, "--out", str(out)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, "subprocess.CompletedProcess[str]"]:
    """One real run: a pool, the farm on three kinds of store, and plain numba."""
    out = tmp_path_factory.mktemp("bench") / "build"
    return out, bench("--rounds", "1", "--only", "tiny", "pool", "farm-library", "farm-full", out=out)


# -- a real run --------------------------------------------------------------------------------------------------


def test_a_run_measures_every_chosen_contestant_and_all_give_numbas_results(measured: Any) -> None:
    out, done = measured
    assert done.returncode == 0, done.stderr
    told = json.loads((out / "bench.json").read_text())
    row = told["workloads"]["tiny"]
    assert set(row) == {"numba", "pool", "farm-library", "farm-full"}
    digests = {name: [run["digest"] for run in cell["runs"]] for name, cell in row.items()}
    assert len(set(map(tuple, digests.values()))) == 1 and all(digests.values()), digests
    assert told["wrong"] == []


def test_a_full_store_compiles_nothing_and_one_of_numbas_functions_alone_compiles_the_rest(measured: Any) -> None:
    row = json.loads((measured[0] / "bench.json").read_text())["workloads"]["tiny"]
    full, library = (row[name]["runs"][0]["counted"] for name in ("farm-full", "farm-library"))
    assert (full["compiled"], full["local"], full["loaded"]) == (0, 0, 2)
    assert (library["compiled"], library["local"], library["loaded"]) == (2, 0, 0)


def test_a_run_tells_of_each_measurement_and_ends_with_a_table(measured: Any) -> None:
    _, done = measured
    assert len(re.findall(r"^round 1 of 1, \d of 4, .* tiny, .*: \d", done.stderr, re.M)) == 4
    for name in ("numba", "pool", "farm-library", "farm-full"):
        assert CONTESTANTS[name].about in done.stdout


def test_what_a_run_wrote_can_be_read_again(measured: Any) -> None:
    text = (measured[0] / "bench.json").read_text()
    again = Results.from_json(text)
    assert json.loads(again.as_json(json.loads(text)["targets"])) == json.loads(text)
    with pytest.raises(ValueError, match="format 99"):
        Results.from_json(text.replace('"format": 1', '"format": 99', 1))


class Page(HTMLParser):
    """Collects what a page would load or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        self.loads += [
            f"{tag} {name}={given[name]}" for name in ("src", "href") if given.get(name, "data:,") != "data:,"
        ]


def test_the_page_has_a_chart_and_loads_and_runs_nothing(measured: Any) -> None:
    page = Page((measured[0] / "bench.html").read_text())
    assert page.loads == [] and "script" not in page.tags
    assert "svg" in page.tags and "rect" in page.tags


# -- what can go wrong in a measurement ---------------------------------------------------------------------------


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_what_does_not_end_in_time_is_ended_with_what_it_started(tmp_path: Path) -> None:
    code = (
        "import pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(child.pid))\n"
        "print('began', flush=True)\ntime.sleep(600)\n"
    )
    ended, said = bounded.run_bounded([sys.executable, "-c", code], dict(os.environ), 5.0)
    assert ended is None and said == "began\n"
    pid, end = int((tmp_path / "pid").read_text()), time.monotonic() + 20
    while alive(pid) and time.monotonic() < end:
        psutil.wait_procs([psutil.Process(pid)], timeout=0.1)
    assert not alive(pid)


def test_a_failed_program_is_told_by_its_exception_and_not_by_its_last_line() -> None:
    said = (
        "Traceback (most recent call last):\n  File x\nnumba.core.errors.TypingError: no such thing\n\nFile y, line 3\n"
    )
    assert bounded.reason_in(said) == "numba.core.errors.TypingError: no such thing File y, line 3"
    assert bounded.reason_in("a\nb\n") == "b" and bounded.reason_in("") == ""


def test_a_run_that_raises_is_a_failure_with_its_reason(tmp_path: Path) -> None:
    broken = Workload("tiny", "", WORKLOADS["tiny"].functions, lambda: "def f(x, w):\n    return x + undefined_name\n")
    with pytest.raises(Failed, match=r"NameError|undefined_name"):
        Measuring(tmp_path).run(CONTESTANTS["numba"], broken)
    assert not list((tmp_path / "runs").iterdir())


def test_a_measured_process_has_no_setting_of_whoever_runs_the_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARM_VERIFY", "1")
    monkeypatch.setenv("NUMBA_OPT", "0")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert not {"FARM_VERIFY", "NUMBA_OPT", "PYTHONDONTWRITEBYTECODE"} & bounded.clean_environment().keys()


@pytest.mark.parametrize("name", ["pool", "loky", "farm-up"])
def test_who_cannot_do_a_package_says_why(name: str) -> None:
    package = Workload("p", "", package="json")
    assert CONTESTANTS["numba"].cannot(package) is None
    assert (CONTESTANTS[name].cannot(package) or "").startswith("cannot: ")


def test_what_is_not_installed_is_told_as_such() -> None:
    nowhere = Workload("p", "", package="no_such_package_at_all")
    for contestant in CONTESTANTS.values():
        assert "no_such_package_at_all is not installed" in (contestant.cannot(nowhere) or "")


def test_a_library_store_keeps_numbas_functions_alone(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "store")
    for number, package in enumerate(("numba", "made_tiny", "numba", "stumpy")):
        key = CompileKey.from_parts({"number": bytes([number])})
        store.put(Artifact(key, {"package": package}, b"code", b"bitcode", b"environment"))
    assert keep_library(tmp_path / "store") == (2, 2)
    assert len(list(DiskStore(tmp_path / "store").stored_keys())) == 2
    assert keep_library(tmp_path / "store") == (2, 0)


# -- figures -------------------------------------------------------------------------------------------------------


def test_ratios_are_taken_within_a_round_and_only_where_both_gave_a_figure() -> None:
    ours = Cell(runs=[report(1.0), "it failed", report(3.0)])
    theirs = Cell(runs=[report(2.0), report(1.0), report(10.0)])
    results = results_of({"w": {"ours": ours, "theirs": theirs}})
    assert results.ratios("w", "ours", "theirs", "ready_s") == [0.5, 0.3]
    assert results.ratios("w", "nobody", "theirs", "ready_s") == []
    assert ours.problem() == "it failed"


def test_a_packages_call_is_what_is_left_after_its_import() -> None:
    results = results_of(
        {"w": {"a": Cell(runs=[report(5.0, import_s=1.0)]), "b": Cell(runs=[report(9.0, import_s=1.0)])}}
    )
    assert results.ratios("w", "a", "b", "call_s") == [0.5]


def test_a_result_that_is_not_plain_numbas_is_told() -> None:
    row = {"numba": Cell(runs=[report(1.0, "a")]), "pool": Cell(runs=[report(1.0, "b")]), "loky": Cell(cannot="no")}
    assert results_of({"w": row}).wrong() == ["pool gave another result than plain numba for w"]
    row["pool"].runs[0]["digest"] = "a"
    assert results_of({"w": row}).wrong() == []


def test_a_target_is_judged_by_the_median_and_says_why_it_is_not_known() -> None:
    row = {
        "farm-library": Cell(runs=[report(1.0), report(9.0), report(4.0)]),
        "numba": Cell(runs=[report(10.0)] * 3),
        "farm-empty": Cell(runs=["it failed"]),
    }
    found = {one.wanted.name: one for one in wanted.look(results_of({"sorted24": row}))}
    library = found["24 functions, library stored, start included: of numba"]
    assert library.spread == Spread(0.4, 0.1, 0.9) and library.reached is True and library.rounds == 3
    row["farm-library"].runs[2] = report(5.1)
    (late,) = [one for one in wanted.look(results_of({"sorted24": row})) if one.wanted.name == library.wanted.name]
    assert late.reached is False
    empty = found["24 functions, empty store, start included: of numba"]
    assert empty.reached is None and empty.why == "it failed"


def test_every_target_names_what_is_there_to_measure() -> None:
    chosen = choice.for_targets()
    for row in wanted.WANTED:
        for name in row.contestants:
            assert (row.workload, name) in chosen.pairs
        assert row.section is None or row.section in chosen.sections
        assert row.contestants or row.section


# -- what is compared, and what is chosen -----------------------------------------------------------------------------


def test_a_digest_tells_the_last_bit_the_type_and_the_shape() -> None:
    array = np.arange(6.0)
    different = [
        array,
        np.nextafter(array, 9),
        array.astype("f4"),
        array.reshape(2, 3),
        [1.0, 2.0],
        {1: array},
        (),
        1,
        1.0,
    ]
    assert len({workload.digest(one) for one in different}) == len(different)
    assert workload.digest({2: array, 1: [1]}) == workload.digest({1: [1], 2: array.copy()})


def test_a_signature_is_that_of_the_call_also_with_a_rest_of_arguments() -> None:
    def weighted(x, *rest):  # type: ignore[no-untyped-def]
        return x + rest[0] * rest[1]

    function = numba.njit(weighted)
    function.compile(signature(function, (1, 2.0, 3.0)))
    function.disable_compile()
    assert function(1, 2.0, 3.0) == 7.0 and len(function.signatures) == 1


@pytest.mark.parametrize("name", ["library4", "sorted24", "small40"])
def test_made_functions_are_distinct_and_as_many_as_they_say(name: str, tmp_path: Path) -> None:
    WORKLOADS[name].write(tmp_path)
    text = (tmp_path / f"{workload.module_name(name)}.py").read_text()
    bodies = re.split(r"^def \w+", text, flags=re.M)[1:]
    assert len(bodies) == len(set(bodies)) == int(re.sub(r"\D", "", name))


def test_words_choose_workloads_contestants_sections_and_benches() -> None:
    everything = choice.chosen([])
    assert {workload_ for workload_, _ in everything.pairs} == set(WORKLOADS) - set(choice.QUICK)
    only = choice.chosen(["sorted24", "farm-empty"])
    assert only.pairs == (("sorted24", "numba"), ("sorted24", "farm-empty"))  # with what results are compared with
    assert not only.sections and not only.benches
    assert {name for _, name in choice.chosen(["small40", "cache"]).pairs} == {"numba", "cache-empty", "cache-full"}
    assert choice.chosen(["memory"]) == choice.Choice((), ("memory",), ())
    assert choice.chosen(["lookup"]).benches == ("lookup",)
    with pytest.raises(choice.UnknownWord, match=r"'nothing_like_it'.*sorted24.*targets"):
        choice.chosen(["nothing_like_it"])


def test_wrong_usage_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    unknown = bench("--only", "nothing_like_it", out=tmp_path)
    assert unknown.returncode == 2 and "nothing is called 'nothing_like_it'" in unknown.stderr
    assert "Traceback" not in unknown.stderr and not list(tmp_path.iterdir())


# -- the chart and the page --------------------------------------------------------------------------------------------


def test_bars_are_as_long_as_their_values_and_text_is_only_text() -> None:
    drawn = bars("t", [Bar("<a>", 2.0, 1.0, 4.0, text="2 & more"), Bar("b", 1.0), Bar("none", None, text="cannot")])
    widths = [float(one) for one in re.findall(r'<rect[^>]* width="([\d.]+)"', drawn)]
    assert len(widths) == 2 and widths[0] == pytest.approx(2 * widths[1])
    assert "&lt;a&gt;" in drawn and "2 &amp; more" in drawn and "cannot" in drawn and "<a>" not in drawn


def test_the_page_shows_who_could_not_and_what_was_wrong_as_text() -> None:
    row = {
        "numba": Cell(runs=[report(1.0, "a")]),
        "pool": Cell(runs=["cannot pickle <lambda>"]),
        "farm-empty": Cell(runs=[report(0.5, "b")]),
    }
    results = results_of({"sorted24": row})
    page = sheet.page(results, wanted.look(results))
    chart, _, table = page.partition("<h2>24 functions")[2].partition("</svg>")
    assert (
        "cannot pickle &lt;lambda&gt;" in chart and "cannot pickle &lt;lambda&gt;" in table and "<lambda>" not in page
    )
    assert "farm-empty gave another result than plain numba" in page
    said = "\n".join(sheet.lines(results, wanted.look(results)))
    assert "cannot pickle <lambda>" in said and "WRONG: farm-empty" in said


def test_one_contestant_of_each_kind_can_fill_a_store_for_the_others() -> None:
    for contestant in CONTESTANTS.values():
        assert isinstance(contestant, Contestant) and filler_for(contestant).kind is contestant.kind
    assert {one.kind for one in CONTESTANTS.values()} == set(Kind)
