"""Compiles that end their process, never end, or eat memory; workers that are killed, and a foreman that is stopped.

Each program calls other functions too, before and after: their values are the tries, with those of the bad function,
which can run as Python. An overload's body runs while numba compiles a call of it: in a worker, or in the very process.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
from attack import Attack, empty
from children import Child, Outcome, Subject, write_package

BEFORE_AND_AFTER: Final = 4
"""So many good functions are called before the bad one, and as many after it."""
STUCK_S: Final = 12.0
"""A guess: four times what the whole program takes where nothing is bad. numba's column waits for it to pass."""
SETTINGS: Final = {"FARM_WORKER_MEMORY_MAX_BYTES": "400MiB"}

BAD: Final = """
import ctypes, os, resource, sys, time
from llvmlite import ir
from numba.extending import intrinsic, overload

held = []

def segfault():
    ctypes.string_at(0)

def leave():
    os._exit(3)

def compute():
    while True:
        pass

def eat():
    # So that it hurts nobody else where nobody stops it: 1.5 GiB more than there is, and then a MemoryError.
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    most = pages * resource.getpagesize() + (1536 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    while True:
        held.append(bytearray(os.urandom(1 << 20)) * 64)
        time.sleep(0.1)

@intrinsic
def no_such_instruction(context, a):
    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.VoidType(), [])
        builder.asm(kind, "no instruction of any machine", "", [], side_effect=True)
        return arguments[0]
    return a(a), generate

def act(a):
    return a + 1

@overload(act)
def _act(a):
    DEED()
    return lambda a: BODY + 1

# It can run as Python until there is machine code, and that never comes.
loosely = functools.partial(compiled, mode="async", fallback="python") if "farm" in sys.modules else compiled

@loosely
def bad(a):
    return act(a)

def limit(seconds):
    if "farm" in sys.modules:
        farm.configure(job_timeout_s=seconds)

def end():
    if "farm" in sys.modules:
        assert farm.wait(60)
        stats = farm.stats()
        assert (stats.died + stats.timed_out + stats.out_of_memory, stats.local) == (1, 0), stats
"""
GOOD: Final = """
def one(function, a):
    try:
        return function(a)
    except Exception:
        return "raised"

def good(number):
    return one(globals()[f"f{number}"], 3)
"""
WORK: Final = """
def work(index):
    results = [good(number) for number in range(HALF)]
    limit(1)  # for this one only: a good one may take longer on a busy machine
    results.append(one(bad, 3))
    end()
    limit(60)
    results.append(one(bad, 3))
    return results + [good(number) for number in range(HALF, 2 * HALF)]
"""
ALL: Final = """
def work(index):
    return [good(number) for number in range(MANY)]
"""


def good_functions(number: int) -> str:
    """So many functions, and how they are called."""
    functions = (f"@compiled\ndef f{one}(a):\n    return a * {one} + {one}\n" for one in range(number))
    return "\n".join(functions) + GOOD


def right(numbers: range) -> list[int]:
    """What those functions give."""
    return [3 * number + number for number in numbers]


def bad_compile(*deeds: tuple[str, str]) -> "Attack":
    """A process for each of these (what the overload does, what its implementation begins with)."""

    def run(subject: Subject, directory: Path, rounds: int) -> Outcome:
        outcome, half = Outcome(), BEFORE_AND_AFTER
        expected = [*right(range(half)), 4, 4, *right(range(half, 2 * half))]
        for _ in range(rounds):
            for deed, body in deeds:
                with empty(None, directory) as place:
                    bad = BAD.replace("DEED()", deed).replace("BODY", body)
                    program = bad + good_functions(2 * half) + WORK.replace("HALF", str(half))
                    write_package(place / "package", subject, {"user.py": program})
                    bound = {} if subject is Subject.FARM else {"bound_s": STUCK_S}
                    child = Child(subject, place / "package", place / "cache", more=SETTINGS, **bound)
                    child.go()
                    outcome += child.outcome(expected)
        return outcome

    return Attack(run, 1, 10)


def workers(front: int) -> Iterator[tuple[psutil.Process, psutil.Process]]:
    """(the foreman, a worker of it) of a process."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for foreman in psutil.Process(front).children():
            for worker in foreman.children():
                yield foreman, worker


def at_work(subject: Subject, place: Path, many: int, jobs_max: int) -> Child:
    """A program that calls so many good functions; each of its workers does so many jobs."""
    program = good_functions(many) + ALL.replace("MANY", str(many))
    write_package(place / "package", subject, {"user.py": program})
    child = Child(subject, place / "package", place / "cache", more={"FARM_WORKER_JOBS_MAX": str(jobs_max)})
    child.go()
    return child


def killed_workers(subject: Subject, directory: Path, rounds: int) -> Outcome:
    """Every other worker is killed as soon as it is there: whatever it does then is the next one's to do again."""
    outcome, many = Outcome(), 24
    for _ in range(rounds):
        with empty(None, directory) as place:
            # Each worker does two jobs, so that there are many of them.
            child = at_work(subject, place, many, jobs_max=2)
            seen: list[int] = []
            while child.process.poll() is None and len(seen) < many:
                for _, worker in workers(child.process.pid):
                    if worker.pid not in seen:
                        seen.append(worker.pid)
                        if len(seen) % 2:
                            with contextlib.suppress(psutil.NoSuchProcess):
                                worker.send_signal(signal.SIGKILL)
                os.sched_yield()
            outcome += child.outcome(right(range(many)))
            assert len(seen) > 2, "nobody was killed"
    return outcome


def stopped_foreman(subject: Subject, directory: Path, rounds: int) -> Outcome:
    """The process that starts and ends workers is stopped while one of them compiles."""
    outcome, many = Outcome(), 4
    for _ in range(rounds):
        with empty(None, directory) as place:
            child = at_work(subject, place, many, jobs_max=1)
            stopped = False
            while child.process.poll() is None and not stopped:
                for foreman, _ in workers(child.process.pid):
                    foreman.send_signal(signal.SIGSTOP)
                    stopped = True
                    break
                time.sleep(0.001)
            outcome += child.outcome(right(range(many)))
            assert stopped, "nobody was stopped"
    return outcome


PLAIN: Final = "a"
ATTACKS: Final = {
    "a compile ends its process: segfault, exit, LLVM's abort": bad_compile(
        ("segfault()", PLAIN), ("leave()", PLAIN), ("pass", "no_such_instruction(a)")
    ),
    "a compile never ends": bad_compile(("compute()", PLAIN)),
    "a compile eats memory": bad_compile(("eat()", PLAIN)),
    # numba has no workers.
    "every other worker is killed": Attack(killed_workers, 1, 20, (Subject.FARM,)),
    "the foreman is stopped in mid-compile": Attack(stopped_foreman, 1, 3, (Subject.FARM,)),
}
"""By what is tried."""
