"""The Settler: takes a compile from its reserved entry to machine code that is installed, or to an error.

    hand_over   functor -> in the store already? -> else a job for the pool; the answer comes to the pending
    settle      answer -> load, or compile here -> install -> publish, or fail

A pending is settled once, under numba's compiler lock, by whoever comes first: a thread that waits for it
(it may hold that lock already, so nobody else could) or the installer thread. The pool's thread never
takes the lock: it completes the pending's answer and queues it. Events go out when the lock is released.

Ctrl-C may come anywhere. Whoever it meets gets it; what they had begun to settle is given up, so that the next call
asks again, unless its machine code is installed already. What is done on the way out may be done twice.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from farm.config import Config
from farm.errors import (
    CompileFailed,
    Degraded,
    FarmClosed,
    NotShippable,
    OutOfMemory,
    TimedOut,
    VerifyFailed,
    WorkerDied,
    told,
)
from farm.front.answers import STARTING, AnswerFuture, compiles_here, give, loss, verify_failed, with_bytes
from farm.front.installer import Installer
from farm.front.loading import linked, reissue, unpacked
from farm.front.pending import LiteralsWanted, Origin, Overtaken, Pending, Source
from farm.front.policy import FunctionProfile
from farm.front.record import Record
from farm.front.supply import JobTaker, Keeps, Supply
from farm.front.switch import stopper
from farm.job import messages as wire
from farm.job.functor import CompileFunctor, make_functor, other_keys
from farm.observe.listeners import LOG
from farm.observe.stats import Count
from farm.port import failure
from farm.port.compile import compile_signature
from farm.port.dispatch import are_literal
from farm.port.futures import SteadyFuture
from farm.port.load import LoadRefused
from farm.port.locks import holds_compiler_lock, with_compiler_lock
from farm.port.target import own_cpu
from farm.reasons import DegradedReason, RefusalReason
from farm.store.artifact import Miss, Stored, decode

if TYPE_CHECKING:
    from farm.pool.task import Order
    from farm.pool.ticket import Ticket

_COUNTED: Final = {WorkerDied: Count.DIED, TimedOut: Count.TIMED_OUT, OutOfMemory: Count.OUT_OF_MEMORY}
_NO_FAILURE: Final = (LiteralsWanted, FarmClosed, Overtaken)
"""How a pending can end without machine code and without a failure of the function."""
TAKEN_S: Final = 0.005
"""So long a call waits for the pool to take its job: 0.3 ms, if nobody else is busy."""
LOCAL_GRACE_S: Final = 0.1
"""A guess. So long a Python body may run beside the compile that this process has to do itself."""
Outcome = tuple[Origin, FunctionProfile] | Exception


class Settler:
    """Hands compiles over and settles them, for one farm.

    Parameters
    ----------
    config
        Gives the settings as they are now.
    on_settled
        Told of every pending that has been settled, outside all locks.
    pool, store
        Used in place of worker processes and of the cache directory, if they are given.
    """

    def __init__(
        self,
        config: Callable[[], Config],
        record: Record,
        on_settled: Callable[[Pending], None],
        pool: JobTaker | None = None,
        store: Keeps | None = None,
    ) -> None:
        self._config = config
        self._record = record
        self._on_settled = on_settled
        self.installer: Final = Installer(self._settle_arrived, lambda: self.supply.usage.pause_s())
        self.supply: Final = Supply(record, later=self.installer.later, given_pool=pool, given_store=store)
        # Guards _told_of_no_installer and the `load_told` and `order` of pendings. Nothing that blocks is done with it
        # held.
        self._lock = threading.RLock()
        self._told_of_no_installer = False
        self._closed = False

    # -- handing over ----------------------------------------------------------------------------------

    def stored(self, dispatcher: Any, arguments: Any, return_type: Any | None = None) -> Stored | None:
        """The artifact of a signature that may not be compiled now: limits are about compiles, not about loads."""
        if self._config().verify:  # then a load is a compile too
            return None
        try:
            found = self._look_up(make_functor(dispatcher, arguments, return_type))
        except Exception:  # user objects take part in capturing; the compile, if it comes, meets the same and tells
            return None
        return found if isinstance(found, Stored) else None

    def _look_up(self, functor: CompileFunctor) -> Stored | Miss | None:
        """What the store has for this CPU, or for a lesser one that this one can stand in for."""
        config = self._config()
        found = self.supply.look_up(config, functor.key)
        if isinstance(found, Miss) and not config.verify:
            return self.supply.look_further(config, other_keys(functor)) or found
        return found

    def take_stored(self, pending: Pending, found: Stored) -> None:
        """The pending's answer is in the store."""
        pending.key, pending.stored = found.key, found
        pending.answer.set_result(wire.Built(found.key, wire.Origin.STORE, 0.0, found.size_bytes))
        self._deliver(pending)

    def hand_over(self, pending: Pending, *, waited: bool) -> None:
        """Get an answer for the pending: from the store at once, or from a worker later. Never blocks.

        Whatever goes wrong here is an answer too: otherwise the entry would look in progress for ever. Only an
        interruption is raised; then the caller gives the pending up.
        """
        try:
            # Captured before the store is asked: what cannot travel must not be loaded either. Of two classes of one
            # name, as a notebook cell makes them that is run twice, the store has the newer one's code.
            functor = make_functor(pending.dispatcher, pending.entry.key, pending.return_type)
            pending.key = functor.key
            started = time.perf_counter()
            found = self._look_up(functor)
            if isinstance(found, Stored) and not self._config().verify:
                pending.look_up_s = time.perf_counter() - started
                return self.take_stored(pending, found)
            self._submit(pending, functor, waited=waited)
        except NotShippable as refusal:
            pending.answer.set_result(wire.Rejected(refusal.reason, refusal.detail))
        except Degraded as error:  # only with on_degraded="raise": the entry's error, so that its callers see it
            pending.answer.set_exception(error)
        except Exception as error:  # user objects take part in capturing: whatever they raise, the front compiles
            detail = told(error)
            pending.answer.set_result(wire.Rejected(RefusalReason.HAND_OVER_FAILED, detail))
        self._deliver(pending)

    def _deliver(self, pending: Pending) -> None:
        """From here on the installer settles it, unless somebody waits for it and comes first.

        A call settles what the store had before the installer hears of it. That thread would come first as often as
        not, and the call would run in Python though its code was there.
        """
        self._record.tell_started(pending)
        self.installer.start()
        if pending.by_call:
            self._settle_if_free(pending)
        if not pending.settled:
            pending.when_answered(_stop_bodies)
            pending.when_answered(self.installer.arrive)

    def _submit(self, pending: Pending, functor: CompileFunctor, *, waited: bool) -> None:
        config = self._config()
        order = self.supply.pools.order(functor, self.supply.store_settings(config), verify=config.verify)
        pending.order, answer = order, pending.answer
        starts = pending.at_once and self._pool_starts(pending)
        if starts and not self.supply.keeps(order.store):  # then nothing would come of the job
            self.supply.pool(config, functor.settings).start()
            give(answer, STARTING)
        else:
            self._send(pending, order, lambda said: give(answer, said), waited=waited and not starts)

    def _send(
        self, pending: Pending, order: "Order", answered: Callable[[wire.FinalAnswer], bool], *, waited: bool
    ) -> None:
        """Have the pool do it, and hand its answer on; or if nobody takes that, as its caller was faster, note it."""
        ticket = pending.ticket = self._ticket(pending, order, waited=waited)
        taken = self.supply.take_published
        ticket.future.add_done_callback(
            lambda done: None if answered(done.result()) else taken(self._config(), done.result())
        )
        if pending.by_call:  # a body that is busy would keep the pool's thread from it for 5 ms, several times
            ticket.taken.wait(TAKEN_S)
        if pending.waited and (waited or not pending.at_once):  # by somebody who came before there was this ticket
            ticket.note_wait()

    def _ticket(self, pending: Pending, order: "Order", *, waited: bool) -> "Ticket":
        config = self._config()
        for_store = pending.at_once and not waited
        job = self.supply.pools.job(order, pending.label, config.job_timeout_s, for_store=for_store)
        batch = pending.batch or for_store
        return self.supply.pool(config, order.functor.settings).submit(job, waited=waited, batch=batch)

    def _ask_for_bytes(self, pending: Pending, built: wire.Built) -> None:
        """The artifact that a worker answered with is not to be found here: have it sent over the pipe, once.

        It was trimmed, or removed, or this process does not see the directory as the worker does.
        """
        with self._lock:
            order, pending.order = pending.order, None
            if order is None or pending.settled:
                return
            answer: AnswerFuture = SteadyFuture()
            pending.answer = answer
        try:
            again = replace(order, inline=True)
            self._send(pending, again, lambda brought: give(answer, with_bytes(built, brought)), waited=pending.waited)
        except BaseException:  # no pool any more; or Ctrl-C, and somebody else goes on
            give(answer, built)
            raise
        finally:
            pending.when_answered(self.installer.arrive)

    # -- settling --------------------------------------------------------------------------------------

    def _settle_if_free(self, pending: Pending) -> None:
        """Settle now if nobody compiles and nothing has to be compiled: a call whose code is in the store runs it.

        What this process compiles itself is the installer's: the call does not wait for it.
        """
        if pending.answer.done() and not compiles_here(pending.answer):
            self._settle_within(pending, 0)

    def wait(self, pending: Pending, timeout_s: float | None = None, *, at_once: bool = False) -> bool:
        """Wait for the answer and settle, or until whoever came first has; False if the time passed before.

        `at_once`: while the pool is starting, compile here instead.
        """
        if at_once and not pending.answer.done() and self._pool_starts(pending):
            self._settle_within(pending, None, while_starting=True)
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while not pending.settled:
            if not pending.wait(None if end is None else max(0.0, end - time.monotonic())):
                return False
            if end is None or holds_compiler_lock():
                self.settle(pending)
            elif compiles_here(pending.answer):  # which nobody can end in time: it is the installer's
                break
            else:
                self._settle_within(pending, max(0.0, end - time.monotonic()))
                if not pending.settled and time.monotonic() >= end:
                    return False
        if holds_compiler_lock():  # nobody else is settling it: it is over, or this thread is in the middle of it
            return pending.flight.done.done()
        return pending.flight.wait(None if end is None else max(0.0, end - time.monotonic()))

    def _pool_starts(self, pending: Pending) -> bool:
        """Whether a caller would wait for the start of the pool, and may compile here as well: not to verify."""
        config, order = self._config(), pending.order
        return order is not None and not config.verify and self.supply.starting(config, order.functor.settings)

    def settle(self, pending: Pending) -> None:
        """Turn the answer into an installed result or an error, once. Called without any lock of the farm.

        Waits for the compiler lock as long as a compile by numba itself would: for whoever compiles here.
        Not yet, if the answer names an artifact that is not there: then there will be another answer.
        """
        self._settle_within(pending, None)

    def _settle_arrived(self, pending: Pending) -> None:
        """In the installer's thread. A compile here and a Python body would keep each other from the interpreter."""
        if compiles_here(pending.answer):
            with stopper.ward(pending, LOCAL_GRACE_S):
                self.settle(pending)
        else:
            self.settle(pending)

    def _settle_within(self, pending: Pending, timeout_s: float | None, *, while_starting: bool = False) -> None:
        """As `settle`, if the compiler lock can be had in that time.

        `while_starting`: without an answer, if the pool still has not said that it is there.
        """
        answer, claim = self._prepare(pending), object()
        try:
            outcome = with_compiler_lock(
                lambda: self._settle_locked(pending, answer, claim, while_starting=while_starting), timeout_s
            )
            if outcome is not None:
                self._tell(pending, outcome)
                self._on_settled(pending)
        except BaseException:
            if pending.claim is claim:
                pending.entry.give_up(pending.flight)
                self._record.count_ended(pending)
                self._on_settled(pending)
            raise

    def _settle_locked(
        self, pending: Pending, answer: AnswerFuture, claim: object, *, while_starting: bool
    ) -> Outcome | None:
        """With numba's compiler lock held. None if it was settled before, or another answer took this place."""
        if pending.settled or answer is not pending.answer:
            return None
        if while_starting:
            if not self._pool_starts(pending) or not give(answer, STARTING):
                return None  # the pool was faster
            pending.ticket = None  # the job is the store's alone from now on
        elif not answer.done():
            return None
        pending.claim = claim
        try:
            return self._settle_once(pending, answer)
        except BaseException:
            self._settle_interrupted(pending)
            raise

    def _settle_interrupted(self, pending: Pending) -> None:
        """With the compiler lock held, in the middle of it: what is installed counts, the rest is given up."""
        pending.dispatcher.drop_shortcuts(pending.entry.key)
        self._record.count_ended(pending)
        result = pending.dispatcher.overloads.get(pending.entry.key)
        if result is not None and pending.origin is not None and pending.entry.snapshot().flight is pending.flight:
            pending.entry.note_origin(pending.origin)
            pending.entry.publish(pending.flight, pending.dispatcher.install(pending.entry.key, result))
        pending.entry.give_up(pending.flight)

    def _settle_once(self, pending: Pending, answer: AnswerFuture) -> Outcome:
        """Everything is counted before the entry is published: whoever waited for it may look at the counters."""
        pending.dispatcher.drop_shortcuts(pending.entry.key)
        try:
            if pending.flight.overtaken and compiles_here(answer):
                raise Overtaken()
            result, origin = self._obtain(pending, answer.result())
            if pending.flight.overtaken:
                raise Overtaken()
            pending.origin = origin
            result = pending.dispatcher.install(pending.entry.key, result)
        except Exception as error:
            if not isinstance(error, _NO_FAILURE):
                self._record.count_failed(pending, _COUNTED.get(type(error)))
            self._record.count_ended(pending)
            pending.entry.fail(pending.flight, error)
            return error
        profile = self._record.count_finished(pending, origin)
        self._record.count_ended(pending)
        pending.entry.note_origin(origin)
        pending.entry.publish(pending.flight, result)
        return origin, profile

    def _tell(self, pending: Pending, outcome: Outcome) -> None:
        self._record.job_ended(pending)
        if isinstance(outcome, tuple):
            self._record.finished(pending, *outcome)
        elif not isinstance(outcome, _NO_FAILURE):
            if isinstance(outcome, VerifyFailed):  # also where nobody calls the function again
                LOG.error("%s", outcome)
            self._record.failed(pending, outcome)

    def _obtain(self, pending: Pending, answer: wire.FinalAnswer) -> tuple[Any, Origin]:
        match answer:
            case wire.Built():
                return self._load(pending, answer)
            case wire.Rejected(reason, detail):
                if answer is not STARTING:  # nobody has refused it
                    self._record.counters.count(Count.REJECTED, pending.dispatcher.label)
                return self._compile_pending(pending, reason, detail)
            case wire.Cancelled(detail):
                if self._closed:
                    raise FarmClosed()
                self._record.degraded(DegradedReason.POOL_UNAVAILABLE, detail)
                return self._compile_pending(pending, RefusalReason.NO_POOL, detail)
            case wire.Failed(kind, text, error, literals, issued):
                reissue(issued)
                if literals is not None and not are_literal(pending.entry.key, literals):
                    raise LiteralsWanted(literals)
                raise (failure.unpack(error) if error else None) or CompileFailed(pending.label, kind, text)
            case wire.Differs():
                raise verify_failed(answer)
            case wire.Died() | wire.TimedOut() | wire.OutOfMemory():
                raise loss(pending.label, answer)
            case wire.StoreTrimmed():
                raise AssertionError("a compile is not answered by a trim")

    def _compile_pending(self, pending: Pending, reason: RefusalReason, detail: str) -> tuple[Any, Origin]:
        started = time.monotonic()
        try:
            result = self.compile_here(pending.dispatcher, pending.entry.key, pending.return_type, pending.caller_flags)
        finally:
            pending.here = started, time.monotonic()
        seconds, cpu = pending.here[1] - started, str(own_cpu())
        return result, Origin(source=Source.LOCAL, compile_s=seconds, refusal=reason, detail=detail, cpu=cpu)

    @staticmethod
    def compile_here(dispatcher: Any, arguments: Any, return_type: Any | None, flags: Any | None) -> Any:
        """Compile in this process, in this thread. numba's own errors pass through."""
        try:
            result, _ = compile_signature(dispatcher, arguments, return_type, flags)
        except Exception as error:
            positions = failure.literal_positions(error)
            if positions is None or are_literal(arguments, positions):
                raise
            raise LiteralsWanted(positions) from None
        return result

    def _prepare(self, pending: Pending) -> AnswerFuture:
        """Read and unpickle an artifact, without the compiler lock: that may import modules, and wait for others'.

        Gives the answer that it looked at. Two threads may both do it; it is the linking that happens once. What goes
        wrong is met again there.
        """
        answer = pending.answer
        with contextlib.suppress(Exception):
            self._unpack(pending, answer)
        return answer

    def _unpack(self, pending: Pending, answer: AnswerFuture) -> None:
        if pending.settled or pending.unpacked is not None or not answer.done() or answer.exception() is not None:
            return
        built = answer.result()
        if not isinstance(built, wire.Built):
            return
        started = time.perf_counter()
        stored = pending.stored or self._fetch(built)
        if not isinstance(stored, Stored):
            return self._ask_for_bytes(pending, built)
        if pending.stored is None:
            self.supply.keep(built, stored)  # before others find it and go on: whoever waited may look for it
            pending.stored = stored
        self._tell_load(pending, stored)
        pending.unpacked = unpacked(pending, stored)
        pending.unpack_s = time.perf_counter() - started

    def _tell_load(self, pending: Pending, stored: Stored) -> None:
        with self._lock:
            first, pending.load_told = not pending.load_told, True
        if first:
            self._record.load_started(pending, stored.key)

    def _load(self, pending: Pending, built: wire.Built) -> tuple[Any, Origin]:
        reissue(built.warnings)
        for miss, times in built.misses:
            self._record.missed(miss, times)
        compiled = built.origin is wire.Origin.COMPILED
        if built.verified:
            self._record.counters.count(Count.VERIFIED, pending.dispatcher.label, times=built.verified)
        if compiled and (built.inline is None or self._config().verify):
            nested = sum(one.artifact_bytes for one in built.nested)
            self.supply.note_published(self._config(), built.artifact_bytes + nested)
        for reason, detail in built.degraded:
            self._record.degraded(reason, detail)
        stored = pending.stored
        if stored is None:
            return self._compile_pending(
                pending, RefusalReason.LOAD_FAILED, "the artifact has vanished from the store, or is damaged"
            )
        try:
            return linked(pending, stored, built)
        except LoadRefused as refusal:
            self._record.load_failed(pending, refusal.reason)
            return self._compile_pending(pending, RefusalReason.LOAD_FAILED, refusal.detail)

    def _fetch(self, built: wire.Built) -> Stored | Miss | None:
        if built.inline is not None:
            return decode(built.inline, built.key)
        return self.supply.look_up(self._config(), built.key)

    # -- the installer ---------------------------------------------------------------------------------

    def can_install(self) -> bool:
        """Whether what nobody waits for would be installed; starts the installer. If not it is told, once.

        No thread can be started where a limit is reached, and at the end of a process: for Python 3.12.1 that begins
        when the main thread has ended, though other threads go on. Once closing has begun nothing new is taken: without
        an installer it would be settled by nobody.
        """
        problem = self.installer.start()
        if problem is None:
            return not self._closed
        with self._lock:
            first, self._told_of_no_installer = not self._told_of_no_installer, True
        if first:
            self._record.degraded(DegradedReason.POOL_UNAVAILABLE, f"nothing is compiled in the background: {problem}")
        return False

    def close(self, grace_s: float) -> None:
        """Stop intake, end the pool and the installer."""
        self._closed = True
        self.installer.stop_intake()
        self.supply.close(grace_s)
        self.installer.end(grace_s)
        self.supply.usage.write()


def _stop_bodies(pending: Pending) -> None:
    """The machine code is there: calls that run in Python meanwhile are done again, by it."""
    answer = pending.answer
    if answer.exception() is None and isinstance(answer.result(), wire.Built):
        pending.there = True
        stopper.stop_all(pending)
