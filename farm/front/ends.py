"""Ends: the farms of this process, and what becomes of them when the interpreter exits."""

import atexit
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from farm.config import Config


class Closes(Protocol):
    """What is known of a farm here."""

    config: Config

    def close(self, grace_s: float | None = None) -> None:
        """Stop intake, and end the pool within so many seconds."""

    def reset_in_child(self, *, unlocked: bool) -> None:
        """Begin anew in a forked child."""


_farms: "weakref.WeakSet[Closes]" = weakref.WeakSet()
_watchers: list[Callable[[Any], None]] = []
_exits = False


def remember(farm: Closes) -> None:
    """This farm is one of the process's, for as long as anybody uses it."""
    _farms.add(farm)
    for watcher in _watchers:
        watcher(farm)


def watch(watcher: Callable[[Any], None]) -> Callable[[], None]:
    """Call this with every farm there is and with each that is made; gives what ends it."""
    _watchers.append(watcher)
    for farm in farms():
        watcher(farm)
    return lambda: _watchers.remove(watcher)


def farms() -> tuple[Closes, ...]:
    """Every farm of this process."""
    return tuple(_farms)


def exits() -> bool:
    """Whether the interpreter is about to end."""
    return _exits


def close_all_at_exit() -> None:
    """Registered again once the pool's module is there: it closes its pools at exit, and what is registered last runs
    first.

    The other way round a farm that does not know of the end would compile here what its pool gives up.
    """
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def _close_all() -> None:
    """All farms share one grace: the longest."""
    global _exits
    _exits = True
    all_farms = farms()
    end = time.monotonic() + max((farm.config.exit_grace_s for farm in all_farms), default=0.0)
    for farm in all_farms:
        farm.close(max(0.0, end - time.monotonic()))
