"""Trace: a timeline in Chrome's trace-event format, for chrome://tracing and Perfetto."""

import json
from typing import Any

from farm.observe.timeline import FRONT, Timeline, lanes_of


def trace_of(timeline: Timeline) -> str:
    """The JSON object format: one complete event ("X") for each span, times in microseconds.

    A worker is a process of its own there, and each lane one of its threads.
    """
    events: list[dict[str, Any]] = []
    named: set[int] = set()
    lanes = lanes_of(timeline.spans)
    for tid, lane in enumerate(lanes, start=1):
        worker = next((span.worker for span in lane.spans if span.worker is not None), None)
        pid = timeline.pid if lane.group.startswith(FRONT) or worker is None else worker
        if pid not in named:
            named.add(pid)
            name = timeline.program if pid == timeline.pid else lane.group
            events.append(_meta("process_name", pid, tid, {"name": name}))
            events.append(_meta("process_sort_index", pid, tid, {"sort_index": len(named)}))
        title = lane.group if lane.number == 0 else f"{lane.group} ({lane.number + 1})"
        events.append(_meta("thread_name", pid, tid, {"name": title}))
        for span in lane.spans:
            args: dict[str, Any] = {"result": span.kind.value}
            if span.queued_s is not None:
                args["queued_s"] = round(span.queued_s, 6)
            if span.detail:
                args["detail"] = span.detail
            events.append(
                {
                    "ph": "X",
                    "name": span.name,
                    "cat": span.kind.name.lower(),
                    "pid": pid,
                    "tid": tid,
                    "ts": _microseconds(span.began_s),
                    "dur": max(0, _microseconds(span.ended_s) - _microseconds(span.began_s)),
                    "args": args,
                }
            )
    if not named:
        events.append(_meta("process_name", timeline.pid, 0, {"name": timeline.program}))
    for note in timeline.notes:
        ts = _microseconds(note.at_s)
        events.append({"ph": "i", "s": "g", "name": note.text, "pid": timeline.pid, "tid": 0, "ts": ts})
    other = {
        "program": timeline.program,
        "python": timeline.python,
        "began_at": timeline.began_at,
        "counters": dict(timeline.counters),
        "degraded": dict(timeline.degraded),
        "fallback_own_s": {name: times.own_s for name, times in timeline.fallbacks.items()},
    }
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": other})


def _meta(name: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": args}


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)
