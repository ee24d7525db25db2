"""The wire: what the front, the foreman and the workers say to each other.

Every message is a frozen dataclass of plain values, framed as a four-byte big-endian length and a
pickle. Both ends are processes of one user that share one installed farm, so pickle is the right
codec here; bytes that come from disk are never unpickled before their digest is checked. No class of the
user is in a message but inside bytes: reading one imports nothing. Neither end keeps more than
MESSAGE_MAX_BYTES for the other.

    front  -> worker    Compile
    worker -> front     Built | Failed | Rejected | Differs | Busy, or StoreTrimmed
    front  -> foreman   Fork (with the worker's socket and output pipe as descriptors), Signal, Ping
    foreman -> front    ForemanReady, Forked, Exited, Pong

A job ends in exactly one final answer: Built, Failed, Rejected, Differs, Died, TimedOut, OutOfMemory or
Cancelled. The last four are made by the front about a worker; they never cross a pipe. Busy is not
final: the job goes back to the queue.
"""

import pickle
import struct
from dataclasses import dataclass
from enum import Enum
from typing import Final

from farm.errors import told
from farm.job.key import CompileKey
from farm.reasons import DegradedReason, MissReason, RefusalReason

FRAME: Final = struct.Struct(">I")
MESSAGE_MAX_BYTES: Final = 64 << 20
"""A guess: a function with its constants, or an artifact, of 10 MB is large. The front has several copies of it,
and other jobs wait while it is taken in. Measured: 0.08 s and 250 MB for 50 MB each way, 0.9 s and 1.1 GB for 250."""


class BadMessage(ValueError):
    """What came is no message, or what was to be sent is too large for one."""


class Origin(Enum):
    """Where an artifact came from."""

    COMPILED = "compiled by a worker"
    STORE = "found in the store"


@dataclass(frozen=True, slots=True)
class Job:
    """One compile as the pool sees it: an opaque payload with a name and a key."""

    key: CompileKey
    label: str
    """`module.function(types)`, for people."""
    payload: bytes
    """A pickled CompileFunctor."""
    deadline_s: float
    fresh: bool = False
    """Only a worker that has done no job will do."""
    for_store: bool = False
    """The store alone gets it: whoever asked has compiled it meanwhile."""

    @property
    def can_be_sent(self) -> bool:
        """Whether it fits into a message."""
        return len(self.payload) + 4 * len(self.label) < MESSAGE_MAX_BYTES - 4096


@dataclass(frozen=True, slots=True)
class Compile:
    """Do this job. Attempts count from 1; an answer to an older attempt is stale and dropped."""

    job_id: int
    attempt: int
    label: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class ReissuedWarning:
    """A NumbaWarning raised in a worker, to be issued again in the front."""

    category: tuple[tuple[str, str], ...]
    """(module, qualified name) of its class and of its bases, the most special first: the front takes what it has."""
    text: str
    filename: str
    line: int


@dataclass(frozen=True, slots=True)
class Nested:
    """A callee compiled or loaded inside a job, for compile counts and events."""

    function: str
    signature: str
    origin: Origin
    withheld: RefusalReason | None = None
    """Why it was compiled and not published, if it was not."""
    artifact_bytes: int = 0
    """What was published for it."""


@dataclass(frozen=True, slots=True)
class Built:
    """The artifact exists: in the store under `key`, or in `inline` if it could not be stored."""

    key: CompileKey
    origin: Origin
    compile_s: float
    artifact_bytes: int
    inline: bytes | None = None
    warnings: tuple[ReissuedWarning, ...] = ()
    nested: tuple[Nested, ...] = ()
    degraded: tuple[tuple[DegradedReason, str], ...] = ()
    misses: tuple[tuple[MissReason, int], ...] = ()
    """What the worker looked for and did not find, the job's own artifact excepted if it was only absent."""
    verified: int = 0
    """How many stored artifacts, callees included, were compiled again and found the same."""


