"""Listeners: who hears of events, and how.

Guarantees: free when nobody listens (an event is not even built, nor its class imported); delivered outside
every lock of the farm, so a listener may call the farm, add or remove listeners and cause further events; a
listener that raises is dropped, logged and counted, and reaches neither the other listeners nor the compile.

Does not queue: a listener runs in the thread in which the thing happened, and should be quick.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from farm.observe.events import Event

LOG: Final = logging.getLogger("farm")


def set_level(name: str) -> None:
    """Set the level of the logger `farm`: "debug" shows every event, "warning" only what went wrong."""
    LOG.setLevel(name.upper())


@runtime_checkable
class Listener(Protocol):
    """Whoever wants events. A method `flush()`, if there is one, is called at exit."""

    def on_event(self, event: Event) -> None:
        """Take one event; which class it has says what happened."""


class Listeners:
    """The registry. `on_dropped` is told, outside locks, the name of a listener that raised."""

    def __init__(self, on_dropped: Callable[[str], None] | None = None) -> None:
        # Guards the replacing of _listeners; readers take the tuple as it is, without the lock.
        # No listener is called and nothing is logged with it.
        self._lock = threading.RLock()
        self._listeners: tuple[Listener, ...] = ()
        self._on_dropped = on_dropped

    def __len__(self) -> int:
        return len(self._listeners)

    def add(self, listener: Listener) -> None:
        """Add a listener; adding the same object again changes nothing."""
        if not callable(getattr(listener, "on_event", None)):
            raise TypeError(f"a listener has a method on_event(event), and {listener!r} has none")
        with self._lock:
            if not any(known is listener for known in self._listeners):
                self._listeners = (*self._listeners, listener)

    def remove(self, listener: Listener) -> None:
        """Remove a listener; one that is not there, or was dropped, is no error."""
        self._take_out(listener)

    @property
    def hears(self) -> bool:
        """Whether anybody would hear of an event: a listener, or the log at DEBUG."""
        return bool(self._listeners) or LOG.isEnabledFor(logging.DEBUG)

    def emit(self, make_event: Callable[[], Event]) -> None:
        """Build an event and deliver it. Nothing is built unless someone hears of it."""
        if not self.hears:
            return
        listeners = self._listeners
        logs = LOG.isEnabledFor(logging.DEBUG)
        event = make_event()
        if logs:
            LOG.debug("%s", event)
        for listener in listeners:
            self._call(listener, lambda listener=listener: listener.on_event(event))  # type: ignore[misc]

    def reset_in_child(self) -> None:
        """In a forked child: the lock may have been held by a thread that is not here."""
        self._lock = threading.RLock()

    def flush(self) -> None:
        """Call `flush()` of every listener that has one."""
        for listener in self._listeners:
            flush = getattr(listener, "flush", None)
            if callable(flush):
                self._call(listener, flush)

    def _call(self, listener: Listener, deliver: Callable[[], object]) -> None:
        try:
            deliver()
        except KeyboardInterrupt:
            # The user's, not the listener's: it only happened to arrive here.
            raise
        except BaseException:
            # SystemExit too: from the thread that reads worker answers it would end every compile.
            taken = self._take_out(listener)
            LOG.exception("a listener of type %s raised and was dropped", type(listener).__qualname__)
            # Two threads may meet the same bad listener: both log their error, one counts the drop.
            if taken and self._on_dropped is not None:
                self._on_dropped(type(listener).__qualname__)

    def _take_out(self, listener: Listener) -> bool:
        with self._lock:
            kept = tuple(known for known in self._listeners if known is not listener)
            taken = len(kept) != len(self._listeners)
            self._listeners = kept
            return taken
