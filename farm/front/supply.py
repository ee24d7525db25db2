"""Supply: what a farm starts or opens on first need, its pool of workers and its store on disk."""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol, cast

from farm.config import Config
from farm.errors import NotShippable, StoreRefused
from farm.front import ends
from farm.front.record import Record
from farm.front.usage import UsageReport
from farm.job.key import CompileKey
from farm.job.messages import Built, Cancelled, FinalAnswer, Job, Origin
from farm.pool.size import workers_allowed
from farm.port.load import LoadRefused, require_cpu
from farm.port.target import Plain
from farm.reasons import DegradedReason, MissReason, RefusalReason
from farm.store.artifact import Artifact, Miss, Stored, decode
from farm.store.disk import DiskStore, StoreSettings

if TYPE_CHECKING:
    from farm.front.pools import Pools
    from farm.pool.pool import Pool
    from farm.pool.ticket import Ticket, WorkerView

POOL_SETTINGS: Final = frozenset({"workers", "worker_memory_max_bytes", "worker_jobs_max", "nice", "start_method"})
"""Settings that a running pool keeps."""

TRIMS_PER_LIMIT: Final = 20
"""A guess: so many trims while as much is published as the store may hold; each is a scan, 0.4 s for 100,000 files."""
COMPILE_S: Final = 0.5
"""A guess, where no compile is known: the least is 0.2 s, many take a second."""


class JobTaker(Protocol):
    """What takes jobs: a pool of workers, or what a test has in its place."""

    def submit(self, job: Job, *, waited: bool, batch: bool) -> "Ticket":
        """Queue a job; never raises."""

    def start(self) -> None:
        """Make ready for the first job."""

    @property
    def ready(self) -> bool:
        """Whether a job would be begun now, or as soon as another one is done."""

    def close(self, grace_s: float) -> None:
        """Answer what is queued, and take no more."""


class Keeps(Protocol):
    """What keeps artifacts: a directory, or what a test has in its place."""

    def get(self, key: CompileKey) -> Stored | Miss:
        """The artifact under a key."""

    def contains(self, key: CompileKey) -> bool:
        """Whether there is something under a key."""

    def put(self, artifact: Artifact) -> object:
        """Keep an artifact."""


