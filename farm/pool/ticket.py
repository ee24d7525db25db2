"""What the pool gives out: a ticket for each job, and events for a listener."""

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import Final

from farm.job.messages import FinalAnswer, Job
from farm.pool.instructions import Called, Waited
from farm.port.futures import SteadyFuture


class PoolEventKind(Enum):
    """What a listener can hear of."""

    FOREMAN_UP = "foreman up"
    FOREMAN_LOST = "foreman lost"
    FOREMAN_NOT_STARTED = "foreman not started"
    WORKER_STARTED = "worker started"
    WORKER_EXITED = "worker exited"
    WORKER_RECYCLED = "worker recycled"
    JOB_SENT = "job sent"
    JOB_FINISHED = "job finished"


@dataclass(frozen=True, slots=True)
class PoolEvent:
    """Something happened in the pool; `subject` is a job's label or a worker's or foreman's pid."""

    kind: PoolEventKind
    subject: str
    detail: str = ""
    worker_pid: int | None = None
    """The worker that this is about, where there is one."""
    in_job: bool = False
    """Whether it ended in the middle of a job."""


class AttemptEnd(Enum):
    """How a worker's work at a job came to its end."""

    ANSWERED = "answered"
    BUSY = "another process compiles the same"
    STOPPED = "the worker was ended by the pool"
    DIED = "the worker ended"
    LOST = "the foreman ended, and the worker with it"


@dataclass(slots=True)
class Attempt:
    """A worker's work at a job. Times are time.monotonic seconds; until it is over it has no end."""

    worker_pid: int | None
    sent_at: float
    ended_at: float | None = None
    how: AttemptEnd | None = None


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker as it is seen from outside the pool.

    Parameters
    ----------
    pid
        None while it is being started.
    job, since
        What it is compiling, and when it got it, in time.monotonic seconds; None if nothing.
    """

    pid: int | None
    job: str | None = None
    since: float | None = None


class Ticket:
    """A submitted job: its future, and the two notes that move it forward in the queue."""

    def __init__(self, job_id: int, job: Job, post: Callable[[Waited | Called], None]) -> None:
        self.job_id = job_id
        self.job = job
        self.future: Future[FinalAnswer] = SteadyFuture()
        self.future.set_running_or_notify_cancel()  # a future that the user can cancel has two owners
        self.submitted_at = time.monotonic()
        self.taken: Final = threading.Event()
        """Set once the pool's thread has seen it, and sent it if a worker was free."""
        self.attempts: list[Attempt] = []
        """Written by the pool's thread; whole before the future is done."""
        self._post = post

    @property
    def sent_at(self) -> float | None:
        """When the last attempt was sent to a worker, in time.monotonic seconds."""
        return self.attempts[-1].sent_at if self.attempts else None

    @property
    def worker_pid(self) -> int | None:
        """That worker."""
        return self.attempts[-1].worker_pid if self.attempts else None

    def end_attempt(self, how: AttemptEnd) -> None:
        """The last attempt is over, if it was not."""
        if self.attempts and self.attempts[-1].ended_at is None:
            self.attempts[-1].ended_at, self.attempts[-1].how = time.monotonic(), how

    @property
    def queue_time_s(self) -> float:
        """Seconds from the submission until a worker got the job; 0 if none did."""
        sent_at = self.sent_at
        return 0.0 if sent_at is None else sent_at - self.submitted_at

    def note_wait(self) -> None:
        """Somebody waits for the job now."""
        self._post(Waited(self.job_id))

    def note_call(self) -> None:
        """The job's function was called."""
        self._post(Called(self.job_id))

    def finish(self, answer: FinalAnswer) -> None:
        """Give the answer; whatever a callback raises stays here."""
        self.taken.set()
        with contextlib.suppress(BaseException):
            self.future.set_result(answer)
