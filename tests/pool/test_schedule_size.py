"""Many jobs: what an event costs does not grow with them, and the order is that of looking at all of them each time."""

import signal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farm.job.key import CompileKey
from farm.job.messages import Built, Busy, Origin, Rejected
from farm.pool import instructions as on
from farm.pool import schedule as rules
from farm.pool.schedule import Schedule
from farm.reasons import RefusalReason

KEY = CompileKey("0" * 64)
BUILT = Built(KEY, Origin.COMPILED, 1.0, 10)
ANSWERS = (BUILT, BUILT, BUILT, Busy(KEY), Rejected(RefusalReason.KEY_MISMATCH, "f"))
WORKERS = 2


class Scanning(Schedule):
    """The same rules with the plainest queue: all jobs, sorted, for each event."""

    def _assign(self) -> None:
        queue = sorted((job for job in self._jobs.values() if job.worker is None), key=lambda job: job.order())
        if not queue:
            return
        if self._foreman is not rules._Foreman.UP:
            self._want_foreman()
            return
        free = [worker for worker in self._workers.values() if worker.job is None]
        room = max(1, self._workers_max - 1) - sum(job.batch and job.worker is not None for job in self._jobs.values())
        for job in queue:
            if job.resting or job.worker is not None or (job.batch and room <= 0):
                continue
            worker = self._worker_for(job, free)
            if worker is None:
                continue
            room -= job.batch
            if worker.started:
                job.attempt += 1
                job.worker, worker.job = worker.id, job.id
                self._out.append(on.SendJob(worker.id, job.id, job.attempt))


EVENTS = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from(["waited", "called", "batch", "fresh", "store"])),
    st.tuples(st.sampled_from(["called", "waited"]), st.integers(0, 30)),
    st.tuples(st.just("answered"), st.integers(0, 9), st.sampled_from(ANSWERS)),
    st.tuples(st.just("died"), st.integers(0, 9), st.sampled_from([signal.SIGSEGV, signal.SIGKILL])),
    st.tuples(st.just("tick")),
    st.tuples(st.sampled_from(["foreman lost", "foreman up", "drain"])),
)


class Driver:
    """Turns drawn steps into events about what the schedule has said so far."""

    def __init__(self) -> None:
        self.jobs = 0
        self.forked: list[int] = []
        self.sent: list[on.SendJob] = []

    def hear(self, said: list[on.Instruction]) -> None:
        for one in said:
            if isinstance(one, on.ForkWorker):
                self.forked.append(one.worker_id)
            elif isinstance(one, on.SendJob):
                self.sent.append(one)

    def event(self, step: tuple[object, ...]) -> on.Event | None:
        match step:
            case ("submit", kind):
                self.jobs += 1
                batch, store = kind in ("batch", "store"), kind == "store"
                return on.Submitted(self.jobs, kind == "waited", batch, kind == "fresh", store)
            case ("called", int(job)):
                return on.Called(job)
            case ("waited", int(job)):
                return on.Waited(job)
            case ("answered", int(which), answer) if self.sent:
                one = self.sent.pop(which % len(self.sent))
                return on.Answered(one.worker_id, one.job_id, one.attempt, answer)  # type: ignore[arg-type]
            case ("died", int(which), int(number)) if self.sent:
                one = self.sent.pop(which % len(self.sent))
                return on.WorkerExited(one.worker_id, None, number, "")
            case ("tick",):
                return on.Tick()
            case ("foreman up",):
                return on.ForemanUp()
            case ("foreman lost",):
                return on.ForemanLost("lost")
            case ("drain",):
                return on.Drain()
        return None


@settings(max_examples=300, deadline=None)
@given(steps=st.lists(EVENTS, min_size=5, max_size=120))
def test_the_line_gives_what_looking_at_all_jobs_gives(steps: list[tuple[object, ...]]) -> None:
    ours, plain, driver = Schedule(workers_max=WORKERS), Scanning(workers_max=WORKERS), Driver()
    for event in (on.ForemanUp(), *steps):
        events = [event if isinstance(event, on.ForemanUp) else driver.event(event)]
        while events:
            if (one := events.pop(0)) is None:
                continue
            said = ours.handle(one)
            assert said == plain.handle(one), one
            assert ours.counts() == plain.counts() and ours.resting == any(job.resting for job in plain._jobs.values())
            driver.hear(said)
            events += [on.WorkerStarted(worker) for worker in driver.forked]
            driver.forked.clear()


@pytest.mark.parametrize("kind", ["waited", "called", "batch", "resting"])
def test_what_an_event_costs_does_not_grow_with_the_queue(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in places in line that are worked out, and looks at them."""
    looks = 0
    order, worker_for = rules._Job.order, Schedule._worker_for

    def counted_order(job: rules._Job) -> tuple[int, int, int]:
        nonlocal looks
        looks += 1
        return order(job)

    def counted_worker(schedule: Schedule, job: rules._Job, free: list[rules._Worker]) -> rules._Worker | None:
        nonlocal looks
        looks += 1
        return worker_for(schedule, job, free)

    monkeypatch.setattr(rules._Job, "order", counted_order)
    monkeypatch.setattr(Schedule, "_worker_for", counted_worker)
    schedule = Schedule(workers_max=WORKERS, jobs_max=10**6)
    schedule.handle(on.ForemanUp())
    driver, number = Driver(), 1000
    for job in range(1, number + 1):
        driver.hear(schedule.handle(on.Submitted(job, kind == "waited", kind == "batch")))
    assert looks <= 5 * number
    for worker in driver.forked:
        driver.hear(schedule.handle(on.WorkerStarted(worker)))
    driver.forked.clear()
    answers, looks = 0, 0
    while driver.sent and answers < number:
        one = driver.sent.pop(0)
        answer = Busy(KEY) if kind == "resting" else BUILT
        driver.hear(schedule.handle(on.Answered(one.worker_id, one.job_id, one.attempt, answer)))
        schedule.handle(on.Called(number + 5))
        answers += 1
    assert answers == number and looks <= 8 * number
