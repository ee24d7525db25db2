"""The bulletin: what one farm posts for others to look at, and the thread that writes it.

Guarantees: no call waits for it. It is written at most once a second, and only if it has changed; when nothing is under
way and nothing has changed for a while its thread ends, and the next news starts another. Where no thread can be
started, or nothing can be posted, there is no bulletin, and nobody is told. A forked child has none of its parent's.
"""

import contextlib
import itertools
import os
import platform
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Final

from farm.observe.board import Author, Board
from farm.observe.listeners import LOG
from farm.observe.stats import hit_rate
from farm.pool import signals

if TYPE_CHECKING:
    from farm.front.farm import Farm
    from farm.pool.ticket import WorkerView

FIRST_S: Final = 0.3
"""A guess. A program that loads all it needs and is over by then posts nothing, and its first calls have the
interpreter to themselves."""
STEP_S: Final = 1.0
"""Between two posts."""
END_S: Final = 2.0
"""A guess: writing a small file takes less, and who closes a farm does not wait longer for a bad disk."""
QUIET_STEPS: Final = 3
"""After so many steps without news the thread ends."""
LABELS_MAX: Final = 20
FUNCTIONS_MAX: Final = 10
_numbers = itertools.count(1)


class Bulletin:
    """Posts what a farm does for as long as it does something."""

    def __init__(self, farm: "Farm", board: Board | None = None, step_s: float = STEP_S) -> None:
        self._farm = weakref.ref(farm)
        self._board = board or Board.of_this_user()
        self._step_s = step_s
        self._number = next(_numbers)
        self._author = Author.this_process()
        self._since_1970_s = time.time() - time.monotonic()
        # Guards _thread and _has_news. Nothing that blocks is done with it held, but for the start of the thread.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._has_news = False
        self._closed = threading.Event()
        self._gone = False
        """A finalizer runs in the middle of anything: once the farm was closed it has nothing to do."""
        weakref.finalize(farm, self.close)

    @property
    def name(self) -> str:
        """Under which it is posted."""
        return f"{self._author.pid}-{self._number}"

    def news(self) -> None:
        """Something has changed: it is posted within a second or so."""
        if self._has_news and self._thread is not None:  # whoever takes the news away looks once more afterwards
            return
        with self._lock:
            self._has_news = True
            if self._thread is None and not self._closed.is_set():
                thread = threading.Thread(target=self._run, name="farm-bulletin", daemon=True)
                with contextlib.suppress(RuntimeError):  # no threads to be had, or the end of the process
                    thread.start()
                    self._thread = thread

    def close(self) -> None:
        """Take it away, for good. In a forked child it stays: it is the parent's."""
        if self._author.pid != os.getpid() or self._gone:
            return
        self._closed.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(END_S)
        self._board.remove(self.name)
        self._gone = True

    def _run(self) -> None:
        signals.leave_signals_to_others()
        with self._lock:  # whoever started it has noted it, or was interrupted before and will start another one
            if self._thread is not threading.current_thread():
                return
        try:
            self._post_until_quiet()
        except Exception:  # a defect here costs the bulletin and nothing else
            LOG.debug("the status of this process is not published any more", exc_info=True)
            self._closed.set()
        if self._closed.is_set():  # whoever closed it may not have waited for so long
            self._board.remove(self.name)

    def _post_until_quiet(self) -> None:
        self._closed.wait(min(FIRST_S, self._step_s))
        posted: dict[str, Any] | None = None
        quiet = 0
        while not self._closed.is_set():
            farm = self._farm()
            if farm is None:
                return
            content = content_of(farm, self._since_1970_s)
            under_way = content["pending"] > 0
            del farm  # not kept by who only looks at it
            if content != posted:
                posted, quiet = content, 0
                self._board.post(self.name, self._author, {"number": self._number, "at": time.time(), **content})
            else:
                quiet += 1
            with self._lock:
                if self._has_news or under_way:
                    self._has_news, quiet = False, 0
                elif quiet >= QUIET_STEPS:
                    self._thread = None
                    return
            self._closed.wait(self._step_s)


def content_of(farm: "Farm", since_1970_s: float) -> dict[str, Any]:
    """What a farm is doing, as plain values: equal as long as nothing has changed.

    Times are seconds since 1970; `since_1970_s` is what makes them of monotonic ones.
    """
    farm.gather_calls()
    summary = farm.record.counters.summary(FUNCTIONS_MAX)
    supply = farm.settler().supply
    workers, queued = supply.look()
    return {
        "program": program(),
        "python": platform.python_version(),
        "state": "closed" if farm.closed else "works" if farm.works else "switched off",
        "pending": farm.pending_now,
        "workers_max": supply.workers_max(farm.config),
        "workers": [_worker(one, since_1970_s) for one in workers],
        "queue": {"count": len(queued), "labels": queued[:LABELS_MAX]},
        "hit_rate": hit_rate(summary["counters"]),
        **summary,
    }


def program() -> str:
    """What this process is called: the last part of argv[0], and of a package its directory."""
    argv: list[str] = getattr(sys, "argv", None) or [""]
    path = argv[0]
    name = os.path.basename(path)
    if name == "__main__.py":
        name = os.path.basename(os.path.dirname(path))
    return {"": "python", "-c": "python -c", "-m": "python -m"}.get(name, name)


def _worker(view: "WorkerView", since_1970_s: float) -> dict[str, Any]:
    busy = view.job is not None
    return {
        "pid": view.pid,
        "state": "starting" if view.pid is None else "busy" if busy else "idle",
        "job": view.job,
        "since": None if view.since is None else round(since_1970_s + view.since, 3),
        "rss_bytes": _rss_bytes(view.pid) if busy and view.pid is not None else None,
    }


def _rss_bytes(pid: int) -> int | None:
    """To a MiB: less is no news."""
    import psutil

    with contextlib.suppress(psutil.Error, OSError):
        return int(psutil.Process(pid).memory_info().rss) >> 20 << 20
    return None
