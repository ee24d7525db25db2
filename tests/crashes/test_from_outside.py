"""What is done to workers and to the foreman from outside, in mid-compile, and limits that a farm keeps by itself."""

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import deeds
import no_return
import numba
import psutil
import pytest
import troubles
from barns import (
    BIG,
    COMPILED,
    FALLBACK,
    PATIENCE_S,
    Barn,
    assert_nothing_is_left,
    eventually,
    gate,
    living,
    undisturbed,
)
from deeds import doing

import farm
from farm import CompileState
from farm.config import StartMethod
from farm.errors import TimedOut, WorkerDied
from farm.front import pools
from farm.pool.loop import Times
from farm.pool.pool import Pool
from farm.pool.schedule import DEATHS_MAX, GROWTH_MAX_BYTES, STARTS_FAILED_MAX
from farm.reasons import DegradedReason

SILENT_S = 0.5
"""A foreman that says nothing for so long is replaced, here. The pool asks once a second."""


@pytest.fixture(params=StartMethod, ids=lambda method: method.value)
def barn(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Barn]:
    yield from open_barn(tmp_path, request.param)


@pytest.fixture
def forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Barn]:
    monkeypatch.setattr(pools, "Pool", partial(Pool, times=Times(silent_s=SILENT_S)))
    yield from open_barn(tmp_path, StartMethod.FORK)


def open_barn(directory: Path, method: StartMethod, **settings: object) -> Iterator[Barn]:
    one = Barn(directory, method, **settings)
    with one.farm:
        yield one
    eventually(lambda: not one.living())


def foreman() -> psutil.Process:
    (one,) = troubles.children()
    return one


@pytest.mark.concurrency
def test_a_worker_killed_from_outside_is_replaced_and_its_lock_is_free(barn: Barn) -> None:
    before = barn.counted()
    with gate(barn) as its_gate:
        function = barn.njit(its_gate.function())
        with undisturbed(barn):
            assert function(BIG) == FALLBACK
            its_gate.wait_for_somebody()
            for _ in range(DEATHS_MAX):  # as many as would condemn it, if they were its own doing
                held = barn.held_locks()
                assert len(held) == 2  # its own, and that of the other job
                worker = barn.worker_of(function)
                assert worker is not None
                os.kill(worker, signal.SIGKILL)
                eventually(lambda worker=worker: barn.worker_of(function) != worker)  # type: ignore[misc]
                assert function(BIG) == FALLBACK
                its_gate.wait_for_somebody()
            assert barn.held_locks() == held
            its_gate.open()
            eventually(lambda: function.status("(int64,)").state is CompileState.COMPILED)
    assert function(BIG) == COMPILED
    after = barn.counted()
    assert {what: after[what] - before[what] for what in before} == dict.fromkeys(before, 0) | {"compiled": 2}
    assert_nothing_is_left(barn)


@pytest.mark.concurrency
def test_a_worker_that_is_stopped_for_a_while_comes_out_compiled(barn: Barn) -> None:
    with gate(barn) as its_gate:
        function = barn.njit(its_gate.function())
        with undisturbed(barn):
            assert function(BIG) == FALLBACK
            its_gate.wait_for_somebody()
            worker = barn.worker_of(function)
            assert worker is not None
            os.kill(worker, signal.SIGSTOP)
            its_gate.open()
            assert function(BIG) == FALLBACK
            os.kill(worker, signal.SIGCONT)
            eventually(lambda: function.status("(int64,)").state is CompileState.COMPILED)
            assert function(BIG) == COMPILED
    assert barn.counted()["compiled"] == 2
    assert_nothing_is_left(barn)


@pytest.mark.concurrency
def test_a_worker_that_stays_stopped_is_ended_at_its_deadline(barn: Barn) -> None:
    with gate(barn) as its_gate:
        function = barn.njit(its_gate.function())
        with undisturbed(barn):
            barn.farm.configure(job_timeout_s=2.0)
            assert function(BIG) == FALLBACK
            its_gate.wait_for_somebody()
            worker = barn.worker_of(function)
            assert worker is not None
            os.kill(worker, signal.SIGSTOP)
            assert function(BIG) == FALLBACK
            with pytest.raises(TimedOut):
                function.compile("(int64,)")
            barn.farm.configure(job_timeout_s=600.0)
    assert barn.counted()["timed_out"] == 1
    assert_nothing_is_left(barn)


