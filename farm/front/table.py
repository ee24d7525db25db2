"""Table: the in-memory cache, from a signature's key to its Entry.

Guarantees: one flight per signature (COMPILING is set by `reserve`, in the caller, before the job is handed
over: otherwise two callers queue it twice and the limit is blind); an entry changes state only as the table
of transitions allows, and anything else raises and changes nothing; a result that comes too late, after
`recompile` or `finalize`, is dropped; lookups count requests and nothing else does.

The states:

    UNCOMPILED --reserve--> COMPILING --publish--> COMPILED
                                |-----fail-------> FAILED      (holds the error)
                                |-----give up----> UNCOMPILED  (whoever was at it was interrupted)
    any state  --recompile--> UNCOMPILED

Does not decide when to compile (policy.py), and knows neither numba nor the pool: keys are any hashable
value that compares in full, and what is cached is any value.
"""

import contextlib
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future, InvalidStateError
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Generic, TypeVar

from farm.errors import FarmClosed
from farm.port.futures import SteadyFuture

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class CompileState(Enum):
    """Where a signature is."""

    UNCOMPILED = "uncompiled"
    COMPILING = "compiling"
    COMPILED = "compiled"
    FAILED = "failed"


class Action(Enum):
    """What can happen to an entry."""

    RESERVE = "reserve"
    PUBLISH = "publish"
    FAIL = "fail"
    GIVE_UP = "give up"
    RECOMPILE = "recompile"


TRANSITIONS: Final[dict[tuple[CompileState, Action], CompileState]] = {
    (CompileState.UNCOMPILED, Action.RESERVE): CompileState.COMPILING,
    (CompileState.COMPILING, Action.PUBLISH): CompileState.COMPILED,
    (CompileState.COMPILING, Action.FAIL): CompileState.FAILED,
    (CompileState.COMPILING, Action.GIVE_UP): CompileState.UNCOMPILED,
    **{(state, Action.RECOMPILE): CompileState.UNCOMPILED for state in CompileState},
}


class IllegalTransition(RuntimeError):
    """An action that the state does not allow: a defect of the farm, never the user's doing."""

    def __init__(self, state: CompileState, action: Action) -> None:
        super().__init__(state, action)
        self.state, self.action = state, action

    def __str__(self) -> str:
        return f"an entry that is {self.state.value} does not allow {self.action.value!r}"


def next_state(state: CompileState, action: Action) -> CompileState:
    """The state after `action`; IllegalTransition if the table has none."""
    try:
        return TRANSITIONS[state, action]
    except KeyError:
        raise IllegalTransition(state, action) from None


@dataclass(slots=True, eq=False)
class Flight(Generic[V]):
    """One attempt at one entry. Whoever got it from `reserve` must settle it by `publish`, `fail` or `give_up`.

    `done` completes with the value or the error; it is cancelled if `recompile` overtook the flight, or it was
    given up. `overtaken` belongs to the entry and is guarded by its lock.
    """

    done: "Future[V]" = field(default_factory=SteadyFuture)
    overtaken: bool = False

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is settled or overtaken; False if the time passed first.

        Not by `concurrent.futures.wait`: that never hears of a future that is cancelled while it waits.
        """
        try:
            self.done.exception(timeout_s)
        except CancelledError:
            return True
        except NotYet:
            return self.done.done()
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Generic[V]):
    """An entry's content at one moment."""

    state: CompileState
    request_count: int
    value: V | None
    error: BaseException | None
    flight: Flight[V] | None
    origin: object | None


