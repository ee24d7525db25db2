"""Events: what the farm tells those who listen (`farm.observe.listeners`), as plain values."""

from dataclasses import dataclass
from enum import Enum

from farm.reasons import DegradedReason, MissReason, RefusalReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureEvent(Event):
    """Something that happened to one signature of one function."""

    function: str
    signature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileStarted(SignatureEvent):
    """A job was handed over; it may have to queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileFinished(SignatureEvent):
    """Machine code is installed. One per finished compile, loads from the store included."""

    compile_count: int
    compile_time_s: float
    cumulative_compile_time_s: float
    used_persistent_cache: bool
    queue_time_s: float = 0.0
    load_time_s: float = 0.0
    worker: int | None = None
    artifact_bytes: int = 0
    saved_s: float = 0.0
    """Compile seconds that a load from the store made unnecessary."""
    cpu: str = ""
    """What the machine code was made for."""


class JobResult(Enum):
    """What the pool made of a job."""

    COMPILED = "compiled by a worker"
    FOUND = "found in the store by a worker"
    FAILED = "numba cannot compile it"
    DIED = "the worker died"
    TIMED_OUT = "timed out"
    OUT_OF_MEMORY = "out of memory"
    REJECTED = "left to the program"
    CANCELLED = "cancelled"
    DIFFERS = "not what the store had"


@dataclass(frozen=True, slots=True)
class JobAttempt:
    """A worker's work at a job, from and to in time.monotonic seconds, and how that came to its end."""

    worker: int | None
    began_at: float
    ended_at: float
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded(SignatureEvent):
    """A job that the pool was given is settled. What it was asked for `asked_at`, in time.monotonic seconds."""

    asked_at: float
    attempts: tuple[JobAttempt, ...]
    result: JobResult
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileFailed(SignatureEvent):
    """The compile ended without machine code, for good.

    If the front compiled it, from `began_at` to `ended_at` in time.monotonic seconds; else both are None.
    """

    error: BaseException
    worker: int | None = None
    began_at: float | None = None
    ended_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledLocally(SignatureEvent):
    """The front has compiled this signature itself, why, and when, in time.monotonic seconds."""

    reason: RefusalReason
    detail: str = ""
    began_at: float = 0.0
    ended_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStarted(SignatureEvent):
    """An artifact is being read from the store."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFinished(SignatureEvent):
    """An artifact became a function, at `ended_at` in time.monotonic seconds."""

    key: str
    load_time_s: float
    artifact_bytes: int
    ended_at: float = 0.0
    cpu: str = ""
    """What the artifact was made for: not always the CPU that it runs on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFailed(SignatureEvent):
    """The store had nothing usable under this key. It costs a compile, never a call."""

    key: str
    reason: MissReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Megamorphic(Event):
    """The function gets no machine code for new signatures any more."""

    function: str
    compile_count: int
    execution_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Degraded(Event):
    """The farm works below its best."""

    reason: DegradedReason
    detail: str = ""