@dataclass(frozen=True, slots=True)
class Failed:
    """numba cannot compile it. `error` is numba's pickled exception, or None if it did not pickle."""

    kind: str
    text: str
    error: bytes | None
    literal_args: tuple[int, ...] | None = None
    """Positions that must become literals (numba's ForceLiteralArg): ask again with literal types."""
    warnings: tuple[ReissuedWarning, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """The job cannot be done in a worker; the front compiles it locally."""

    reason: RefusalReason
    detail: str


@dataclass(frozen=True, slots=True)
class Differs:
    """A stored artifact, the job's own or a callee's, is not what compiling it again gave."""

    function: str
    signature: str
    key: CompileKey
    """What was asked for."""
    made_under: CompileKey | None
    """The key that the artifact itself says it was made under, or None if it says nothing."""
    differences: tuple[tuple[str, str, str], ...]
    """(where, stored, compiled again)."""
    others: tuple[str, ...] = ()
    """Other functions of the same job that differ, probably as they have this one in them."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Another process compiles this key at the moment. Not final."""

    key: CompileKey


@dataclass(frozen=True, slots=True)
class Died:
    """The job's own doing ended its workers."""

    exit_code: int | None
    signal: int | None
    last_lines: str


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The job's deadline passed."""

    limit_s: float


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """The job's worker grew over its limit."""

    limit_bytes: int
    used_bytes: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The pool was closed, or no pool can be had, before the job was done."""

    detail: str


@dataclass(frozen=True, slots=True)
class StoreTrimmed:
    """The store was brought under its size limit; all zero if another process is doing that."""

    entries_removed: int
    bytes_removed: int
    degraded: tuple[tuple[DegradedReason, str], ...] = ()


WorkerAnswer = Built | Failed | Rejected | Differs | Busy | StoreTrimmed
FinalAnswer = Built | Failed | Rejected | Differs | Died | TimedOut | OutOfMemory | Cancelled | StoreTrimmed


@dataclass(frozen=True, slots=True)
class Answer:
    """A worker's answer to one attempt of one job."""

    job_id: int
    attempt: int
    answer: WorkerAnswer
    grown_bytes: int = 0
    """How much the worker's RSS has grown since its first answer."""


@dataclass(frozen=True, slots=True)
class Fork:
    """Fork a worker. Two descriptors travel with it: the worker's socket and its output pipe."""

    worker_id: int
    nice: int


@dataclass(frozen=True, slots=True)
class Signal:
    """Send a signal to a worker's process group. Only the foreman signals, so no pid is reused under us."""

    worker_id: int
    signal: int


@dataclass(frozen=True, slots=True)
class ForemanReady:
    """The foreman has imported numba and can fork."""

    pid: int


@dataclass(frozen=True, slots=True)
class Forked:
    """A worker exists."""

    worker_id: int
    pid: int


@dataclass(frozen=True, slots=True)
class Exited:
    """A worker has ended and was reaped: one of the two numbers is set."""

    worker_id: int
    exit_code: int | None
    signal: int | None


@dataclass(frozen=True, slots=True)
class Ping:
    """Is the foreman there? A stopped one keeps its socket open and answers nothing."""


@dataclass(frozen=True, slots=True)
class Pong:
    """It is."""


Message = Compile | Answer | Fork | Signal | ForemanReady | Forked | Exited | Ping | Pong


def encode(message: Message) -> bytes:
    """One frame: length and pickle. Raises BadMessage for what is too large."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    if len(body) > MESSAGE_MAX_BYTES:
        raise BadMessage(f"{len(body) >> 20} MiB to be sent, and no more than {MESSAGE_MAX_BYTES >> 20} may be")
    return FRAME.pack(len(body)) + body


class Decoder:
    """Cuts a byte stream into messages, whatever the sizes of the pieces it comes in."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Take the next bytes of the stream; return the messages that are now complete.

        Raises BadMessage for anything else, and then there is no telling where the next one begins.
        """
        self._buffer += data
        messages: list[Message] = []
        while len(self._buffer) >= FRAME.size:
            (length,) = FRAME.unpack_from(self._buffer)
            if length > MESSAGE_MAX_BYTES:
                raise BadMessage(f"a message of {length} bytes is announced")
            end = FRAME.size + length
            if len(self._buffer) < end:
                break
            try:
                message = pickle.loads(self._buffer[FRAME.size : end])
            except Exception as error:  # bytes that are no pickle raise anything
                raise BadMessage(told(error)) from error
            if not isinstance(message, Message):
                raise BadMessage(f"a {type(message).__name__} is no message")
            messages.append(message)
            del self._buffer[:end]
        return messages
