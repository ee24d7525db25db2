"""What a worker does with one job: rebuild, look in the store, lock, look again, compile, publish, answer.

The lock saves work and nothing else: if it is taken the answer is Busy, and a compile made without it
is as good. Any error of the store costs a compile or sends the artifact over the pipe, never a call.
"""

import pickle
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from farm.errors import NotShippable, StoreRefused
from farm.job.functor import CompileFunctor, Rebuilt
from farm.job.key import CompileKey
from farm.job.messages import Built, Busy, Failed, Origin, ReissuedWarning, Rejected, WorkerAnswer
from farm.port import failure
from farm.port.compile import Parts
from farm.reasons import DegradedReason, RefusalReason
from farm.store.artifact import Artifact, encode
from farm.store.disk import DiskStore, StoreUnwritable
from farm.store.lock import LockOutcome

NAME: Final = "farm.pool.task:perform"


@dataclass(frozen=True, slots=True)
class Order:
    """A functor, and the store that its artifact belongs in (None: the artifact comes back over the pipe)."""

    functor: CompileFunctor
    store: Path | None
    readonly: bool


def perform(payload: bytes, label: str) -> WorkerAnswer:
    """Do the job in `payload`, a pickled Order."""
    order: Order = pickle.loads(payload)
    try:
        rebuilt = order.functor.rebuild()
    except NotShippable as refusal:
        return Rejected(refusal.reason, refusal.detail)
    except Exception as error:  # restoring runs user code: whatever it raises, the front compiles instead
        return Rejected(RefusalReason.RESTORE_FAILED, f"{type(error).__name__}: {error}")
    key = order.functor.key
    store = _open(order)
    if store is None or order.readonly:
        return _compile(rebuilt, key, None)
    found = _look(store, key)
    if found is not None:
        return found
    with store.lock(key, 0) as outcome:
        if outcome is LockOutcome.BUSY:
            return Busy(key)
        return _look(store, key) or _compile(rebuilt, key, store)


def _open(order: Order) -> DiskStore | None:
    if order.store is None:
        return None
    try:
        return DiskStore(order.store, readonly=order.readonly)
    except (StoreRefused, OSError):
        return None


def _look(store: DiskStore, key: CompileKey) -> Built | None:
    return Built(key, Origin.STORE, 0.0, 0) if store.contains(key) else None


def _compile(rebuilt: Rebuilt, key: CompileKey, store: DiskStore | None) -> WorkerAnswer:
    started = time.perf_counter()
    with failure.numba_warnings() as caught:
        try:
            parts = rebuilt()
        except NotShippable as refusal:
            return Rejected(refusal.reason, refusal.detail)
        except Exception as error:  # numba's, or an extension's: the caller gets it as it is
            if rebuilt.with_extensions:
                return Rejected(RefusalReason.TYPING_WITH_EXTENSIONS, f"{type(error).__name__}: {error}")
            return _failed(error, caught)
    seconds = time.perf_counter() - started
    return _publish(parts, key, store, seconds, _reissued(caught))


def _failed(error: Exception, caught: list[object]) -> Failed:
    return Failed(
        type(error).__name__, str(error), failure.pack(error), failure.literal_positions(error), _reissued(caught)
    )


def _publish(
    parts: Parts, key: CompileKey, store: DiskStore | None, seconds: float, warnings: tuple[ReissuedWarning, ...]
) -> Built:
    artifact = Artifact(key, parts.meta | {"compile_s": seconds}, parts.code, parts.bitcode, parts.environment)
    data = encode(artifact)
    if store is None:
        return Built(key, Origin.COMPILED, seconds, len(data), inline=data, warnings=warnings)
    try:
        store.put(artifact)
    except StoreUnwritable as problem:
        degraded = ((problem.reason, str(problem)), (DegradedReason.DELIVERED_INLINE, key.hex))
        return Built(key, Origin.COMPILED, seconds, len(data), inline=data, warnings=warnings, degraded=degraded)
    return Built(key, Origin.COMPILED, seconds, len(data), warnings=warnings)


def _reissued(caught: list[object]) -> tuple[ReissuedWarning, ...]:
    return tuple(
        ReissuedWarning(w.category, str(w.message), w.filename, w.lineno)  # type: ignore[attr-defined]
        for w in caught
    )