@pytest.mark.concurrency
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_foreman_stopped_or_killed_in_mid_compile_is_replaced_and_counted(forked: Barn, number: int) -> None:
    with gate(forked) as its_gate:
        function = forked.njit(its_gate.function())
        assert function(BIG) == FALLBACK
        its_gate.wait_for_somebody()
        first = foreman()
        (worker,) = first.children()
        first.send_signal(number)
        eventually(lambda: forked.farm.stats().degraded)
        assert function(BIG) == FALLBACK
        eventually(lambda: forked.worker_of(function) not in (None, worker.pid))
        assert not living([worker])
        its_gate.wait_for_somebody()
        assert foreman() != first
        its_gate.open()
        assert forked.farm.wait(PATIENCE_S)
    assert function(BIG) == COMPILED
    assert forked.farm.stats().degraded == {DegradedReason.FOREMAN_LOST: 1}
    assert forked.counted()["compiled"] == 1
    assert_nothing_is_left(forked)


@pytest.mark.concurrency
def test_a_compile_that_kills_its_foreman_again_and_again_is_given_up_and_the_farm_goes_on(forked: Barn) -> None:
    function = forked.njit(doing(deeds.kill_the_foreman))
    assert function(BIG) == FALLBACK
    assert forked.farm.wait(PATIENCE_S)
    assert function(BIG) == COMPILED  # here, as without workers
    counted = forked.counted()
    assert (counted["local"], counted["FOREMAN_LOST"], counted["POOL_UNAVAILABLE"]) == (1, STARTS_FAILED_MAX, 1)
    assert_nothing_is_left(forked)


@pytest.mark.parametrize("method", StartMethod, ids=lambda method: method.value)
def test_a_jitted_caller_of_what_ends_its_workers_gets_the_error_and_the_process_lives(
    tmp_path: Path, method: StartMethod
) -> None:
    for barn in open_barn(tmp_path, method):
        ends = barn.njit(doing(deeds.segfault))
        # Until a worker is up, a jitted caller has its callees compiled in this process.
        assert barn.njit(doing(deeds.nothing), mode="strict")(BIG) == COMPILED

        @numba.njit
        def caller(a, ends=ends):
            return ends(a)

        with pytest.raises(WorkerDied, match="SIGSEGV"):
            caller(BIG)
        assert ends(BIG) == FALLBACK
        assert (barn.counted()["died"], barn.counted()["local"]) == (1, 0)


@pytest.mark.parametrize("method", StartMethod, ids=lambda method: method.value)
def test_a_worker_does_its_jobs_and_is_recycled_and_nothing_else_is_counted(
    tmp_path: Path, method: StartMethod
) -> None:
    for barn in open_barn(tmp_path, method, workers=1, worker_jobs_max=2):
        for number in range(4):
            function = barn.njit(doing(deeds.nothing, number), mode="strict")
            assert function(BIG) == COMPILED
            eventually(lambda barn=barn, told=number + 1: len(barn.finished) == told)  # type: ignore[misc]
        first, second, third, fourth = [event.worker for event in barn.finished]
        assert first == second != third == fourth
        assert {what: number for what, number in barn.counted().items() if number} == {"compiled": 4, "recycled": 2}


def test_a_worker_that_has_grown_is_recycled_and_nothing_else_is_counted(tmp_path: Path) -> None:
    for barn in open_barn(tmp_path, StartMethod.FORK, workers=1, worker_memory_max_bytes="8GiB"):
        for number, keeps in enumerate((0, 0, GROWTH_MAX_BYTES // deeds.MIB + 50, 0)):
            function = barn.njit(doing(deeds.keep_memory, keeps, number), mode="strict")
            assert function(BIG) == COMPILED
            eventually(lambda barn=barn, told=number + 1: len(barn.finished) == told)  # type: ignore[misc]
        first, second, third, fourth = [event.worker for event in barn.finished]
        assert first == second == third != fourth
        assert {what: number for what, number in barn.counted().items() if number} == {"compiled": 4, "recycled": 1}


def test_what_the_dead_left_is_removed_even_by_a_job_that_dies_as_well(tmp_path: Path) -> None:
    for barn in open_barn(tmp_path, StartMethod.FORK):
        for function, options in (
            (doing(deeds.die_before_the_rename), {}),
            (lambda a: a + 1, {"pipeline_class": no_return.Pipeline}),
        ):
            with pytest.raises(WorkerDied):
                barn.njit(function, **options).compile("(int64,)")
            assert len(barn.half_files()) == (0 if options else DEATHS_MAX)


def test_after_the_loss_of_its_workers_a_function_can_be_tried_again(tmp_path: Path) -> None:
    """As the message says: what is wrong may have been mended in the meantime."""
    mended = tmp_path / "mended"
    for barn in open_barn(tmp_path, StartMethod.FORK):
        function = barn.njit(doing(deeds.leave_unless_mended, str(mended)))
        with pytest.raises(WorkerDied, match="recompile"):
            function.compile("(int64,)")
        mended.touch()
        with pytest.raises(WorkerDied):
            function.compile("(int64,)")
        function.recompile()
        function.compile("(int64,)")
        assert function(BIG) == COMPILED
        assert farm.explain(function, BIG).startswith(f"{function.label}(int64) runs machine code. It was compiled by")
