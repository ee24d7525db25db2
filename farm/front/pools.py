"""Pools: the worker processes of one farm, and what they are told to do. For what the store does not have.

Importing this brings in most of the farm, so `Supply` does it with the first compile.
"""

import json
import os
import pickle
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Final

import numpy.ma  # noqa: F401  # 15 ms that numba takes for the first array of a process: here they are beside a compile

from farm.config import Config, worker_environment
from farm.errors import NotShippable
from farm.front import meanwhile  # noqa: F401  # what calls do while they wait: later it may be too late for imports
from farm.front.record import Record
from farm.job import restart  # noqa: F401  # as meanwhile
from farm.job.functor import CompileFunctor, front_paths
from farm.job.key import CompileKey
from farm.job.messages import FinalAnswer, Job, StoreTrimmed
from farm.pool.pool import Pool
from farm.pool.task import NAME as TASK
from farm.pool.task import Order, TrimOrder
from farm.pool.ticket import PoolEvent, PoolEventKind, WorkerView
from farm.port.target import Foundation, Plain, foundation, import_environment
from farm.reasons import DegradedReason, RefusalReason
from farm.store.disk import StoreSettings

PRELOAD: Final = "farm.port.warm:warm"
TRIM_KEY: Final = CompileKey.from_parts({"trim": b""})
"""Every job has a key; this one names no artifact."""


class Pools:
    """The pools of one farm: one for each set of settings that a process is built with, normally one.

    Parameters
    ----------
    degraded
        Told, in a pool's thread, of what got worse.
    """

    def __init__(self, record: Record, degraded: Callable[[DegradedReason, str], None]) -> None:
        self._record = record
        self._degraded = degraded
        # Guards _pools, _dead and _closed. Nothing that blocks is done with it held.
        self._lock = threading.RLock()
        self._pools: dict[Foundation, Pool] = {}
        """Never removed: an idle pool has no process."""
        self._dead: list[int] = []
        self._closed = False

    def all(self) -> list[Pool]:
        """Every pool that there is."""
        with self._lock:
            return list(self._pools.values())

    def pool(self, config: Config, numbas: Mapping[str, Plain], workers_max: int) -> Pool:
        """The pool whose processes compile under these settings of numba's.

        Raises NotShippable(NO_POOL) once the pools are closed.
        """
        built_with = foundation(numbas)
        with self._lock:
            if self._closed:
                raise NotShippable(RefusalReason.NO_POOL, "the farm is closed")
            pool = self._pools.get(built_with)
            if pool is None:
                made = Pool(
                    workers_max=workers_max,
                    task=TASK,
                    preload=PRELOAD,
                    preload_with=json.dumps(built_with),
                    paths=_worker_paths(),
                    memory_max_bytes=config.worker_memory_limit_bytes(),
                    jobs_max=config.worker_jobs_max,
                    nice=config.nice,
                    environment=worker_environment(import_environment(built_with)),
                    start_method=config.start_method,
                    exit_grace_s=config.exit_grace_s,
                    on_event=self._note,
                )
                pool = self._pools.setdefault(built_with, made)
            return pool

    def _note(self, event: PoolEvent) -> None:
        """In the pool's thread."""
        self._record.news()
        if event.kind is PoolEventKind.FOREMAN_LOST:
            self._degraded(DegradedReason.FOREMAN_LOST, event.detail)
        elif event.kind is PoolEventKind.WORKER_RECYCLED:
            self._record.counters.recycle()
        elif event.kind is PoolEventKind.WORKER_EXITED and event.in_job and event.worker_pid is not None:
            with self._lock:
                self._dead.append(event.worker_pid)

    def look(self) -> tuple[list[WorkerView], list[str]]:
        """The workers of all pools as they are now, and the labels of the jobs that wait for one."""
        seen = [pool.look() for pool in self.all()]
        return [one for workers, _ in seen for one in workers], [label for _, labels in seen for label in labels]

    # -- jobs ------------------------------------------------------------------------------------------

    def order(self, functor: CompileFunctor, store: StoreSettings | None, *, verify: bool) -> Order:
        """What a worker is told."""
        return Order(functor, store, verify=verify)

    def job(self, order: Order, label: str, deadline_s: float, *, for_store: bool) -> Job:
        """An order as a pool takes it, with the workers that have ended in the middle of a job since the last one."""
        order = replace(order, dead=self.take_dead())
        return Job(order.functor.key, label, pickle.dumps(order), deadline_s, order.verify, for_store)

    def take_dead(self) -> tuple[int, ...]:
        """Workers that ended in the middle of a job since the last time this was asked."""
        with self._lock:
            dead, self._dead = self._dead, []
        return tuple(dead)

    def trim(self, store: StoreSettings, deadline_s: float) -> None:
        """Have a worker trim the store, when nothing else is to be done; nothing without a pool."""
        pools = self.all()
        if pools:
            job = Job(TRIM_KEY, "trim the store", pickle.dumps(TrimOrder(store)), deadline_s)
            pools[0].submit(job, waited=False, batch=True).future.add_done_callback(self._trimmed)

    def _trimmed(self, done: "Future[FinalAnswer]") -> None:
        answer = done.result()
        if isinstance(answer, StoreTrimmed):
            for reason, detail in answer.degraded:
                self._degraded(reason, detail)

    def end(self) -> list[Pool]:
        """No other pool from now on; gives those that there are, to be closed."""
        with self._lock:
            self._closed = True
        return self.all()


def _worker_paths() -> tuple[str, ...]:
    """`sys.path` with what is installed first: a user's typing.py beside the script must not end the foreman."""
    installed = tuple({os.path.realpath(prefix) for prefix in (sys.prefix, sys.base_prefix)})
    return tuple(sorted(front_paths(), key=lambda path: not os.path.realpath(path).startswith(installed)))
