"""What the schedule is told and what it answers: events in, instructions out. Plain values, nothing else.

Ids are the pool's own numbers, never pids: a pid can be used again, an id cannot.
"""

from dataclasses import dataclass

from farm.job.messages import FinalAnswer, WorkerAnswer


@dataclass(frozen=True, slots=True)
class Submitted:
    """A new job. Batch jobs are prewarming; a waited-for job is never batch."""

    job_id: int
    waited: bool
    batch: bool
    fresh: bool = False
    """Only a worker that has done no job will do."""
    for_store: bool = False
    """Nobody wants the answer, and what is made is to be there the next time."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Jobs are expected: have the foreman ready."""


@dataclass(frozen=True, slots=True)
class Waited:
    """Somebody began to wait for the job."""

    job_id: int


@dataclass(frozen=True, slots=True)
class Called:
    """The job's function was called while the job was pending."""

    job_id: int


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    """The foreman forked the worker."""

    worker_id: int


@dataclass(frozen=True, slots=True)
class Answered:
    """The worker answered an attempt of a job."""

    worker_id: int
    job_id: int
    attempt: int
    answer: WorkerAnswer
    grown_bytes: int = 0
    """How much the worker has grown since its first job."""


@dataclass(frozen=True, slots=True)
class WorkerExited:
    """The worker ended. `answers` came with its end: they count, but it gets no further job for them."""

    worker_id: int
    exit_code: int | None
    signal: int | None
    last_lines: str = ""
    by_us: bool = False
    answers: tuple[Answered, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerIdle:
    """The worker was idle for too long."""

    worker_id: int


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """The attempt ran for `limit_s` seconds."""

    job_id: int
    attempt: int
    limit_s: float


@dataclass(frozen=True, slots=True)
class MemoryExceeded:
    """The attempt's worker grew over its limit."""

    job_id: int
    attempt: int
    limit_bytes: int
    used_bytes: int


@dataclass(frozen=True, slots=True)
class ForemanUp:
    """The foreman can fork."""


@dataclass(frozen=True, slots=True)
class ForemanLost:
    """The foreman ended, or could not be started; all its workers are dead."""

    detail: str


@dataclass(frozen=True, slots=True)
class ForemanIdle:
    """The foreman has had neither workers nor jobs for too long."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Some time has passed: jobs that rested may try again."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Take no more jobs, cancel the queued ones, let the running ones finish."""


@dataclass(frozen=True, slots=True)
class Close:
    """Cancel everything."""


Event = (
    Submitted
    | Wanted
    | Waited
    | Called
    | WorkerStarted
    | Answered
    | WorkerExited
    | WorkerIdle
    | DeadlinePassed
    | MemoryExceeded
    | ForemanUp
    | ForemanLost
    | ForemanIdle
    | Tick
    | Drain
    | Close
)


@dataclass(frozen=True, slots=True)
class StartForeman:
    """Start the foreman; `failures` in a row came before, for the back-off."""

    failures: int


@dataclass(frozen=True, slots=True)
class StopForeman:
    """Send the foreman away."""


@dataclass(frozen=True, slots=True)
class ForkWorker:
    """Have a worker forked."""

    worker_id: int
    nice: int


@dataclass(frozen=True, slots=True)
class SendJob:
    """Give the worker this attempt of the job."""

    worker_id: int
    job_id: int
    attempt: int


@dataclass(frozen=True, slots=True)
class KillWorker:
    """Have the worker's process group killed. It is recycled if it did nothing wrong: it has done its share of jobs."""

    worker_id: int
    recycled: bool = False


@dataclass(frozen=True, slots=True)
class FinishJob:
    """The job's one final answer."""

    job_id: int
    answer: FinalAnswer


Instruction = StartForeman | StopForeman | ForkWorker | SendJob | KillWorker | FinishJob
