"""What the answers of the pool mean to those who wait for a compile: pure functions, from an answer to an outcome."""

import contextlib
from concurrent.futures import Future, InvalidStateError
from dataclasses import replace
from typing import Final, TypeAlias

from farm.errors import JobLost, OutOfMemory, TimedOut, VerifyFailed, WorkerDied
from farm.job import messages as wire
from farm.reasons import RefusalReason

AnswerFuture: TypeAlias = "Future[wire.FinalAnswer]"
STARTING: Final = wire.Rejected(RefusalReason.POOL_STARTING, "")
"""What a caller is answered who would wait for the pool's start."""


def give(answer: AnswerFuture, what: wire.FinalAnswer) -> bool:
    """Whether this is its answer now: the first one counts."""
    with contextlib.suppress(InvalidStateError):
        answer.set_result(what)
        return True
    return False


def compiles_here(answer: AnswerFuture) -> bool:
    """Whether there is an answer, and it means that this process compiles."""
    if not answer.done() or answer.exception() is not None:
        return False
    return isinstance(answer.result(), (wire.Rejected, wire.Cancelled))


def with_bytes(built: wire.Built, again: wire.FinalAnswer) -> wire.FinalAnswer:
    """The first answer, with what the second brought."""
    if not isinstance(again, wire.Built):
        return again
    return replace(
        built,
        inline=again.inline,
        nested=(*built.nested, *again.nested),
        degraded=(*built.degraded, *again.degraded),
        misses=(*built.misses, *again.misses),
    )


def loss(label: str, answer: wire.Died | wire.TimedOut | wire.OutOfMemory) -> JobLost:
    """The error of a job that was given up because of what it did to its workers."""
    match answer:
        case wire.Died(exit_code, signal, last_lines):
            return WorkerDied(label, exit_code, signal, last_lines)
        case wire.TimedOut(limit_s):
            return TimedOut(label, limit_s)
        case wire.OutOfMemory(limit_bytes, used_bytes):
            return OutOfMemory(label, limit_bytes, used_bytes)


def verify_failed(answer: wire.Differs) -> VerifyFailed:
    """The error of a stored artifact that is not what compiling it again gives."""
    key, told = answer.key, answer.made_under
    now, stored = dict(key.parts), dict(told.parts if told is not None else ())
    parts = tuple((label, stored.get(label, ""), now.get(label, "")) for label in sorted(now.keys() | stored.keys()))
    made_under = "" if told is None else told.hex
    return VerifyFailed(
        answer.function, answer.signature, key.hex, made_under, parts, answer.differences, answer.others
    )
