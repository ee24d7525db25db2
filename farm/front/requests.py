"""Requests: what a farm was asked to compile and has not settled yet.

    take -> the entry is reserved and its pending known, then handed over -> settled, or given up -> forget

Whoever sees an entry in progress finds its pending here, and can wait for it, in a thread or by a future.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from farm.errors import FarmClosed
from farm.front.pending import Asked, Pending
from farm.front.record import Record
from farm.front.status import Status, complete
from farm.front.table import Entry, Flight
from farm.observe.listeners import LOG
from farm.port.dispatch import Types
from farm.port.futures import SteadyFuture
from farm.port.target import caller_flags

if TYPE_CHECKING:
    from farm.front.dispatcher import FarmDispatcher
    from farm.front.settle import Settler
    from farm.store.artifact import Stored

TICK_S: Final = 0.002
"""How often it is looked whether listeners were told: that takes less than this, once it is their turn."""


class Requests:
    """The pendings of one farm.

    Parameters
    ----------
    settler
        Gives what hands compiles over: it brings in most of the farm's modules, so it waits for the first.
    works
        Whether anything new is compiled now.
    ask_again
        Asks for what was overtaken and has futures that wait for it.
    """

    def __init__(
        self,
        record: Record,
        settler: "Callable[[], Settler]",
        works: Callable[[], bool],
        ask_again: Callable[[Pending], object],
    ) -> None:
        self._record = record
        self._settler = settler
        self._works = works
        self._ask_again = ask_again
        # Guards _pending, and the `futures` of pendings. Nothing that blocks is done with it held; an entry's lock, the
        # profiler's and the counters' may be taken inside it, never the other way round.
        self._lock = threading.RLock()
        self._pending: dict[Flight[Any], Pending] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def all(self) -> Sequence[Pending]:
        """Every compile that is under way now, in the order in which they were asked for."""
        with self._lock:
            return tuple(self._pending.values())

    def wait_until_told(self, timeout_s: float) -> bool:
        """Listeners hear of what is settled a moment after whoever waits for it. False if the time passed before."""
        end = time.monotonic() + timeout_s
        while any(pending.ended for pending in self.all()):
            if time.monotonic() >= end:
                return False
            time.sleep(TICK_S)
        return True

    def of(self, entry: Entry[Types, Any]) -> Pending | None:
        """The compile of an entry, if it is under way."""
        return self._with(entry.snapshot().flight)

    def _with(self, flight: Flight[Any] | None) -> Pending | None:
        with self._lock:
            return None if flight is None else self._pending.get(flight)

    def take(
        self,
        dispatcher: "FarmDispatcher",
        entry: Entry[Types, Any],
        return_type: Any | None,
        decide: Callable[[int], bool] | None = None,
        slot: object | None = None,
        *,
        waited: bool = False,
        batch: bool = False,
        found: "Stored | None" = None,
        by_call: bool = False,
        at_once: bool = False,
    ) -> Pending | None:
        """Take the entry and hand it over; None if it is not ours to compile. `found` is what the store has for it.

        `by_call`: a call asks, and does not wait. What the store has is then installed, if nobody compiles.
        `at_once`: a caller waits, and compiles it himself if the pool is not up yet: see `Settler.wait`.

        Whoever is interrupted in here, by Ctrl-C, gives it up: a job that a worker has may go on, and the next call
        asks again. What is done on the way out may be done twice, as nobody can know how far it was.
        """
        settler = self._settler()  # brings in modules, which may be interrupted: not with the entry taken
        taken: list[Flight[Any]] = []
        try:
            # State and slot are taken here, in the caller, before the job is handed over: otherwise two callers would
            # queue it twice, and the limit on running compiles would be blind.
            with self._lock:  # whoever sees the flight finds its pending: a waiter without it could not settle it
                flight = entry.reserve(decide, taken.append)
                if flight is None:
                    if slot is not None:
                        self._record.profiler.release(slot)
                    return None
                pending = Pending(dispatcher, entry, flight, return_type, caller_flags(), slot, batch, by_call, at_once)
                entry.asked = Asked(return_type, pending.caller_flags)
                self._pending[flight] = pending
            if found is not None:
                settler.take_stored(pending, found)
            else:
                settler.hand_over(pending, waited=waited)
        except BaseException:
            self._give_up(entry, taken, slot)
            raise
        return pending

    def _give_up(self, entry: Entry[Types, Any], taken: list[Flight[Any]], slot: object | None) -> None:
        self._record.profiler.release(slot)
        for flight in taken:
            entry.give_up(flight)
            pending = self._with(flight)
            if pending is not None:
                self._record.count_ended(pending)
                self.forget(pending)

    def result(
        self,
        dispatcher: "FarmDispatcher",
        entry: Entry[Types, Any],
        return_type: Any | None = None,
        *,
        at_once: bool = False,
    ) -> Any:
        """Wait until an entry is settled; its CompileResult, or its error raised. FarmClosed if nobody compiles it.

        `at_once`: while the pool is starting it is compiled in this thread.

        No bound but the job's own: the pool answers every job, by its deadline or by its end, also when it closes.
        """
        while True:
            state = entry.snapshot()
            if state.value is not None:
                return state.value
            if state.error is not None:
                raise state.error.with_traceback(None)  # it is kept, and must not keep its callers' frames
            if state.flight is None:  # not asked for yet, or overtaken by recompile(), or interrupted
                if not self._works():
                    raise FarmClosed()
                self.take(dispatcher, entry, return_type, waited=True, at_once=at_once)
                continue
            pending = self._with(state.flight)
            if pending is not None:
                self._settler().wait(pending, at_once=at_once)
            state.flight.wait()  # no bound: who settles it, or closes the farm, completes it

    def future(self, entry: Entry[Types, Any]) -> "SteadyFuture[Status]":
        """Completes with the entry's Status, or with its error, once it is settled; outside all locks."""
        future: SteadyFuture[Status] = SteadyFuture()
        with self._lock:
            pending = self.of(entry)
            if pending is not None:
                pending.futures.append(future)
                return future
        complete(future, entry)
        return future

    def forget(self, pending: Pending) -> None:
        """It is over. Who waits for it by a future hears of the next attempt, if this one was overtaken or given up.

        Harmless when repeated: whoever is interrupted in here does it again.
        """
        with self._lock:
            self._pending.pop(pending.flight, None)
        if pending.futures and pending.flight.overtaken and self._works():
            self._ask_again(pending)
            with self._lock:
                again = self.of(pending.entry)
                if again is not None:
                    again.futures += pending.futures
                    pending.futures.clear()
        while pending.futures:
            try:
                complete(pending.futures[-1], pending.entry)
            except KeyboardInterrupt:
                raise
            except BaseException:  # a SystemExit of a callback: in the installer it would be the end of all futures
                LOG.exception("a callback of a future of %s raised", pending.label)
            pending.futures.pop()

    def reset_in_child(self) -> None:
        """In a forked child: nobody here completes what was under way, and whoever waits for it is told so."""
        for pending in self._pending.values():
            for future in pending.futures:
                future.__init__()  # type: ignore[misc]  # its lock may have been held
                future.cancel()
        self._lock = threading.RLock()
        self._pending = {}
