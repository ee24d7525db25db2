"""The pool's rules, without any process."""

import signal

import pytest

from farm.job.key import CompileKey
from farm.job.messages import Built, Busy, Cancelled, Died, Origin, OutOfMemory, Rejected, TimedOut, WorkerAnswer
from farm.pool import instructions as on
from farm.pool import schedule as rules
from farm.pool.instructions import FinishJob, ForkWorker, Instruction, KillWorker, SendJob, StartForeman, StopForeman
from farm.pool.schedule import Schedule
from farm.reasons import RefusalReason

KEY = CompileKey("0" * 64)
BUILT = Built(KEY, Origin.COMPILED, 1.0, 10)
MISMATCH = Rejected(RefusalReason.KEY_MISMATCH, "f")


def up(workers_max: int = 1, jobs_max: int = 500) -> Schedule:
    schedule = Schedule(workers_max=workers_max, jobs_max=jobs_max)
    schedule.handle(on.ForemanUp())
    return schedule


def submit(
    schedule: Schedule,
    job: int,
    *,
    waited: bool = False,
    batch: bool = False,
    fresh: bool = False,
    for_store: bool = False,
) -> list[Instruction]:
    return schedule.handle(on.Submitted(job, waited, batch or for_store, fresh, for_store))


def started(schedule: Schedule, worker: int) -> list[Instruction]:
    return schedule.handle(on.WorkerStarted(worker))


def answer(
    schedule: Schedule, worker: int, job: int, attempt: int, it: WorkerAnswer = BUILT, grown_bytes: int = 0
) -> list[Instruction]:
    return schedule.handle(on.Answered(worker, job, attempt, it, grown_bytes))


def died(schedule: Schedule, worker: int, *, by_us: bool = False, number: int = signal.SIGSEGV) -> list[Instruction]:
    return schedule.handle(on.WorkerExited(worker, None, number, "bang", by_us))


def running(*, waited: bool = True, workers_max: int = 1, jobs_max: int = 500) -> Schedule:
    """Job 1 runs on worker 1."""
    schedule = up(workers_max, jobs_max)
    assert submit(schedule, 1, waited=waited) == [ForkWorker(1, 0 if waited else 10)]
    assert started(schedule, 1) == [SendJob(1, 1, 1)]
    return schedule


def test_the_first_job_starts_the_foreman_and_only_once() -> None:
    schedule = Schedule(workers_max=1)
    assert submit(schedule, 1) == [StartForeman(0)]
    assert submit(schedule, 2) == []
    assert schedule.handle(on.ForemanUp()) == [ForkWorker(1, 10)]


def test_a_job_that_wants_a_fresh_worker_gets_none_that_has_done_a_job() -> None:
    schedule = running()
    assert submit(schedule, 2, waited=True, fresh=True) == []
    assert answer(schedule, 1, 1, 1) == [FinishJob(1, BUILT), KillWorker(1), ForkWorker(2, 0)]
    assert started(schedule, 2) == [SendJob(2, 2, 1)]
    assert answer(schedule, 2, 2, 1) == [FinishJob(2, BUILT)]
    assert submit(schedule, 3, waited=True) == [SendJob(2, 3, 1)], "any other job takes it"


def test_a_fresh_worker_is_forked_beside_an_idle_one_where_there_is_room() -> None:
    schedule = running(workers_max=2)
    answer(schedule, 1, 1, 1)
    assert submit(schedule, 2, waited=True, fresh=True) == [ForkWorker(2, 0)]
    assert submit(schedule, 3, waited=True) == [SendJob(1, 3, 1)]
    assert started(schedule, 2) == [SendJob(2, 2, 1)]


def test_waited_for_first_then_by_calls_then_batch() -> None:
    schedule = running()
    submit(schedule, 2, batch=True)
    submit(schedule, 3)
    submit(schedule, 4)
    schedule.handle(on.Called(4))
    submit(schedule, 5, waited=True)
    order = []
    for job in (1, 5, 4, 3, 2):
        out = answer(schedule, 1, job, 1)
        order += [i.job_id for i in out if isinstance(i, SendJob)]
    assert order == [5, 4, 3, 2]


