"""A plugin of pytest for all tests here: a hang ends, with the stacks of everybody; and nothing outlives a test.

When the time of a test is over (setting `timeout`, mark `timeout`), pytest-timeout shows the stacks of this process and
fails the test. Just before, this asks the farm's own processes for theirs: they write them at SIGUSR1. Just after, a
process that does not come out of it is ended by a C thread, which needs no Python to run.

What was there before a test may be there afterwards; so may what belongs to a farm that was there before, as those of
fixtures of wider scope are, and to the default farm. With pytest-xdist each of its processes looks after its own.
"""

import contextlib
import faulthandler
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numba
import psutil
import pytest
import troubles

from farm.front import default, ends
from farm.pool.pool import Pool, _pools

CHILDREN_LEAD_S: Final = 3.0
"""The farm's processes are asked for their stacks so long before the end, or at half time if that is later."""
STUCK_S: Final = 20.0
"""Who does not come out of a test so long after its end is ended."""
GONE_S: Final = 20.0
"""What a test has ended may take so long to be gone on a busy machine."""
_stderr = 2
_timers: dict[str, threading.Timer] = {}


def pytest_configure() -> None:
    """Remember where standard error goes while nothing is captured."""
    global _stderr
    _stderr = os.dup(2)


# -- a hang ends, with all stacks ---------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Beside the timer of pytest-timeout: one before it, and one after it."""
    faulthandler.dump_traceback_later(settings.timeout + STUCK_S, exit=True, file=_stderr)
    before_s = max(settings.timeout / 2, settings.timeout - CHILDREN_LEAD_S)
    timer = _timers[item.nodeid] = threading.Timer(before_s, tell_of_workers)
    timer.name, timer.daemon = "watchdog", True
    timer.start()


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> None:
    """The test is over."""
    faulthandler.cancel_dump_traceback_later()
    timer = _timers.pop(item.nodeid, None)
    if timer is not None:
        timer.cancel()
        timer.join()


def tell_of_workers() -> None:
    """Write the stacks of this process's foremen and workers to standard error."""
    for pool in list(_pools):
        outputs = [(f"worker {one.pid}", one.pid, one.output) for one in workers(pool)]
        starter = pool._loop._starter if pool._loop is not None else None
        if starter is not None and starter.output is not None:
            outputs.append((f"foreman {starter.pid}", starter.pid, starter.output))
        for name, pid, output in outputs:
            if pid is None:
                continue
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGUSR1)
            end = time.monotonic() + 1
            # The pool's thread reads the pipe; if that thread hangs, this one does.
            while b"most recent call first" not in output._ring and time.monotonic() < end:
                time.sleep(0.05)
            if b"most recent call first" not in output._ring:
                output.read()
            os.write(_stderr, f"\n+++ stacks of {name} +++\n".encode() + bytes(output._ring) + b"\n")


def workers(pool: Pool) -> list[Any]:
    """The workers of a pool as its thread knows them."""
    return [] if pool._loop is None else list(pool._loop._workers.values())


# -- nothing outlives a test --------------------------------------------------------------------------------


def pools_of(one: Any) -> list[Pool]:
    """The pools of a farm."""
    return [] if one._settler is None else one._settler.supply._all_pools()


def threads_of(one: Any) -> set[threading.Thread | None]:
    """The threads of a farm."""
    found = {pool._thread for pool in pools_of(one)}
    if one._settler is not None:
        found.add(one._settler.installer._thread)
    if one._bulletin is not None:
        found.add(one._bulletin._thread)
    return found


def processes_of(one: Any) -> set[int | None]:
    """The processes of a farm."""
    loops = [pool._loop for pool in pools_of(one) if pool._loop is not None]
    starters = {loop._starter.pid for loop in loops if loop._starter is not None}
    return starters | {worker.pid for pool in pools_of(one) for worker in workers(pool)}


def children() -> dict[int, str]:
    """Child processes, with their command lines."""
    found = {}
    for child in troubles.children():
        with contextlib.suppress(psutil.Error):
            found[child.pid] = " ".join(child.cmdline())[:200]
    return found


def file_locks() -> set[str]:
    """The files that this process has locked, as device and inode."""
    with contextlib.suppress(OSError), open("/proc/locks") as file:
        rows = [line.split() for line in file]
        return {row[5] for row in rows if len(row) > 5 and row[1] in ("FLOCK", "POSIX") and row[4] == str(os.getpid())}
    return set()


@contextlib.contextmanager
def temporary_directory(place: Path) -> Iterator[None]:
    """Have temporary directories made there, also by child processes: so whose they are is known."""
    place.mkdir(exist_ok=True)
    before = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = str(place)
    try:
        yield
    finally:
        tempfile.tempdir = before[0]
        if before[1] is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before[1]


class Census:
    """What there is before a test, and what is there of it, or beside it, afterwards."""

    def __init__(self) -> None:
        self._decorators = numba.jit, numba.njit
        self._farms = ends.farms()
        self._children, self._threads = children(), set(threading.enumerate())
        self._locks, self._temporary = file_locks(), set(os.listdir(tempfile.gettempdir()))

    def give_back(self) -> None:
        """So that the next test is not blamed."""
        numba.jit, numba.njit = self._decorators

    def left(self) -> list[str]:
        """What the test has left behind, for people."""
        # The default farm as it is, if there is one: to make it here would settle its settings.
        known = [one for one in {*self._farms, default._default} if one is not None and not one.closed]
        pids = {pid for one in known for pid in processes_of(one)} | self._children.keys()
        threads = {thread for one in known for thread in threads_of(one)} | self._threads
        found = [f"process {pid}: {line}" for pid, line in children().items() if pid not in pids]
        for thread in set(threading.enumerate()) - threads:
            if thread.name.startswith("farm-") or not thread.daemon:
                found.append(f"thread {thread.name}")
        if (numba.jit, numba.njit) != self._decorators:
            found.append("a farm behind numba's decorators")
        found += [f"file lock {where}" for where in file_locks() - self._locks]
        added = set(os.listdir(tempfile.gettempdir())) - self._temporary
        found += [f"temporary directory {name}" for name in added if name.startswith(("farm-", ".farm-"))]
        return found


@pytest.fixture(autouse=True)
def nothing_outlives_the_test(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fails a test that leaves a process, a thread, a lock or a directory behind."""
    with temporary_directory(tmp_path_factory.getbasetemp() / "tmp"):
        before = Census()
        yield
        end = time.monotonic() + GONE_S
        while (left := before.left()) and time.monotonic() < end:
            time.sleep(0.01)
        before.give_back()
        assert not left, f"left behind: {'; '.join(left)}"
