"""Report: records what a farm does from now on, and writes it as a page or as a trace.

    with farm.report("out.html", "out.json"):
        ...

Guarantees: it is written once, at `stop`, at the end of the block, when the farm is closed, or at the end of the
interpreter, after an exception or sys.exit as well; a forked child writes nothing. What is kept has a bound. It is not
written when the process is killed, or leaves by os._exit.
"""

import os
import platform
import threading
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from farm.errors import FarmWarning
from farm.front import ends
from farm.front.bulletin import program
from farm.front.spans import attempts_of
from farm.observe import events
from farm.observe.fallbacks import Watch
from farm.observe.page import page_of, read_template
from farm.observe.timeline import FRONT, FunctionCost, Kind, Note, Span, Timeline
from farm.observe.trace import trace_of
from farm.pool.ticket import AttemptEnd

if TYPE_CHECKING:
    from farm.front.farm import Farm

SPANS_MAX: Final = 100_000
"""More are counted and not kept: 30 MB, and a page of as many."""
NOTES_MAX: Final = 1000
TOLD_S: Final = 2.0
"""What is settled is told a moment later: `stop` waits so long for it."""
_KINDS: Final = {
    events.JobResult.COMPILED: Kind.COMPILED,
    events.JobResult.FOUND: Kind.FOUND,
    events.JobResult.FAILED: Kind.FAILED,
    events.JobResult.DIED: Kind.DIED,
    events.JobResult.TIMED_OUT: Kind.TIMED_OUT,
    events.JobResult.OUT_OF_MEMORY: Kind.OUT_OF_MEMORY,
    events.JobResult.REJECTED: Kind.REJECTED,
    events.JobResult.CANCELLED: Kind.CANCELLED,
    events.JobResult.DIFFERS: Kind.FAILED,
}
_ATTEMPTS: Final = {
    AttemptEnd.DIED.value: Kind.DIED,
    AttemptEnd.LOST.value: Kind.DIED,
}
_COUNTED: Final = ("compiled", "loaded", "local", "compile_s", "load_s", "saved_s")