def test_batch_never_takes_the_last_worker_until_promoted() -> None:
    schedule = up(2)
    assert submit(schedule, 1, batch=True) == [ForkWorker(1, 10)]
    assert submit(schedule, 2, batch=True) == []
    assert schedule.handle(on.Called(2)) == [ForkWorker(2, 10)]


def test_a_waited_job_replaces_an_idle_niced_worker() -> None:
    schedule = running(waited=False)
    answer(schedule, 1, 1, 1)
    assert submit(schedule, 2, waited=True) == [KillWorker(1), ForkWorker(2, 0)]


def test_a_niced_job_that_gets_waited_for_starts_again() -> None:
    schedule = running(waited=False)
    assert schedule.handle(on.Waited(1)) == [KillWorker(1), ForkWorker(2, 0)]
    assert started(schedule, 2) == [SendJob(2, 1, 2)]
    assert answer(schedule, 1, 1, 1) == []
    assert answer(schedule, 2, 1, 2) == [FinishJob(1, BUILT)]


def test_a_second_death_condemns() -> None:
    schedule = running()
    assert died(schedule, 1) == [ForkWorker(2, 0)]
    assert started(schedule, 2) == [SendJob(2, 1, 2)]
    assert died(schedule, 2) == [FinishJob(1, Died(None, 11, "bang"))]


def test_deaths_by_us_and_by_the_foreman_do_not_count() -> None:
    schedule = running()
    assert died(schedule, 1, by_us=True) == [ForkWorker(2, 0)]
    started(schedule, 2)
    assert schedule.handle(on.ForemanLost("gone")) == [StartForeman(1)]
    assert schedule.handle(on.ForemanUp()) == [ForkWorker(3, 0)]
    started(schedule, 3)
    assert died(schedule, 3) == [ForkWorker(4, 0)]


@pytest.mark.parametrize("number", sorted(rules.OUTSIDE_SIGNALS))
def test_deaths_from_outside_count_apart_and_come_to_an_end(number: int) -> None:
    schedule = running()
    assert died(schedule, 1) == [ForkWorker(2, 0)]
    for worker in range(2, rules.OUTSIDE_DEATHS_MAX + 1):
        started(schedule, worker)
        assert died(schedule, worker, number=number) == [ForkWorker(worker + 1, 0)]
    started(schedule, rules.OUTSIDE_DEATHS_MAX + 1)
    out = died(schedule, rules.OUTSIDE_DEATHS_MAX + 1, number=number)
    assert out == [FinishJob(1, Died(None, number, "bang"))]


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE])
def test_deaths_by_signals_of_crashes_are_the_jobs_doing(number: int) -> None:
    schedule = running()
    assert died(schedule, 1, number=number) == [ForkWorker(2, 0)]
    started(schedule, 2)
    assert died(schedule, 2, number=number) == [FinishJob(1, Died(None, number, "bang"))]


def test_a_foreman_without_jobs_and_workers_is_sent_away_and_started_again() -> None:
    schedule = running()
    assert schedule.handle(on.ForemanIdle()) == []
    answer(schedule, 1, 1, 1)
    assert schedule.handle(on.ForemanIdle()) == []
    assert schedule.handle(on.WorkerIdle(1)) == [KillWorker(1)]
    assert schedule.handle(on.ForemanIdle()) == [StopForeman()]
    assert schedule.handle(on.ForemanIdle()) == []
    assert submit(schedule, 2) == [StartForeman(0)]


def test_a_foreman_lost_again_and_again_cancels() -> None:
    schedule = running()
    for _ in range(rules.STARTS_FAILED_MAX - 1):
        assert schedule.handle(on.ForemanLost("gone")) != []
    assert schedule.handle(on.ForemanLost("gone")) == [FinishJob(1, Cancelled("gone"))]
    assert submit(schedule, 2) == [StartForeman(rules.STARTS_FAILED_MAX)]


