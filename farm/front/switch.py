"""Switch: abandon a Python body that runs in some thread, because its machine code has come.

    the thread that calls      run_stoppable: the body runs, and ends by itself or by Switched
    whoever brings the code    stop_all: Switched is sent to each thread that runs a body of that compile

Guarantees. Switched is sent in one step of the interpreter that looks where the thread is and sends it only if that is
a frame of the body, or of what the body calls and is known to be harmless too (`Run.codes`). Python raises it at the
thread's next check, and a thread that has run nothing since passes that check in this very frame, or where a function
begins that is called from it. So it never lands inside a compile, a load, a lock of anybody's, a trace function or the
caller's code. None is on its way any more when `run_stoppable` is left, however it is left: the first thing that is
done when the body is over is that the thread sends one to itself, which takes the place of another. That is a C call,
and Python checks for exceptions after a call, not before. (Taking it back by sending none leaves a mark in Python 3.10
to 3.12 that has every thread look for one for ever, and a traced one do nothing else: tried.)

One that is swallowed, in a `__del__` that begins at that moment, is sent again, until the body is over. A body inside
one long C call (`np.sort` of a large array) is stopped when that call returns.

Of two bodies in one thread, one called by the other, the outer one's switch goes through the inner one.

Python 3.12 has `sys.monitoring`, by which a body could raise the exception itself. It is not used: that stops a loop
after 0.06 ms, this after 0.07 to 0.1 (measured, medians), and there is one way for all versions.
"""

import contextlib
import ctypes
import operator
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import compress, starmap
from threading import get_ident
from types import CodeType, FrameType
from typing import Any, Final, Protocol

AGAIN_S: Final = 0.002
"""How often a thread is looked at that could not be stopped at once."""
AGAIN_MAX_S: Final = 0.02
"""It is looked at less often the longer it takes: it is in a long C call."""

_send: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)


class Switched(BaseException):
    """Stops a Python body whose machine code has come. No program sees it: who runs the body catches it."""


class Owner(Protocol):
    """A compile whose code bodies are stopped for."""

    there: bool
    """Whether the code has come."""


class Run:
    """One body that runs in this thread, and may be stopped.

    Parameters
    ----------
    owner
        What brings the code, and says whether it has come: the same object is given to `stop_all`.
    codes
        Code of the body and of all that it may call in Python.
    """

    __slots__ = ("codes", "open", "owner", "sent", "thread")

    def __init__(self, owner: Owner, codes: frozenset[CodeType]) -> None:
        self.owner = owner
        self.codes = codes
        self.thread = get_ident()
        self.open = True
        """Whether the body runs, or is about to."""
        self.sent = False
        """Whether Switched may be on its way."""


_runs: dict[int, list[Run]] = {}
"""By thread, the outermost first. A list is changed by its own thread alone; a thread that ends leaves an empty one."""


def runs_here() -> list[Run]:
    """The bodies that run in this thread, the outermost first; among them some that are over, after a Ctrl-C."""
    found = _runs.get(get_ident())
    return _runs.setdefault(get_ident(), []) if found is None else found


def run_stoppable(
    run: Run, body: Callable[..., Any], arguments: tuple[Any, ...], over: Callable[[], None] | None = None
) -> tuple[bool, Any]:
    """Run the body: (True, what it gives), or (False, None) if it was stopped, or its code came before it began.

    Raises what the body raises, and Switched if a body around this one is stopped.

    Parameters
    ----------
    over
        Called when the body has ended by itself, by an exception too.
    """
    runs = runs_here()
    trace, profile = sys.gettrace(), sys.getprofile()
    done, result = False, None
    try:
        while runs and not runs[-1].open:  # a Ctrl-C came between its end and its removal
            runs.pop()
        runs.append(run)
        if not run.owner.there:  # asked once the run is known to `stop_all`, so that neither misses the other
            result = body(*arguments)
            done = True
        run.open = False
        if run.sent:
            _send(run.thread, Switched)
    except BaseException as error:
        run.open = False
        try:  # no check of the interpreter comes before this
            if run.sent:
                _send(run.thread, Switched)
        except Switched:
            pass
        _forget(runs, run)
        if not isinstance(error, Switched):
            if over is not None:
                over()
            raise
        _trace_again(trace, profile)
        if not done and any(one.open and one.sent for one in runs):
            raise
    else:
        if runs[-1] is run:
            runs.pop()
        else:
            _forget(runs, run)
    if done and over is not None:
        over()
    return done, result


def _forget(runs: list[Run], run: Run) -> None:
    if run in runs:
        runs.remove(run)


def _trace_again(trace: Any, profile: Any) -> None:
    """Python ends tracing where an exception comes out of a trace function, which this one may have."""
    if trace is not None and sys.gettrace() is None:
        sys.settrace(trace)
    if profile is not None and sys.getprofile() is None:
        sys.setprofile(profile)


def runs_of(owner: Owner) -> list[Run]:
    """The bodies of this owner that run now, in all threads."""
    return [run for runs in list(_runs.values()) for run in tuple(runs) if run.owner is owner and run.open]


