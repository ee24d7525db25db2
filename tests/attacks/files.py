"""What happens to the files of a store, and to the sources that they were made of."""

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from attack import SEED, Attack, lone_runs
from children import BOUND_S, ROOT, Child, Outcome, Subject, right_results, together, write_package
from races import SIGNATURES

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


def callee_changes(subject: Subject, directory: Path, rounds: int) -> Outcome:
    """A callee in another file is edited between two runs."""
    outcome = Outcome()
    for factor in range(2, 2 + rounds):
        write_package(directory / "package", subject, {"callee.py": CALLEE.format(factor=factor), "user.py": CALLER})
        shutil.rmtree(directory / "package" / "__pycache__", ignore_errors=True)
        outcome += together([Child(subject, directory / "package", directory / "cache")], [[3 * factor + 1]])
    return outcome


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
    "a callee in another file is edited": Attack(callee_changes, 3, 20),
    "one byte of every stored file is flipped": Attack(flipped_bytes, 2, 60),
    "every stored file is cut off": Attack(cut_files, 2, 60),
    "the writer is killed after an edit": Attack(killed_writers, 2, 60),
    # numba's cache has no locks.
    "every lock is held by a stopped process": Attack(stopped_lock_holder, 1, 2, (Subject.FARM,)),
}
"""By what is tried."""