class Supply:
    """The pool and the store of one farm, for as long as its settings stay as they are.

    Parameters
    ----------
    given_pool, given_store
        Used in place of worker processes and of the cache directory.
    """

    def __init__(
        self,
        record: Record,
        chance: Callable[[], float] = random.random,
        later: Callable[[Callable[[], None]], None] = lambda tell: tell(),
        given_pool: JobTaker | None = None,
        given_store: Keeps | None = None,
    ) -> None:
        self._record = record
        self._given_pool, self._given_store = given_pool, given_store
        self._later = later
        self._chance = chance
        # Guards _made, _store, _store_opened, _settings_number and _closed. Nothing that blocks is done with it held.
        self._lock = threading.RLock()
        # Guards nothing: held while the store is opened, which reads a disk that may be slow, so that it is opened, and
        # told of, once. Who needs no store waits for neither. `_lock` may be taken inside it.
        self._opening = threading.RLock()
        self._made: Pools | None = None
        self.when_pool: Callable[[], None] = lambda: None
        """Called when there is a pool that was not there before."""
        self._store: DiskStore | None = None
        self._store_opened = False
        self._settings_number = 0
        self._closed = False
        self._allowed: int | None = None
        self.usage: Final = UsageReport(record.counters, lambda: self._store)

    def __repr__(self) -> str:
        return ", ".join(map(repr, self._all_pools())) or "no pool yet"

    @property
    def pools(self) -> "Pools":
        """What compiles: it brings in most of the farm's modules, so it waits for the first compile."""
        made = self._made
        if made is None:
            from farm.front.pools import Pools

            ends.close_all_at_exit()
            pools = Pools(self._record, self.note_degraded)
            with self._lock:
                if self._closed:
                    pools.end()
                made = self._made = self._made or pools
        return made

    def _all_pools(self) -> "list[Pool]":
        return [] if self._made is None else self._made.all()

    @property
    def has_pool(self) -> bool:
        """Whether a pool was started, so that settings in POOL_SETTINGS come too late."""
        return bool(self._all_pools())

    def workers_max(self, config: Config) -> int:
        """How many workers there may be: the setting, or what the machine allows."""
        if config.workers is not None:
            return config.workers
        if self._allowed is None:
            self._allowed, _ = workers_allowed()
        return self._allowed

    def store(self, config: Config) -> DiskStore | None:
        """The store, or None if its directory or the signing key is refused: counted, and warned of once."""
        with self._lock:
            opened, store = self._store_opened, self._store
        return store if opened else self._open_store(config)

    def _open_store(self, config: Config) -> DiskStore | None:
        problem: Exception | None = None
        with self._opening:
            with self._lock:
                if self._store_opened:
                    return self._store
                number = self._settings_number
            store: DiskStore | None = None
            try:
                store = StoreSettings.of(config, config.cache_dir).open()
            except (StoreRefused, OSError) as refusal:
                problem = refusal
            with self._lock:
                if number == self._settings_number:  # else they changed meanwhile: the next need opens it anew
                    self._store, self._store_opened = store, True
        # Outside both locks: a listener that hears of it may change a setting.
        for one in () if store is None else store.problems:
            remedy = "let this user read it (chmod -R go+rX), or take it out of FARM_LOWER_CACHE_DIRS"
            self._tell(one, "a lower cache directory is left out", remedy)
        if problem is not None:
            self._tell(problem, f"nothing is stored in {config.cache_dir}")
        return store

    def _tell(
        self, problem: Exception, consequence: str, remedy: str = "set FARM_CACHE_DIR to a directory of yours"
    ) -> None:
        refused = isinstance(problem, StoreRefused)
        reason = DegradedReason.STORE_REFUSED if refused else DegradedReason.STORE_UNREADABLE
        text = str(problem) if refused else f"{consequence}: {problem}; {remedy}"
        self._record.degraded(reason, text, warning=text)

    def look_up(self, config: Config, key: CompileKey) -> Stored | Miss | None:
        """The artifact in the store, a miss that is counted, or None if there is no store."""
        store = self.store(config) if self._given_store is None else self._given_store  # an empty one is false
        if store is None:
            return None
        found = store.get(key)
        if isinstance(found, Miss):
            self._record.missed(found.reason)
        return found

    def look_further(self, config: Config, others: Iterable[CompileKey]) -> Stored | None:
        """The first of these artifacts that the store has and this CPU can run. That one is not there is no miss."""
        store = self.store(config) if self._given_store is None else self._given_store  # an empty one is false
        if store is None:
            return None
        for key in others:
            if store.contains(key):
                found = store.get(key)
                reason = found.reason if isinstance(found, Miss) else _unfit(found)
                if reason is None:
                    return cast(Stored, found)
                self._record.missed(reason)
        return None

    @cached_property
    def usual_compile_s(self) -> float:
        """What a compile usually takes, by what this store tells of other programs."""
        told = self.usage.usual_compile_s()
        return COMPILE_S if told is None else told

    def store_settings(self, config: Config) -> StoreSettings | None:
        """What a worker opens the same store with; None if there is none that it can open."""
        if self._given_store is not None:
            return None
        store = self.store(config)
        return None if store is None else StoreSettings.of(config, store.root)

    def keeps(self, store: StoreSettings | None) -> bool:
        """Whether there is anything that what a worker makes can be kept in; `store` is what it opens."""
        return self._given_store is not None or (store is not None and not store.readonly)

    def forget_store(self) -> None:
        """Open it anew on the next need, with the settings of that time."""
        self.usage.write()
        with self._lock:
            self._store, self._store_opened = None, False
            self._settings_number += 1

    def keep(self, built: Built, stored: Stored) -> None:
        """What came over the pipe goes into the store that was given, which workers cannot open."""
        if self._given_store is None or built.inline is None:
            return
        artifact = stored.artifact()
        if isinstance(artifact, Artifact):
            self._given_store.put(artifact)

    def pool(self, config: Config, numbas: Mapping[str, Plain]) -> JobTaker:
        """The pool whose processes compile under these settings of numba's.

        Raises NotShippable(NO_POOL) once the supply is closed.
        """
        with self._lock:
            closed = self._closed
        if closed:
            raise NotShippable(RefusalReason.NO_POOL, "the farm is closed")
        if self._given_pool is not None:
            return self._given_pool
        before = len(self._all_pools())
        pool = self.pools.pool(config, numbas, self.workers_max(config))
        if len(self._all_pools()) > before:
            self.when_pool()
        return pool

    def starting(self, config: Config, numbas: Mapping[str, Plain]) -> bool:
        """Whether whoever waits for this pool would wait for its start; not once the supply is closed."""
        with contextlib.suppress(NotShippable):
            return not self.pool(config, numbas).ready
        return False

    def look(self) -> "tuple[list[WorkerView], list[str]]":
        """The workers of all pools as they are now, and the labels of the jobs that wait for one."""
        return ([], []) if self._made is None else self._made.look()

    def note_published(self, config: Config, size_bytes: int) -> None:
        """A worker has published so much. Now and then that is a reason to have the store trimmed.

        Each publication asks with a chance in proportion to its size, so that many short-lived processes together
        ask as often as one that runs for long, and none has to keep count.
        """
        store, pools = self._store, self._made
        if store is None or pools is None:
            return
        if self._chance() < size_bytes * TRIMS_PER_LIMIT / config.cache_size_max_bytes:
            pools.trim(StoreSettings.of(config, store.root), config.job_timeout_s)

    def take_published(self, config: Config, answer: FinalAnswer) -> None:
        """In the pool's thread: a job was done for the store alone, as its caller has compiled it himself."""
        if isinstance(answer, Cancelled) and not self._closed:
            self.note_degraded(DegradedReason.POOL_UNAVAILABLE, answer.detail)
        if not isinstance(answer, Built):
            return
        for reason, detail in answer.degraded:
            self.note_degraded(reason, detail)
        if answer.origin is Origin.COMPILED and answer.inline is None:
            self.note_published(config, answer.artifact_bytes + sum(one.artifact_bytes for one in answer.nested))
        if self._given_store is not None and answer.inline is not None:
            stored = decode(answer.inline, answer.key)
            if isinstance(stored, Stored):
                self.keep(answer, stored)

    def note_degraded(self, reason: DegradedReason, detail: str) -> None:
        """In the pool's thread: the count at once; listeners, who may wait for what that thread brings, later."""
        self._record.counters.degrade(reason)
        self._later(lambda: self._record.tell_degraded(reason, detail))

    def close(self, grace_s: float) -> None:
        """End the pools: queued jobs are cancelled, running ones have `grace_s` seconds to publish."""
        end = time.monotonic() + grace_s
        with self._lock:
            self._closed = True
            pools = [] if self._made is None else self._made.end()
        for pool in pools if self._given_pool is None else [self._given_pool]:
            pool.close(max(0.0, end - time.monotonic()))


def _unfit(found: Stored) -> MissReason | None:
    try:
        require_cpu(found.meta)
    except LoadRefused as refusal:
        return refusal.reason
    return None
