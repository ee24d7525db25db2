"""Programs under attack: the same small package, compiled by the farm or by numba with `cache=True`.

A child says that it is ready, waits for a line, works, and prints what it got as JSON. So many can be
started at one moment, and none of them needs a clock.
"""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

import psutil

ROOT: Final = Path(__file__).parent.parent.parent
BOUND_S: Final = 120.0
"""A child that has not ended by then is stuck. A guess: ten times what the slowest takes on two busy cores."""
LEFT_S: Final = 1.0
"""What a child started must be gone by then."""
RAISED, KILLED, STUCK = "raised", "killed", "stuck"
"""What a program may give in place of a value: what became of one of its own tries."""
MARK: Final = "ATTACK_CHILD"
"""The variable that a child and all that it starts carry."""


class Subject(Enum):
    """Who compiles: how its functions are decorated, and where it keeps what it compiled."""

    FARM = "farm"
    NUMBA = "numba, cache=True"
    PLAIN = "numba"

    @property
    def decorator(self) -> str:
        """Source that makes `compiled` the decorator."""
        if self is Subject.FARM:
            return "import functools, farm\ncompiled = functools.partial(farm.njit, mode='strict')\n"
        return f"import functools, numba\ncompiled = functools.partial(numba.njit, cache={self is Subject.NUMBA})\n"

    def environment(self, cache: Path) -> dict[str, str]:
        """Variables of a child that uses this cache directory."""
        if self is Subject.FARM:
            return {"FARM_CACHE_DIR": str(cache), "FARM_WORKERS": "1", "FARM_EXIT_GRACE_S": "0"}
        return {"NUMBA_CACHE_DIR": str(cache)}

    def files(self, cache: Path) -> list[Path]:
        """The stored machine code."""
        return sorted(cache.glob("v1/??/*.farm") if self is Subject.FARM else cache.rglob("*.nbc"))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an attack did, over all its tries."""

    tries: int = 0
    wrong: int = 0
    """Values that are not what a fresh compile gives."""
    raised: int = 0
    """Exceptions where there should be a value."""
    killed: int = 0
    """Processes that a signal ended."""
    stuck: int = 0
    """Processes that did not end in time."""
    left: int = 0
    """Processes that outlived who started them."""
    compiled: int = 0
    """Signatures that workers compiled, where the farm is attacked."""
    repeated: int = 0
    """Those of them that another process had compiled already."""

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    @property
    def clean(self) -> bool:
        """Whether nothing went wrong."""
        return not any((self.wrong, self.raised, self.killed, self.stuck, self.left, self.repeated))


class Child:
    """A Python process in a package directory; give it a `work(index)` in `user.py`.

    `before` runs the command given after it: in a file system of its own, perhaps. `more` are variables of its
    environment besides the subject's. After `bound_s` it is stuck.
    """

    def __init__(
        self,
        subject: Subject,
        package: Path,
        cache: Path,
        index: int = 0,
        *,
        before: Sequence[str] = (),
        more: Mapping[str, str] | None = None,
        bound_s: float = BOUND_S,
    ) -> None:
        self._mark = secrets.token_hex(8)
        self._bound_s = bound_s
        own = {"PYTHONPATH": f"{package}:{ROOT}", **subject.environment(cache), **(more or {}), MARK: self._mark}
        code = (
            "import faulthandler, signal\nfaulthandler.register(signal.SIGUSR1)\n"
            "import sys, json\nimport user\nprint('ready', flush=True)\nsys.stdin.readline()\n"
            f"results = user.work({index})\n"
            "compiled = sys.modules['farm'].stats().compiled if 'farm' in sys.modules else 0\n"
            "print(json.dumps([results, compiled]), flush=True)\n"
        )
        self.process: Final = subprocess.Popen(
            [*before, sys.executable, "-c", code],
            cwd=package,
            env={**os.environ, **own},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def go(self) -> None:
        """Wait until it is ready, and let it work."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdout.readline()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write("go\n")
            self.process.stdin.flush()

    def outcome(self, expected: Sequence[Any]) -> Outcome:
        """Wait for it and judge what it printed against what is right, value by value."""
        try:
            out, err = self.process.communicate(timeout=self._bound_s)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGUSR1)  # says where its threads are
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.communicate(timeout=LEFT_S)
            self.process.kill()
            _, err = self.process.communicate()
            print(err, file=sys.stderr)
            return Outcome(tries=len(expected), stuck=1, left=self._left())
        left = self._left()
        if self.process.returncode < 0:
            return Outcome(tries=len(expected), killed=1, left=left)
        if self.process.returncode:
            print(err, file=sys.stderr)
            return Outcome(tries=len(expected), raised=len(expected), left=left)
        got, compiled = json.loads(out.splitlines()[-1])
        if got and got[-1] == STUCK:  # it could not go on
            expected = expected[: len(got)]
        told = [got.count(what) for what in (RAISED, KILLED, STUCK)]
        wrong = sum(have != want for have, want in zip(got, expected, strict=True)) - sum(told)
        return Outcome(len(expected), wrong, *told, left=left, compiled=compiled)

    def kill(self) -> Outcome:
        """End it with SIGKILL: only what it leaves behind counts."""
        self.process.kill()
        self.process.communicate()
        return Outcome(left=self._left())

    def _left(self) -> int:
        return left_behind(self._mark)


def left_behind(mark: str) -> int:
    """How many of the processes that carry this mark are there after a second; those are described, and ended."""
    end = time.monotonic() + LEFT_S
    while (there := list(marked(mark))) and time.monotonic() < end:
        psutil.wait_procs(there, timeout=0.05)
    for process in there:
        with contextlib.suppress(psutil.Error):
            told = process.as_dict(["pid", "ppid", "status", "nice", "cpu_times", "create_time", "cmdline"])
            print(f"left behind, at a load of {os.getloadavg()[0]:.1f}: {told}", file=sys.stderr, flush=True)
            process.kill()
    return len(there)


def marked(mark: str) -> Iterator[psutil.Process]:
    """Living processes that have this mark in their environment."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def together(children: Sequence[Child], expected: Sequence[Sequence[Any]]) -> Outcome:
    """Let all work at one moment; the sum of what they did."""
    for child in children:
        child.go()
    return sum((child.outcome(want) for child, want in zip(children, expected, strict=True)), Outcome())


def write_package(package: Path, subject: Subject, files: Mapping[str, str]) -> None:
    """The files of a package; each may use `compiled`."""
    package.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (package / name).write_text(subject.decorator + text)


def right_results(package: Path, files: Mapping[str, str], indices: Sequence[int]) -> list[list[Any]]:
    """What plain numba computes for these files, in one new process that stores nothing."""
    write_package(package, Subject.PLAIN, files)
    code = f"import sys, json, user\nprint(json.dumps([user.work(index) for index in {list(indices)}]))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=package, capture_output=True, text=True, timeout=BOUND_S, check=False
    )
    assert done.returncode == 0, done.stderr
    results: list[list[Any]] = json.loads(done.stdout.splitlines()[-1])
    return results
