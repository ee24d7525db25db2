"""The composition root: one Farm owns a pool, a store, the counters and the thread that installs.

A compile is a Pending from the moment its entry is reserved until it is settled, and is settled once,
under numba's compiler lock, by whoever comes first: a thread that waits for it (it may already hold
that lock, so nobody else could) or the installer thread. The pool's thread never takes the lock; it
completes the pending's answer and queues it.
"""

import os
import pickle
import queue
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from farm.config import CompileMode, Config, OnError, worker_environment
from farm.errors import (
    CompileFailed,
    CompileFailedWarning,
    FarmClosed,
    NotShippable,
    OutOfMemory,
    StoreRefused,
    TimedOut,
    WorkerDied,
)
from farm.front.dispatcher import FarmDispatcher
from farm.front.policy import Limits, Profiler, choose_mode
from farm.front.table import Entry, Flight
from farm.job import messages as wire
from farm.job.functor import make_functor
from farm.job.key import CompileKey
from farm.observe.stats import Count, Counters, Duration, Stats
from farm.pool.pool import Pool
from farm.pool.size import workers_allowed
from farm.pool.task import NAME as TASK
from farm.pool.task import Order
from farm.port import failure
from farm.port.compile import Parts, compile_signature
from farm.port.dispatch import Types, compiler_lock
from farm.port.load import LoadRefused, load
from farm.port.target import caller_flags
from farm.reasons import DegradedReason, RefusalReason
from farm.store.artifact import Miss, Stored, decode
from farm.store.disk import DiskStore

PRELOAD: Final = "farm.port.warm:warm"


@dataclass(slots=True, eq=False)
class Pending:
    """One compile on its way. `settled` is guarded by numba's compiler lock."""

    dispatcher: FarmDispatcher
    entry: Entry[Types, Any]
    flight: Flight[Any]
    return_type: Any | None
    caller_flags: Any | None
    on_demand: bool
    answer: "Future[wire.FinalAnswer]"
    wait_noted: Callable[[], None] = lambda: None
    settled: bool = False

    @property
    def label(self) -> str:
        return self.dispatcher.signature_label(self.entry.key)