class Entry(Generic[K, V]):
    """One signature. `key` never changes; everything else is read by `snapshot`."""

    def __init__(self, key: K, *, sealed: bool = False) -> None:
        self.key: Final = key
        # Guards every field below, and is held briefly: values are built before, and futures settled after it.
        # Re-entrant, as all locks of the farm: a signal handler and a finalizer may call it in the middle of this.
        # The table's lock is never taken while it is held; `decide` of `reserve` may take the profiler's.
        self._lock = threading.RLock()
        self._state = CompileState.UNCOMPILED
        self._request_count = 0
        self._value: V | None = None
        self._error: BaseException | None = None
        self._error_reported = False
        self._flight: Flight[V] | None = None
        self._origin: object | None = None
        self.asked: object | None = None
        """How it was asked for, by whoever came first. Only ever replaced whole: no lock guards it."""
        self._looked_up = False
        self._sealed = sealed

    def __repr__(self) -> str:
        return f"<Entry {self.key!r} {self._state.value}>"

    def snapshot(self) -> Snapshot[V]:
        """The content, consistent in itself. Counts nothing."""
        with self._lock:
            return Snapshot(
                state=self._state,
                request_count=self._request_count,
                value=self._value,
                error=self._error,
                flight=self._flight,
                origin=self._origin,
            )

    def count_request(self) -> int:
        """Count one request, and say how many there were. Called by the table's lookups."""
        with self._lock:
            self._request_count += 1
            return self._request_count

    def reserve(
        self, decide: Callable[[int], bool] | None = None, note: Callable[[Flight[V]], object] | None = None
    ) -> Flight[V] | None:
        """Take the entry for compiling; None if it is not ours to compile.

        `decide` gets the request count and is asked only if the entry is UNCOMPILED, with the entry's lock
        held: so exactly one of two racing callers counts, takes the slot, and hands the job over. Without it
        the answer is yes (batch and STRICT). A caller who gets None looks at `snapshot()`. A caller who may be
        interrupted in here has the flight noted before the entry is taken, and gives it up then.
        """
        with self._lock:
            if self._state is not CompileState.UNCOMPILED or self._sealed:
                return None
            if decide is not None and not decide(self._request_count):
                return None
            if self._flight is not None:  # a signal handler or a finalizer has called the function in between
                return None
            flight: Flight[V] = Flight()
            if note is not None:
                note(flight)
            self._state = next_state(self._state, Action.RESERVE)
            self._flight = flight
            return flight

    def publish_at_once(self, value: V) -> None:
        """Store a result made without a flight, beside a farm that is closed or off; nothing if there is one."""
        with self._lock:
            if self._state is CompileState.UNCOMPILED or isinstance(self._error, FarmClosed):
                self._state, self._value, self._error = CompileState.COMPILED, value, None

    def publish(self, flight: Flight[V], value: V) -> bool:
        """Store the result and wake the waiters. False: the flight was overtaken, and the result is dropped."""
        with self._lock:
            if not self._settle(flight, Action.PUBLISH):
                return False
            self._value = value
        # A waiter that cancelled its future does not undo the compile: the value is in the entry.
        with contextlib.suppress(InvalidStateError):
            flight.done.set_result(value)
        return True

    def fail(self, flight: Flight[V], error: BaseException) -> bool:
        """Store the error and wake the waiters. False: the flight was overtaken, and the error is dropped."""
        with self._lock:
            if not self._settle(flight, Action.FAIL):
                return False
            self._error = error
        with contextlib.suppress(InvalidStateError):
            flight.done.set_exception(error)
        return True

    def give_up(self, flight: Flight[V]) -> None:
        """Whoever had taken the entry was interrupted: it is asked for again, unless it is settled. Wakes the waiters.

        Harmless when repeated, and for a flight that never got as far as the entry.
        """
        with self._lock:
            if flight is self._flight:
                self._state, self._flight = next_state(self._state, Action.GIVE_UP), None
                self._looked_up = False
                flight.overtaken = True
        flight.done.cancel()

    def _settle(self, flight: Flight[V], action: Action) -> bool:
        """With the lock held: take the step, unless the flight was overtaken. Settling twice is illegal."""
        if flight.overtaken:
            return False
        state = next_state(self._state, action)
        if flight is not self._flight:
            raise IllegalTransition(self._state, action)
        self._state, self._flight = state, None
        return True

    def recompile(self) -> None:
        """Back to UNCOMPILED, whatever the state. Requests stay counted; waiters of a running flight are cancelled."""
        with self._lock:
            self._state = next_state(self._state, Action.RECOMPILE)
            overtaken, self._flight = self._flight, None
            self._value = self._error = self._origin = None
            self._error_reported = self._looked_up = False
            if overtaken is not None:
                overtaken.overtaken = True
        if overtaken is not None:
            overtaken.done.cancel()

    def take_unreported_error(self) -> BaseException | None:
        """The error of a FAILED entry, to the first who asks; None ever after, as it is reported once."""
        with self._lock:
            if self._error is None or self._error_reported:
                return None
            self._error_reported = True
            return self._error

    def take_look(self) -> bool:
        """True to the first who asks: it is their turn to look into the store, once, as a look costs a key."""
        with self._lock:
            first, self._looked_up = not self._looked_up, True
            return first

    def note_origin(self, origin: object) -> None:
        """Remember how the value was obtained; nothing else changes."""
        with self._lock:
            self._origin = origin

    def reset_after_fork(self) -> None:
        """In a forked child: whoever was compiling this is not here, and may have held the lock."""
        self._lock = threading.RLock()
        if self._state is CompileState.COMPILING:
            self._state, self._flight = CompileState.UNCOMPILED, None

    def seal(self) -> None:
        """Nothing is compiled here any more. COMPILING becomes FAILED with FarmClosed; COMPILED keeps working."""
        closed = FarmClosed()
        with self._lock:
            self._sealed = True
            flight = self._flight
            if flight is not None:
                self._settle(flight, Action.FAIL)
                self._error, flight.overtaken = closed, True
        if flight is not None:
            with contextlib.suppress(InvalidStateError):
                flight.done.set_exception(closed)


