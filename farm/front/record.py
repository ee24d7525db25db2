"""Record: what a farm tells about itself. Counters, profiles and events, each fact told to all three at once.

Guarantees: events are delivered outside every lock of the farm; a listener cannot hurt the caller. With
`on_degraded="raise"` a degradation is raised, as Degraded, in the thread that noticed it, after it was counted.
"""

import warnings
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from farm.config import Config, OnDegraded
from farm.errors import Degraded, FarmWarning
from farm.front.pending import Origin, Pending, Source
from farm.front.policy import FunctionProfile, Limits, Profiler
from farm.observe.listeners import Listeners
from farm.observe.stats import Count, Counters, Duration
from farm.reasons import DegradedReason, MissReason

if TYPE_CHECKING:
    from farm.front.dispatcher import FarmDispatcher
    from farm.job.key import CompileKey
    from farm.observe.fallbacks import Watch

_REMEDIES: Final = {
    DegradedReason.DISK_FULL: "free some space, or set FARM_CACHE_DIR to a directory on another disk",
    DegradedReason.STORE_UNWRITABLE: "make it writable, or set FARM_CACHE_DIR to a directory of yours",
    DegradedReason.STORE_UNREADABLE: "set FARM_CACHE_DIR to a directory of yours",
    DegradedReason.STORE_REFUSED: "do that, or set FARM_CACHE_DIR to a directory of yours",
}
"""What a user can do about a store that fails while the program runs."""

_COUNTED = {Source.WORKER: Count.COMPILED, Source.STORE: Count.LOADED, Source.LOCAL: Count.LOCAL}


