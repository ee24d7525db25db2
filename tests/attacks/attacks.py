"""The attacks: each does something to a store that numba's own cache does not survive, and counts what came of it."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from children import BOUND_S, ROOT, Child, Outcome, Subject, right_results, together, write_package

SEED: Final = 20_250_101
MEMORY: Final = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""A file system in memory, where there is one."""

SIGNATURES: Final = """
import numpy as np

@compiled
def measure(a):
    total = a[0] - a[0]
    for value in a:
        total += value * a.itemsize
    return total

TYPES = ["int8", "int16", "int32", "int64", "uint8", "float32", "float64", "complex128"]

def one(name):
    try:
        return str(measure(np.arange(1, 5).astype(name)))
    except Exception:
        return "raised"

def work(index):
    return [one(TYPES[(index + turn) % len(TYPES)]) for turn in range(len(TYPES))]
"""
"""One function, eight types. Each process begins with another one: all write at once, each something else."""

CLOSURES: Final = """
import numpy as np

def make(factor):
    @compiled
    def scale(a):
        return a * factor
    return scale

def one(factor):
    try:
        return [float(value) for value in make(factor)(np.arange(4))]
    except Exception:
        return "raised"

def work(index):
    return [one(float(2 ** ((index + turn) % 8))) for turn in range(8)]
"""
"""Eight closures of one factory: the same code, the same name, another constant."""

MANY: Final = (
    "\n".join(f"@compiled\ndef f{number}(a):\n    return a * {number} + {number}\n" for number in range(50))
    + """
def one(number):
    try:
        return globals()[f"f{number}"](3)
    except Exception:
        return "raised"

def work(index):
    return [one((index * 3 + turn) % 50) for turn in range(50)]
"""
)
"""Fifty functions."""

CALLEE: Final = """
@compiled
def gain(a):
    return a * {factor}
"""
CALLER: Final = """
from callee import gain

@compiled
def caller(a):
    return gain(a) + 1

def work(index):
    try:
        return [caller(3)]
    except Exception:
        return ["raised"]
"""
"""The callee is in another file, and that file changes."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack.

    Parameters
    ----------
    run
        Does it to a subject in an empty directory, with so many rounds.
    rounds, rounds_long
        For a quick table and the tests, and for the stress run.
    """

    run: Callable[[Subject, Path, int], Outcome]
    rounds: int
    rounds_long: int


def race(
    files: dict[str, str], processes: int, distinct: int, base: str | None = None
) -> Callable[[Subject, Path, int], Outcome]:
    """So many processes on one empty store at one moment, and then one process that finds all of it there."""

    def run(subject: Subject, directory: Path, rounds: int) -> Outcome:
        right = right_results(directory / "right", files, range(processes))
        outcome = Outcome()
        for _ in range(rounds):
            with empty(base, directory) as place:
                write_package(place / "package", subject, files)
                children = [Child(subject, place / "package", place / "cache", index) for index in range(processes)]
                cold = together(children, right)
                warm = together([Child(subject, place / "package", place / "cache")], right[:1])
                again = max(0, cold.compiled - distinct) + warm.compiled
                outcome += cold + warm + Outcome(repeated=again)
        return outcome

    return run


@contextmanager
def empty(base: str | None, directory: Path) -> Iterator[Path]:
    """A directory for one round, on the file system that `base` is on."""
    place = Path(tempfile.mkdtemp(dir=base or directory))
    try:
        yield place
    finally:
        shutil.rmtree(place)


def callee_changes(subject: Subject, directory: Path, rounds: int) -> Outcome:
    """A callee in another file is edited between two runs."""
    outcome = Outcome()
    for factor in range(2, 2 + rounds):
        write_package(directory / "package", subject, {"callee.py": CALLEE.format(factor=factor), "user.py": CALLER})
        shutil.rmtree(directory / "package" / "__pycache__", ignore_errors=True)
        outcome += together([Child(subject, directory / "package", directory / "cache")], [[3 * factor + 1]])
    return outcome


def lone_runs(subject: Subject, directory: Path, files: dict[str, str]) -> Callable[[], Outcome]:
    """What runs the package once more, in one process, on the store in `directory`."""
    right = right_results(directory / "right", files, [0])
    write_package(directory / "package", subject, files)
    return lambda: together([Child(subject, directory / "package", directory / "cache")], right)


