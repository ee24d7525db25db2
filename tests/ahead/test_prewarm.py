"""Prewarm as a library: in a program of its own, and what becomes of each answer that a worker can give."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

import farm
from farm.ahead.prewarm import Outcome, PrewarmProgress, PrewarmReport, PrewarmRow, _Job, _Run
from farm.ahead.sources import FunctionSource, ManifestSource, PackageSource, SourceError, sources_of
from farm.job import messages as wire
from farm.job.key import CompileKey
from farm.observe.stats import Stats
from farm.port.role import collecting, collects
from farm.reasons import DegradedReason, RefusalReason

OWN = """
import ctypes
import time
import farm
from farm.port.target import settings

pointer = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(lambda x: x)

@farm.njit
def inner(x):
    return x / 2

@farm.njit(fastmath=True, error_model="numpy", fallback="wait")
def outer(x):
    return pointer(inner(x))

if __name__ == "__main__":
    barn = inner.farm()
    barn.start()
    while barn.settler().supply.starting(barn.config, settings()):  # then callers wait for a worker
        time.sleep(0.01)
    with farm.record("m.jsonl"):
        assert outer(1.0) == 0.5
    seen = []
    report = farm.prewarm("m.jsonl", dry_run=True, progress=seen.append)
    print({row.function: row.outcome.name for row in report.rows})
    print([(now.done, now.total, now.running) for now in seen])
    print(report)
    print(farm.prewarm(["__main__:inner int8(int8)"], dry_run=True).rows[0].outcome.name)