class Record:
    """Counters, profiles and listeners of one farm.

    Parameters
    ----------
    config
        Gives the settings as they are now.
    news
        Called when something has changed that others may look at.
    """

    def __init__(self, config: Callable[[], Config], limits: Limits, news: Callable[[], None] = lambda: None) -> None:
        self._config = config
        self.news = news
        self.watches: tuple[Watch, ...] = ()
        """Who wants to know how long fallbacks run; replaced as a whole."""
        self.counters = Counters()
        self.profiler = Profiler(limits)
        self._warned_of: set[Hashable] = set()
        self.listeners = Listeners(lambda name: self.degraded(DegradedReason.LISTENER_DROPPED, name, mild=True))

    def tell_started(self, pending: Pending) -> None:
        """It was handed over. Not before: a listener may wait for it."""
        self.news()
        dispatcher, arguments = pending.dispatcher, pending.entry.key
        if self.listeners.hears:
            from farm.observe import events  # not before anybody listens

            self.listeners.emit(
                lambda: events.CompileStarted(function=dispatcher.label, signature=dispatcher.types_label(arguments))
            )

    def call_in_python(self, dispatcher: "FarmDispatcher") -> None:
        """A call runs its fallback."""
        self.news()
        self.counters.count(Count.FALLBACK_CALLS, dispatcher.label)

    def calls_by_shortcut(self, dispatcher: "FarmDispatcher", calls: int) -> None:
        """So many calls ran their fallback without asking, and are executions of the function too."""
        if calls:
            self.counters.count(Count.FALLBACK_CALLS, dispatcher.label, times=calls)
            self.profiler.register_executions(dispatcher.identity, calls)

    def finished_in_python(self, dispatcher: "FarmDispatcher") -> None:
        """Take over what a function has counted of calls that ran to their end in Python, under auto."""
        calls, seconds = dispatcher.in_python.drain()
        if calls:
            self.counters.count(Count.FINISHED_IN_PYTHON, dispatcher.label, times=calls)
            self.counters.spend(Duration.FINISHED_IN_PYTHON, seconds, dispatcher.label)

    def switched(self, dispatcher: "FarmDispatcher", seconds: float) -> None:
        """A call that had run so long in Python begins again, compiled."""
        self.counters.count(Count.SWITCHED, dispatcher.label)
        self.counters.spend(Duration.SWITCHED, seconds, dispatcher.label)

    def waited(self, dispatcher: "FarmDispatcher", seconds: float, *, for_fallback: bool = False) -> None:
        """A call waited for its compile. `for_fallback`: it was counted as one that runs its fallback."""
        self.counters.count(Count.WAITED, dispatcher.label)
        self.counters.spend(Duration.WAITED, seconds, dispatcher.label)
        if for_fallback:
            self.counters.count(Count.FALLBACK_CALLS, dispatcher.label, times=-1)

    def execution(self, dispatcher: "FarmDispatcher") -> None:
        """A call that asks for nothing: machine code on probation."""
        self.megamorphic(dispatcher, self.profiler.register_execution(dispatcher.identity))

    def megamorphic(self, dispatcher: "FarmDispatcher", profile: FunctionProfile) -> None:
        """Tell of a function that has become megamorphic, once."""
        if profile.megamorphic and dispatcher.take_megamorphic_news() and self.listeners.hears:
            from farm.observe import events

            self.listeners.emit(
                lambda: events.Megamorphic(
                    function=dispatcher.label,
                    compile_count=profile.compile_count,
                    execution_count=profile.execution_count,
                )
            )

    def count_ended(self, pending: Pending) -> None:
        """Nothing is in progress any more for this pending. Before its waiters wake: they may look at the counters.

        Harmless when repeated: whoever is interrupted in here does it again.
        """
        pending.ended = True
        self.profiler.release(pending.slot)

    def count_finished(self, pending: Pending, origin: Origin) -> FunctionProfile:
        """Machine code is about to be published; the function's profile with it."""
        dispatcher, label = pending.dispatcher, pending.dispatcher.label
        self.counters.count(_COUNTED[origin.source], label)
        self.counters.spend(Duration.LOAD, origin.load_s, label)
        if origin.source is Source.STORE:
            if not self._config().verify:
                self.counters.spend(Duration.SAVED, origin.compile_s, label)
            return self.profiler.profile(dispatcher.identity)
        self.counters.spend(Duration.COMPILE, origin.compile_s, label)
        return self.profiler.register_compilation(dispatcher.identity, origin.compile_s)

    def count_failed(self, pending: Pending, what: Count | None) -> None:
        """There is no machine code, for good; `what` names a loss of workers, None a plain failure."""
        self.counters.count(Count.FAILED if what is None else what, pending.dispatcher.label)

    def finished(self, pending: Pending, origin: Origin, profile: FunctionProfile) -> None:
        """Machine code is installed: told to the listeners, outside all locks."""
        if not self.listeners.hears:
            return
        dispatcher, label = pending.dispatcher, pending.dispatcher.label
        from farm.observe import events

        self._tell_origin(pending, origin)
        ticket = pending.ticket
        event = events.CompileFinished(
            function=label,
            signature=dispatcher.types_label(pending.entry.key),
            compile_count=profile.compile_count,
            compile_time_s=0.0 if origin.source is Source.STORE else origin.compile_s,
            cumulative_compile_time_s=profile.cumulative_compile_time_s,
            used_persistent_cache=origin.source is Source.STORE,
            queue_time_s=0.0 if ticket is None else ticket.queue_time_s,
            load_time_s=origin.load_s,
            worker=ticket.worker_pid if ticket is not None and origin.source is Source.WORKER else None,
            artifact_bytes=origin.artifact_bytes,
            saved_s=origin.compile_s if origin.source is Source.STORE and not self._config().verify else 0.0,
            cpu=origin.cpu,
        )
        self.listeners.emit(lambda: event)

    def job_ended(self, pending: Pending) -> None:
        """What the pool made of it, if it was asked: told to the listeners, outside all locks."""
        if self.listeners.hears and pending.ticket is not None:
            from farm.front.spans import job_ended

            event = job_ended(pending, pending.ticket)
            if event is not None:
                self.listeners.emit(lambda: event)

    def _tell_origin(self, pending: Pending, origin: Origin) -> None:
        from farm.observe import events

        function, signature = pending.dispatcher.label, pending.dispatcher.types_label(pending.entry.key)
        reason, key = origin.refusal, pending.key
        if origin.source is Source.LOCAL:
            if reason is not None:
                began_at, ended_at = pending.here or (0.0, 0.0)
                event: events.Event = events.CompiledLocally(
                    function=function,
                    signature=signature,
                    reason=reason,
                    detail=origin.detail,
                    began_at=began_at,
                    ended_at=ended_at,
                )
                self.listeners.emit(lambda: event)
        elif key is not None:
            loaded = events.LoadFinished(
                function=function,
                signature=signature,
                key=key.hex,
                load_time_s=origin.load_s,
                artifact_bytes=origin.artifact_bytes,
                ended_at=0.0 if pending.here is None else pending.here[1],
                cpu=origin.cpu,
            )
            self.listeners.emit(lambda: loaded)

    def load_started(self, pending: Pending, key: "CompileKey") -> None:
        """An artifact is about to be loaded."""
        if self.listeners.hears:
            from farm.observe import events

            self.listeners.emit(
                lambda: events.LoadStarted(
                    function=pending.dispatcher.label,
                    signature=pending.dispatcher.types_label(pending.entry.key),
                    key=key.hex,
                )
            )

    def failed(self, pending: Pending, error: BaseException) -> None:
        """There is no machine code: told to the listeners, outside all locks."""
        label = pending.dispatcher.label
        if self.listeners.hears:
            from farm.observe import events

            began_at, ended_at = pending.here or (None, None)
            self.listeners.emit(
                lambda: events.CompileFailed(
                    function=label,
                    signature=pending.dispatcher.types_label(pending.entry.key),
                    error=error,
                    began_at=began_at,
                    ended_at=ended_at,
                )
            )

    def missed(self, reason: MissReason, times: int = 1) -> None:
        """A lookup in the store gave nothing usable."""
        self.counters.miss(reason, times)

    def load_failed(self, pending: Pending, reason: MissReason) -> None:
        """An artifact was there and could not be used."""
        self.counters.miss(reason)
        key = pending.key
        if self.listeners.hears:
            from farm.observe import events

            self.listeners.emit(
                lambda: events.LoadFailed(
                    function=pending.dispatcher.label,
                    signature=pending.dispatcher.types_label(pending.entry.key),
                    key="" if key is None else key.hex,
                    reason=reason,
                )
            )

    def degraded(
        self, reason: DegradedReason, detail: str = "", *, mild: bool = False, warning: str | None = None
    ) -> None:
        """The farm works below its best. Raises Degraded if the settings ask for it, unless it is `mild`.

        What a user can mend is warned of, once: with this text, or once for each reason with one that says what to do.
        """
        self.counters.degrade(reason)
        raises = self._config().on_degraded is OnDegraded.RAISE and not mild
        self.tell_degraded(reason, detail, warns=not raises, warning=warning)
        if raises:
            raise Degraded(reason, detail)

    def tell_degraded(
        self, reason: DegradedReason, detail: str, *, warns: bool = True, warning: str | None = None
    ) -> None:
        """Tell listeners of what was counted, and the user of what can be mended."""
        if self.listeners.hears:
            from farm.observe import events

            self.listeners.emit(lambda: events.Degraded(reason=reason, detail=detail))
        if warns and warning is not None:
            self._warn_once(warning, warning)
        elif warns and reason in _REMEDIES:
            self._warn_once(reason, f"{detail}; what is compiled is not kept: {_REMEDIES[reason]}")

    def _warn_once(self, what: Hashable, text: str) -> None:
        if what not in self._warned_of:  # two threads at once may both warn
            self._warned_of.add(what)
            with suppress(Warning):  # made an error by the program: it is counted, and costs no compile
                warnings.warn(text, FarmWarning, stacklevel=4)

    def reset_in_child(self) -> None:
        """In a forked child: no lock is held and nothing is in progress."""
        self.watches = ()  # the parent's
        self.counters.reset_in_child()
        self.profiler.reset_in_child()
        self.listeners.reset_in_child()
