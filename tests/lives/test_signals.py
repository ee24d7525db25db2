"""Signals: to the program at any moment, and from a terminal to the whole group that it leads."""

import contextlib
import os
import pty
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest
from sessions import Done, ended, eventually, living, program, run

import farm
from farm.observe import events

ON_ITS_TERMINAL: Final = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
KEYS: Final = {signal.SIGINT: b"\x03", signal.SIGQUIT: b"\x1c"}
"""What a terminal sends these for, to every process of the group in front."""
ASKS: Final = """
x = np.ones(3)
asked = [farm.njit(slow(1)), farm.njit(slow(2)), farm.njit(power(0))]
asked[0](x), asked[1](x), asked[2](1)
"""
IN_THE_MIDDLE: Final = ASKS + "eventually(lambda: busy(2))\n"
GOES_ON: Final = """
try:
    print("ready", flush=True)
    threading.Event().wait(60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
assert farm.wait(90)
stats = farm.stats()
print(stats.compiled, stats.local, stats.died, dict(stats.degraded), asked[0](x), runs_machine_code(asked[2]))
"""


@contextlib.contextmanager
def on_a_terminal(folder: Path, script: str, **variables: str) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """A program that leads the group in front of a terminal, and the end of it that a keyboard would be."""
    keyboard, terminal = pty.openpty()
    try:
        with program(folder, ON_ITS_TERMINAL + script, stdin=terminal, **variables) as process:
            yield process, keyboard
    finally:
        os.close(terminal)
        os.close(keyboard)


def is_ready(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()


@pytest.mark.concurrency
@pytest.mark.parametrize("moment", ["in the middle of jobs", "while its foreman starts"])
def test_ctrl_c_at_the_terminal_is_the_programs_alone_and_its_jobs_come_out(tmp_path: Path, moment: str) -> None:
    asks = IN_THE_MIDDLE if moment == "in the middle of jobs" else ASKS
    with on_a_terminal(tmp_path, asks + GOES_ON) as (process, keyboard):
        is_ready(process)
        eventually(lambda: len(living(process.pid)) > 1)
        os.write(keyboard, KEYS[signal.SIGINT])
        done = ended(process)
    assert done == Done(0, "interrupted\n3 0 0 {} 2.0 True\n", "")


@pytest.mark.concurrency
def test_a_group_that_is_stopped_and_continued_goes_on_where_it_was(tmp_path: Path) -> None:
    """Its workers are in groups of their own, and go on meanwhile."""
    # Until the main thread runs again the kernel gives a signal to any other, which does not wake it: numpy has some.
    alone = {"OPENBLAS_NUM_THREADS": "1"}
    with on_a_terminal(tmp_path, IN_THE_MIDDLE + GOES_ON, **alone) as (process, keyboard):
        is_ready(process)
        front = psutil.Process(process.pid)
        os.killpg(process.pid, signal.SIGSTOP)  # a group that no shell has started is not stopped by its terminal
        eventually(lambda: front.status() == psutil.STATUS_STOPPED)
        store = tmp_path / "cache" / "v1"
        eventually(lambda: len(list(store.glob("??/*.farm"))) >= 2)
        os.killpg(process.pid, signal.SIGCONT)
        eventually(lambda: front.status() != psutil.STATUS_STOPPED)
        os.write(keyboard, KEYS[signal.SIGINT])
        done = ended(process)
    assert done == Done(0, "interrupted\n3 0 0 {} 2.0 True\n", "")


@pytest.mark.concurrency
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_group_that_a_signal_ends_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    script = "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n" + IN_THE_MIDDLE
    script += "print('ready', flush=True)\nthreading.Event().wait(60)\n"
    with on_a_terminal(tmp_path, script, FARM_EXIT_GRACE_S="0") as (process, keyboard):
        is_ready(process)
        if number in KEYS:
            os.write(keyboard, KEYS[number])
        else:
            os.killpg(process.pid, number)
        done = ended(process)
    assert done.code == -number
    assert done.err.count("Traceback") == (number is signal.SIGINT), done.err
    assert "farm" not in done.err


def blocked(thread: threading.Thread) -> set[int]:
    """The signals that the kernel does not give to this thread."""
    lines = Path(f"/proc/self/task/{thread.native_id}/status").read_text().splitlines()
    mask = next(int(line.split()[1], 16) for line in lines if line.startswith("SigBlk:"))
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


@pytest.mark.concurrency
def test_no_thread_of_the_farm_is_given_a_signal_in_place_of_the_main_thread(tmp_path: Path) -> None:
    """Which would not wake for it. What runs in the installer may start processes, and they must be free to hear."""
    heard: list[set[int]] = []

    class Listens:
        def on_event(self, event: events.Event) -> None:
            if isinstance(event, events.CompileFinished):
                heard.append(blocked(threading.current_thread()))

    with farm.Farm(cache_dir=tmp_path / "cache", workers=1, exit_grace_s=0) as barn:
        barn.add_listener(Listens())
        function = farm.njit(lambda a: a + 1, farm=barn)
        assert function.submit("(int64,)").result(60)
        eventually(lambda: heard)
        threads = {thread.name: thread for thread in threading.enumerate() if thread.name.startswith("farm-")}
        for name in ("farm-pool", "farm-installer"):
            eventually(lambda name=name: blocked(threads[name]) >= {signal.SIGINT, signal.SIGTERM, signal.SIGALRM})
            assert signal.SIGSEGV not in blocked(threads[name])
        assert heard == [set()]
        assert not blocked(threading.main_thread())


AT_ANY_MOMENT = """
import faulthandler, gc
signal.signal(signal.SIGALRM, signal.default_int_handler)
from farm.port.locks import LOCKS
barn = farm.default_farm()

def in_another_thread(work):
    found = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(60)
    if not found:
        faulthandler.dump_traceback(all_threads=True)
    assert found, "stuck"
    return found[0]

def free():
    for lock in LOCKS:
        assert lock.acquire(timeout=60), lock
        lock.release()
    return True

def tries(number, longest_s, make):
    "Interrupt calls after a time that goes from 0 to so long; how many were met."
    met = 0
    for turn in range(number):
        function = make()
        # llvmlite takes its lock in finalizers. An interrupt in one that runs outside of us is not ours to mend.
        gc.collect()
        gc.disable()
        try:
            signal.setitimer(signal.ITIMER_REAL, 2e-5 + longest_s * turn / number)
            function(OVERFLOW)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            met += 1
        gc.enable()
        assert in_another_thread(lambda: free() and runs_machine_code(function) and barn.wait(60)), turn
        assert (barn.stats().pending, barn.record.profiler.ongoing, len(barn.requests)) == (0, 0, 0), turn
    return met

def strict(number):
    return farm.njit(power(number), mode="strict")

strict(0)(1)
large = np.arange(10.0**6)
numbers = iter(range(1, 10**6))

def here():
    number = next(numbers)
    return farm.njit(lambda a: a * a * a * a * a + number + int(large[0]), mode="strict")

print(tries(*STORED, lambda: strict(0)), tries(*WORKER, lambda: strict(next(numbers))), tries(*HERE, here))
"""


@pytest.mark.concurrency
def test_ctrl_c_at_any_moment_leaves_a_call_that_works(tmp_path: Path) -> None:
    """A real signal, and so also in numba, llvmlite and Python's own library."""
    times = "STORED, WORKER, HERE = (150, 2.5e-3), (20, 0.1), (20, 0.15)\n"
    done = run(tmp_path, times + AT_ANY_MOMENT)
    assert done.code == 0, done.err
    assert min(map(int, done.out.split())) > 5, done.out
