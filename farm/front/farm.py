"""The composition root: one Farm owns the settings, the record, and what compiles for its dispatchers.

Everything here is cheap to import and to make. What compiles (functors, the pool, the store, the loader)
comes in with the first compile.
"""

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from farm.config import CompileMode, Config, LogLevel, OnError
from farm.errors import (
    CompileFailedWarning,
    ConfigError,
    Degraded,
    FarmClosed,
    NotShippable,
    SignatureError,
    VerifyFailed,
)
from farm.front import ends
from farm.front.dispatcher import FarmDispatcher
from farm.front.pending import Asked, LiteralsWanted, Origin, Pending, Source
from farm.front.policy import Limits, Verdict
from farm.front.record import Record
from farm.front.requests import Requests
from farm.front.table import CompileState, Entry
from farm.observe.listeners import Listener, set_level
from farm.observe.stats import Count, Duration, Stats
from farm.port.dispatch import Types, force_literals
from farm.port.failure import headline
from farm.port.locks import with_compiler_lock
from farm.port.role import collects, compiles_for_others
from farm.port.target import caller_flags, own_cpu, settings
from farm.reasons import DegradedReason

if TYPE_CHECKING:
    from farm.front.bulletin import Bulletin
    from farm.front.settle import Settler
    from farm.front.supply import JobTaker, Keeps
    from farm.observe.fallbacks import Watch


