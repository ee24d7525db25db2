"""Programs, each in a session of its own: so whatever it starts is known, and nothing of it is left."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import troubles

ROOT: Final = Path(__file__).parents[2]
BOUND_S: Final = 100.0
"""How long anything may take on a machine that does other things as well; never a measured bound."""
LEFT_S: Final = 1.0
"""What a program started is gone by then, once the program is: the farm's promise."""
COMMON: Final = """\
import os, signal, sys, threading, time
sys.path.insert(0, {root!r})
import numpy as np
import farm

OVERFLOW = 10**9

def power(number):
    "Its results differ between Python and machine arithmetic, so that they tell who computed them."
    def fifth(a):
        return a * a * a * a * a + number
    return fifth

def runs_machine_code(function):
    return function(OVERFLOW) < OVERFLOW**3

def slow(number):
    "Takes a worker a second or so."
    def measure(x):
        return np.median(x) + np.std(x) + number
    return measure

def eventually(claim, bound_s=60):
    end = time.monotonic() + bound_s
    while not claim():
        assert time.monotonic() < end, "not within the bound"
        time.sleep(0.002)

def busy(number=1):
    "So many workers are in the middle of a job."
    return f" {{number}} busy" in repr(farm.default_farm())
"""


@dataclass(frozen=True, slots=True)
class Done:
    """How a program ended."""

    code: int
    out: str
    err: str


def living(session: int) -> list[int]:
    """The processes of a session that are no zombies."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(pid) == session and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
    return found


eventually = troubles.waiting_for(BOUND_S)


@contextlib.contextmanager
def program(
    folder: Path, script: str, stdin: int = subprocess.PIPE, **variables: str
) -> Iterator["subprocess.Popen[str]"]:
    """Run a script with COMMON before it and two workers. All of its session is ended with the block."""
    path = folder / "program.py"
    path.write_text(COMMON.format(root=str(ROOT)) + textwrap.dedent(script))
    environment = {
        **os.environ,
        "FARM_CACHE_DIR": str(folder / "cache"),
        "FARM_WORKERS": "2",
        "FARM_NICE": "0",
        **variables,
    }
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", str(path)],
        stdin=stdin,
        stdout=pipe,
        stderr=pipe,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for pid in living(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


def ended(process: "subprocess.Popen[str]") -> Done:
    """Wait for its end: nothing that it started is left a second later."""
    try:
        out, err = process.communicate(timeout=BOUND_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # which has its stacks printed
        out, err = process.communicate()
        raise AssertionError(f"it did not end\n{out}\n{err}") from None
    eventually(lambda: not living(process.pid), LEFT_S)
    return Done(process.returncode, out, err)


def run(folder: Path, script: str, **variables: str) -> Done:
    """Run a script to its end."""
    with program(folder, script, **variables) as process:
        return ended(process)
