"""Forks of a program that compiles: by itself, by servers, by multiprocessing, and into other programs."""

from pathlib import Path

import pytest
from sessions import run

FORKS = """
def fork(in_child, leave=os._exit):
    "The pid of a child that does this. It says what went wrong, and leaves with 0 if nothing did."
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        in_child()
        code = 0
    except BaseException:
        import traceback
        traceback.print_exc()
    leave(code)

def ends(*children, bound_s=90):
    "Each child ends with 0."
    for child in children:
        found = []
        eventually(lambda: found.append(os.waitpid(child, os.WNOHANG)) or found[-1][0], bound_s)
        assert found[-1][1] == 0, found[-1]

def workers():
    import psutil
    return {one.pid for one in psutil.Process().children(recursive=True)}
"""


@pytest.mark.concurrency
def test_a_child_of_a_program_with_a_job_in_a_worker_compiles_on_its_own_and_disturbs_nobody(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        FORKS
        + """
x = np.ones(3)
pending, ready = farm.njit(slow(1)), farm.njit(power(0), mode="strict")
assert runs_machine_code(ready)
pending(x)
eventually(busy)
future = pending.submit("(float64[::1],)")
before = workers()

def in_child():
    assert not workers()
    assert runs_machine_code(ready) and pending(x) == 2.0
    own = farm.njit(power(os.getpid()))
    assert own(2) == 32 + os.getpid()
    assert own.wait(60) and runs_machine_code(own)
    assert pending.wait(60) and "machine code" in farm.explain(pending, x)
    assert workers()
    assert future.cancelled()

children = [fork(in_child, leave) for leave in (os._exit, sys.exit)]
ends(*children)
assert workers() >= before, "the children disturbed them"
assert pending.wait(60) and pending(x) == 2.0 and future.result(60)
stats = farm.stats()
assert (stats.compiled, stats.died, stats.local, stats.pending) == (2, 0, 0, 0), stats
print("done")
""",
    )
    assert (done.code, done.out, done.err) == (0, "done\n", ""), done.err


@pytest.mark.concurrency
def test_a_child_forked_while_the_program_compiles_itself_runs_what_there_is(tmp_path: Path) -> None:
    """The fork waits for the compile, but not for ever: then the child knows, and runs fallbacks only."""
    done = run(
        tmp_path,
        FORKS
        + """
from farm.port import forking
from farm.port.locks import holds_compiler_lock
large, x = np.arange(10.0**6), np.ones(3)
ready = farm.njit(power(0), mode="strict")
assert runs_machine_code(ready)

@farm.njit
def local(x):
    return large[0] + np.median(x) + np.std(x)

local(x)
eventually(lambda: "local" in repr([t.name for t in threading.enumerate()]) or farm.stats().pending)

def in_child():
    assert runs_machine_code(ready) and local(x) == 1.0
    own = farm.njit(power(os.getpid()))
    assert own(2) == 32 + os.getpid()
    assert own.wait(60)
    assert runs_machine_code(own) or forking.forked_unlocked()

ends(fork(in_child))
forking._forks.bound_s = 0
ends(*(fork(in_child) for _ in range(2)))
assert local.wait(60) and local(x) == 1.0 and farm.stats().local == 1
print("done")
""",
    )
    assert (done.code, done.out, done.err) == (0, "done\n", ""), done.err


def test_a_lock_of_the_store_that_the_program_holds_is_not_let_go_by_its_children(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        FORKS
        + f"""
from pathlib import Path
from farm.store.lock import LockOutcome, key_lock
path = Path({str(tmp_path)!r}) / "lock"

def is_taken():
    with key_lock(path, 0) as outcome:
        assert outcome is LockOutcome.BUSY, outcome

with key_lock(path, 1) as outcome:
    assert outcome is LockOutcome.ACQUIRED
    ends(fork(lambda: None), fork(lambda: None, sys.exit), fork(lambda: None, sys.exit))
    import subprocess
    code = "import sys; sys.path.insert(0, sys.argv[1]); from farm.store.lock import *; from pathlib import Path\\n"
    code += "with key_lock(Path(sys.argv[2]), 0) as outcome: print(outcome.name)"
    root = str(Path(farm.__file__).parents[1])
    print(subprocess.run([sys.executable, "-c", code, root, str(path)], capture_output=True, text=True).stdout, end="")
print("done")
""",
    )
    assert (done.code, done.out, done.err) == (0, "BUSY\ndone\n", "")


