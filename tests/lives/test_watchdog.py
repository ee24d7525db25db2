"""The watchdog of the tests themselves: that it ends what hangs, says where everybody was, and sees what is left."""

import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from sessions import BOUND_S, ROOT

HANGS = """
    import threading, farm, pytest

    def never(x):
        return x

    @pytest.mark.timeout(8)
    def test_that_hangs(tmp_path, monkeypatch):
        def a_thread_that_hangs():
            threading.Event().wait()
        threading.Thread(target=a_thread_that_hangs, daemon=True, name="hanging").start()
        with farm.Farm(cache_dir=tmp_path / "cache", workers=1, exit_grace_s=0) as barn:
            import hangs_in_a_worker
            function = farm.njit(hangs_in_a_worker.make(), farm=barn, mode="strict")
            function(3)

    def test_that_comes_after():
        pass
"""
IN_A_WORKER = """
    import threading
    from farm.port.role import compiles_for_others
    from numba.extending import overload

    def stub(a):
        return a

    @overload(stub)
    def lowered(a):
        if compiles_for_others():
            threading.Event().wait()
        return lambda a: a

    def make():
        def caller(a):
            return stub(a)
        return caller
"""


def pytest_on(folder: Path, text: str) -> "subprocess.CompletedProcess[str]":
    (folder / "test_it.py").write_text(textwrap.dedent(text))
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests"), str(folder)])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "watchdog", "-p", "no:cacheprovider", "test_it.py"]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        command,
        cwd=folder,
        env={**variables, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )


def test_a_test_that_hangs_ends_with_the_stacks_of_its_threads_and_workers(tmp_path: Path) -> None:
    (tmp_path / "hangs_in_a_worker.py").write_text(textwrap.dedent(IN_A_WORKER))
    started = time.monotonic()
    done = pytest_on(tmp_path, HANGS)
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "Timeout" in said and "1 failed, 1 passed" in said, said
    assert "a_thread_that_hangs" in said
    assert "test_that_hangs" in said and "settle.py" in said
    worker = said.partition("+++ stacks of worker")[2]
    assert "in lowered" in worker and "in _perform" in worker, said
    assert "+++ stacks of foreman" in said and "in serve" in said.partition("+++ stacks of foreman")[2]
    assert time.monotonic() - started < BOUND_S


def test_a_test_that_hangs_where_no_python_runs_is_ended_too(tmp_path: Path) -> None:
    """It holds the GIL in a C call, so that neither a signal handler nor a timer's thread can run."""
    done = pytest_on(
        tmp_path,
        """
        import ctypes, pytest, watchdog
        watchdog.STUCK_S = 2

        @pytest.mark.timeout(2)
        def test_that_holds_the_gil():
            mutex, lock = (ctypes.c_long * 16)(), ctypes.PyDLL(None).pthread_mutex_lock
            lock(mutex), lock(mutex)
        """,
    )
    assert done.returncode == 1
    assert "Timeout (0:00:04)!" in done.stderr and "in test_that_holds_the_gil" in done.stderr, done.stderr


LEAVES = """
    import fcntl, subprocess, sys, tempfile, threading, farm, pytest, watchdog
    watchdog.GONE_S = 0.5
    kept = []

    @pytest.fixture(scope="module")
    def barn(tmp_path_factory):
        with farm.Farm(cache_dir=tmp_path_factory.mktemp("cache"), workers=1, exit_grace_s=0) as one:
            yield one

    def test_a_process():
        kept.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))

    def test_a_thread():
        kept.append(threading.Event())
        threading.Thread(target=kept[-1].wait, args=(60,), name="mine").start()

    def test_a_farm(tmp_path):
        kept.append(farm.Farm(cache_dir=tmp_path / "cache", workers=1, exit_grace_s=0))
        assert farm.njit(lambda a: a + 1, farm=kept[-1], mode="strict")(1) == 2

    def test_a_lock(tmp_path):
        kept.append(open(tmp_path / "lock", "w"))
        fcntl.flock(kept[-1], fcntl.LOCK_EX)

    def test_a_directory():
        kept.append(tempfile.mkdtemp(prefix="farm-left-"))

    def test_nothing():
        kept[0].kill(), kept[0].wait(), kept[1].set()

    def test_the_default_farm():
        farm.njit(lambda a: a)(1)

    def test_a_farm_of_the_module(barn):
        farm.njit(lambda a: a, farm=barn)(1)
"""


def test_what_a_test_leaves_behind_is_seen_and_what_is_of_wider_scope_may_stay(tmp_path: Path) -> None:
    done = pytest_on(tmp_path, LEAVES)
    errors = re.findall(r"^E +AssertionError: left behind: (.*)$", done.stdout, re.MULTILINE)
    kinds = ["process ", "thread mine", "thread farm-pool", "file lock ", "temporary directory farm-left-"]
    assert len(errors) == len(kinds), done.stdout + done.stderr
    assert all(kind in error for kind, error in zip(kinds, errors, strict=True)), errors
    assert "8 passed, 5 errors" in done.stdout
