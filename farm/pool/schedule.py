"""The pool's mind: which job runs where. Pure: it knows no clock, no pipe and no pid.

`handle(event)` returns the instructions that the pool has to carry out. An event about a job or a
worker that is not (or no longer) known changes nothing and never raises: reports of the dead cross
orders on the way.

    job      event                                   becomes    instructions
    -------  --------------------------------------  ---------  -----------------------------------
    -        Submitted                               queued     (assign)
    queued   (assign) a fitting worker is idle       running    SendJob, attempt + 1
    queued   (assign) none, and room for one         queued     ForkWorker
    queued   (assign) none, no room, a misfit idle   queued     KillWorker(misfit), ForkWorker
    queued   (assign) waited, no room, one for the   queued     KillWorker(its), ForkWorker; that one is
             store alone running                                queued again
    queued   Called (batch)                          queued     promoted to on-demand
    running  Answered, but for the three below       finished   FinishJob
    running  Answered Busy                           queued     rests until the next Tick
    running  Answered Busy, BUSY_MAX times           finished   FinishJob(Rejected)
    running  Answered KEY_MISMATCH, the first        queued     only a fresh worker will do
    running  WorkerExited, the job's own doing       queued
    running  the same, DEATHS_MAX times              finished   FinishJob(Died)
    running  WorkerExited, ended from outside        queued
    running  the same, OUTSIDE_DEATHS_MAX times      finished   FinishJob(Died)
    running  DeadlinePassed, MemoryExceeded          finished   KillWorker, FinishJob
    running  Waited, on a niced worker               queued     KillWorker (again at nice 0)
    running  ForemanLost                             queued     StartForeman
    running  the same, OUTSIDE_DEATHS_MAX times      finished   FinishJob(Died)
    any      ForemanLost, too many in a row          finished   FinishJob(Cancelled)
    queued   Drain                                   finished   FinishJob(Cancelled)
    queued   Drain, for the store alone              queued     goes on until Close
    any      Close                                   finished   FinishJob(Cancelled), KillWorker

    worker   event                                   becomes
    -------  --------------------------------------  -----------------------------------------------
    -        ForkWorker                              starting
    starting WorkerStarted                           idle
    idle     SendJob                                 busy
    busy     Answered                                idle, or killed: `jobs_max` jobs, grown too much
    idle     WorkerIdle                              killed
    any      KillWorker, WorkerExited, ForemanLost   gone: its later reports are about a stranger

    foreman  event                                   becomes
    -------  --------------------------------------  -----------------------------------------------
    down     a job is queued, Wanted                 starting (StartForeman)
    starting ForemanUp                               up
    up       ForemanIdle, no job and no worker       down (StopForeman)
    any      ForemanLost                             down

Because a killed worker is forgotten at once, its death cannot count against a job: a job's death is
the exit of a worker that we did not kill while it had that job. A death by a signal that crashes do
not send (the kernel's out-of-memory killer and a person send SIGKILL) came from outside: it counts
only so that a job that the kernel kills for ever comes to an end. So does the loss of a foreman, which a
compile can bring about: while others are answered in between, it would go on like that for ever.
"""

import heapq
import signal
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from typing import Final

from farm.job.messages import Busy, Cancelled, Died, FinalAnswer, OutOfMemory, Rejected, TimedOut
from farm.pool import instructions as on
from farm.reasons import RefusalReason

DEATHS_MAX: Final = 2
"""A job that ended this many workers is condemned."""
OUTSIDE_DEATHS_MAX: Final = 5
"""A guess: the end of a job whose workers the kernel kills for want of memory, again and again."""
OUTSIDE_SIGNALS: Final = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGKILL})
BUSY_MAX: Final = 300
"""30 s of ticks: whoever holds the key that long is stopped, or so slow that the front should not wait."""
GROWTH_MAX_BYTES: Final = 500 << 20
"""A guess: a worker that has grown so much since its first job gives the memory back by being replaced."""
STARTS_FAILED_MAX: Final = 3
"""A guess: so many foremen in a row lost without an answer, and the jobs are given up."""
FORKS_FAILED_MAX: Final = 3
"""A guess: so many workers in a row that ended before they started, and the jobs are given up."""


class _Foreman(Enum):
    DOWN = "down"
    STARTING = "starting"
    UP = "up"


