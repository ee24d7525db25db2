"""The demo: its kernels, its loop with a clock of the test's own, its judgement, and a small run from end to end."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import demo
import demo_data_kernels
import demo_kernels
from demo_compiler import Kernel
from demo_report import ATOL, Progress, Report, Row, agree, differences, flatten, load_results, save_results
from demo_run import BATCHES, Loop, batch_of
from demo_view import fitting, function_table, make_console
from demo_watch import Totals

TOOLS = Path(demo.__file__).parent
KERNELS = (*demo_kernels.KERNELS, *demo_data_kernels.KERNELS)

# Those that compile in under half a second each. The demo itself compares all of them, and takes its time.
QUICK_TO_COMPILE = (
    "american_put",
    "asian_option",
    "n_body",
    "heat_equation",
    "epidemic",
    "blend",
    "histogram_2d",
    "cholesky_solve",
)

MEASURE = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
import demo_kernels, demo_data_kernels
from demo_run import batch_of

taken = {}
for number, kernel in enumerate((*demo_kernels.KERNELS, *demo_data_kernels.KERNELS)):
    batch = batch_of(kernel, number, 0)
    seconds = []
    for _ in range(3):
        before = time.thread_time()
        kernel.function(*batch)
        seconds.append(time.thread_time() - before)
    taken[kernel.name] = min(seconds)
print(json.dumps(taken))
"""


# -- kernels -------------------------------------------------------------------------------------------


def test_there_are_about_two_dozen_kernels_with_names_of_their_own() -> None:
    assert len({kernel.name for kernel in KERNELS}) == len(KERNELS) >= 24


def test_a_step_of_every_kernel_takes_5_to_100_ms_in_plain_python() -> None:
    # Without numba altogether, and in seconds of this thread's processor time: a busy machine changes nothing.
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", MEASURE, str(TOOLS)], env=environment, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    taken = json.loads(ran.stdout)
    assert taken.keys() == {kernel.name for kernel in KERNELS}
    assert {name: s for name, s in taken.items() if not 0.005 <= s <= 0.1} == {}


@pytest.mark.parametrize("number", range(len(KERNELS)), ids=[kernel.name for kernel in KERNELS])
def test_a_kernels_work_is_the_same_in_every_run_and_differs_between_batches(number: int) -> None:
    one, again, other = (batch_of(KERNELS[number], number, batch) for batch in (0, 0, 1))
    assert agree(flatten(one), flatten(again))
    assert not agree(flatten(one), flatten(other))


@pytest.mark.parametrize("name", QUICK_TO_COMPILE)
def test_machine_code_computes_what_python_computes_and_writes_into_no_argument(name: str) -> None:
    number, kernel = next((i, kernel) for i, kernel in enumerate(KERNELS) if kernel.name == name)
    batch = batch_of(kernel, number, 0)
    in_python = kernel.function.py_func(*batch)
    assert agree(flatten(batch), flatten(batch_of(kernel, number, 0)))
    assert agree(flatten(in_python), flatten(kernel.function(*batch)))
    assert agree(flatten(batch), flatten(batch_of(kernel, number, 0)))


# -- the loop ------------------------------------------------------------------------------------------


class Dispatcher:
    """A kernel that has machine code from its third call on; each call takes a second of the test's clock."""

    __name__ = "fake"

    def __init__(self, results: Iterator[float]) -> None:
        self.overloads: dict[str, str] = {}
        self.calls = 0
        self.results = results

    def __call__(self, value: float) -> float:
        self.calls += 1
        if self.calls == 3:
            self.overloads["float64"] = "machine code"
        return value + next(self.results)


class Watcher:
    """Has nothing to say."""

    def decorator(self, function: Any) -> Any:
        return function

    def row(self, dispatcher: Any, calls: int) -> Row:
        return Row(dispatcher.__name__, "in Python", 0, 0, 0, calls, 0.0, None)

    def totals(self) -> Totals:
        return Totals(1, 2, 3, 4, 5, 6)

    def notes(self) -> tuple[str, ...]:
        return ()

    def settle(self, timeout_s: float) -> None:
        self.settled_for_s = timeout_s


