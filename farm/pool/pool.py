"""The pool: worker processes of one settings tuple, and the one daemon thread that looks after them.

Guarantees: every submitted job's future gets exactly one final answer; nothing is started before the
first submit, which does not block; a callback on a future or a listener cannot end the thread; `close`
may come at any time, from any thread, in any order with the interpreter's exit, and again. A pool does
not survive a fork: in a child it only closes its descriptors, and refuses jobs.
"""

import atexit
import contextlib
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Final

import farm.port.forking  # noqa: F401  # registers what makes a fork of this process safe
from farm.config import StartMethod
from farm.job.messages import Cancelled, Job, Rejected
from farm.pool import instructions as on
from farm.pool import signals
from farm.pool.launch import Setup
from farm.pool.loop import END_S, Loop, Times
from farm.pool.schedule import GROWTH_MAX_BYTES, Schedule
from farm.pool.ticket import PoolEvent, Ticket, WorkerView
from farm.reasons import RefusalReason

STEP_S: Final = 0.01
"""How often a closing pool looks whether its running jobs are done."""


class Pool:
    """Worker processes of one settings tuple.

    Parameters
    ----------
    task, preload
        "module:function": what a worker does with a job, what the foreman does before it forks.
    preload_with
        What `preload` is called with.
    paths
        The foreman's `sys.path`; absolute.
    memory_max_bytes
        A job whose worker uses more is ended; None for no limit.
    environment
        The foreman's whole environment; None for a copy of this process's.
    start_method
        Forked by a foreman, or each worker started on its own: slower, for systems where fork is not safe.
    times
        The pool's patience; None for the defaults.
    exit_grace_s
        How long running jobs may go on when the interpreter exits before anybody has closed the pool.
    jobs_max, growth_max_bytes
        A worker is replaced after so many jobs, or once it has grown so much since its first.
    """

    def __init__(
        self,
        *,
        workers_max: int,
        task: str,
        preload: str | None,
        paths: tuple[str, ...],
        memory_max_bytes: int | None,
        jobs_max: int = 500,
        nice: int = 10,
        environment: Mapping[str, str] | None = None,
        on_event: Callable[[PoolEvent], None] | None = None,
        times: Times | None = None,
        start_method: StartMethod = StartMethod.FORK,
        exit_grace_s: float = 2.0,
        preload_with: str = "",
        growth_max_bytes: int = GROWTH_MAX_BYTES,
    ) -> None:
        self._schedule: Final = Schedule(
            workers_max=workers_max, nice=nice, jobs_max=jobs_max, growth_max_bytes=growth_max_bytes
        )
        self._setup: Final = Setup(task, preload, preload_with, paths, environment)
        self._times: Final = times or Times()
        self._start_method: Final = start_method
        self._memory_max_bytes, self._listener, self._exit_grace_s = memory_max_bytes, on_event, exit_grace_s
        self._ids = itertools.count(1)
        self._owner_pid = os.getpid()
        # Guards _closed, _loop and _thread. Nothing that blocks or calls out is done with it held.
        self._lock = threading.RLock()
        self._closed = False
        self._loop: Loop | None = None
        self._thread: threading.Thread | None = None
        _pools.add(self)

    def __repr__(self) -> str:
        loop = self._loop
        if self._closed or loop is None:
            return f"<Pool [{'closed' if self._closed else '0 idle, 0 busy | 0 queued'}]>"
        counts = loop.counts
        return f"<Pool [{counts.idle} idle, {counts.busy} busy | {counts.queued + len(loop.inbox)} queued]>"

    @property
    def ready(self) -> bool:
        """Whether what forks its workers has said that it is there; without a foreman, whether a worker has."""
        loop = self._loop
        return loop is not None and not self._closed and loop.ready

    def look(self) -> tuple[tuple[WorkerView, ...], tuple[str, ...]]:
        """The workers as they are now, and the labels of the jobs that wait for one."""
        loop = self._loop
        return ((), ()) if loop is None else loop.look()

    def submit(self, job: Job, *, waited: bool, batch: bool) -> Ticket:
        """Queue a job; never blocks. A closed pool answers Cancelled at once, and to what is too large Rejected."""
        ticket = Ticket(next(self._ids), job, self._note)
        if not job.can_be_sent:
            ticket.finish(Rejected(RefusalReason.TOO_LARGE, f"{job.label}: {len(job.payload) >> 20} MiB"))
            return ticket
        refusal = None
        with self._lock:
            if self._closed or self._owner_pid != os.getpid():
                refusal = "the pool is closed"
            else:
                try:
                    submitted = on.Submitted(ticket.job_id, waited, batch, job.fresh, job.for_store)
                    self._running_loop().inbox.put(ticket, submitted)
                except (OSError, RuntimeError) as error:  # no descriptors, no threads
                    refusal = f"the pool could not be started: {error}"
        if refusal is not None:
            ticket.finish(Cancelled(refusal))
        return ticket

    def start(self) -> None:
        """Have the foreman started now, so that the first job finds it warm. Returns at once."""
        with self._lock:
            if not self._closed and self._owner_pid == os.getpid():
                with contextlib.suppress(OSError, RuntimeError):  # the first job tries again, and its answer says why
                    self._running_loop().inbox.put(on.Wanted())

    def close(self, grace_s: float = 2.0) -> None:
        """Stop intake, cancel queued jobs, give running ones and those for the store `grace_s`, end all processes.

        Idempotent.

        In a forked child it only closes descriptors.
        """
        if self._owner_pid != os.getpid():
            self._abandon()
            return
        self._drain()
        self._finish(time.monotonic() + grace_s)

    def _running_loop(self) -> Loop:
        if self._loop is None:
            loop = Loop(
                schedule=self._schedule,
                setup=self._setup,
                times=self._times,
                start_method=self._start_method,
                memory_max_bytes=self._memory_max_bytes,
                listener=self._listener,
                stop_intake=self._stop_intake,
            )
            thread = threading.Thread(target=self._run, args=(loop,), name="farm-pool", daemon=True)
            thread.start()
            self._loop, self._thread = loop, thread
        return self._loop

    def _run(self, loop: Loop) -> None:
        with self._lock:  # whoever started this thread has noted it, or was interrupted before and will start another
            if self._loop is not loop:
                return
        signals.leave_signals_to_others()
        loop.run()

    def _note(self, event: on.Event) -> None:
        if self._loop is not None:
            self._loop.inbox.put(event)

    def _stop_intake(self) -> None:
        with self._lock:
            self._closed = True

    def _drain(self) -> None:
        self._stop_intake()
        self._note(on.Drain())

    def _finish(self, end: float) -> None:
        """Wait for running jobs until `end`, then end the thread. Its own callbacks may get here: no wait then."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        waits = thread is not threading.current_thread()
        while waits and (loop.tickets or len(loop.inbox)) and time.monotonic() < end and thread.is_alive():
            thread.join(STEP_S)
        self._note(on.Close())
        if waits:
            thread.join(END_S * 2)

    def _abandon(self) -> None:
        self._lock = threading.RLock()
        loop, self._loop, self._thread, self._closed = self._loop, None, None, True
        if loop is not None:
            loop.abandon()


_pools: "weakref.WeakSet[Pool]" = weakref.WeakSet()


def _abandon_all() -> None:
    for pool in list(_pools):
        pool._abandon()


def _close_all() -> None:
    """At exit all pools drain at once, so that several cost one grace."""
    pools = [pool for pool in list(_pools) if pool._owner_pid == os.getpid()]
    now = time.monotonic()
    for pool in pools:
        pool._drain()
    for pool in pools:
        pool._finish(now + pool._exit_grace_s)


atexit.register(_close_all)
os.register_at_fork(after_in_child=_abandon_all)