"""


def test_a_program_finds_what_it_compiled_itself_under_the_flags_of_its_caller(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(textwrap.dedent(OWN))
    environment = {**os.environ, "FARM_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert done.stdout.splitlines() == [
        "{'__main__:inner': 'THERE', '__main__:outer': 'REFUSED'}",
        "[(1, 2, ()), (2, 2, ())]",
        "1 in the store already, 1 cannot be stored: compiled by each program",
        "ABSENT",
    ], done.stderr


KEY = CompileKey.from_parts({"any": b""})
ANSWERS = {
    "compiled": (wire.Built(KEY, wire.Origin.COMPILED, 2.5, 1000), Outcome.COMPILED, ""),
    "compiled and not stored": (
        wire.Built(KEY, wire.Origin.COMPILED, 2.5, 9, b"", degraded=((DegradedReason.DISK_FULL, "/x: no space"),)),
        Outcome.FAILED,
        "compiled, but not stored: the disk is full: /x: no space",
    ),
    "gone again": (wire.Built(KEY, wire.Origin.STORE, 0.0, 9), Outcome.FAILED, "the store may be too small"),
    "wanting literals": (wire.Failed("ForceLiteralArg", "", None, (0, 2)), Outcome.SKIPPED, "at positions 0, 2"),
    "failing": (
        wire.Failed("TypingError", "no such\nthing", None),
        Outcome.FAILED,
        "does not compile: TypingError: no",
    ),
    "refused": (
        wire.Rejected(RefusalReason.LIFTED_LOOPS, "f"),
        Outcome.REFUSED,
        "the result contains lifted loops: f",
    ),
    "cancelled": (wire.Cancelled("no processes"), Outcome.NOT_DONE, "no processes"),
    "deadly": (wire.Died(None, 11, ""), Outcome.FAILED, "ended the worker process (SIGSEGV)"),
    "endless": (wire.TimedOut(3.0), Outcome.FAILED, "took over 3 s: raise job_timeout_s"),
    "hungry": (wire.OutOfMemory(1 << 20, 2 << 20), Outcome.FAILED, "used 2 MiB of the 1 MiB allowed"),
}


@pytest.mark.parametrize("which", ANSWERS)
def test_each_answer_is_a_row(tmp_path: Path, which: str) -> None:
    answer, outcome, detail = ANSWERS[which]
    config = farm.Config().with_changes(cache_dir=tmp_path / "cache")
    job = _Job(("m:f", "(int64)", "host"), SimpleNamespace(key=KEY), config)  # type: ignore[arg-type]
    job.ticket = SimpleNamespace(future=SimpleNamespace(result=lambda: answer))  # type: ignore[assignment]
    run = _Run({"host": None}, None, False, False, None)
    row = run._answered(job)
    assert (row.function, row.signature, row.cpu, row.key) == ("m:f", "(int64)", "host", KEY.hex)
    assert row.outcome is outcome and detail in row.detail
    assert (row.seconds, row.size_bytes) == ((2.5, 1000) if which == "compiled" else (None, None))


def test_what_remains_is_estimated_from_the_compiles_that_are_known(tmp_path: Path) -> None:
    told: list[PrewarmProgress] = []
    config = farm.Config().with_changes(cache_dir=tmp_path / "cache", workers=2)
    run = _Run({"host": None}, None, False, False, told.append)
    for name in ("f", "g", "h"):
        run.jobs[(name,)] = _Job((f"m:{name}", "()", "host"), SimpleNamespace(key=KEY), config)  # type: ignore[arg-type]
    pending = SimpleNamespace(done=lambda: False)
    run.jobs[("f",)].ticket = SimpleNamespace(sent_at=1.0, future=pending)  # type: ignore[assignment]
    run.jobs[("g",)].ticket = SimpleNamespace(sent_at=None, future=pending)  # type: ignore[assignment]
    run._tell(0, 3, None)
    run.seconds += [1.0, 3.0]
    run._tell(1, 3, None)
    assert [(now.done, now.total, now.running, now.remaining_s) for now in told] == [
        (0, 3, ("m:f()",), None),
        (1, 3, ("m:f()",), 3.0),  # three times two seconds, two at once
    ]


def row(outcome: Outcome) -> PrewarmRow:
    return PrewarmRow(function="m:f", signature="()", cpu="host", outcome=outcome)


def test_a_report_tells_what_failed_and_what_a_program_would_compile() -> None:
    report = PrewarmReport(tuple(map(row, Outcome)))
    assert {one.outcome for one in report.failed} == {Outcome.FAILED, Outcome.NOT_FOUND, Outcome.NOT_DONE}
    ready = {Outcome.COMPILED, Outcome.THERE, Outcome.SKIPPED}
    assert {one.outcome for one in report.to_compile} == set(Outcome) - ready
    assert str(PrewarmReport(())) == "nothing to do"


def test_sources_are_read_as_people_write_them(tmp_path: Path) -> None:
    manifest = tmp_path / "m.jsonl"
    found = sources_of([manifest, str(manifest), "a.b", "a.b:c", "a.b:c (int64, int64)", ("a.b:c", "int64", "int8")])
    assert found == [
        ManifestSource(manifest),
        ManifestSource(manifest),
        PackageSource("a.b"),
        FunctionSource("a.b:c"),
        FunctionSource("a.b:c", ("(int64, int64)",)),
        FunctionSource("a.b:c", ("int64", "int8")),
    ]
    with pytest.raises(SourceError, match="neither a manifest"):
        sources_of("not/a package")


def double(x: int) -> int:
    return 2 * x


def test_while_it_is_only_looked_at_a_farm_notes_and_compiles_nothing(tmp_path: Path) -> None:
    with farm.Farm(cache_dir=tmp_path / "cache", mode="strict") as barn:
        with collecting():
            waiting = farm.njit("int64(int64)", farm=barn)(double)
            called, asked = farm.njit(double, farm=barn), farm.njit(double, farm=barn)
            assert called(10**30) == 2 * 10**30, "the body runs, though the mode is strict"
            assert asked.compile("int64(int64)") is asked.py_func and asked.submit("int8(int8)").result(1) is not None
            waiting.recompile()
            assert waiting(3) == 6 and waiting.wait(1) and farm.compile_all([], None).rows == ()
            assert farm.prewarm("nothing.at.all").rows == (), "a program that is looked at fills no store"
        assert not collects()
        assert [len(one.table.entries()) for one in (waiting, called, asked)] == [1, 1, 2]
        assert [one.overloads for one in (waiting, called, asked)] == [{}, {}, {}]
        assert isinstance(barn.stats(), Stats) and repr(barn) == "<Farm [0 ready | 0 pending | no pool yet]>"