@dataclass(slots=True)
class _Job:
    id: int
    waited: bool
    batch: bool
    fresh: bool
    for_store: bool = False
    calls: int = 0
    attempt: int = 0
    deaths: int = 0
    outside_deaths: int = 0
    busy: int = 0
    mismatches: int = 0
    resting: bool = False
    worker: int | None = None
    place: tuple[int, int, int] | None = None
    """Its order when it was put in line last; None while it is not."""

    def order(self) -> tuple[int, int, int]:
        """Waited-for first, then on-demand by calls, then batch; the older first among equals."""
        return (0 if self.waited else 2 if self.batch else 1, -self.calls, self.id)


class _Line:
    """Jobs that may be given to a worker now, in their order. What an event costs does not grow with their number."""

    def __init__(self) -> None:
        self._entries: list[tuple[tuple[int, int, int], _Job]] = []
        """A heap. An entry whose order is not its job's place is one that the job has left. Orders differ by the id."""

    def put(self, job: _Job) -> None:
        """Add it, or put it where it belongs now."""
        place = job.order()
        if place != job.place:
            job.place = place
            heapq.heappush(self._entries, (place, job))

    @staticmethod
    def leave(job: _Job) -> None:
        """It runs, rests or is over."""
        job.place = None

    def in_order(self) -> Generator[_Job, None, None]:
        """The jobs, the first first, as long as somebody asks. Who is still in line afterwards stays there."""
        passed = []
        try:
            while self._entries:
                place, job = entry = heapq.heappop(self._entries)
                if job.place == place:
                    passed.append(entry)
                    yield job
        finally:
            for entry in passed:
                if entry[1].place == entry[0]:
                    heapq.heappush(self._entries, entry)


@dataclass(slots=True)
class _Worker:
    id: int
    nice: int
    started: bool = False
    job: int | None = None
    jobs_done: int = 0

    def fits(self, job: _Job) -> bool:
        return not (job.waited and self.nice) and not ((job.fresh or job.mismatches) and self.jobs_done)


@dataclass(frozen=True, slots=True)
class Counts:
    """What the status line shows."""

    idle: int
    busy: int
    queued: int