def flipped_bytes(subject: Subject, directory: Path, rounds: int) -> Outcome:
    """One byte of the stored machine code is flipped, at another place each time."""
    run, cache = lone_runs(subject, directory, {"user.py": SIGNATURES}), directory / "cache"
    chance, outcome = random.Random(SEED), Outcome()
    for _ in range(rounds):
        shutil.rmtree(cache, ignore_errors=True)
        outcome += run()
        for file in subject.files(cache):
            data = bytearray(file.read_bytes())
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            file.write_bytes(data)
        outcome += run()
    return outcome


def cut_files(subject: Subject, directory: Path, rounds: int) -> Outcome:
    """Every stored file is cut off somewhere."""
    run = lone_runs(subject, directory, {"user.py": SIGNATURES})
    chance, outcome = random.Random(SEED), Outcome()
    for _ in range(rounds):
        outcome += run()
        for file in subject.files(directory / "cache"):
            os.truncate(file, chance.randrange(file.stat().st_size))
    return outcome


def killed_writers(subject: Subject, directory: Path, rounds: int) -> Outcome:
    """A function is edited; the process that compiles the new one is killed at some moment; another one comes."""
    chance, outcome = random.Random(SEED), Outcome()
    package, cache = directory / "package", directory / "cache"
    for factor in range(rounds):
        files = {"user.py": SIGNATURES.replace("a.itemsize", f"(a.itemsize + {factor})")}
        right = right_results(directory / "right", files, [0])
        write_package(package, subject, files)
        victim, before = Child(subject, package, cache), set(subject.files(cache))
        victim.go()
        # Killed when so many files have come: in the middle of the work, wherever that is.
        enough = chance.randrange(1, 8)
        while victim.process.poll() is None and len(set(subject.files(cache)) - before) < enough:
            os.sched_yield()
        outcome += victim.kill()
        outcome += together([Child(subject, package, cache)], right)
    return outcome


STOPPED_HOLDER: Final = """
import sys
from pathlib import Path
from farm.store.disk import DiskStore
import filelock
store = Path(sys.argv[1])
locks = [filelock.FileLock(path) for path in (store / "v1" / "locks").iterdir()]
for lock in locks:
    lock.acquire(timeout=5)
print("held", flush=True)
sys.stdin.readline()
"""


def stopped_lock_holder(subject: Subject, directory: Path, rounds: int) -> Outcome:
    """Every lock of the store is held by a process that was stopped, and the machine code is gone."""
    run = lone_runs(subject, directory, {"user.py": CALLER, "callee.py": CALLEE.format(factor=7)})
    outcome, cache = run(), directory / "cache"
    for _ in range(rounds):
        for file in subject.files(cache):
            file.unlink()
        holder = subprocess.Popen(
            [sys.executable, "-c", STOPPED_HOLDER, str(cache)],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert holder.stdout is not None and holder.stdout.readline() == "held\n"
            holder.send_signal(signal.SIGSTOP)
            outcome += run()
        finally:
            holder.kill()
            holder.communicate(timeout=BOUND_S)
    return outcome


ATTACKS: Final = {
    "one function, 8 types, 8 processes at once": Attack(race({"user.py": SIGNATURES}, 8, 8), 1, 40),
    "8 closures of one factory, 8 processes at once": Attack(race({"user.py": CLOSURES}, 8, 8), 1, 40),
    "the same in memory (tmpfs)": Attack(race({"user.py": CLOSURES}, 8, 8, MEMORY), 1, 10),
    "50 functions, 16 processes at once": Attack(race({"user.py": MANY}, 16, 50), 1, 2),
    "a callee in another file is edited": Attack(callee_changes, 3, 20),
    "one byte of every stored file is flipped": Attack(flipped_bytes, 2, 60),
    "every stored file is cut off": Attack(cut_files, 2, 60),
    "the writer is killed after an edit": Attack(killed_writers, 2, 60),
}
"""By what is tried."""
FARM_ALONE: Final = {"every lock is held by a stopped process": Attack(stopped_lock_holder, 1, 2)}
"""numba's cache has no locks."""
