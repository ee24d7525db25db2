"""How a Python process of ours is started: before it imports anything, it is safe from what surrounds it.

It is started with `-c`, never `-m`, which would put the current directory first on `sys.path`: a user's
`typing.py` there would kill it. Its own process group keeps a Ctrl-C at the terminal away from it. It is a
process group and not a session: with autogroup scheduling niceness does nothing across sessions, and the
front ran at less than half speed.
"""

import contextlib
import ctypes
import faulthandler
import multiprocessing.spawn
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

PR_SET_PDEATHSIG: Final = 1
FIRST_LINES: Final = """\
import sys; sys.path[:] = {paths!a}
import os, _signal
_signal.signal(_signal.SIGINT, _signal.SIG_IGN)
os.setpgid(0, 0); os.chdir("/")
if sys.platform == "linux":
    import ctypes; ctypes.CDLL(None).prctl(1, _signal.SIGKILL, 0, 0, 0)
if os.getppid() != {parent_pid}: os._exit(0)
from {module} import main; main({settings!a})
"""
"""Until `main` says otherwise the kernel kills the process with its parent: importing numba takes 0.4 s, in
which it could not see that the parent is gone."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a process of ours is made with.

    Parameters
    ----------
    task, preload
        "module:function": what a worker does with a job, what is done once before any job (or None).
    preload_with
        What `preload` is called with.
    paths
        `sys.path` of the process: absolute, it runs in the root directory.
    environment
        The whole environment; None for a copy of this process's.
    """

    task: str
    preload: str | None
    preload_with: str
    paths: tuple[str, ...]
    environment: Mapping[str, str] | None


def interpreter() -> str:
    """The Python to start. Raises RuntimeError if there is none."""
    executable = multiprocessing.spawn.get_executable()
    if executable is None:
        raise RuntimeError("this process does not know its Python interpreter")
    if getattr(sys, "frozen", False):
        raise RuntimeError("a frozen program has no Python interpreter to start")
    return os.fsdecode(executable)


def start(module: str, settings: str, *, setup: Setup, descriptor: int, output: int) -> "subprocess.Popen[bytes]":
    """Start a process that calls `module`'s main(settings), with one descriptor besides stdout and stderr.

    Waits, as every Popen does, until the interpreter's file was found: for its disk, and for nothing else.
    Raises OSError, or RuntimeError as `interpreter` does.
    """
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    code = FIRST_LINES.format(paths=list(setup.paths), parent_pid=os.getpid(), module=module, settings=settings)
    return subprocess.Popen(
        [interpreter(), *flags, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        pass_fds=(descriptor,),
        env=setup.environment,
    )


def on_parent_death(number: int) -> None:
    """Have the kernel send this signal to this process when its parent's thread ends; nothing where it cannot."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def reset_signals() -> None:
    """Default dispositions and an empty mask: an inherited SIG_IGN for SIGCHLD loses exit codes.

    But for SIGUSR1, at which a process of ours writes the stacks of its threads into its output.
    """
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    if hasattr(signal, "SIGXFSZ"):  # a file size limit is an error of the write then, as everywhere in Python
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    if hasattr(faulthandler, "register"):  # asked by SIGUSR1 a process of ours writes where its threads are
        faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
