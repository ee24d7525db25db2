"""Status: where one signature of one function stands, for the user who asks."""

from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import Any

from farm.front.pending import Origin
from farm.front.table import CompileState, Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Where a signature stands.

    Parameters
    ----------
    reason
        Why it did not go the straight way, a member of RefusalReason, or None.
    error
        Why there is no machine code, if the state is FAILED.
    seconds
        What the compile took, if it is over; for a load from the store, what it took whoever made the artifact.
    origin
        How the machine code was obtained, if the state is COMPILED.
    requests
        How many calls asked for it.
    """

    state: CompileState
    reason: Enum | None = None
    error: BaseException | None = None
    seconds: float | None = None
    origin: Origin | None = None
    requests: int = 0


def status_of(entry: Entry[Any, Any] | None) -> Status:
    """The status of an entry; UNCOMPILED for a signature that nobody asked for."""
    if entry is None:
        return Status(state=CompileState.UNCOMPILED)
    seen = entry.snapshot()
    origin = seen.origin if isinstance(seen.origin, Origin) else None
    return Status(
        state=seen.state,
        reason=None if origin is None else origin.refusal,
        error=seen.error,
        seconds=None if origin is None else origin.compile_s,
        origin=origin,
        requests=seen.request_count,
    )


def complete(future: "Future[Status]", entry: Entry[Any, Any]) -> None:
    """Give a future what became of an entry, unless it has that already."""
    if future.done() and not future.cancelled():
        return
    # If its owner cancelled it, whoever waits for it hears of that now.
    if not future.running() and not future.set_running_or_notify_cancel():
        return
    status = status_of(entry)
    if status.error is not None:
        future.set_exception(status.error)
    else:
        future.set_result(status)
