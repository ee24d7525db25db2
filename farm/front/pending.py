"""Pending: one compile on its way, from the moment its entry is reserved until it is settled, or given up."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswer
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from farm.front.table import Entry, Flight
from farm.port.futures import SteadyFuture
from farm.reasons import RefusalReason

if TYPE_CHECKING:
    from farm.front.dispatcher import FarmDispatcher
    from farm.front.status import Status
    from farm.job.key import CompileKey
    from farm.job.messages import FinalAnswer
    from farm.pool.task import Order
    from farm.pool.ticket import Ticket
    from farm.port.dispatch import Types
    from farm.port.load import Unpacked
    from farm.store.artifact import Stored


class Source(Enum):
    """Where a signature's machine code came from."""

    WORKER = "compiled by a worker"
    STORE = "loaded from the store"
    LOCAL = "compiled in this process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """How a signature's machine code was obtained. Kept with its entry, for status and explanations."""

    source: Source
    compile_s: float = 0.0
    load_s: float = 0.0
    artifact_bytes: int = 0
    cpu: str = ""
    """What it was made for."""
    instead_of: str = ""
    """The CPU that there was none for; empty if it was made for just that one."""
    refusal: RefusalReason | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """How a signature was asked for: what is needed, beside its types, to ask for the same compile again."""

    return_type: Any | None
    caller_flags: Any | None
    """Of the compile that asked for it, in this process; None if no jitted code did."""


class LiteralsWanted(Exception):
    """numba compiles this function only for literal arguments at these positions: ask again, by value.

    It settles the entry of the plain types; each combination of values gets an entry of its own.
    """

    def __init__(self, positions: tuple[int, ...]) -> None:
        super().__init__(positions)
        self.positions = positions

    def __str__(self) -> str:
        return f"compiled for each value of the arguments at positions {', '.join(map(str, self.positions))}"


class Overtaken(Exception):
    """`recompile()` came before the result: nobody wants it, and whoever waited asks again."""


@dataclass(slots=True, eq=False)
class Pending:
    """One compile on its way. `claim` is guarded by numba's compiler lock."""

    dispatcher: "FarmDispatcher"
    entry: "Entry[Types, Any]"
    flight: Flight[Any]
    return_type: Any | None
    caller_flags: Any | None
    slot: object | None
    """What it holds of the limit on running compiles; None if it holds nothing."""
    batch: bool
    by_call: bool = False
    """Whether a call asked, which can run machine code at once if the store has it."""
    at_once: bool = False
    """Whether who asked compiles it himself while the pool is starting: then the pool makes it for the store alone."""
    answer: "Future[FinalAnswer]" = field(default_factory=SteadyFuture)
    """Another one takes its place if the artifact that it names is not there, and the pool is asked for the bytes."""
    key: "CompileKey | None" = None
    """None for what has no key: it compiles in this process."""
    stored: "Stored | None" = None
    """The artifact, if the store had it before a job was made."""
    ticket: "Ticket | None" = None
    order: "Order | None" = None
    """What was asked of the pool, for as long as it may be asked once more. Guarded by the settler's lock."""
    waited: bool = False
    """Whether anybody has begun to wait for it."""
    unpacked: "Unpacked | None" = None
    """The artifact ready to be linked; any thread may have prepared it."""
    look_up_s: float = 0.0
    """What reading took, if the store had it before a job was made."""
    unpack_s: float = 0.0
    """What unpickling took, and reading if it came later, in the thread that was last to do it."""
    load_told: bool = False
    """Whether the start of the load was told. Guarded by the settler's lock."""
    claim: object | None = None
    """Belongs to whoever settles it, once there is somebody."""
    here: tuple[float, float] | None = None
    """When this process compiled it, or loaded it: from and to, in time.monotonic seconds."""
    origin: "Origin | None" = None
    """How its machine code was obtained, once it is."""
    began: float = field(default_factory=time.monotonic)
    there: bool = False
    """Whether its machine code is there, to be loaded at least: Python bodies are stopped for it."""
    ended: bool = False
    """Whether it counts as pending no longer."""
    futures: "list[Future[Status]]" = field(default_factory=list)
    """Completed once it is settled. Guarded by the farm's lock."""

    @property
    def settled(self) -> bool:
        """Whether it is settled, or being settled."""
        return self.claim is not None

    @property
    def label(self) -> str:
        """`module.function(types)`, for people."""
        return self.dispatcher.signature_label(self.entry.key)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until there is an answer, whatever it says; False if the time passed first."""
        self.note_wait()
        answer = self.answer
        try:
            answer.exception(timeout_s)
        except NoAnswer:
            return answer.done()
        return True

    def note_wait(self) -> None:
        """Somebody waits: the job moves to the front of the queue, and off a niced worker."""
        self.waited = True
        if self.ticket is not None:
            self.ticket.note_wait()

    def note_call(self) -> None:
        """The function was called meanwhile: the job moves forward, and is batch no longer."""
        if self.ticket is not None and not self.answer.done():
            self.ticket.note_call()

    def when_answered(self, callback: Callable[["Pending"], None]) -> None:
        """Call back with this pending once there is an answer, in whichever thread brings it."""
        self.answer.add_done_callback(lambda _: callback(self))
