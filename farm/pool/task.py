"""What a worker does with one job: rebuild, look in the store, lock, look again, compile, publish, answer.

To verify, what is found in the store is compiled again and compared. What was compared, or made, then goes over the
pipe: the front loads those very bytes, whatever lies in the store by then.

The lock saves work and nothing else: if it is taken the answer is Busy, and a compile made without it
is as good. Any error of the store costs a compile or sends the artifact over the pipe, never a call.
A job can also be to trim the store.
"""

import os
import pickle
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final, cast

from farm.errors import NotShippable, StoreRefused, told, words_of
from farm.job.functor import CompileFunctor, Rebuilt
from farm.job.messages import Built, Busy, Failed, Origin, ReissuedWarning, Rejected, StoreTrimmed, WorkerAnswer
from farm.pool.nested import About, StoreLibrary, as_artifact
from farm.pool.patience import LockPatience
from farm.port import failure
from farm.port.compile import Parts
from farm.port.library import forget, serving
from farm.reasons import DegradedReason, MissReason, RefusalReason
from farm.store.artifact import Artifact, Miss, Stored, encode
from farm.store.disk import DiskStore, StoreSettings, StoreUnwritable
from farm.store.lock import LockOutcome

NAME: Final = "farm.pool.task:perform"

lock_patience = LockPatience()
"""This worker's. It does one job at a time: no lock guards it."""


@dataclass(frozen=True, slots=True)
class Order:
    """A functor, and the store that its artifact belongs in.

    Parameters
    ----------
    store
        None: the artifact comes back over the pipe. To one that is used read-only nothing is published; callees are
        still looked up. The signing key itself does not travel: payloads are kept, and shown when something fails.
    inline
        Send the artifact over the pipe, wherever else it is: the front did not find it.
    dead
        Process ids of workers that ended in the middle of a job: what they were writing is removed.
    verify
        Compile again what the store has, callees included, and compare.
    """

    functor: CompileFunctor
    store: StoreSettings | None
    inline: bool = False
    dead: tuple[int, ...] = ()
    verify: bool = False


@dataclass(frozen=True, slots=True)
class TrimOrder:
    """Bring a store under its size limit. The answer is StoreTrimmed."""

    store: StoreSettings


def perform(payload: bytes, label: str) -> WorkerAnswer:
    """Do the job in `payload`, a pickled Order or TrimOrder."""
    order: Order | TrimOrder = pickle.loads(payload)
    if isinstance(order, TrimOrder):
        return _trim(order)
    with _at_home(order.functor):
        return compile_order(order)


@contextmanager
def _at_home(functor: CompileFunctor) -> Iterator[None]:
    """Inside, modules are found as in the front, and paths in messages read as they do there.

    What the front has on its path beyond the foreman's comes last: what is installed is found first, as ever. Between
    jobs a worker is in the root directory, so that it keeps no file system from being unmounted.
    """
    sys.path.extend(path for path in functor.paths if path not in sys.path)
    with suppress(OSError):
        os.chdir(functor.directory or "/")
    try:
        yield
    finally:
        os.chdir("/")


def compile_order(order: Order) -> WorkerAnswer:
    """Do a compile, in this process as it is."""
    library = StoreLibrary(None, verify=order.verify)
    try:
        library.store = _open(order)  # first: what the dead left goes even if this job ends like them
    except (StoreRefused, OSError) as problem:
        library.degraded.update((_told(problem), (DegradedReason.DELIVERED_INLINE, order.functor.key.hex)))
    try:
        rebuilt = order.functor.rebuild()
    except NotShippable as refusal:
        return Rejected(refusal.reason, refusal.detail)
    except Exception as error:  # restoring runs user code: whatever it raises, the front compiles instead
        return Rejected(RefusalReason.RESTORE_FAILED, told(error))
    answer = _settle(rebuilt, order, library)
    if isinstance(answer, Failed) and answer.literal_args is None and library.served:
        answer, library = _compile_alone(order, library)
    if library.differing:  # the innermost is the first
        first, *others = library.differing
        return replace(first, others=tuple(f"{one.function}{one.signature}" for one in others))
    if not isinstance(answer, Built):
        return answer
    return replace(
        answer,
        verified=library.verified,
        nested=tuple(library.nested),
        degraded=(*library.degraded.items(), *answer.degraded),
        misses=tuple(library.misses.items()),
    )


def _compile_alone(order: Order, library: StoreLibrary) -> tuple[WorkerAnswer, StoreLibrary]:
    """Compile without the library what failed with callees from it: an artifact must not be the reason."""
    alone = StoreLibrary(None)
    forget()
    answer = _compile(order.functor.rebuild(), order, alone)
    forget()
    if isinstance(answer, Built):
        library.misses[MissReason.LOAD_FAILED] += 1
    alone.misses, alone.degraded = library.misses, library.degraded
    return answer, alone


def _trim(order: TrimOrder) -> StoreTrimmed:
    try:
        done = order.store.open().trim()
    except StoreUnwritable as problem:
        return StoreTrimmed(0, 0, ((problem.reason, str(problem)),))
    except (StoreRefused, OSError) as problem:
        return StoreTrimmed(0, 0, (_told(problem),))
    return StoreTrimmed(done.entries_removed, done.bytes_removed)


