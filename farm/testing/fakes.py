"""Fakes: what stands in for worker processes, the cache directory and the clock, so that tests are quick and say when.

    pool = InlinePool(held=True)
    with Farm(pool=pool, store=MemoryStore()) as barn:
        score = njit(body, farm=barn)
        score(3)        # the Python body: nothing is compiled before the test says so
        pool.run()      # compiled now, in this thread
        barn.wait()
        score(3)        # machine code

They are the same to the farm: keys, functors, artifacts, loading and installing are the real ones. They do not protect
from what a compile does to its process, which is what workers are for.
"""

import itertools
import pickle
import threading
import time
from collections import deque
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Final

from farm.job.key import CompileKey
from farm.job.messages import Busy, Cancelled, FinalAnswer, Job, StoreTrimmed
from farm.pool.instructions import Called, Waited
from farm.pool.ticket import Attempt, AttemptEnd, Ticket
from farm.reasons import MissReason
from farm.store.artifact import Artifact, BytesSource, Digest, Miss, Stored, encode, read

if TYPE_CHECKING:
    from farm.pool.task import Order


class ManualClock:
    """A clock that a test moves: calling it gives seconds, as `time.time` does."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass; also backwards."""
        self.now_s += seconds


class MemoryStore:
    """A store without a directory: artifacts as bytes, gone with the process. Workers deliver over their pipes."""

    def __init__(self) -> None:
        # Guards _artifacts; artifacts are encoded and decoded without it.
        self._lock = threading.RLock()
        self._artifacts: dict[CompileKey, bytes] = {}

    def __len__(self) -> int:
        return len(self._artifacts)

    def contains(self, key: CompileKey) -> bool:
        """Whether there is an artifact under a key."""
        return key in self._artifacts

    def get(self, key: CompileKey) -> Stored | Miss:
        """The artifact under a key."""
        with self._lock:
            data = self._artifacts.get(key)
        return Miss(MissReason.ABSENT) if data is None else read(BytesSource(data), key)

    def put(self, artifact: Artifact) -> Digest:
        """Keep an artifact, in place of one that is there."""
        data = encode(artifact)
        with self._lock:
            self._artifacts[artifact.key] = data
        return Digest.of(data)

    def stored_keys(self) -> tuple[CompileKey, ...]:
        """The keys there are, in the order of their first put."""
        with self._lock:
            return tuple(self._artifacts)

    def clear(self) -> None:
        """Forget all artifacts."""
        with self._lock:
            self._artifacts.clear()

    def __repr__(self) -> str:
        return f"<MemoryStore, {len(self)} artifacts>"


class InlinePool:
    """A pool without processes: jobs are compiled in the thread that submits them, or when the test says so.

    What it has compiled is installed by the farm's own thread or by whoever waits, as ever: `wait()` before a call that
    must run machine code.

    Parameters
    ----------
    held
        Jobs are kept until `run`. What somebody begins to wait for is compiled at once all the same, in that thread.
    """

    def __init__(self, *, held: bool = False) -> None:
        self.held: Final = held
        self._ids = itertools.count(1)
        # Guards _queued and _closed. Jobs are done without it.
        self._lock = threading.RLock()
        self._queued: deque[Ticket] = deque()
        self._closed = False

    @property
    def queued(self) -> tuple[str, ...]:
        """`module.function(types)` of the jobs that are held, the next one first."""
        with self._lock:
            return tuple(ticket.job.label for ticket in self._queued)

    def run(self, jobs_max: int | None = None) -> int:
        """Compile what is held, in this thread; give how many jobs that were."""
        done = 0
        while jobs_max is None or done < jobs_max:
            with self._lock:
                if not self._queued:
                    break
                ticket = self._queued.popleft()
            _do(ticket)
            done += 1
        return done

    def submit(self, job: Job, *, waited: bool, batch: bool) -> Ticket:
        """Take a job. After `close` it is answered with Cancelled."""
        ticket = Ticket(next(self._ids), job, self._note)
        ticket.taken.set()
        with self._lock:
            closed = self._closed
            holds = not closed and self.held and not waited
            if holds:
                self._queued.append(ticket)
        if closed:
            ticket.finish(Cancelled("the pool is closed"))
        elif not holds:
            _do(ticket)
        return ticket

    def _note(self, note: Waited | Called) -> None:
        if not isinstance(note, Waited):
            return
        with self._lock:
            found = next((one for one in self._queued if one.job_id == note.job_id), None)
            if found is not None:
                self._queued.remove(found)
        if found is not None:
            _do(found)

    def start(self) -> None:
        """Nothing: there is no process to start."""

    @property
    def ready(self) -> bool:
        """Always: there is no process to start."""
        return True

    def close(self, grace_s: float = 0.0) -> None:
        """Take no more jobs; what is held is cancelled."""
        with self._lock:
            self._closed = True
            held = list(self._queued)
            self._queued.clear()
        for ticket in held:
            ticket.finish(Cancelled("the pool is closed"))

    def __enter__(self) -> "InlinePool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<InlinePool [{'closed' if self._closed else f'{len(self._queued)} held'}]>"


def _do(ticket: Ticket) -> None:
    ticket.attempts.append(Attempt(None, time.monotonic()))
    answer = _answer(pickle.loads(ticket.job.payload))
    ticket.end_attempt(AttemptEnd.ANSWERED)
    ticket.finish(answer)


def _answer(order: "Order | object") -> FinalAnswer:
    from farm.pool.task import Order, compile_order

    if not isinstance(order, Order):
        return StoreTrimmed(0, 0)
    answer = compile_order(order)
    if isinstance(answer, Busy):  # another process has the key: what is made without the lock is as good
        answer = compile_order(replace(order, store=None))
    assert not isinstance(answer, Busy)
    return answer