class Schedule:
    """All jobs and workers of one pool, and the rules between them.

    Parameters
    ----------
    workers_max
        At most so many workers live at a time. Batch jobs leave one of them free, if there are two.
    nice
        Niceness of workers for jobs nobody waits for. It cannot be lowered again, hence the restarts.
    jobs_max
        A worker is replaced after so many jobs.
    growth_max_bytes
        A worker is replaced once it has grown so much since its first job.
    """

    def __init__(
        self, *, workers_max: int, nice: int = 10, jobs_max: int = 500, growth_max_bytes: int = GROWTH_MAX_BYTES
    ) -> None:
        self._workers_max = workers_max
        self._nice = nice
        self._jobs_max = jobs_max
        self._growth_max_bytes = growth_max_bytes
        self._jobs: dict[int, _Job] = {}
        self._line = _Line()
        """Those of the jobs that are queued and do not rest."""
        self._resting: dict[int, _Job] = {}
        self._workers: dict[int, _Worker] = {}
        self._worker_ids = 0
        self._foreman = _Foreman.DOWN
        self._foreman_failures = 0
        self._fork_failures = 0
        self._open = True
        self._out: list[on.Instruction] = []

    def handle(self, event: on.Event) -> list[on.Instruction]:
        """Take one event; return what is to be done, in order."""
        self._out = []
        match event:
            case on.Submitted():
                self._submit(event)
            case on.Wanted():
                self._want_foreman()
            case on.Waited(job_id):
                self._wait(job_id)
            case on.Called(job_id):
                if job := self._jobs.get(job_id):
                    job.calls += 1
                    job.batch = False
                    self._put_in_line(job)
            case on.WorkerStarted(worker_id):
                if worker := self._workers.get(worker_id):
                    worker.started = True
                    self._fork_failures = 0
            case on.Answered():
                self._answer(event)
            case on.WorkerExited():
                self._exit(event)
            case on.WorkerIdle(worker_id):
                worker = self._workers.get(worker_id)
                if worker and worker.started and worker.job is None:
                    self._kill(worker)
            case on.DeadlinePassed(job_id, attempt, limit_s):
                self._stop(job_id, attempt, TimedOut(limit_s))
            case on.MemoryExceeded(job_id, attempt, limit_bytes, used_bytes):
                self._stop(job_id, attempt, OutOfMemory(limit_bytes, used_bytes))
            case on.ForemanUp():
                self._foreman = _Foreman.UP
            case on.ForemanLost(detail):
                self._lose_foreman(detail)
            case on.ForemanIdle():
                if self._foreman is _Foreman.UP and not self._workers and not self._jobs:
                    self._foreman = _Foreman.DOWN
                    self._out.append(on.StopForeman())
            case on.Tick():
                rested, self._resting = self._resting, {}
                for job in rested.values():
                    job.resting = False
                    self._put_in_line(job)
            case on.Drain():
                self._open = False
                self._cancel_queued("the pool is being closed", but_for_store=True)
            case on.Close():
                self._close()
        self._assign()
        return self._out

    @property
    def resting(self) -> bool:
        """Whether a Tick would change anything."""
        return bool(self._resting)

    def counts(self) -> Counts:
        """Workers by state, and queued jobs."""
        busy = sum(worker.job is not None for worker in self._workers.values())
        idle = sum(worker.started and worker.job is None for worker in self._workers.values())
        return Counts(idle, busy, len(self._jobs) - busy)

    def _submit(self, event: on.Submitted) -> None:
        if event.job_id in self._jobs:
            return
        if not self._open:
            self._out.append(on.FinishJob(event.job_id, Cancelled("the pool is closed")))
            return
        batch = event.batch and not event.waited
        job = self._jobs[event.job_id] = _Job(event.job_id, event.waited, batch, event.fresh, event.for_store)
        self._put_in_line(job)

    def _wait(self, job_id: int) -> None:
        job = self._jobs.get(job_id)
        if job is None or job.waited:
            return
        job.waited, job.batch, job.for_store = True, False, False
        worker = self._workers.get(job.worker) if job.worker is not None else None
        if worker and worker.nice and self._open:
            self._kill(worker)
            job.worker = None
        self._put_in_line(job)

    def _answer(self, event: on.Answered) -> None:
        job, worker = self._jobs.get(event.job_id), self._workers.get(event.worker_id)
        if not job or not worker or job.worker != worker.id or job.attempt != event.attempt:
            return
        self._foreman_failures = 0
        worker.job, job.worker = None, None
        worker.jobs_done += 1
        if worker.jobs_done >= self._jobs_max or event.grown_bytes >= self._growth_max_bytes:
            self._kill(worker, recycled=True)
        if isinstance(event.answer, Busy):
            job.busy += 1
            if job.busy < BUSY_MAX:
                self._requeue(job, resting=True)
            else:
                self._finish(job, Rejected(RefusalReason.NO_POOL, "another process held the store's lock for 30 s"))
        elif (
            isinstance(event.answer, Rejected)
            and event.answer.reason is RefusalReason.KEY_MISMATCH
            and not job.mismatches
            and self._open
        ):
            job.mismatches = 1
            self._put_in_line(job)
        else:
            self._finish(job, event.answer)

    def _exit(self, event: on.WorkerExited) -> None:
        for answer in event.answers:
            self._answer(answer)
        worker = self._workers.pop(event.worker_id, None)
        if worker is None:
            return
        if not worker.started:
            self._fork_failures += 1
            if self._fork_failures >= FORKS_FAILED_MAX:
                self._fork_failures = 0
                self._cancel_queued(f"{FORKS_FAILED_MAX} workers in a row ended before they started")
            return
        job = self._jobs.get(worker.job) if worker.job is not None else None
        if job is None:
            return
        if not event.by_us:
            outside = event.signal in OUTSIDE_SIGNALS
            job.outside_deaths += outside
            job.deaths += not outside
        if job.deaths >= DEATHS_MAX or job.outside_deaths >= OUTSIDE_DEATHS_MAX:
            self._finish(job, Died(event.exit_code, event.signal, event.last_lines))
        else:
            self._requeue(job)

    def _stop(self, job_id: int, attempt: int, answer: FinalAnswer) -> None:
        job = self._jobs.get(job_id)
        if job is None or job.worker is None or job.attempt != attempt:
            return
        self._kill(self._workers[job.worker])
        self._finish(job, answer)

    def _lose_foreman(self, detail: str) -> None:
        self._foreman = _Foreman.DOWN
        self._foreman_failures += 1
        self._workers.clear()
        for job in [job for job in self._jobs.values() if job.worker is not None]:
            job.outside_deaths += 1
            if job.outside_deaths >= OUTSIDE_DEATHS_MAX:
                self._finish(job, Died(None, None, detail))
            else:
                self._requeue(job)
        if self._foreman_failures >= STARTS_FAILED_MAX:
            self._cancel_queued(detail)

    def _close(self) -> None:
        self._open = False
        for worker in list(self._workers.values()):
            if worker.job is not None:
                self._jobs[worker.job].worker = None  # to be cancelled with the others
            self._kill(worker)
        self._cancel_queued("the pool was closed")

    def _requeue(self, job: _Job, *, resting: bool = False) -> None:
        job.worker, job.resting = None, resting
        if not self._open:
            self._finish(job, Cancelled("the pool is being closed"))
        elif resting:
            self._resting[job.id] = job
        else:
            self._put_in_line(job)

    def _put_in_line(self, job: _Job) -> None:
        """Where its order says, if it waits for a worker."""
        if job.worker is None and not job.resting:
            self._line.put(job)

    def _cancel_queued(self, detail: str, *, but_for_store: bool = False) -> None:
        for job in list(self._jobs.values()):
            if job.worker is None and not (but_for_store and job.for_store):
                self._finish(job, Cancelled(detail))

    def _finish(self, job: _Job, answer: FinalAnswer) -> None:
        del self._jobs[job.id]
        self._resting.pop(job.id, None)
        self._line.leave(job)
        self._out.append(on.FinishJob(job.id, answer))

    def _kill(self, worker: _Worker, *, recycled: bool = False) -> None:
        del self._workers[worker.id]
        self._out.append(on.KillWorker(worker.id, recycled))

    def _want_foreman(self) -> None:
        if self._foreman is _Foreman.DOWN and self._open:
            self._foreman = _Foreman.STARTING
            self._out.append(on.StartForeman(self._foreman_failures))

    def _assign(self) -> None:
        running = [self._jobs[worker.job] for worker in self._workers.values() if worker.job is not None]
        if len(running) == len(self._jobs):  # once it is closed, what is for the store alone is all there is
            return
        if self._foreman is not _Foreman.UP:
            self._want_foreman()
            return
        free = [worker for worker in self._workers.values() if worker.job is None]
        batch_room = max(1, self._workers_max - 1)
        batch_room -= sum(job.batch for job in running)
        with closing(self._line.in_order()) as line:
            for job in line:
                if job.batch and batch_room <= 0:  # batch comes last
                    break
                worker = self._worker_for(job, free)
                if worker is None and not free:  # nobody after it is better off
                    break
                if worker is None:
                    continue
                batch_room -= job.batch
                if worker.started:
                    self._line.leave(job)
                    job.attempt += 1
                    job.worker, worker.job = worker.id, job.id
                    self._out.append(on.SendJob(worker.id, job.id, job.attempt))

    def _for_store_alone(self) -> _Worker | None:
        """A worker whose job nobody wants now; the job is queued again."""
        for worker in self._workers.values():
            job = None if worker.job is None else self._jobs[worker.job]
            if job is not None and job.for_store:
                job.worker, worker.job = None, None
                self._put_in_line(job)
                return worker
        return None

    def _worker_for(self, job: _Job, free: list[_Worker]) -> _Worker | None:
        """Take a worker for the job out of `free`, or begin one; None if the job must stay queued."""
        fitting = [worker for worker in free if worker.fits(job)]
        if fitting:
            # Niced workers first where they will do: a waited-for job cannot use them.
            worker = min(fitting, key=lambda worker: (not worker.started, -worker.nice, worker.id))
            free.remove(worker)
            return worker
        if len(self._workers) >= self._workers_max:
            misfit = next((worker for worker in free if worker.started), None)
            if misfit is not None:
                free.remove(misfit)
            elif (misfit := self._for_store_alone() if job.waited else None) is None:
                return None
            self._kill(misfit)
        self._worker_ids += 1
        worker = _Worker(self._worker_ids, 0 if job.waited else self._nice)
        self._workers[worker.id] = worker
        self._out.append(on.ForkWorker(worker.id, worker.nice))
        return worker