class Farm:
    """Compiles for the dispatchers that belong to it. Keyword arguments are settings: see `farm.config.Config`.

    Starts no process and no thread before the first compile. Use it as a context manager, or `close` it:
    compiled functions stay, everything else then runs in Python.

    Parameters
    ----------
    pool, store
        For tests: what to use in place of worker processes and of the cache directory. See `farm.testing`.
    """

    def __init__(self, *, pool: "JobTaker | None" = None, store: "Keeps | None" = None, **settings: object) -> None:
        self._given: Final = (pool, store)
        self.config = Config.from_environment().with_changes(**settings)
        self._reset()
        self.record: Final = Record(lambda: self.config, self._limits(), self._note_news)
        self.requests: Final = Requests(self.record, self.settler, lambda: self.works, self._ask_again)
        self._dispatchers: weakref.WeakSet[FarmDispatcher] = weakref.WeakSet()
        self._apply_log_level(LogLevel.WARNING)
        ends.remember(self)  # last: it is told to whoever watches

    def _reset(self) -> None:
        # Guards _settler, _bulletin, _dispatchers and _closed. Nothing that blocks is done with it held.
        self._lock = threading.RLock()
        # Held around reading `config`, changing the copy and putting it back. The others may be taken inside it.
        self._configuring = threading.RLock()
        self._settler: Settler | None = None
        self._bulletin: Bulletin | None = None
        self._closed = False
        self._forked_unlocked = False

    def _apply_log_level(self, before: LogLevel) -> None:
        """Only a change is applied: a program may have set the level of the logger itself."""
        if self.config.log_level is not before:
            set_level(self.config.log_level.value)

    def _limits(self) -> Limits:
        workers = self.config.workers
        if workers is None:  # what the machine allows takes psutil to say, so it waits for the pool
            settler = self._settler
            workers = settler.supply.workers_max(self.config) if settler and settler.supply.has_pool else 1
        return Limits.from_config(self.config, workers)

    def _apply_limits(self) -> None:
        self.record.profiler.limits = self._limits()

    def __repr__(self) -> str:
        ready = sum(
            entry.snapshot().state is CompileState.COMPILED
            for dispatcher in self.dispatchers()
            for entry in dispatcher.table.entries()
        )
        pool = "closed" if self._closed else "no pool yet" if self._settler is None else repr(self._settler.supply)
        return f"<Farm [{ready} ready | {len(self.requests)} pending | {pool}]>"

    def __enter__(self) -> "Farm":
        if self._closed:
            raise FarmClosed()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def adopt(self, dispatcher: FarmDispatcher) -> None:
        """Remember a dispatcher of this farm: its calls by shortcut are counted with the others."""
        with self._lock:
            self._dispatchers.add(dispatcher)

    def dispatchers(self) -> list[FarmDispatcher]:
        """The dispatchers of this farm that are still in use, in no order."""
        with self._lock:
            return list(self._dispatchers)

    # -- what users ask ----------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """The counters as they are now."""
        self.gather_calls()
        return self.record.counters.stats(self.pending_now)

    def gather_calls(self) -> None:
        """Count the calls by shortcut that were not counted yet."""
        for dispatcher in self.dispatchers():
            self.record.calls_by_shortcut(dispatcher, dispatcher.drain_shortcuts())
            self.record.finished_in_python(dispatcher)

    @property
    def pending_now(self) -> int:
        """How many compiles are under way."""
        return sum(not one.ended for one in self.requests.all())

    def add_listener(self, listener: Listener) -> None:
        """From now on call `listener.on_event(event)` with the events of `farm.observe.events`."""
        self.record.listeners.add(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Tell this listener no more."""
        self.record.listeners.remove(listener)

    def configure(self, **changes: object) -> None:
        """Change settings of a farm in use. Raises ConfigError, and for the pool's own settings once it runs."""
        with self._configuring:
            self._configure(changes)

    def _configure(self, changes: dict[str, object]) -> None:
        changed = self.config.with_changes(**changes)
        settler = self._settler
        if settler is not None:
            from farm.front.supply import POOL_SETTINGS

            for name in sorted(POOL_SETTINGS & changes.keys()):
                if settler.supply.has_pool and getattr(changed, name) != getattr(self.config, name):
                    raise ConfigError(name, changes[name], "the value it had when the pool started; set it earlier")
        before, self.config = self.config.log_level, changed
        self._apply_log_level(before)
        self._apply_limits()
        if settler is not None:
            settler.supply.forget_store()
        if not changed.publish_status:
            self._withdraw()

    def start(self) -> None:
        """Start the pool in the background, so that the first compile finds it warm. Does not wait for it.

        The modules that compile are imported here, which the first call would do (0.15 s of processor time, measured).
        In a worker, which may import the module that says it, nothing is started; nor by a farm that is switched off.
        """
        if compiles_for_others() or not self.works:
            return
        with contextlib.suppress(NotShippable):  # closed meanwhile
            self.settler().supply.pool(self.config, settings()).start()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until everything pending is compiled or has failed; False if `timeout` seconds passed first."""
        return self.wait_for(None, timeout)

    def wait_for(self, dispatcher: FarmDispatcher | None, timeout_s: float | None) -> bool:
        """Block until every pending compile (of one dispatcher, or of all) is settled; False on time-out."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        waited = [one for one in self.requests.all() if dispatcher is None or one.dispatcher is dispatcher]
        for pending in waited:
            pending.note_wait()
        for pending in waited:
            if not self.settler().wait(pending, None if end is None else max(0.0, end - time.monotonic())):
                return False
        return True

    def wait_if_it_installs(self) -> None:
        """Before waiting for futures in a listener or a callback, whose thread may be the one that completes them."""
        if self._settler is not None and self._settler.installer.is_current():
            self.wait()  # no bound: this thread is the one that installs, so nothing else would

    def close(self, grace_s: float | None = None) -> None:
        """Stop intake, end the pool and the installer. Compiled functions stay; the rest runs in Python.

        Running compiles have `grace_s` seconds to publish what they make, by default the setting `exit_grace_s`.
        At exit every farm that is still open is closed. Idempotent.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            settler = self._settler
        if settler is not None:
            settler.close(self.config.exit_grace_s if grace_s is None else grace_s)
        for dispatcher in self.dispatchers():
            dispatcher.table.finalize()
        self._withdraw()
        self.record.listeners.flush()

    # -- what others see ---------------------------------------------------------------------------------

    def watch_fallbacks(self, watch: "Watch", *, over: bool = False) -> None:
        """From now on tell this watch of every fallback that runs; `over`: no more."""
        with self._lock:
            others = tuple(one for one in self.record.watches if one is not watch)
            self.record.watches = others if over else (*others, watch)
        for dispatcher in self.dispatchers():  # a shortcut keeps what it led to when it was made
            dispatcher.drop_all_shortcuts()

    def _note_news(self) -> None:
        """Something has changed: it is published soon, by a thread of its own."""
        if self._settler is None or self._closed or not self.config.publish_status:
            return
        bulletin = self._bulletin
        if bulletin is None:
            from farm.front.bulletin import Bulletin

            made = Bulletin(self)
            with self._lock:
                bulletin = self._bulletin = self._bulletin or made
        bulletin.news()

    def _withdraw(self) -> None:
        with self._lock:
            bulletin, self._bulletin = self._bulletin, None
        if bulletin is not None:
            bulletin.close()

    # -- the call path -----------------------------------------------------------------------------------

    def code_for_call(self, dispatcher: FarmDispatcher, arguments: Types) -> Callable[..., Any] | None:
        """The machine code for a call that has none installed, or None: run the fallback.

        Raises LiteralsWanted if this function is compiled by value: then ask again with literal types.
        """
        entry = dispatcher.table.lookup_or_create(arguments)
        mode = dispatcher.mode_now
        if self.works:
            self._start_for_call(dispatcher, entry, mode)
        if mode is CompileMode.STRICT:
            began = time.perf_counter()
            result = self._result_of_any_farm(
                dispatcher, entry, dispatcher.declared.returns(arguments), self._at_once(dispatcher)
            )
            self.record.waited(dispatcher, time.perf_counter() - began)
            strict: Callable[..., Any] = result.entry_point
            return strict
        state = entry.snapshot()
        if state.value is not None:
            code: Callable[..., Any] = state.value.entry_point
            if isinstance(state.origin, Origin) and state.origin.source is Source.STORE:
                self.record.counters.count(Count.FALLBACK_AVOIDED, dispatcher.label)
            return code
        if state.error is not None:
            self._report_failure(dispatcher, entry, state.error)
        self.record.call_in_python(dispatcher)
        return None

    def settle_now(self, pending: Pending) -> None:
        """Wait until a compile is settled, whatever becomes of it; settle it in this thread if nobody has."""
        self.settler().wait(pending, at_once=self._at_once(pending.dispatcher))
        pending.flight.wait()  # no bound: the job has one, and who closes the farm completes it

    def expected_compile_s(self, dispatcher: FarmDispatcher) -> float:
        """A guess at what one more compile of this function takes: what others took, of it, here, or by this store."""
        profile = self.record.profiler.profile(dispatcher.identity)
        if profile.compile_count:
            return profile.cumulative_compile_time_s / profile.compile_count
        counted, spent, _ = self.record.counters.totals()
        compiled = counted.get("compiled", 0) + counted.get("local", 0)
        if compiled:
            return spent.get("compile_s", 0.0) / compiled
        return self.settler().supply.usual_compile_s

    def _at_once(self, dispatcher: FarmDispatcher) -> bool:
        """Whether a call that waits compiles in its own thread while the pool is starting, as it would with numba.

        In mode="strict" it waits for a worker all the same, and so does who asks for declared signatures.
        """
        asked = dispatcher.mode or self.config.mode
        return asked is not CompileMode.STRICT and not dispatcher.declared

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def works(self) -> bool:
        """Whether anything new is compiled: not switched off, not closed, and not only noted."""
        return self.config.enabled and not self._closed and not collects()

    def _start_for_call(self, dispatcher: FarmDispatcher, entry: Entry[Types, Any], mode: CompileMode) -> None:
        if mode is not CompileMode.STRICT and not self.settler().can_install():
            return
        verdicts: list[Verdict] = []
        slot = object()

        def decide(requests: int) -> bool:
            verdicts.append(self.record.profiler.should_compile(dispatcher.identity, mode, requests, slot))
            return verdicts[0].compiles

        # Declared ones are queued at decoration, unless the farm was off then.
        returns = dispatcher.declared.returns(entry.key)
        strict = mode is CompileMode.STRICT
        pending = self.requests.take(
            dispatcher,
            entry,
            returns,
            decide,
            slot,
            waited=strict,
            by_call=not strict,
            at_once=strict and self._at_once(dispatcher),
        )
        for verdict in verdicts:
            self.record.megamorphic(dispatcher, verdict.profile)
        if pending is None and not verdicts:
            self._note_call_of_pending(dispatcher, entry)
        elif pending is None and entry.take_look():
            self._load_past_the_limits(dispatcher, entry)

    def _note_call_of_pending(self, dispatcher: FarmDispatcher, entry: Entry[Types, Any]) -> None:
        self.record.execution(dispatcher)
        pending = self.requests.of(entry)
        if pending is not None:
            pending.note_call()

    def _load_past_the_limits(self, dispatcher: FarmDispatcher, entry: Entry[Types, Any]) -> None:
        """No compile now, says the policy. What the store has is loaded all the same."""
        returns = dispatcher.declared.returns(entry.key)
        found = self.settler().stored(dispatcher, entry.key, returns)
        if found is not None:
            self.requests.take(dispatcher, entry, returns, found=found, by_call=True)

    def result_for_caller(self, dispatcher: FarmDispatcher, arguments: Types, return_type: Any | None) -> Any:
        """Wait for the CompileResult that a jitted caller links. Raises numba's error if there is none."""
        entry = dispatcher.table.get_or_create(arguments)
        jitted = caller_flags() is not None and not dispatcher.declared
        try:
            return self._result_of_any_farm(dispatcher, entry, return_type, jitted)
        except LiteralsWanted as wanted:
            raise force_literals(dispatcher, wanted.positions) from None

    def _result_of_any_farm(
        self, dispatcher: FarmDispatcher, entry: Entry[Types, Any], return_type: Any, at_once: bool
    ) -> Any:
        """Wait for the result, also of a farm that is off, or closed, or is closed meanwhile. Raises numba's errors."""
        try:  # closed or not: what was asked for before is settled by its pending, and by nobody else
            return self.requests.result(dispatcher, entry, return_type, at_once=at_once)
        except FarmClosed:
            if self.works:
                raise
        if ends.exits() and threading.current_thread().daemon:
            # Such a thread ends with the process, wherever it is. A compile would have it end in the middle of LLVM.
            threading.Event().wait()  # no bound: the process ends
        return self._without_farm(dispatcher, entry, return_type)

    def _without_farm(self, dispatcher: FarmDispatcher, entry: Entry[Types, Any], return_type: Any) -> Any:
        """What cannot run as Python, or must not, compiles here when the farm is off or closed: as with numba."""
        if self._forked_unlocked:
            raise Degraded(
                DegradedReason.FORKED_UNLOCKED, f"{dispatcher.signature_label(entry.key)} cannot be compiled"
            )
        return with_compiler_lock(lambda: self._compile_without_farm(dispatcher, entry, return_type))

    def _compile_without_farm(self, dispatcher: FarmDispatcher, entry: Entry[Types, Any], return_type: Any) -> Any:
        from farm.front.settle import Settler

        result = dispatcher.overloads.get(entry.key)  # from a compile that was under way when the farm was closed
        if result is None:
            started = time.perf_counter()
            entry.asked = Asked(return_type, caller_flags())
            result = Settler.compile_here(dispatcher, entry.key, return_type, caller_flags())
            seconds = time.perf_counter() - started
            origin = Origin(source=Source.LOCAL, compile_s=seconds, cpu=str(own_cpu()))
            result = dispatcher.install(entry.key, result)
            entry.note_origin(origin)
            self.record.counters.count(Count.LOCAL, dispatcher.label)
            self.record.counters.spend(Duration.COMPILE, origin.compile_s, dispatcher.label)
        entry.publish_at_once(result)
        return result

    def _ask_again(self, pending: Pending) -> None:
        self.submit(pending.dispatcher, [(pending.entry.key, pending.return_type)])

    def submit(
        self, dispatcher: FarmDispatcher, wanted: Iterable[tuple[Types, Any]], *, waited: bool = False
    ) -> list[Entry[Types, Any]]:
        """Queue signatures, as batch unless somebody is going to wait for them. Gives their entries.

        Those under way stay so, and move to the front of the queue if they are waited for now.
        """
        entries = []
        for arguments, return_type in wanted:
            if dispatcher.declared and all(arguments != one for one, _ in dispatcher.declared.signatures):
                raise SignatureError(str(arguments), "not among the explicit signatures, and no other is compiled")
            entry = dispatcher.table.get_or_create(arguments)
            entry.asked = entry.asked or Asked(return_type, None)
            entries.append(entry)
            if not self.works or not self.settler().can_install():
                continue
            pending = self.requests.take(dispatcher, entry, return_type, waited=waited, batch=not waited)
            if pending is None and waited and (running := self.requests.of(entry)) is not None:
                running.note_wait()
        return entries

    def raises_for_good(self, error: BaseException | None) -> bool:
        """Whether calls of what failed so raise its error, though they could run the fallback."""
        return isinstance(error, (Degraded, VerifyFailed)) or self.config.on_error is OnError.RAISE

    def _report_failure(self, dispatcher: FarmDispatcher, entry: Entry[Types, Any], error: BaseException) -> None:
        if isinstance(error, LiteralsWanted):
            raise error
        if self.raises_for_good(error):
            raise error.with_traceback(None)
        unreported = entry.take_unreported_error()
        if unreported is not None:
            text = f"{dispatcher.signature_label(entry.key)} stays in Python: {headline(unreported)}"
            dispatcher.warn(text, CompileFailedWarning)

    # -- what compiles -----------------------------------------------------------------------------------

    def settler(self) -> "Settler":
        """What hands compiles over and settles them: it brings in most of the farm's modules, so it waits."""
        settler = self._settler
        if settler is None:
            from farm.front.settle import Settler

            ends.close_all_at_exit()
            made = Settler(lambda: self.config, self.record, self.requests.forget, *self._given)
            made.supply.when_pool = self._apply_limits
            with self._lock:
                settler = self._settler = self._settler or made
        return settler

    # -- forks -------------------------------------------------------------------------------------------

    def reset_in_child(self, *, unlocked: bool) -> None:
        """In a forked child: the pool and the threads are the parent's. The machine code stays; the rest begins anew.

        `unlocked`: the process forked in the middle of a compile, so that nothing can be compiled here.
        """
        closed = self._closed
        self.requests.reset_in_child()
        self._reset()
        self._closed = closed
        self.record.reset_in_child()
        for dispatcher in self.dispatchers():
            dispatcher.reset_in_child()
        self._forked_unlocked = unlocked
        if unlocked:
            self.config = self.config.with_changes(enabled=False)
            self.record.degraded(DegradedReason.FORKED_UNLOCKED, mild=True)
