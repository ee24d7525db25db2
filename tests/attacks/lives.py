"""What happens to the process that compiles: it is forked, interrupted, ended."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Final

from attack import SEED, Attack, empty
from children import Child, Outcome, Subject, together, write_package

FORKS: Final = """
import itertools, os, signal, sys, threading, time
import numpy as np

def make(factor):
    @compiled
    def scale(a):
        return a * factor + 1
    return scale

ready = make(2)

def fork(*results):
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        wrong = [one for one, factor in results if one(3) != 3 * factor + 1]
        code = 2 if wrong else 0
    finally:
        os._exit(code)

def ends(children, bound_s):
    "What became of each: 1 if all was right."
    codes, end = {}, time.monotonic() + bound_s
    while len(codes) < len(children):
        for child in children:
            pid, status = (0, 0) if child in codes else os.waitpid(child, os.WNOHANG)
            if pid:
                codes[child] = os.waitstatus_to_exitcode(status)
            elif child not in codes and time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                codes[child] = "stuck"
        time.sleep(0.002)
    told = {0: 1, 1: "raised", 2: 0, "stuck": "stuck"}
    return sorted((told.get(code, "killed") for code in codes.values()), key=str)
"""
WHILE_IT_COMPILES: Final = (
    FORKS
    + """
def work(number):
    ready(3)
    stop, turns = threading.Event(), itertools.count(1000)

    def compile_on():
        while not stop.is_set():
            make(next(turns))(3)

    thread = threading.Thread(target=compile_on, daemon=True)
    thread.start()
    children = []
    for factor in range(3, 3 + number):
        before = next(turns)
        while next(turns) < before + 3:
            time.sleep(0.001)
        children.append(fork((ready, 2), (make(factor), factor)))
    stop.set()
    thread.join()
    return ends(children, 25)
"""
)
"""A thread compiles one function after the other; meanwhile the process forks children that call and compile."""
SERVER: Final = (
    FORKS
    + """
class Pause:
    def __call__(self, a):
        os.write(writer, b"x")
        signal.pause()

reader, writer = os.pipe()

def work(number):
    ready(3)
    children = [fork((ready, 2), (make(factor), factor)) for factor in range(3, 3 + number)]
    for factor in range(100, 100 + number):
        victim = fork((ready, 2), (make(factor), factor), (Pause(), 0))
        os.read(reader, 1)
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        children.append(fork((ready, 2), (make(factor + 50), factor + 50)))
    return [*ends(children, 60), ready(3), make(300)(3)]
"""
)
"""The parent compiles and forks; some children are killed after a compile, and forked anew."""
MAKE: Final = """
def make(factor):
    @compiled
    def power(a):
        return a * a * factor + 1
    return power
"""
INTERRUPTED: Final = (
    MAKE
    + """
import random, signal, threading

def in_another_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function(3)), daemon=True)
    thread.start()
    thread.join(10)
    return found[0] if found else "stuck"

def work(number):
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    chance, results = random.Random(number), []
    make(0)(3)
    for factor in range(1, number):
        function = make(factor)
        try:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-4, 0.08))
            function(3)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            pass
        except Exception:
            signal.setitimer(signal.ITIMER_REAL, 0)
            results.append("raised")
            continue
        results.append(in_another_thread(function))
        if results[-1] == "stuck":
            break
    return results
"""
)
"""Calls are interrupted at some moment; then another thread makes the same call."""
GROUP: Final = (
    MAKE
    + """
import os, signal

os.setpgid(0, 0)

def work(number):
    results = []
    while True:
        try:
            while len(results) < number:
                results.append(make(len(results))(3))
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            return results
        except KeyboardInterrupt:
            pass
"""
)
"""A program that goes on after each interrupt."""
EXITS: Final = """
import threading
import numpy as np

def make(number):
    @compiled
    def measure(x):
        return np.median(x) + np.std(x) + number
    return measure

def work(number):
    begun = threading.Barrier(5)

    def call(one):
        begun.wait()
        make(one)(np.ones(3))

    for one in range(4):
        threading.Thread(target=call, args=(one,), daemon=True).start()
    begun.wait()
    threading.Event().wait(0.1 * (1 + number % 8))
    return [1]
"""
"""It ends while four threads are in the middle of compiles."""


def forks_while_compiling(subject: Subject, directory: Path, rounds: int) -> Outcome:
    """Children are forked while another thread compiles."""
    write_package(directory / "package", subject, {"user.py": WHILE_IT_COMPILES})
    child = Child(subject, directory / "package", directory / "cache", rounds)
    return together([child], [[1] * rounds])


def pre_fork_server(subject: Subject, directory: Path, rounds: int) -> Outcome:
    """A parent forks children, some are killed and forked anew."""
    write_package(directory / "package", subject, {"user.py": SERVER})
    child = Child(subject, directory / "package", directory / "cache", rounds)
    return together([child], [[1] * 2 * rounds + [7, 901]])


def interrupted_calls(subject: Subject, directory: Path, rounds: int) -> Outcome:
    """A call is interrupted at some moment; so many in one process, and each process begins with another moment."""
    outcome = Outcome()
    for number in range(50, 50 + rounds):
        with empty(None, directory) as place:
            write_package(place / "package", subject, {"user.py": INTERRUPTED})
            child = Child(subject, place / "package", place / "cache", number)
            outcome += together([child], [[9 * factor + 1 for factor in range(1, number)]])
    return outcome


def interrupted_groups(subject: Subject, directory: Path, rounds: int) -> Outcome:
    """A process and all of its group are interrupted, again and again."""
    chance, outcome, number = random.Random(SEED), Outcome(), 30
    for _ in range(rounds):
        with empty(None, directory) as place:
            write_package(place / "package", subject, {"user.py": GROUP})
            child = Child(subject, place / "package", place / "cache", number)
            child.go()
            for _ in range(12):
                time.sleep(chance.uniform(0.01, 0.1))
                if child.process.poll() is None:
                    os.killpg(child.process.pid, signal.SIGINT)
            outcome += child.outcome([9 * factor + 1 for factor in range(number)])
    return outcome


def exits_in_the_middle(subject: Subject, directory: Path, rounds: int) -> Outcome:
    """A process ends while its threads compile."""
    outcome = Outcome()
    for number in range(rounds):
        with empty(None, directory) as place:
            write_package(place / "package", subject, {"user.py": EXITS})
            outcome += together([Child(subject, place / "package", place / "cache", number)], [[1]])
    return outcome


ATTACKS: Final = {
    "a fork while another thread compiles": Attack(forks_while_compiling, 8, 40),
    "a pre-fork server whose children are killed": Attack(pre_fork_server, 2, 10),
    "Ctrl-C in the middle of a call": Attack(interrupted_calls, 2, 20),
    "Ctrl-C for the whole process group": Attack(interrupted_groups, 2, 20),
    "an exit in the middle of compiles": Attack(exits_in_the_middle, 6, 40),
}
"""By what is tried."""