def _told(problem: StoreRefused | OSError) -> tuple[DegradedReason, str]:
    """How the answer says that a store could not be opened."""
    reason = DegradedReason.STORE_REFUSED if isinstance(problem, StoreRefused) else DegradedReason.STORE_UNREADABLE
    return reason, str(problem)


def _open(order: Order) -> DiskStore | None:
    if order.store is None:
        return None
    store = order.store.open()
    for pid in order.dead:
        store.remove_temp_of(pid)
    return store


def _settle(rebuilt: Rebuilt, order: Order, library: StoreLibrary) -> WorkerAnswer:
    store, key = library.store, order.functor.key
    if store is None or (store.readonly and not order.verify):
        return _compile(rebuilt, order, library)
    found = _look(store, rebuilt, order, library)
    if found is not None:
        lock_patience.came(key)
        return found
    with store.lock(key, 0) as outcome:
        if outcome is not LockOutcome.BUSY:
            lock_patience.came(key)
        elif not lock_patience.has_ended(key, time.monotonic()):
            return Busy(key)
        else:
            library.degraded[DegradedReason.LOCK_TIMED_OUT] = key.hex
        return _look(store, rebuilt, order, library) or _compile(rebuilt, order, library)


def _look(store: DiskStore, rebuilt: Rebuilt, order: Order, library: StoreLibrary) -> Built | None:
    # Read, not only seen: the front was here before, and a file that it found bad must not send it back there.
    key = order.functor.key
    found: Stored | Artifact | Miss = store.get(key)
    if (order.inline or order.verify) and isinstance(found, Stored):
        found = found.artifact()
    match found:
        case Artifact() if order.verify:
            _verify(found, rebuilt, order, library)
            return Built(key, Origin.STORE, 0.0, 0, inline=encode(found))
        case Artifact():
            degraded = ((DegradedReason.DELIVERED_INLINE, key.hex),)
            return Built(key, Origin.STORE, 0.0, 0, inline=encode(found), degraded=degraded)
        case Stored():
            return Built(key, Origin.STORE, 0.0, 0)
        case Miss(reason) if reason is not MissReason.ABSENT:
            library.missed(key, reason)
    return None


def _verify(stored: Artifact, rebuilt: Rebuilt, order: Order, library: StoreLibrary) -> None:
    """Compile again what is stored, under its names, and take note of what differs."""
    base = stored.meta.get("symbol_base")
    was = Parts(dict(stored.meta), stored.code, stored.bitcode, stored.environment)
    named = rebuilt.function, rebuilt.signature, order.functor.key, was
    with failure.numba_warnings(), serving(library):
        try:
            parts = rebuilt(base if isinstance(base, int) else None)
        except Exception as error:  # numba's, an extension's, or a refusal: somebody stored what cannot be made here
            library.differs(*named, (("the compile", "made an artifact", told(error)),))
            return
    library.compared(*named, parts)


def _compile(rebuilt: Rebuilt, order: Order, library: StoreLibrary) -> WorkerAnswer:
    started = time.perf_counter()
    with failure.numba_warnings() as caught, serving(library):
        try:
            parts = rebuilt()
        except NotShippable as refusal:
            return Rejected(refusal.reason, refusal.detail)
        except Exception as error:  # numba's, or an extension's: the caller gets it as it is
            # What there was not memory for here must not be tried in the process that calls.
            if rebuilt.with_extensions and not isinstance(error, MemoryError):
                return Rejected(RefusalReason.TYPING_WITH_EXTENSIONS, told(error))
            return _failed(error, caught)
    seconds = time.perf_counter() - started
    about = About(rebuilt.dispatcher.py_func, rebuilt.arguments, rebuilt.return_type, rebuilt.parts)
    return _publish(as_artifact(order.functor.key, parts, seconds, about), order, library.store, _reissued(caught))


def _failed(error: Exception, caught: list[object]) -> Failed:
    return Failed(
        type(error).__name__, words_of(error), failure.pack(error), failure.literal_positions(error), _reissued(caught)
    )


def _publish(artifact: Artifact, order: Order, store: DiskStore | None, warnings: tuple[ReissuedWarning, ...]) -> Built:
    key, seconds = artifact.key, cast(float, artifact.meta["compile_s"])
    data = encode(artifact)
    inline, degraded = order.inline, list[tuple[DegradedReason, str]]()
    if store is None or store.readonly:
        inline = True
    else:
        try:
            store.put(artifact)
        except StoreUnwritable as problem:
            inline = True
            degraded.append((problem.reason, str(problem)))
        if inline:
            degraded.append((DegradedReason.DELIVERED_INLINE, key.hex))
    sent = data if inline or order.verify else None
    return Built(key, Origin.COMPILED, seconds, len(data), inline=sent, warnings=warnings, degraded=tuple(degraded))


def _reissued(caught: list[object]) -> tuple[ReissuedWarning, ...]:
    return tuple(
        ReissuedWarning(failure.names_of(w.category), words_of(w.message), w.filename, w.lineno)  # type: ignore[attr-defined]
        for w in caught
    )