# -- the other side --------------------------------------------------------------------------------------


class Stopper:
    """Stops bodies whose code has come. A thread of its own tries again, for as long as there is a reason to."""

    def __init__(self) -> None:
        # Guards the four below. Nothing is called with it held but the start of the thread.
        self._lock = threading.RLock()
        self._left: list[Run] = []
        """Those to stop."""
        self._wards: list[tuple[Owner, float]] = []
        self._seen: dict[Run, float] = {}
        """Since when bodies of wards are known to run."""
        self._thread: threading.Thread | None = None
        self._never = threading.Event()
        """Waited for where another thread is to go on meanwhile."""

    def stop_all(self, owner: Owner) -> None:
        """Stop the bodies of this owner that run now. Returns at once; who is not stopped yet is tried again."""
        found = runs_of(owner)
        for run in found:
            stop(run)
        if found:
            with self._lock:
                self._left += found
                self._have_thread()

    @contextlib.contextmanager
    def ward(self, owner: Owner, grace_s: float) -> Iterator[None]:
        """For the block, stop every body of this owner that has run for so long: it is in the way of its own code."""
        ward = (owner, grace_s)
        try:
            with self._lock:
                self._wards.append(ward)
                self._have_thread()
            yield
        finally:
            with self._lock:
                if ward in self._wards:
                    self._wards.remove(ward)

    def _have_thread(self) -> None:
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._try_again, name="farm-switch", daemon=True)
        with contextlib.suppress(RuntimeError):  # none can be started: these bodies end in Python
            thread.start()
            self._thread = thread

    def _try_again(self) -> None:
        pause_s = AGAIN_S
        while True:
            self._never.wait(pause_s)
            pause_s = min(pause_s * 1.2, AGAIN_MAX_S)
            with self._lock:
                left = self._left = [run for run in (*self._left, *self._overdue()) if run.open]
                if not left and not self._wards:
                    self._seen.clear()
                    self._thread = None
                    return
            for run in left:
                stop(run)

    def _overdue(self) -> list[Run]:
        now = time.monotonic()
        running = {run: grace_s for owner, grace_s in self._wards for run in runs_of(owner)}
        self._seen = {run: self._seen.get(run, now) for run in running if run not in self._left}
        return [run for run, since in self._seen.items() if now - since >= running[run]]

    def reset_in_child(self) -> None:
        """In a forked child: only the thread that forked is here."""
        for thread in [one for one in _runs if one != get_ident()]:
            del _runs[thread]
        for run in runs_here():
            run.thread = get_ident()
        self.__init__()  # type: ignore[misc]


def stop(run: Run) -> bool:
    """Send Switched to a run's thread, if that is in a frame where it may land. Whether it was sent."""
    frame = sys._current_frames().get(run.thread)
    if frame is None or not run.open or not _may_land(frame, run):
        return False
    run.sent = True  # before it is: who sees False after this has left the frame, and then nothing is sent
    # One step of the interpreter, so that the thread is where it was looked for. (dict.get, as the thread may be gone.)
    frames = map(dict.get, starmap(sys._current_frames, ((),)), (run.thread,))
    still_there = map(operator.is_, frames, (frame,))
    return bool(list(map(_send, compress((run.thread,), still_there), (Switched,))))


def _may_land(frame: FrameType, run: Run) -> bool:
    """Whether every frame from this one to the run's body is the body's or a callee's; between two runs, the farm's."""
    inner = [one for one in tuple(_runs.get(run.thread, ())) if one.open]
    if run not in inner or frame.f_code in PASSAGE:
        return False
    here: FrameType | None = frame
    while here is not None and inner:
        code = here.f_code
        if code is _EXECUTES:
            if inner.pop() is run:
                return True
        elif code not in inner[-1].codes and code not in PASSAGE:
            return False
        here = here.f_back
    return False


_EXECUTES: Final = run_stoppable.__code__
PASSAGE: Final[set[CodeType]] = {_EXECUTES}
"""The farm's own functions between a body and one that it calls: an exception that goes through them leaves nothing."""


_ENTRANCE: Final[set[CodeType]] = set()
"""The farm's functions that a call of a body goes through before anything is done for it."""


def enters(functions: Iterable[Callable[..., Any]]) -> None:
    """Name functions that a call comes through before anything is done for it."""
    _ENTRANCE.update(one.__code__ for one in functions)


def leave_if_there() -> None:
    """At the entrance of a call: raise Switched if the code of a body that runs in this thread has come.

    A body that calls itself, or other functions all the time, may never be seen in a frame of its own.
    """
    runs = [run for run in _runs.get(get_ident(), ()) if run.owner.there and run.open]
    if not runs:
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code in _ENTRANCE:
        frame = frame.f_back
    for run in runs:
        if frame is not None and _may_land(frame, run):
            run.sent = True
            raise Switched


def passes(functions: Iterable[Callable[..., Any]]) -> None:
    """Name functions through which a call gets from one body to another."""
    PASSAGE.update(one.__code__ for one in functions)


stopper: Final = Stopper()
