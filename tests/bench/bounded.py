"""A command with a bound on its time. Nothing that it started is left when it is over; pids alone say what is ended."""

import contextlib
import os
import re
import signal
import subprocess
from typing import Final

import psutil

FOREIGN: Final = ("FARM_", "NUMBA_", "PYTHONDONTWRITEBYTECODE")
"""Variables of whoever runs the bench that would decide its outcome. Without bytecode each start compiles the farm's
own modules anew, which takes it as long as everything else in a start from a full store."""
REASON_MAX: Final = 300
_ERROR: Final = re.compile(r"[\w.]*(Error|Exception|Interrupt|Exit)\b")


def clean_environment() -> dict[str, str]:
    """This process's environment without what would decide the outcome."""
    return {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}


def run_bounded(command: list[str], environment: dict[str, str], bound_s: float) -> tuple[int | None, str]:
    """Run a command; its exit code (None if it was ended after `bound_s`) and what it said."""
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        said, _ = process.communicate(timeout=bound_s)
        return process.returncode, said
    except subprocess.TimeoutExpired:
        return None, end_all(process)
    except BaseException:
        end_all(process)
        raise


def end_all(process: "subprocess.Popen[str]") -> str:
    """End a process and what it has started, by their pids; what it said."""
    family = []
    with contextlib.suppress(psutil.Error):
        family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for one in family:
        with contextlib.suppress(psutil.Error):
            one.send_signal(signal.SIGKILL)  # psutil makes sure that the pid is still the same process
    said, _ = process.communicate()
    psutil.wait_procs(family, timeout=10)
    return said


def reason_in(said: str) -> str:
    """What a program that failed said last: an exception with its first lines, else its last line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = max((number for number, line in enumerate(lines) if _ERROR.match(line)), default=len(lines) - 1)
    return " ".join(lines[max(0, last) :])[:REASON_MAX]