def test_a_job_that_loses_the_foreman_for_ever_comes_to_an_end_though_others_are_answered_in_between() -> None:
    schedule = running(workers_max=2)
    for loss in range(1, rules.OUTSIDE_DEATHS_MAX):
        its_worker, other, job = 2 * loss - 1, 2 * loss, 10 + loss
        assert submit(schedule, job) == [ForkWorker(other, 10)]
        assert started(schedule, other) == [SendJob(other, job, 1)]
        assert answer(schedule, other, job, 1) == [FinishJob(job, BUILT)]
        assert schedule.handle(on.ForemanLost("gone")) == [StartForeman(1)]
        assert schedule.handle(on.ForemanUp()) == [ForkWorker(its_worker + 2, 0)]
        assert started(schedule, its_worker + 2) == [SendJob(its_worker + 2, 1, loss + 1)]
    assert schedule.handle(on.ForemanLost("gone")) == [FinishJob(1, Died(None, None, "gone"))]


def test_workers_that_never_start_cancel() -> None:
    schedule = up()
    submit(schedule, 1)
    out = [died(schedule, worker) for worker in range(1, rules.FORKS_FAILED_MAX + 1)]
    assert [type(i) for i in out[-1]] == [FinishJob]


def test_limits_are_final_and_an_old_attempt_has_none() -> None:
    schedule = running()
    assert schedule.handle(on.DeadlinePassed(1, 0, 5)) == []
    assert schedule.handle(on.DeadlinePassed(1, 1, 5)) == [KillWorker(1), FinishJob(1, TimedOut(5))]
    schedule = running()
    out = schedule.handle(on.MemoryExceeded(1, 1, 10, 20))
    assert out == [KillWorker(1), FinishJob(1, OutOfMemory(10, 20))]


def test_busy_rests_until_a_tick() -> None:
    schedule = running()
    assert answer(schedule, 1, 1, 1, Busy(KEY)) == [] and schedule.resting
    assert schedule.handle(on.Tick()) == [SendJob(1, 1, 2)]


def test_a_key_that_stays_busy_is_given_back_for_the_front_to_compile() -> None:
    schedule = running()
    for attempt in range(1, rules.BUSY_MAX):
        assert answer(schedule, 1, 1, attempt, Busy(KEY)) == []
        assert schedule.handle(on.Tick()) == [SendJob(1, 1, attempt + 1)]
    (finish,) = answer(schedule, 1, 1, rules.BUSY_MAX, Busy(KEY))
    assert isinstance(finish, FinishJob) and isinstance(finish.answer, Rejected)


def test_a_key_mismatch_is_tried_on_a_fresh_worker_once() -> None:
    schedule = running()
    assert answer(schedule, 1, 1, 1, MISMATCH) == [KillWorker(1), ForkWorker(2, 0)]
    started(schedule, 2)
    assert answer(schedule, 2, 1, 2, MISMATCH) == [FinishJob(1, MISMATCH)]


def test_a_worker_is_replaced_after_its_jobs() -> None:
    assert answer(running(jobs_max=1), 1, 1, 1) == [KillWorker(1, recycled=True), FinishJob(1, BUILT)]


def test_a_worker_that_has_grown_is_replaced_and_its_answer_counts() -> None:
    schedule = running()
    submit(schedule, 2, waited=True)
    assert answer(schedule, 1, 1, 1, grown_bytes=rules.GROWTH_MAX_BYTES - 1) == [FinishJob(1, BUILT), SendJob(1, 2, 1)]
    submit(schedule, 3, waited=True)
    out = answer(schedule, 1, 2, 1, grown_bytes=rules.GROWTH_MAX_BYTES)
    assert out == [KillWorker(1, recycled=True), FinishJob(2, BUILT), ForkWorker(2, 0)]


