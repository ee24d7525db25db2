"""The crash table: what happens in a compile, and what its callers, the counters and everybody else get of it.

Each row is a real compile by a real worker, forked and spawned. All rows of a start method share one farm of two
workers, so that after every row the same farm goes on. While a row happens, another job is in the middle of its
compile in the other worker: it must be answered by that worker, compiled, as if nothing had been.
"""

import contextlib
import ctypes
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import bad_passes
import deeds
import no_extension
import no_import
import no_pipeline
import no_return
import pytest
from barns import BIG, COMPILED, FALLBACK, Barn, assert_nothing_is_left, eventually, undisturbed
from deeds import doing
from numba.core.errors import NumbaWarning, TypingError

import farm
from farm import CompileState
from farm.config import StartMethod
from farm.errors import CompileFailed, CompileFailedWarning, OutOfMemory, TimedOut, WorkerDied
from farm.reasons import RefusalReason

LIMIT_S: Final = 0.5
"""The deadline of what never ends by itself."""


@pytest.fixture(scope="module", params=StartMethod, ids=lambda method: method.value)
def barn(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Barn]:
    one = Barn(tmp_path_factory.mktemp("barn"), request.param)
    with one.farm:
        yield one
    eventually(lambda: not one.living())


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row.

    Parameters
    ----------
    function
        Makes what is compiled.
    raises
        What a strict caller gets; None for machine code.
    says
        What must be in its message, or in the reason why it was compiled locally.
    counted
        What changes in the counters.
    refused
        Why it was compiled in this process.
    warnings
        How many of numba's own come through from the worker.
    limit_s
        The setting job_timeout_s while it compiles.
    """

    function: Callable[[], Callable[[int], int]]
    raises: type[Exception] | None = None
    says: tuple[str, ...] = ()
    counted: dict[str, int]
    refused: RefusalReason | None = None
    warnings: int = 0
    limit_s: float = 60.0
    options: dict[str, Any] = field(default_factory=dict)


def deed(what: Callable[..., object], *arguments: object, **row: Any) -> Row:
    return Row(function=lambda: doing(what, *arguments), **row)


def died(what: Callable[..., object], *says: str) -> Row:
    told = (*says, "not compiled in this process", "recompile()")
    return deed(what, raises=WorkerDied, says=told, counted={"died": 1})


def late(what: Callable[..., object]) -> Row:
    told = (f"over {LIMIT_S:g} s", "job_timeout_s", "FARM_JOB_TIMEOUT_S")
    return deed(what, raises=TimedOut, says=told, counted={"timed_out": 1}, limit_s=LIMIT_S)


def one_more(a):
    return a + 1


def with_pipeline(pipeline: type, **row: Any) -> Row:
    return Row(function=lambda: one_more, options={"pipeline_class": pipeline}, **row)


def local(reason: RefusalReason, *says: str) -> dict[str, Any]:
    return {"refused": reason, "says": says, "counted": {"rejected": 1, "local": 1}}


ADDRESS: Final = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda a: a + 1)


def of_an_address(a):
    return ADDRESS(a)


def of_wrong_types(a):
    return a + 1 if a > 0 else "none"


def of_no_extension(a):
    return no_extension.plus_one(a)


ROWS: Final = {
    "the job does not pickle": Row(function=lambda: of_an_address, **local(RefusalReason.UNKEYABLE)),
    "it does not unpickle": with_pipeline(no_pipeline.Pipeline, **local(RefusalReason.RESTORE_FAILED, "no Pipeline")),
    "an import raises": with_pipeline(no_import.Pipeline, **local(RefusalReason.RESTORE_FAILED, "licence server")),
    "an import ends the process": with_pipeline(
        no_return.Pipeline, raises=WorkerDied, says=("exit code 4", "not compiled in this process"), counted={"died": 1}
    ),
    "an extension does not import": Row(
        function=lambda: of_no_extension, **local(RefusalReason.RESTORE_FAILED, "ImportError: a library is missing")
    ),
    "numba's error": Row(function=lambda: of_wrong_types, raises=TypingError, says=("unify",), counted={"failed": 1}),
    "an error of Python": with_pipeline(
        bad_passes.Raising, raises=bad_passes.PassFailed, says=("a pass of the user failed",), counted={"failed": 1}
    ),
    "an error that does not travel": with_pipeline(
        bad_passes.RaisingLocally, raises=CompileFailed, says=("Local: nobody can import",), counted={"failed": 1}
    ),
    "an error of an extension": deed(
        deeds.raise_an_error, **local(RefusalReason.TYPING_WITH_EXTENSIONS, "ValueError: an error of the extension")
    ),
    "an error without words": deed(
        deeds.raise_what_has_no_words, **local(RefusalReason.TYPING_WITH_EXTENSIONS, "Mute: ", "cannot be told")
    ),
    "an error that is too long to be sent": deed(
        deeds.raise_a_long_story, **local(RefusalReason.TOO_LARGE, "MiB to be sent")
    ),
    "sys.exit": deed(deeds.leave_politely, **local(RefusalReason.RESTORE_FAILED, "SystemExit: no more of this")),
    "os._exit": died(deeds.leave_at_once, "exit code 3", "leaving now"),
    "segfault": died(deeds.segfault, "SIGSEGV"),
    "LLVM gives up": died(deeds.emit_what_llvm_gives_up_at, "SIGABRT", "LLVM ERROR"),
    "SIGKILL from inside": died(deeds.kill_itself, "SIGKILL", "from outside or for want of memory"),
    "it talks nonsense": died(deeds.talk_nonsense, "its connection ended"),
    "it dies before the rename": died(deeds.die_before_the_rename, "exit code 9"),
    "it computes for ever": late(deeds.compute_for_ever),
    "it holds the interpreter": late(deeds.hold_the_interpreter),
    "it writes for ever": late(deeds.write_for_ever),
    "there is no memory": deed(
        deeds.find_no_memory, raises=MemoryError, says=("no room for this function",), counted={"failed": 1}
    ),
    "it eats memory": deed(
        deeds.eat_memory,
        500,
        raises=OutOfMemory,
        says=("of the 400 MiB", "worker_memory_max_bytes", "FARM_WORKER_MEMORY_MAX_BYTES"),
        counted={"out_of_memory": 1},
    ),
    "stdout is taken away": deed(deeds.take_stdout_away, counted={"compiled": 1}),
    "a flood of output": deed(deeds.write_a_lot, counted={"compiled": 1}),
    "a flood of warnings": deed(deeds.warn_a_lot, counted={"compiled": 1}, warnings=1000),
    "a warning of a local class": deed(deeds.warn_by_a_class_of_its_own, counted={"compiled": 1}, warnings=1),
    "a warning of the worker's own": deed(
        deeds.warn_by_a_class_that_only_the_worker_has, counted={"compiled": 1}, warnings=1
    ),
}


@pytest.mark.concurrency
@pytest.mark.parametrize("name", ROWS)
def test_what_happens_in_a_compile_is_that_jobs_matter(barn: Barn, name: str) -> None:
    row = ROWS[name]
    before = barn.counted()
    barn.farm.configure(job_timeout_s=60.0)
    with undisturbed(barn):
        barn.farm.configure(job_timeout_s=row.limit_s)
        function = barn.njit(row.function(), **row.options)
        with warnings.catch_warnings(record=True) as issued:
            warnings.simplefilter("always")
            first, strict = function(BIG), of_a_strict_caller(barn, function)
            barn.farm.configure(job_timeout_s=60.0)
            later = [function(BIG) for _ in range(3)]
        if row.raises is None:
            # The machine code may be there before the first call looks.
            assert first in (FALLBACK, COMPILED) and {strict, *later} == {COMPILED}
            check_machine_code(row, function)
            assert len({str(one.message) for one in issued}) == row.warnings
            assert all(issubclass(one.category, NumbaWarning) for one in issued)
        else:
            assert {first, *later} == {FALLBACK}
            check_error(row, function, strict)
            (told,) = issued
            assert told.category is CompileFailedWarning and function.label in str(told.message)
    after = barn.counted()
    change = {what: number - before.get(what, 0) for what, number in after.items() if number != before.get(what, 0)}
    assert change == row.counted | {"compiled": row.counted.get("compiled", 0) + 1}
    assert_nothing_is_left(barn)


def of_a_strict_caller(barn: Barn, function: Any) -> object:
    """What a strict call gives, or raises. Whoever asks for the compile waits for the job that the first call made."""
    with contextlib.suppress(Exception):
        function.compile("(int64,)")
    barn.farm.configure(mode="strict")
    try:
        return function(BIG)
    except Exception as error:
        return error
    finally:
        barn.farm.configure(mode="async")


def check_error(row: Row, function: Any, strict: object) -> None:
    status = function.status("(int64,)")
    assert type(strict) is type(status.error) is row.raises, strict
    assert status.state is CompileState.FAILED
    explained = farm.explain(function, BIG)
    for word in row.says:
        assert word in str(strict) and word in explained
    assert "stays on its fallback" in explained


def check_machine_code(row: Row, function: Any) -> None:
    status = function.status("(int64,)")
    assert status.state is CompileState.COMPILED
    assert status.reason is row.refused
    explained = farm.explain(function, BIG)
    for word in (*row.says, *([row.refused.value] if row.refused else [])):
        assert word in explained