class Clock:
    """Each reading is a second later than the one before."""

    now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


def zeros() -> Iterator[float]:
    while True:
        yield 0.0


def loop_over(results: Iterator[float]) -> Loop:
    kernel = Kernel(Dispatcher(results), lambda random: (random.random(),))
    return Loop([kernel], Watcher(), lambda progress: None, Clock())


def test_the_loop_ends_when_every_batch_was_met_again_with_machine_code() -> None:
    report = loop_over(zeros()).run(limit_s=1e9)
    assert report.steps == 3 + BATCHES
    assert report.compared == BATCHES and report.disagreements == ()
    assert (report.compiled, report.loaded, report.local, report.fallback_calls) == (1, 2, 3, 4)
    assert (report.switched, report.waited) == (5, 6)


def test_when_its_time_is_over_the_loop_waits_for_the_compiles_and_meets_every_batch_again() -> None:
    loop = loop_over(zeros())
    report = loop.run(limit_s=5.0)
    assert loop.watcher.settled_for_s > 0  # type: ignore[attr-defined]
    assert report.steps == loop.kernels[0].function.calls > BATCHES
    assert report.all_machine_code_s is not None and "waited for the compiles" in report.notes[0]


def test_a_loop_that_never_gets_machine_code_ends_and_says_so() -> None:
    loop = loop_over(zeros())
    loop.kernels[0].function.calls = 3
    report = loop.run(limit_s=5.0)
    assert report.all_machine_code_s is None


def test_the_longest_step_is_found_and_named() -> None:
    loop = loop_over(zeros())
    clock = loop.clock

    def slow_once() -> Iterator[float]:
        yield 0.0
        clock.now_s += 10.0  # type: ignore[attr-defined]
        yield from zeros()

    loop.kernels[0].function.results = slow_once()
    report = loop.run(limit_s=1e9)
    assert report.longest_step_s == 11.0 and report.longest_step == "fake, call 2"


def test_a_later_result_that_differs_from_the_first_is_a_disagreement() -> None:
    report = loop_over(iter([0.0, 0.0, 0.0, 0.0, 1e-6, 0.0])).run(limit_s=1e9)
    assert report.disagreements == ("fake, batch 1, call 5",)


# -- what counts as the same ---------------------------------------------------------------------------


def test_integers_and_texts_agree_only_if_they_are_equal_and_floats_within_the_tolerance() -> None:
    assert agree(flatten((1, "a", 2.0)), flatten((1, "a", 2.0 + 1e-10)))
    for other in ((2, "a", 2.0), (1, "b", 2.0), (1, "a", 2.0 + 1e-8), (1, "a"), (1.0, "a", 2.0), ([1], "a", 2.0)):
        assert not agree(flatten((1, "a", 2.0)), flatten(other)), other
    assert agree(flatten(np.array([np.nan, ATOL / 2])), flatten(np.array([np.nan, 0.0])))


def test_results_survive_the_disk_and_a_missing_one_is_a_difference(tmp_path: Path) -> None:
    results = {"one/0/first": flatten((np.arange(3), "text", 1.5)), "two/0/first": flatten(7)}
    save_results(tmp_path / "results.npz", results)
    read = load_results(tmp_path / "results.npz")
    assert list(differences(results, read)) == []
    del read["two/0/first"]
    read["one/0/first"] = flatten((np.arange(3), "TEXT", 1.5))
    assert list(differences(results, read)) == ["one/0/first", "two/0/first"]


# -- judgement -----------------------------------------------------------------------------------------

REPORT = Report(
    longest_step_s=0.1,
    longest_step="one, call 1",
    steps_over_100_ms=0,
    all_results_s=1.0,
    all_machine_code_s=2.0,
    total_s=3.0,
    steps=10,
    compared=7,
    disagreements=(),
    compiled=0,
    loaded=1,
    local=0,
    fallback_calls=0,
    switched=0,
    waited=0,
)
RESULTS: Mapping[str, Any] = {"one/0/first": flatten(1.0)}


