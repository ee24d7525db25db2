"""Many processes on one empty store at one moment."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from attack import Attack, empty
from children import Child, Outcome, Subject, right_results, together, write_package

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


ATTACKS: Final = {
    "one function, 8 types, 8 processes at once": Attack(race({"user.py": SIGNATURES}, 8, 8), 5, 40),
    "8 closures of one factory, 8 processes at once": Attack(race({"user.py": CLOSURES}, 8, 8), 5, 40),
    "the same in memory (tmpfs)": Attack(race({"user.py": CLOSURES}, 8, 8, MEMORY), 1, 10),
    "50 functions, 16 processes at once": Attack(race({"user.py": MANY}, 16, 50), 1, 2),
}
"""By what is tried."""