class Report:
    """A recording under way. Made by `farm.report`; a context manager.

    Parameters
    ----------
    farm
        What is recorded.
    paths
        Where it is written: a trace if the name ends in .json, else a page.
    """

    def __init__(self, farm: "Farm", paths: "tuple[str | os.PathLike[str], ...]") -> None:
        self.paths: Final = tuple(Path(path).absolute() for path in paths)
        for path in self.paths:
            if not path.parent.is_dir():
                raise FileNotFoundError(f"{path.parent} is no directory: the report could not be written there")
        self._template = read_template()
        self._farm = farm
        self._owner_pid = os.getpid()
        self._began_at, self._began = time.time(), time.monotonic()
        # Guards _spans, _notes, _missing and _stopped. Nothing is called with it held.
        self._lock = threading.RLock()
        self._spans: list[Span] = []
        self._notes: list[Note] = []
        self._missing = 0
        self._stopped = False
        self._watch = Watch()
        farm.settler()  # from here on the farm is closed at exit, and closing it ends this
        ends.close_all_at_exit()
        farm.gather_calls()
        self._before = farm.record.counters.summary(0), farm.record.counters.stats().per_function
        farm.add_listener(self)
        farm.watch_fallbacks(self._watch)

    def __repr__(self) -> str:
        return f"<Report [{len(self._spans)} spans | {'written' if self._stopped else 'recording'}]>"

    def __enter__(self) -> "Report":
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    # -- what is recorded --------------------------------------------------------------------------------

    def on_event(self, event: events.Event) -> None:
        """Keep what takes time."""
        if os.getpid() != self._owner_pid:  # a child's: its parent records itself
            return
        match event:
            case events.JobEnded():
                self._keep_job(event)
            case events.LoadFinished(ended_at=ended_at, load_time_s=seconds):
                detail = f"{event.artifact_bytes >> 10} KiB"
                self._keep(FRONT, Kind.LOADED, _label(event), ended_at - seconds, ended_at, detail=detail)
            case events.CompiledLocally():
                why = f"{event.reason.value}: {event.detail}" if event.detail else event.reason.value
                self._keep(FRONT, Kind.LOCAL, _label(event), event.began_at, event.ended_at, detail=why)
            case events.CompileFailed(began_at=began_at, ended_at=ended_at):
                if began_at is not None and ended_at is not None:
                    detail = f"in the program: {str(event.error)[:500]}"
                    self._keep(FRONT, Kind.FAILED, _label(event), began_at, ended_at, detail=detail)
            case events.LoadFailed(reason=miss):
                self._note(f"{_label(event)}: not loaded, {miss.value}")
            case events.Megamorphic(function=name):
                self._note(f"{name}: megamorphic, no machine code for new types")
            case events.Degraded(reason=reason, detail=detail):
                self._note(f"{reason.value}: {detail}" if detail else reason.value)

    def flush(self) -> None:
        """The farm is being closed: write. Nobody is there to catch an error, so it is a warning."""
        try:
            self.stop()
        except OSError as error:
            warnings.warn(f"the report was not written: {error}", FarmWarning, stacklevel=2)

    def _keep_job(self, event: events.JobEnded) -> None:
        for number, attempt in enumerate(event.attempts):
            last = number == len(event.attempts) - 1
            kind, detail = _KINDS[event.result], event.detail
            if not last:
                kind, detail = _ATTEMPTS.get(attempt.how, Kind.MOVED), attempt.how
            self._keep_attempt(_label(event), event.asked_at, attempt, kind, detail)

    def _keep_attempt(self, label: str, asked_at: float, attempt: events.JobAttempt, kind: Kind, detail: str) -> None:
        group = "worker" if attempt.worker is None else f"worker {attempt.worker}"
        queued_s = attempt.began_at - asked_at
        self._keep(group, kind, label, attempt.began_at, attempt.ended_at, queued_s, attempt.worker, detail)

    def _keep(
        self,
        group: str,
        kind: Kind,
        name: str,
        began_at: float,
        ended_at: float,
        queued_s: float | None = None,
        worker: int | None = None,
        detail: str = "",
    ) -> None:
        began_s, ended_s = max(0.0, began_at - self._began), max(0.0, ended_at - self._began)
        span = Span(
            group=group,
            kind=kind,
            name=name,
            began_s=began_s,
            ended_s=max(began_s, ended_s),
            queued_s=queued_s,
            worker=worker,
            detail=detail,
        )
        with self._lock:
            if self._stopped:
                return
            if len(self._spans) < SPANS_MAX:
                self._spans.append(span)
            else:
                self._missing += 1

    def _note(self, text: str) -> None:
        with self._lock:
            if len(self._notes) < NOTES_MAX and not self._stopped:
                self._notes.append(Note(time.monotonic() - self._began, text))

    # -- the end -----------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Record no more, and write. Idempotent; does nothing in a forked child. Raises OSError.

        What is still being compiled is in it as what it is: not over.
        """
        if self._owner_pid != os.getpid():
            return
        if not self._stopped and not self._farm.settler().installer.is_current():
            self._farm.requests.wait_until_told(TOLD_S)
        self._keep_unfinished()
        with self._lock:
            first, self._stopped = not self._stopped, True
        if not first:
            return
        farm = self._farm
        farm.remove_listener(self)
        farm.watch_fallbacks(self._watch, over=True)
        timeline = self._timeline(time.monotonic() - self._began)
        for path in self.paths:
            _write(path, trace_of(timeline) if path.suffix == ".json" else page_of(timeline, self._template))

    def _keep_unfinished(self) -> None:
        if self._stopped:
            return
        for pending in self._farm.requests.all():
            if pending.ticket is not None and not pending.ended:
                for attempt in attempts_of(pending.ticket):
                    kind = _ATTEMPTS.get(attempt.how, Kind.MOVED) if attempt.how else Kind.CANCELLED
                    detail = attempt.how or "not over at the end of the report"
                    self._keep_attempt(pending.label, pending.ticket.submitted_at, attempt, kind, detail)

    def _timeline(self, length_s: float) -> Timeline:
        farm = self._farm
        farm.gather_calls()
        now, functions = farm.record.counters.summary(0), farm.record.counters.stats().per_function
        before, functions_before = self._before
        costs = []
        for name, one in functions.items():
            old = functions_before.get(name)
            numbers: dict[str, Any] = {
                what: getattr(one, what) - (0 if old is None else getattr(old, what)) for what in _COUNTED
            }
            costs.append(FunctionCost(function=name, **numbers))
        spans = list(self._spans)
        for thread, run in self._watch.spans():
            for fallback in run:
                more = " and others" if fallback.others else ""
                spans.append(
                    Span(
                        group=f"{FRONT}: Python, {thread}",
                        kind=Kind.FALLBACK,
                        name=fallback.function + more,
                        began_s=max(0.0, fallback.began_at - self._began),
                        ended_s=max(0.0, fallback.ended_at - self._began),
                        detail="1 call" if fallback.calls == 1 else f"{fallback.calls} calls",
                    )
                )
        return Timeline(
            program=program(),
            pid=self._owner_pid,
            python=platform.python_version(),
            began_at=self._began_at,
            length_s=max([length_s, *(span.ended_s for span in spans)]),
            spans=tuple(spans),
            notes=tuple(self._notes),
            counters={name: number - before["counters"][name] for name, number in now["counters"].items()},
            degraded=_difference(now["degraded"], before["degraded"]),
            functions=tuple(costs),
            fallbacks=self._watch.times(),
            missing=self._missing,
        )


def _label(event: events.SignatureEvent) -> str:
    return f"{event.function}({event.signature})"


def _difference(now: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {name: times - before.get(name, 0) for name, times in now.items() if times > before.get(name, 0)}


def _write(path: Path, text: str) -> None:
    """As a whole, or not at all; into a pipe or a device as it is."""
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    new = path.with_name(f"{path.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