@pytest.mark.concurrency
def test_no_descriptor_of_the_farm_gets_into_another_program(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        FORKS
        + """
import subprocess
f = farm.njit(slow(1)); f(np.ones(3))
farm.njit(power(0), mode="strict")(1)
eventually(busy)
links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
kinds = [os.readlink(link) for link in links if os.path.lexists(link)]
assert sum(kind.startswith("socket:") for kind in kinds) >= 4, kinds

code = "import os; print(sorted(int(name) for name in os.listdir('/proc/self/fd') if int(name) > 2))"
command = [sys.executable, "-c", code]
none = subprocess.run(command, stdout=subprocess.PIPE).stdout
assert none == b"[3]\\n", none  # what lists the directory
assert subprocess.run(command, stdout=subprocess.PIPE, close_fds=False).stdout == none

def by(start):
    reader, writer = os.pipe()
    start(writer)
    os.close(writer)
    with open(reader, "rb") as file:
        assert file.read() == none
    os.wait()

def spawn(writer):
    os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1)])

def fork_and_exec(writer):
    if os.fork() == 0:
        os.dup2(writer, 1)
        os.execv(command[0], command)

by(spawn)
by(fork_and_exec)
assert f.wait(60)
print("done")
""",
    )
    assert (done.code, done.out, done.err) == (0, "done\n", ""), done.err


@pytest.mark.concurrency
def test_children_of_multiprocessing_compile_and_the_parent_goes_on(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("""
import farm

@farm.njit
def shared(a):
    return a * a * a * a * a

def work(number):
    first = shared(number)
    own = farm.njit(lambda a: a * a * a * a * a + number)
    own(number)
    assert shared.wait(60) and own.wait(60)
    return first == number**5, shared(10**9) < 10**27, own(10**9) < 10**27
""")
    done = run(
        tmp_path,
        """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
if __name__ == "__main__":
    import work
    f = farm.njit(slow(1)); f(np.ones(3)); eventually(busy)
    for method in ("fork", "forkserver", "spawn"):
        context = multiprocessing.get_context(method)
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            assert list(pool.map(work.work, (2, 3))) == [(True, True, True)] * 2
        print(method)
    assert f.wait(60) and farm.stats().died == 0
""",
    )
    assert (done.code, done.out.split(), done.err) == (0, ["fork", "forkserver", "spawn"], "")


@pytest.mark.concurrency
@pytest.mark.parametrize("parent", ["has compiled and is compiling", "has made nothing"])
def test_the_children_of_a_pre_fork_server(tmp_path: Path, parent: str) -> None:
    """The parent forks them, kills one in the middle of its compile, and forks it anew; one forks a child itself."""
    done = run(
        tmp_path,
        FORKS
        + f"""
parent, x = {parent!r}, np.ones(3)
ready, later = farm.njit(power(0)), farm.njit(slow(0))
if parent != "has made nothing":
    ready(1)
    assert ready.wait(60)
    later(x)
    eventually(busy)

def serve(number, forks=False):
    assert parent == "has made nothing" or runs_machine_code(ready)
    assert ready(2) == 32 and later(x) == 1.0
    own = farm.njit(power(number))
    assert own(2) == 32 + number
    assert own.wait(60) and runs_machine_code(own) and ready.wait(60) and runs_machine_code(ready)
    if forks:
        ends(fork(lambda: serve(number + 100)))
        assert farm.njit(power(number + 200), mode="strict")(2) == 232 + number

def is_killed():
    farm.njit(slow(3))(x)
    eventually(busy)
    os.write(writer, b"x")
    signal.pause()

reader, writer = os.pipe()
children = [fork(lambda: serve(1, forks=True))]
victim = fork(is_killed)
assert os.read(reader, 1) == b"x"
os.kill(victim, signal.SIGKILL)
os.waitpid(victim, 0)
children.append(fork(lambda: serve(3), sys.exit))
ends(*children)
assert later(x) == 1.0 and later.wait(60) and ready(2) == 32 and ready.wait(60) and runs_machine_code(ready)
assert farm.stats().died == 0 and farm.stats().pending == 0
print("done")
""",
    )
    assert (done.code, done.out, done.err) == (0, "done\n", ""), done.err
