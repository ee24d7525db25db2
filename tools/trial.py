"""A trial of the farm in a directory of its own: a lock between two processes, and a compile in a worker.

Both answer with what was found, as a sentence, or raise TrialFailed with what does not work and what to do.
They start processes, which have ended when they return, and write nothing outside the directory.
"""

import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from farm.errors import UnknownSettingWarning
from farm.front.farm import Farm
from farm.front.status import status_of
from farm.jit import njit
from farm.store.lock import LockOutcome, key_lock

COMPILE_S: Final = 60.0
"""A guess: starting the first worker is given up after 10 s, and on a busy machine compiling takes as long again."""
OTHER_PROCESS_S: Final = 20.0
"""A guess: starting an interpreter takes 0.1 s where the disk is not busy."""
TRIAL_SETTINGS: Final[dict[str, Any]] = {
    "mode": "async",
    "fallback": "python",
    "on_error": "raise",
    "on_degraded": "count",
    "enabled": True,
    "readonly": False,
    "verify": False,
    "lower_cache_dirs": (),
    "shared_group": None,
    "signing_key_file": None,
}
"""Whatever the environment says, the trial compiles in a worker and stores into its own directory."""
NO_WORKER_REMEDY: Final = (
    "functions compile in the calling process instead: "
    "see the limits on processes and memory (ulimit -a), and which packages extend numba"
)
DIRECTORY_PREFIX: Final = ".farm-doctor-"

# filelock alone, and not our own lock: that would import numba, for a second.
OTHER_PROCESS: Final = """\
import sys, filelock
try:
    filelock.FileLock(sys.argv[1]).acquire(timeout=0)
    print("acquired")
except filelock.Timeout:
    print("busy")
"""


class TrialFailed(Exception):
    """Something the farm needs does not work here: `problem` says what, `remedy` what to do."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem, remedy)
        self.problem, self.remedy = problem, remedy


@contextmanager
def trial_directory(wanted: Path) -> Iterator[Path]:
    """A temporary directory on the file system of `wanted`: inside of it, or of the parent it would be made in."""
    place = next(path for path in (wanted, *wanted.parents) if path.is_dir())
    try:
        directory = TemporaryDirectory(prefix=DIRECTORY_PREFIX, dir=place, ignore_cleanup_errors=True)
    except OSError as error:
        remedy = "set FARM_CACHE_DIR to a directory of yours, or FARM_READONLY=1 to store nothing"
        raise TrialFailed(f"{place} cannot be written: {error.strerror}", remedy) from None
    with directory as name:
        yield Path(name)


def try_lock(directory: Path) -> str:
    """Lock a file; a second process must find it locked."""
    path = directory / "trial.lock"
    remedy = "works without, but processes compile the same function twice: set FARM_CACHE_DIR to a local disk"
    with key_lock(path, 0) as outcome:
        if outcome is not LockOutcome.ACQUIRED:
            raise TrialFailed(f"files in {directory.parent} cannot be locked: {outcome.value}", remedy)
        command = [sys.executable, "-c", OTHER_PROCESS, str(path)]
        try:
            other = subprocess.run(command, capture_output=True, text=True, timeout=OTHER_PROCESS_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise TrialFailed(f"a second process could not try the lock: {error}", remedy) from None
    if other.stdout.strip() != "busy":
        said = other.stdout.strip() or other.stderr.strip().rpartition("\n")[2]
        raise TrialFailed(f"a lock in {directory.parent} keeps nobody out (a second process: {said})", remedy)
    return "a second process was kept out"


def sum_of_inverse_squares(count: int) -> float:
    """What the trial compiles."""
    total = 0.0
    for i in range(1, count + 1):
        total += 1.0 / (i * i)
    return total


def try_compile(directory: Path, workers: int | None) -> str:
    """Compile a function in a worker, load it from a store in the empty directory, and compare it with Python."""
    count = 1000
    in_python = sum_of_inverse_squares(count)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", UnknownSettingWarning)
        with Farm(cache_dir=directory, workers=workers, **TRIAL_SETTINGS) as farm:
            function = njit(sum_of_inverse_squares, farm=farm)
            started = time.perf_counter()
            try:
                function(count)
                answered = function.wait(COMPILE_S)
                seconds = time.perf_counter() - started
                compiled = function(count)
            except Exception as error:  # the farm's own, or numba's
                problem = f"{type(error).__name__}: {error}"
                raise TrialFailed(problem, "calls run in Python: see what keeps compiling from its end") from None
            if not answered:
                raise TrialFailed(f"no worker answered within {COMPILE_S:g} s", "calls run in Python meanwhile")
            stats = farm.stats()
    if stats.compiled != 1:
        reasons = [*stats.degraded, *(status_of(entry).reason for entry in function.table.entries())]
        said = [reason.value for reason in reasons if reason is not None] + [str(one.message) for one in caught]
        raise TrialFailed("no worker compiled it: " + "; ".join(said), NO_WORKER_REMEDY)
    # The order of additions is the same, and without fastmath so is every rounding.
    if compiled != in_python:
        raise TrialFailed(f"the machine code says {compiled!r}, Python {in_python!r}", "do not use the farm here")
    return f"compiled, loaded, same result as Python: {seconds:.1f} s, of which {stats.compile_s:.2f} s compiling"