class Table(Generic[K, V]):
    """Every entry of one farm, or of one function."""

    def __init__(self) -> None:
        # Guards _entries and _closed: whether an entry exists, never what is in it.
        # No entry's lock is taken while it is held, so a busy entry never stops the lookup of another.
        self._lock = threading.RLock()
        self._entries: dict[K, Entry[K, V]] = {}
        self._closed = False

    def __len__(self) -> int:
        with self._lock:
            return len(self._entries)

    def get(self, key: K) -> Entry[K, V] | None:
        """The entry if there is one; counts nothing."""
        with self._lock:
            return self._entries.get(key)

    def lookup(self, key: K) -> Entry[K, V] | None:
        """The entry, with one more request counted; None if there is none, and then none is made."""
        with self._lock:
            entry = self._entries.get(key)
        if entry is not None:
            entry.count_request()
        return entry

    def lookup_or_create(self, key: K) -> Entry[K, V]:
        """The entry, made if need be, with one more request counted."""
        entry = self.get_or_create(key)
        entry.count_request()
        return entry

    def get_or_create(self, key: K) -> Entry[K, V]:
        """The entry, made if need be; counts nothing. For batch compiles and for storing."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries.setdefault(key, Entry(key, sealed=self._closed))
            return entry

    def entries(self) -> tuple[Entry[K, V], ...]:
        """The entries there are now."""
        with self._lock:
            return tuple(self._entries.values())

    def reset_after_fork(self) -> None:
        """In a forked child: every lock anew, and nothing is in progress any more."""
        self._lock = threading.RLock()
        for entry in self._entries.values():
            entry.reset_after_fork()

    def finalize(self) -> None:
        """Stop intake and settle what runs. Compiled entries stay; a result that arrives later is dropped."""
        with self._lock:
            self._closed = True
            entries = tuple(self._entries.values())
        # An entry made from here on is born sealed, so none is missed.
        for entry in entries:
            entry.seal()
