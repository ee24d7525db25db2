"""Events: what the farm tells those who listen (`farm.observe.listeners`), as plain values."""

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileFailed(SignatureEvent):
    """The compile ended without machine code, for good."""

    error: BaseException
    worker: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledLocally(SignatureEvent):
    """The front compiles this signature itself, and why."""

    reason: RefusalReason
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStarted(SignatureEvent):
    """An artifact is being read from the store."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFinished(SignatureEvent):
    """An artifact became a function."""

    key: str
    load_time_s: float
    artifact_bytes: int
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
