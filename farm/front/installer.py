"""The installer: the one thread that settles what nobody waits for, in the order in which answers come.

It also runs what a farm tells later: news of the pool's thread, which must not wait for what a listener does.
"""

import queue
import threading
from collections.abc import Callable

from farm.front.pending import Pending
from farm.observe.listeners import LOG
from farm.pool import signals


class Installer:
    """Settles arrivals, one after the other, until it is ended.

    Parameters
    ----------
    settle
        What is done with a pending whose answer is there.
    between
        Called between arrivals; gives after how many seconds it wants to be called again though nothing has arrived.
    """

    def __init__(self, settle: Callable[[Pending], None], between: Callable[[], float | None] = lambda: None) -> None:
        self._settle = settle
        self._between = between
        self._arrived: queue.SimpleQueue[Pending | Callable[[], None] | None] = queue.SimpleQueue()
        # Guards _thread, _stopped and _ended. Nothing that blocks is done with it held.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._ended = False

    def start(self) -> RuntimeError | None:
        """Have the thread running, unless no more is taken. Gives what keeps it from running."""
        if self._thread is not None:
            return None
        with self._lock:
            if self._thread is None and not self._stopped:
                thread = threading.Thread(target=self._run, name="farm-installer", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    return error
                self._thread = thread
        return None

    def arrive(self, pending: Pending) -> None:
        """The pending has its answer: it is settled next, unless somebody who waits for it comes first."""
        with self._lock:
            ended = self._ended
            if not ended:
                self._arrived.put(pending)
        if ended:  # the thread is gone, and with the pool closed the answer came in the asking thread
            self._settle(pending)

    def later(self, tell: Callable[[], None]) -> None:
        """Call this in the installer's thread."""
        self._arrived.put(tell)

    def is_current(self) -> bool:
        """Whether this thread is the installer."""
        return threading.current_thread() is self._thread

    def stop_intake(self) -> None:
        """Start no thread any more."""
        with self._lock:
            self._stopped = True

    def end(self, grace_s: float) -> None:
        """Settle what has arrived, and end the thread; waits so many seconds for it."""
        with self._lock:
            self._ended = True
            thread = self._thread
            self._arrived.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(grace_s)

    def _run(self) -> None:
        with self._lock:  # whoever started it has noted it, or was interrupted before and will start another one
            if self._thread is not threading.current_thread():
                return
        while (arrival := self._next_arrival()) is not None:
            try:
                if isinstance(arrival, Pending):
                    self._settle(arrival)
                else:
                    arrival()
            except BaseException:  # a SystemExit of user code, or a defect here: the others want to be installed
                LOG.exception("installing %s failed", getattr(arrival, "label", "nothing"))

    def _next_arrival(self) -> Pending | Callable[[], None] | None:
        try:
            pause_s = self._between()
        except Exception:
            pause_s = None
            LOG.exception("what is done between arrivals failed")
        signals.leave_signals_to_others()
        try:
            return self._arrived.get(timeout=pause_s)  # no bound: a daemon, and `end` sends the None
        except queue.Empty:
            return _nothing
        finally:
            signals.take_signals()


def _nothing() -> None:
    """What has arrived when only time has passed."""