def outcomes(changes: Mapping[str, Any], results: Mapping[str, Any] = RESULTS) -> list[demo.Outcome]:
    """Three good runs, but for the changes in (b)."""
    a, b, c = demo.VARIANTS
    changed = dataclasses.replace(REPORT, **changes)
    return [demo.Outcome(a, REPORT, RESULTS), demo.Outcome(b, changed, results), demo.Outcome(c, REPORT, RESULTS)]


def test_three_good_runs_have_no_fault() -> None:
    assert demo.faults(outcomes({})) == []


@pytest.mark.parametrize(
    ("changes", "results", "said"),
    [
        ({"compiled": 1}, RESULTS, "(b) farm, filled store compiled 1 in workers and 0 in its own process"),
        ({"local": 2}, RESULTS, "(b) farm, filled store compiled 0 in workers and 2 in its own process"),
        ({"disagreements": ("one, batch 0, call 4",)}, RESULTS, "disagrees with itself: one, batch 0, call 4"),
        ({"all_machine_code_s": None}, RESULTS, "did not reach machine code"),
        ({"compared": 0}, RESULTS, "compared no results"),
        ({}, {"one/0/first": flatten(1.1)}, "(b) farm, filled store and (c) plain numba differ: one/0/first"),
        ({}, {}, "(b) farm, filled store and (c) plain numba differ: one/0/first"),
    ],
)
def test_each_fault_is_named(changes: Mapping[str, Any], results: Mapping[str, Any], said: str) -> None:
    (fault,) = demo.faults(outcomes(changes, results))
    assert said in fault


def test_a_report_survives_the_disk(tmp_path: Path) -> None:
    REPORT.write(tmp_path / "report.json")
    assert Report.read(tmp_path / "report.json") == REPORT


# -- what is shown -------------------------------------------------------------------------------------


def rows(*states: str) -> tuple[Row, ...]:
    return tuple(Row(f"kernel{i}", state, 0, 0, 0, 0, 0.0, None) for i, state in enumerate(states))


def test_functions_that_are_done_make_room_for_the_others_and_the_order_stays() -> None:
    four = rows("machine code", "in Python", "loaded", "compiling")
    assert [row.name for row in fitting(four, 3)] == ["kernel0", "kernel1", "kernel3"]
    assert [row.name for row in fitting(four, None)] == [row.name for row in four]


def test_a_table_that_is_cut_says_how_many_rows_are_missing() -> None:
    console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: SIM115 - closed with the console
    progress = Progress(1.0, 10, 0.05, rows("machine code", "machine code", "in Python"))
    console.print(function_table(console, "title", progress, 1))
    console.file.close()
    text = console.export_text()
    assert "kernel2" in text and "kernel0" not in text and "2 more that are done" in text


def test_plain_text_has_no_escape_sequences_and_no_borders(capsys: pytest.CaptureFixture[str]) -> None:
    console = make_console(plain=True)
    console.print(function_table(console, "title", Progress(1.0, 10, 0.05, rows("machine code"))))
    assert capsys.readouterr().out.isascii()


# -- from end to end -----------------------------------------------------------------------------------


def run_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    # Niced workers get next to nothing of a machine on which other tests run.
    return subprocess.run(
        [sys.executable, str(TOOLS / "demo.py"), *arguments],
        env={**os.environ, "FARM_NICE": "0"},
        capture_output=True,
        text=True,
        timeout=110,
    )


def test_a_small_demo_compares_three_runs_and_exits_with_0() -> None:
    ran = run_demo("--only", "blend", "--only", "asian_option", "--only", "heat_equation")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.isascii() and ran.stderr == ""
    compared = ran.stdout.partition("compared; ")[2]
    for variant in demo.VARIANTS:
        assert variant.title in compared
    # Three kernels, three batches, first and last result of each.
    assert "All runs computed the same: 18 results" in compared and "(b) compiled nothing" in compared


def test_a_run_that_fails_shows_its_last_words_and_the_exit_status_is_1() -> None:
    ran = run_demo("--only", "no_such_kernel")
    assert ran.returncode == 1
    assert "no kernel is called no_such_kernel" in ran.stdout
