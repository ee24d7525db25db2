"""What dies in the middle of a real compile, and what must not be left of it.

A worker is in the middle of its compile once it has used CPU time that forking alone does not take.
"""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import troubles
from barns import PATIENCE_S, eventually, living

import farm
from farm.store.disk import _host

ROOT = Path(__file__).parents[2]
COMPILING_CPU_S = 0.3
SPAWNED_CPU_S = 1.5
"""Such a worker imports numba first."""
SLOW = """
import numpy as np


def slow(x):
    return np.median(x) + np.std(x)
"""


def compiling(front: int) -> list[psutil.Process]:
    """The workers of a front that are in the middle of a compile."""
    found = []
    for foreman in psutil.Process(front).children():
        for worker in foreman.children():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = worker.cpu_times()
                if times.user + times.system >= COMPILING_CPU_S:
                    found.append(worker)
    return found


@contextlib.contextmanager
def front(tmp_path: Path, script: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that runs `script` with a farm of two workers; none of its tree outlives the test."""
    (tmp_path / "slow.py").write_text(SLOW)
    settings = f"cache_dir={str(tmp_path / 'cache')!r}, workers=2, nice=0"
    code = f"import sys; sys.path[:0] = {[str(ROOT), str(tmp_path)]!r}\nSETTINGS = dict({settings})\n"
    code += textwrap.dedent(script)
    tree: list[psutil.Process] = []
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                tree = psutil.Process(process.pid).children(recursive=True)
                process.kill()
    eventually(lambda: not living(tree))


COMPILES = """
    import numpy as np
    import farm
    from slow import slow
    barn = farm.Farm(**SETTINGS)
    function = farm.njit(slow, farm=barn)
    function(np.ones(3)); function(np.ones(3, np.float32))
    print("asked", flush=True)
"""


def tree_in_mid_compile(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    assert process.stdout is not None
    assert process.stdout.readline() == "asked\n"
    eventually(lambda: len(compiling(process.pid)) == 2)
    tree = psutil.Process(process.pid).children(recursive=True)
    assert len(tree) >= 3
    return tree


@pytest.mark.parametrize("stopped", ["nobody", "a worker", "both workers", "the foreman", "all"])
def test_a_front_killed_in_mid_compile_leaves_no_process_a_second_later(tmp_path: Path, stopped: str) -> None:
    with front(tmp_path, COMPILES + "    sys.stdin.read()\n") as process:
        tree = tree_in_mid_compile(process)
        workers = compiling(process.pid)
        foreman = psutil.Process(process.pid).children()
        victims = {
            "nobody": [],
            "a worker": workers[:1],
            "both workers": workers,
            "the foreman": foreman,
            "all": workers + foreman,
        }[stopped]
        for victim in victims:
            victim.send_signal(signal.SIGSTOP)
        # Until they stand still: the kernel lets those go on, and ends, whom it finds stopped when their parent dies.
        eventually(lambda: all(victim.status() == psutil.STATUS_STOPPED for victim in victims))
        process.kill()
        process.wait()
        eventually(lambda: not living(tree), 1.0)


def test_a_front_interrupted_or_terminated_leaves_no_process(tmp_path: Path) -> None:
    with front(tmp_path, COMPILES + "    sys.stdin.read()\n") as process:
        tree = tree_in_mid_compile(process)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
        eventually(lambda: not living(tree), 1.0)


@pytest.fixture
def barn(tmp_path: Path) -> Iterator[farm.Farm]:
    with farm.Farm(cache_dir=tmp_path / "cache", workers=2, nice=0, exit_grace_s=0) as one:
        yield one


def ask(barn: farm.Farm, tmp_path: Path) -> object:
    """The slow function, asked for two types, in mid-compile in two workers."""
    space: dict[str, object] = {"__name__": "slow_here"}
    path = tmp_path / "slow_here.py"
    path.write_text(SLOW)
    exec(compile(SLOW, str(path), "exec"), space)
    function = farm.njit(space["slow"], farm=barn)
    function(np.ones(3))
    function(np.ones(3, np.float32))
    eventually(lambda: len(compiling(os.getpid())) == 2)
    return function


def all_compiled(barn: farm.Farm, function: object) -> bool:
    # Not by waiting for it: a job that is waited for is started again, at nice 0.
    eventually(lambda: barn.stats().pending == 0)
    stats = barn.stats()
    assert (stats.compiled, stats.local, stats.failed, stats.died) == (2, 0, 0, 0), stats
    return bool(function(np.ones(3)) == function(np.ones(3, np.float32)) == 1.0)  # type: ignore[operator]


def test_a_worker_killed_in_mid_compile_is_replaced_and_the_other_goes_on(barn: farm.Farm, tmp_path: Path) -> None:
    function = ask(barn, tmp_path)
    victim, other = compiling(os.getpid())
    victim.kill()
    eventually(lambda: not living([victim]))
    assert living([other])
    assert all_compiled(barn, function)
    assert living([other])


def test_a_worker_that_crashes_in_mid_compile_is_retried(barn: farm.Farm, tmp_path: Path) -> None:
    function = ask(barn, tmp_path)
    compiling(os.getpid())[0].send_signal(signal.SIGSEGV)
    assert all_compiled(barn, function)


def quick(a):
    return a + 1


def test_what_a_dead_worker_was_writing_is_removed_with_the_next_job(barn: farm.Farm, tmp_path: Path) -> None:
    function = ask(barn, tmp_path)
    victim, other = compiling(os.getpid())
    half, whole = (
        barn.config.cache_dir / f"v1/tmp/{_host()}-{pid}-0123456789abcdef" for pid in (victim.pid, other.pid)
    )
    half.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    half.write_bytes(b"half an artifact")
    whole.write_bytes(b"what a living worker writes")
    victim.kill()
    assert all_compiled(barn, function)
    assert half.exists()
    farm.njit(quick, farm=barn).compile("int64(int64)")
    assert not half.exists() and whole.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_foreman_killed_in_mid_compile_costs_time_only(barn: farm.Farm, tmp_path: Path, number: int) -> None:
    function = ask(barn, tmp_path)
    workers = compiling(os.getpid())
    troubles.children()[0].send_signal(number)
    eventually(lambda: not living(workers))
    assert all_compiled(barn, function)


@pytest.mark.parametrize("close", ["", "import atexit; atexit.register(barn.close)", "barn.__enter__()"])
def test_the_end_of_a_script_waits_no_longer_than_its_grace(tmp_path: Path, close: str) -> None:
    script = COMPILES.replace("**SETTINGS", "**SETTINGS, exit_grace_s=0.5")
    with front(tmp_path, f"{script}    {close}\n    sys.stdin.read()\n") as process:
        tree = tree_in_mid_compile(process)
        assert process.stdin is not None and process.stderr is not None
        start = time.monotonic()
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0
        took_s = time.monotonic() - start
        assert process.stderr.read() == ""
        eventually(lambda: not living(tree), 1.0)
    assert took_s < 2.0 + 1.0  # the pool's own grace is 2 s; a farm that is closed first has its setting's


def test_closing_is_harmless_in_any_order(tmp_path: Path) -> None:
    script = """
        import atexit
        atexit.register(lambda: (barn.close(), pool.close(), print("closed again", flush=True)))
        import farm
        import numpy as np
        from farm.port import target
        from slow import slow
        barn = farm.Farm(**SETTINGS, exit_grace_s=0.1)
        function = farm.njit(slow, farm=barn)
        function(np.ones(3))
        atexit.register(lambda: (barn.close(), barn.close()))
        pool = barn.settler().supply.pool(barn.config, target.settings())
        pool.close(0)
        pool.close(0)
        function(np.ones(3, np.float32))
        with barn:
            pass
        print("closed", flush=True)
    """
    with front(tmp_path, script) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, out, err) == (0, "closed\nclosed again\n", "")


def test_a_daemonic_child_of_multiprocessing_can_be_a_front(tmp_path: Path) -> None:
    script = """
        import multiprocessing
        import farm

        def child(connection):
            with farm.Farm(**SETTINGS) as barn:
                function = farm.njit(lambda a: a * a, farm=barn, mode="strict")
                connection.send((function(10**12) != 10**24, barn.stats().compiled))  # machine code wraps around

        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("fork").Process(target=child, args=(theirs,), daemon=True)
        process.start()
        print(*ours.recv())
        process.join()
    """
    with front(tmp_path, script) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
        assert (out, err) == ("True 1\n", "")


def test_workers_started_without_a_foreman_compile_and_leave_nothing(tmp_path: Path) -> None:
    script = "import os\nos.environ['FARM_START_METHOD'] = 'spawn'\n"
    with front(tmp_path, script + textwrap.dedent(COMPILES) + "sys.stdin.read()\n") as process:
        assert process.stdout is not None and process.stdout.readline() == "asked\n"
        workers = psutil.Process(process.pid).children
        eventually(lambda: sum(sum(worker.cpu_times()[:2]) > SPAWNED_CPU_S for worker in workers()) == 2)
        tree = workers()
        process.kill()
        process.wait()
        eventually(lambda: not living(tree), 1.0)
    with front(
        tmp_path,
        script + textwrap.dedent(COMPILES) + "print(barn.wait_for(None, 90))\n"
        "print(barn.stats().compiled + barn.stats().loaded, function(np.ones(3)))\n",
    ) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
        assert (out, err) == ("asked\nTrue\n2 1.0\n", "")  # what the killed workers had published is loaded
