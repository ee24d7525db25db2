"""Forks in the middle of compiles, in processes of their own: a failure here is a process that hangs."""

import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMON = """
import os, sys, threading, time
sys.path.insert(0, {root!r})
import farm
from farm.port.forking import forked_unlocked
import numba

@numba.njit
def ready(x):
    return x + 1

ready(1)

def compile_one():
    @numba.njit
    def fresh(x):
        s = 0.0
        for i in range(x):
            s += i * x
        return s
    return fresh(3)

def fork(in_child, bound_s=60):
    "The exit code of a child that does this, or None if it hung."
    child = os.fork()
    if child == 0:
        try:
            os._exit(in_child())
        finally:
            os._exit(99)
    end = time.monotonic() + bound_s
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None
"""


def run(script: str) -> str:
    code = COMMON.format(root=str(ROOT)) + textwrap.dedent(script)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_no_child_hangs_that_is_forked_while_another_thread_compiles() -> None:
    out = run("""
        compiling, stop = threading.Event(), threading.Event()

        def keep_compiling():
            while not stop.is_set():
                compiling.set()
                compile_one()

        def in_child():
            right = ready(1) == 2 and not forked_unlocked() and compile_one() == 9.0
            return 0 if right else 1

        thread = threading.Thread(target=keep_compiling)
        thread.start()
        compiling.wait()
        codes = [fork(in_child) for _ in range(24)]
        stop.set()
        thread.join()
        print(codes == [0] * 24 or codes)
    """)
    assert out == "True"


def test_a_fork_does_not_wait_for_ever_and_the_child_knows() -> None:
    out = run("""
        from numba.core.compiler_lock import global_compiler_lock
        held, done = threading.Event(), threading.Event()

        def hold():
            with global_compiler_lock:
                held.set()
                done.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        started = time.monotonic()
        child_knows = lambda: 0 if forked_unlocked() and ready(1) == 2 else 1
        print(fork(child_knows), 1.5 < time.monotonic() - started < 10, forked_unlocked())

        def grandchild_at_once():
            started = time.monotonic()
            return 0 if fork(child_knows) == 0 and time.monotonic() - started < 1.5 else 1

        print(fork(grandchild_at_once))
        done.set()
        thread.join()
        print(fork(lambda: 1 if forked_unlocked() else 0), compile_one())
    """)
    assert out.split("\n") == ["0 True False", "0", "0 9.0"]


def test_a_thread_that_compiles_may_fork_itself() -> None:
    out = run("""
        from numba.core.compiler_lock import global_compiler_lock

        with global_compiler_lock:
            print(fork(lambda: 0 if compile_one() == 9.0 and not forked_unlocked() else 1), compile_one())
        thread = threading.Thread(target=lambda: print(fork(lambda: 0 if compile_one() == 9.0 else 1)))
        thread.start()
        thread.join()
    """)
    assert out.split("\n") == ["0 9.0", "0"]
