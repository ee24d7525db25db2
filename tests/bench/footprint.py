"""Memory of workers, in MB of private memory (USS): fresh and idle, in a first compile and after it. JSON.

The idle worker is one that a foreman has just forked and that nothing was sent to. The compile is a function that
sorts. For comparison, the workers of a ProcessPoolExecutor and of loky after the same compile.
"""

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import Any, Final

import numba
import numpy as np
import psutil

import farm
from farm.config import worker_environment
from farm.front.pools import PRELOAD
from farm.job.messages import ForemanReady, Forked
from farm.pool.launch import Setup
from farm.pool.starter import ForemanProcess
from farm.pool.task import NAME as TASK
from farm.port.target import foundation, import_environment, settings

MIB: Final = 2**20
WAIT_S: Final = 30.0
SAMPLE_S: Final = 0.02


def subject(x: Any) -> Any:
    """What is compiled."""
    return np.median(np.sort(x))


def private_mb(pid: int) -> float:
    """USS of a process."""
    return float(psutil.Process(pid).memory_full_info().uss) / MIB


def until(met: Callable[[], Any]) -> Any:
    """What `met` gives once it gives something. Raises TimeoutError."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        found = met()
        if found:
            return found
        time.sleep(SAMPLE_S)
    raise TimeoutError(f"nothing came for {WAIT_S:g} s")


def idle_worker() -> dict[str, float]:
    """A foreman and a worker that has done nothing."""
    built_with = foundation(settings())
    environment = worker_environment(import_environment(built_with))
    setup = Setup(TASK, PRELOAD, json.dumps(built_with), farm_paths(), environment)
    foreman = ForemanProcess(setup)
    try:
        until(lambda: [one for one in foreman.messages() if isinstance(one, ForemanReady)])
        worker = foreman.start(1, 0)
        (forked,) = until(lambda: [one for one in foreman.messages() if isinstance(one, Forked)])
        process = psutil.Process(forked.pid)
        until(lambda: process.num_threads() > 1)  # its reader waits for jobs
        until(lambda: process.status() == psutil.STATUS_SLEEPING)
        found = {"idle_mb": private_mb(forked.pid), "foreman_mb": private_mb(foreman.pid)}
        worker.channel.close()
        return found
    finally:
        foreman.end(5.0)


def farm_paths() -> tuple[str, ...]:
    """Where the foreman finds the farm and numba: where this process does."""
    return tuple(path for path in sys.path if path)


class Peak(threading.Thread):
    """The most that one process of this one's family had, sampled until `stop`."""

    def __init__(self, depth: int) -> None:
        super().__init__(daemon=True)
        self.peak_mb = 0.0
        self._depth = depth
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(SAMPLE_S):
            for process in workers(self._depth):
                try:
                    self.peak_mb = max(self.peak_mb, private_mb(process.pid))
                except psutil.Error:
                    continue

    def stop(self) -> float:
        self._over.set()
        self.join()
        return self.peak_mb


def workers(depth: int) -> list[psutil.Process]:
    """Children of this process, or their children: the farm's workers are a foreman's."""
    children = psutil.Process().children()
    if depth == 1:
        return children
    return [one for child in children for one in child.children()]


def farm_worker() -> dict[str, float]:
    """A worker of the farm in its first compile and after it."""
    with tempfile.TemporaryDirectory() as folder, farm.Farm(cache_dir=folder, workers=1) as barn:
        peak = Peak(2)
        peak.start()
        farm.njit(subject, farm=barn).submit("float64(float64[::1])").result()
        after = max(private_mb(one.pid) for one in workers(2))
        return {"peak_mb": max(after, peak.stop()), "after_mb": after}


def compile_subject() -> int:
    """In a worker of another pool."""
    numba.njit("float64(float64[::1])")(subject)
    return os.getpid()


def other(executor: Executor) -> float:
    """USS of a worker of another pool after the same compile."""
    with executor:
        pid = executor.submit(compile_subject).result()
        return private_mb(pid)


def main() -> dict[str, float | None]:
    found: dict[str, float | None] = {**idle_worker(), **farm_worker()}
    found["pool_after_mb"] = other(ProcessPoolExecutor(1))
    try:
        from loky import ProcessPoolExecutor as LokyExecutor
    except ImportError:
        found["loky_after_mb"] = None
    else:
        found["loky_after_mb"] = other(LokyExecutor(1))
    return found


if __name__ == "__main__":
    print(json.dumps(main()))