class Farm:
    """Compiles for the dispatchers that belong to it. Keyword arguments are settings: see `farm.config.Config`.

    Starts no process and no thread before the first compile. Use it as a context manager, or `close` it.
    """

    def __init__(self, **settings: object) -> None:
        self.config: Final = Config.from_environment().with_changes(**settings)
        self.workers_max, self.workers_why = workers_allowed()
        if self.config.workers is not None:
            self.workers_max, self.workers_why = self.config.workers, "the setting workers"
        self.counters: Final = Counters()
        self.profiler: Final = Profiler(Limits.from_config(self.config, self.workers_max))
        # Guards _pool, _store, _installer, _pending and _closed. Nothing that blocks is done with it held.
        self._lock = threading.Lock()
        self._pool: Pool | None = None
        self._store: DiskStore | None = None
        self._store_opened = False
        self._installer: threading.Thread | None = None
        self._arrived: queue.SimpleQueue[Pending | None] = queue.SimpleQueue()
        self._pending: dict[Flight[Any], Pending] = {}
        self._closed = False

    def __repr__(self) -> str:
        return f"<Farm [{self.stats().pending} pending | {self._pool or 'no pool yet'}]>"

    def __enter__(self) -> "Farm":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def stats(self) -> Stats:
        """The counters as they are now."""
        return self.counters.stats()

    # -- the call path ---------------------------------------------------------------------------------

    def code_for_call(self, dispatcher: FarmDispatcher, arguments: Types) -> Callable[..., Any] | None:
        """The machine code for a call that has none installed, or None: run the fallback."""
        entry = dispatcher.table.lookup_or_create(arguments)
        mode = choose_mode(dispatcher.mode or self.config.mode, must_compile=dispatcher.waits)
        if self.config.enabled and not self._closed:
            self._start(
                dispatcher, entry, None, mode, lambda n: self.profiler.should_compile(dispatcher, mode, n).compiles
            )
            if mode is CompileMode.STRICT:
                entry_point: Callable[..., Any] = self._result(entry).entry_point
                return entry_point
        self._report_failure(dispatcher, entry)
        self.counters.count(Count.FALLBACK_CALLS, dispatcher.label)
        return None

    def result_for_caller(self, dispatcher: FarmDispatcher, arguments: Types, return_type: Any | None) -> Any:
        """Wait for the CompileResult that a jitted caller links. Raises numba's error if there is none."""
        entry = dispatcher.table.get_or_create(arguments)
        if self._closed or not self.config.enabled:
            result = self._compile_here(dispatcher, arguments, return_type, caller_flags())
            return dispatcher.installation.install(arguments, result, probation=True)
        self._start(dispatcher, entry, return_type, CompileMode.STRICT, None)
        return self._result(entry)

    def wait_for(self, dispatcher: FarmDispatcher | None, timeout_s: float | None) -> bool:
        """Block until every pending compile (of one dispatcher, or of all) is settled; False on time-out."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        with self._lock:
            waited = [p for p in self._pending.values() if dispatcher is None or p.dispatcher is dispatcher]
        for pending in waited:
            pending.wait_noted()
            try:
                pending.answer.result(None if end is None else max(0.0, end - time.monotonic()))
            except TimeoutError:
                return False
            self._settle(pending)
        return True

    def _start(
        self,
        dispatcher: FarmDispatcher,
        entry: Entry[Types, Any],
        return_type: Any | None,
        mode: CompileMode,
        decide: Callable[[int], bool] | None,
    ) -> None:
        """Reserve the entry and hand the job over; nothing if it is not ours to compile.

        State and slot are taken here, in the caller, before the job is handed over: otherwise two
        callers would queue it twice, and the limit on running compiles would be blind.
        """
        flight = entry.reserve(decide)
        if flight is None:
            return
        pending = Pending(dispatcher, entry, flight, return_type, caller_flags(), decide is not None, Future())
        self.counters.change_pending(1)
        with self._lock:
            self._pending[flight] = pending
        try:
            self._hand_over(pending, waited=mode is CompileMode.STRICT)
        except NotShippable as refusal:
            pending.answer.set_result(wire.Rejected(refusal.reason, refusal.detail))
        self._run_installer()
        pending.answer.add_done_callback(lambda _: self._arrived.put(pending))

    def _hand_over(self, pending: Pending, *, waited: bool) -> None:
        functor = make_functor(pending.dispatcher, pending.entry.key, pending.return_type)
        if self._look_up(functor.key) is not None:
            pending.answer.set_result(wire.Built(functor.key, wire.Origin.STORE, 0.0, 0))
            return
        store = self._open_store()
        order = Order(functor, None if store is None else store.root, self.config.readonly)
        job = wire.Job(functor.key, pending.label, pickle.dumps(order), self.config.job_timeout_s)
        ticket = self._open_pool().submit(job, waited=waited, batch=False)
        pending.wait_noted = ticket.note_wait
        ticket.future.add_done_callback(lambda done: pending.answer.set_result(done.result()))

    def _result(self, entry: Entry[Types, Any]) -> Any:
        """Wait until an entry is settled; its CompileResult, or its error raised."""
        state = entry.snapshot()
        if state.flight is not None:
            with self._lock:
                pending = self._pending.get(state.flight)
            if pending is not None:
                pending.wait_noted()
                pending.answer.result()
                self._settle(pending)
            return state.flight.done.result()
        if state.error is not None:
            raise state.error
        if state.value is None:
            raise FarmClosed()
        return state.value

    def _report_failure(self, dispatcher: FarmDispatcher, entry: Entry[Types, Any]) -> None:
        error = entry.snapshot().error
        if error is None:
            return
        if self.config.on_error is OnError.RAISE:
            raise error
        unreported = entry.take_unreported_error()
        if unreported is not None:
            first_line = str(unreported).strip().partition("\n")[0]
            warnings.warn(
                f"{dispatcher.signature_label(entry.key)} stays in Python: {type(unreported).__name__}: {first_line}",
                CompileFailedWarning,
                stacklevel=4,
            )

    # -- settling --------------------------------------------------------------------------------------

    def _settle(self, pending: Pending) -> None:
        """Turn the answer into an installed result or an error, once. Called without any lock of the farm."""
        with compiler_lock:
            if pending.settled:
                return
            pending.settled = True
            try:
                result = self._obtain(pending, pending.answer.result())
                result = pending.dispatcher.installation.install(pending.entry.key, result, probation=True)
            except BaseException as error:
                self.counters.count(Count.FAILED, pending.dispatcher.label)
                pending.entry.fail(pending.flight, error)
            else:
                pending.entry.publish(pending.flight, result)
        self.counters.change_pending(-1)
        if pending.on_demand:
            self.profiler.release()
        with self._lock:
            self._pending.pop(pending.flight, None)

    def _obtain(self, pending: Pending, answer: wire.FinalAnswer) -> Any:
        label = pending.dispatcher.label
        match answer:
            case wire.Built():
                return self._load(pending, answer)
            case wire.Rejected(reason):
                self.counters.count(Count.REJECTED, label)
                pending.entry.note_reason(reason)
            case wire.Cancelled() if self._closed:
                raise FarmClosed()
            case wire.Cancelled():
                self.counters.degrade(DegradedReason.POOL_UNAVAILABLE)
                pending.entry.note_reason(RefusalReason.NO_POOL)
            case wire.Failed(kind, text, error, None, issued):
                self._reissue(issued)
                raise (failure.unpack(error) if error else None) or CompileFailed(pending.label, kind, text)
            case wire.Failed():
                pass  # numba asks for literals: compiled here, its own error reaches the caller
            case wire.Died(exit_code, signal, last_lines):
                self.counters.count(Count.DIED, label)
                raise WorkerDied(pending.label, exit_code, signal, last_lines)
            case wire.TimedOut(limit_s):
                self.counters.count(Count.TIMED_OUT, label)
                raise TimedOut(pending.label, limit_s)
            case wire.OutOfMemory(limit_bytes, used_bytes):
                self.counters.count(Count.OUT_OF_MEMORY, label)
                raise OutOfMemory(pending.label, limit_bytes, used_bytes)
        return self._compile_pending(pending)

    def _compile_pending(self, pending: Pending) -> Any:
        return self._compile_here(pending.dispatcher, pending.entry.key, pending.return_type, pending.caller_flags)

    def _compile_here(
        self, dispatcher: FarmDispatcher, arguments: Types, return_type: Any | None, flags: Any | None
    ) -> Any:
        self.counters.count(Count.LOCAL, dispatcher.label)
        result, _ = compile_signature(dispatcher, arguments, return_type, flags)
        return result

    def _load(self, pending: Pending, built: wire.Built) -> Any:
        self._reissue(built.warnings)
        for reason, _ in built.degraded:
            self.counters.degrade(reason)
        stored = self._look_up(built.key) if built.inline is None else decode(built.inline, built.key)
        label = pending.dispatcher.label
        if not isinstance(stored, Stored):
            pending.entry.note_reason(RefusalReason.LOAD_FAILED)
            return self._compile_pending(pending)
        started = time.perf_counter()
        try:
            parts = Parts(dict(stored.meta), stored.code, b"", stored.environment)
            result = load(parts, pending.dispatcher.py_func.__globals__, lambda: _whole(stored.bitcode()))
        except LoadRefused as refusal:
            self.counters.miss(refusal.reason)
            pending.entry.note_reason(RefusalReason.LOAD_FAILED)
            return self._compile_pending(pending)
        self.counters.spend(Duration.LOAD, time.perf_counter() - started, label)
        if built.origin is wire.Origin.COMPILED:
            self.counters.count(Count.COMPILED, label)
            self.counters.spend(Duration.COMPILE, built.compile_s, label)
            self.profiler.register_compilation(pending.dispatcher, built.compile_s)
        else:
            self.counters.count(Count.LOADED, label)
            seconds = stored.meta.get("compile_s")
            if isinstance(seconds, float):
                self.counters.spend(Duration.SAVED, seconds, label)
        return result

    @staticmethod
    def _reissue(issued: tuple[wire.ReissuedWarning, ...]) -> None:
        for one in issued:
            warnings.warn_explicit(one.text, one.category, one.filename, one.line)

    def _look_up(self, key: CompileKey) -> Stored | None:
        store = self._open_store()
        if store is None:
            return None
        found = store.get(key)
        if isinstance(found, Miss):
            self.counters.miss(found.reason)
            return None
        return found

    # -- what is started on first need -----------------------------------------------------------------

    def _open_store(self) -> DiskStore | None:
        with self._lock:
            if not self._store_opened:
                self._store_opened = True
                try:
                    self._store = DiskStore(
                        self.config.cache_dir,
                        lower=self.config.lower_cache_dirs,
                        size_max_bytes=self.config.cache_size_max_bytes,
                        readonly=self.config.readonly,
                        group=self.config.shared_group,
                    )
                except (StoreRefused, OSError) as problem:
                    self.counters.degrade(DegradedReason.STORE_REFUSED)
                    warnings.warn(str(problem), stacklevel=2)
            return self._store

    def _open_pool(self) -> Pool:
        with self._lock:
            if self._closed:
                raise NotShippable(RefusalReason.NO_POOL, "the farm is closed")
            if self._pool is None:
                self._pool = Pool(
                    workers_max=self.workers_max,
                    task=TASK,
                    preload=PRELOAD,
                    paths=_worker_paths(),
                    memory_max_bytes=self.config.worker_memory_limit_bytes(),
                    jobs_max=self.config.worker_jobs_max,
                    nice=self.config.nice,
                    environment=worker_environment(),
                )
            return self._pool

    def _run_installer(self) -> None:
        with self._lock:
            if self._installer is None and not self._closed:
                self._installer = threading.Thread(target=self._install_arrivals, name="farm-installer", daemon=True)
                self._installer.start()

    def _install_arrivals(self) -> None:
        while (pending := self._arrived.get()) is not None:
            self._settle(pending)

    def close(self) -> None:
        """Stop intake, end the pool and the installer. Compiled functions stay; the rest runs in Python."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            pool, installer = self._pool, self._installer
        if pool is not None:
            pool.close(self.config.exit_grace_s)
        self._arrived.put(None)
        if installer is not None:
            installer.join(self.config.exit_grace_s)


def _worker_paths() -> tuple[str, ...]:
    """`sys.path` with what is installed first: a user's typing.py beside the script must not end the foreman."""
    installed = tuple({os.path.realpath(prefix) for prefix in (sys.prefix, sys.base_prefix)})
    paths = [os.path.abspath(path) for path in sys.path]
    return tuple(sorted(paths, key=lambda path: not os.path.realpath(path).startswith(installed)))


def _whole(bitcode: bytes | Miss) -> bytes:
    if isinstance(bitcode, Miss):
        raise LoadRefused(bitcode.reason, bitcode.detail)
    return bitcode