def test_an_idle_worker_leaves_and_a_busy_one_does_not() -> None:
    schedule = running()
    assert schedule.handle(on.WorkerIdle(1)) == []
    answer(schedule, 1, 1, 1)
    assert schedule.handle(on.WorkerIdle(1)) == [KillWorker(1)]


def test_drain_cancels_the_queued_and_close_the_rest() -> None:
    schedule = running()
    submit(schedule, 2)
    assert [i.job_id for i in schedule.handle(on.Drain()) if isinstance(i, FinishJob)] == [2]
    assert [type(i) for i in schedule.handle(on.Close())] == [KillWorker, FinishJob]
    assert answer(schedule, 1, 1, 1) == []
    assert [type(i) for i in submit(schedule, 3)] == [FinishJob]


def test_drain_leaves_what_is_for_the_store_alone_until_close() -> None:
    schedule = running()
    submit(schedule, 2)
    submit(schedule, 3, for_store=True)
    assert [i.job_id for i in schedule.handle(on.Drain()) if isinstance(i, FinishJob)] == [2]
    assert answer(schedule, 1, 1, 1) == [FinishJob(1, BUILT), SendJob(1, 3, 1)]
    assert [type(i) for i in schedule.handle(on.Close())] == [KillWorker, FinishJob]


def test_a_waited_job_takes_the_place_of_one_for_the_store_alone_which_runs_later() -> None:
    schedule = up()
    submit(schedule, 1, for_store=True)
    assert started(schedule, 1) == [SendJob(1, 1, 1)]
    assert submit(schedule, 2) == []
    assert submit(schedule, 3, waited=True) == [KillWorker(1), ForkWorker(2, 0)]
    assert started(schedule, 2) == [SendJob(2, 3, 1)]
    assert answer(schedule, 2, 3, 1) == [FinishJob(3, BUILT), SendJob(2, 2, 1)]
    assert answer(schedule, 2, 2, 1) == [FinishJob(2, BUILT), SendJob(2, 1, 2)]


def test_a_job_for_the_store_that_somebody_waits_for_after_all_is_one_like_others() -> None:
    schedule = up()
    submit(schedule, 1, for_store=True)
    started(schedule, 1)
    assert schedule.handle(on.Waited(1)) == [KillWorker(1), ForkWorker(2, 0)]
    assert started(schedule, 2) == [SendJob(2, 1, 2)]
    assert submit(schedule, 2, waited=True) == [], "its worker is not taken away"
    submit(schedule, 3, for_store=True)
    schedule.handle(on.Waited(3))
    cancelled = [i.job_id for i in schedule.handle(on.Drain()) if isinstance(i, FinishJob)]
    assert cancelled == [2, 3]


@pytest.mark.parametrize(
    "event",
    [
        on.Waited(9),
        on.Called(9),
        on.WorkerStarted(9),
        on.WorkerIdle(9),
        on.WorkerExited(9, 1, None),
        on.Answered(9, 9, 1, BUILT),
        on.Answered(1, 9, 1, BUILT),
        on.Answered(9, 1, 1, BUILT),
        on.Answered(1, 1, 9, BUILT),
        on.DeadlinePassed(9, 1, 1.0),
        on.MemoryExceeded(9, 1, 1, 1),
    ],
)
def test_strangers_change_nothing(event: on.Event) -> None:
    schedule = running()
    assert schedule.handle(event) == []
    assert answer(schedule, 1, 1, 1) == [FinishJob(1, BUILT)]


def test_an_answer_that_came_with_the_death_counts_and_no_job_goes_to_the_dead() -> None:
    schedule = running()
    submit(schedule, 2, waited=True)
    out = schedule.handle(on.WorkerExited(1, None, 11, "", False, (on.Answered(1, 1, 1, BUILT),)))
    assert out == [FinishJob(1, BUILT), ForkWorker(2, 0)]
