"""Spans: what became of a job that the pool was given, told as one event."""

import time
from typing import TYPE_CHECKING

from farm.job import messages as wire
from farm.observe.events import JobAttempt, JobEnded, JobResult

if TYPE_CHECKING:
    from farm.front.pending import Pending
    from farm.pool.ticket import Ticket


def job_ended(pending: "Pending", ticket: "Ticket") -> JobEnded | None:
    """What became of the job of a pending that is settled; None if it has no answer."""
    answer = pending.answer
    if not answer.done() or answer.cancelled() or answer.exception() is not None:
        return None
    result, detail = result_of(answer.result())
    return JobEnded(
        function=pending.dispatcher.label,
        signature=pending.dispatcher.types_label(pending.entry.key),
        asked_at=ticket.submitted_at,
        attempts=attempts_of(ticket),
        result=result,
        detail=detail,
    )


def attempts_of(ticket: "Ticket") -> tuple[JobAttempt, ...]:
    """What workers did at a job; what is not over is cut off now."""
    now = time.monotonic()
    return tuple(
        JobAttempt(
            one.worker_pid,
            one.sent_at,
            now if one.ended_at is None else one.ended_at,
            "" if one.how is None else one.how.value,
        )
        for one in list(ticket.attempts)
    )


def result_of(answer: wire.FinalAnswer) -> tuple[JobResult, str]:
    """What an answer of the pool says, and more of it for people."""
    match answer:
        case wire.Built(origin=wire.Origin.COMPILED):
            return JobResult.COMPILED, ""
        case wire.Built():
            return JobResult.FOUND, ""
        case wire.Failed(kind, text):
            return JobResult.FAILED, f"{kind}: {text.strip()}"
        case wire.Rejected(reason, detail):
            return JobResult.REJECTED, f"{reason.value}: {detail}" if detail else reason.value
        case wire.Cancelled(detail):
            return JobResult.CANCELLED, detail
        case wire.Died(exit_code, number):
            return JobResult.DIED, f"exit code {exit_code}, signal {number}"
        case wire.TimedOut(limit_s):
            return JobResult.TIMED_OUT, f"after {limit_s:g} s"
        case wire.OutOfMemory(limit_bytes, used_bytes):
            return JobResult.OUT_OF_MEMORY, f"{used_bytes >> 20} MiB of {limit_bytes >> 20}"
        case wire.Differs():
            return JobResult.DIFFERS, ""
        case _:
            raise AssertionError(f"no compile is answered by {type(answer).__name__}")
