"""`farm run`: a program cannot tell it from `python`, but for numba's decorators."""

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

FARM = Path(sys.executable).with_name("farm")


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def ended(command: list[str], folder: Path, **more: str) -> Ended:
    own = {name: value for name, value in os.environ.items() if not name.startswith("FARM_")}
    environment = {**own, "FARM_CACHE_DIR": str(folder / "cache"), **more}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100)
    return Ended(done.returncode, re.sub(r" at 0x[0-9a-f]+", "", done.stdout), done.stderr)


class Warm:
    """`farm` as a process that has imported everything already: each command is a fork of it, and ends as a process."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self.process, self.folder = process, folder

    def __call__(self, *words: str) -> Ended:
        request = {"command": [str(FARM), *words], "out": str(self.folder / "out"), "err": str(self.folder / "err")}
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)
        code = json.loads(self.process.stdout.readline())
        out = re.sub(r" at 0x[0-9a-f]+", "", Path(request["out"]).read_text())
        return Ended(code, out, Path(request["err"]).read_text())


@pytest.fixture(scope="module")
def warm(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    outside = tmp_path_factory.mktemp("outside")
    own = {name: value for name, value in os.environ.items() if not name.startswith("FARM_")}
    environment = {**own, "FARM_CACHE_DIR": str(outside / "cache")}
    command = [sys.executable, str(Path(__file__).with_name("warm_farm.py"))]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=folder, env=environment, text=True) as process:
        yield Warm(process, outside)


PROGRAM = """
'''What it is for.'''
import __main__, atexit, multiprocessing, pickle, sys
from collections import namedtuple
print({name: value for name, value in sorted(globals().items()) if not name.startswith("__b")}, type(__builtins__))
print(sys.argv, sys.path[0], __main__ is sys.modules["__main__"], vars(__main__) is globals())
atexit.register(print, "goodbye")
print("click" in sys.modules, "rich" in sys.modules)

class Point(namedtuple("Point", "x y")):
    pass

def double(x):
    return Point(x, 2 * x)

def fail(depth):
    if depth == 0:
        raise {"Ctrl-C": KeyboardInterrupt}.get(sys.argv[-1], ValueError)("deep")
    fail(depth - 1)

if __name__ == "__main__":
    print(pickle.loads(pickle.dumps(double))(3), pickle.dumps(Point(1, 2), 0))
    match sys.argv[1:]:
        case ["pool", method]:
            pool = multiprocessing.get_context(method).Pool(1)
            print(pool.map(double, [1, 2]))
            pool.close()
            pool.join()  # so that the child comes to its end, and what it printed is there
        case ["exit", code]:
            sys.exit(int(code) if code.isdigit() else code)
        case ["hook", *_]:
            sys.excepthook = lambda kind, error, traceback: print(kind, traceback.tb_frame.f_code.co_name)
            fail(1)
        case ["bad hook", *_]:
            sys.excepthook = lambda *_: 1 / 0
            fail(1)
        case ["chain", *_]:
            try:
                fail(1)
            except ValueError as error:
                raise RuntimeError("after") from error
        case ["thread"]:
            import threading
            threading.Thread(target=lambda: (threading.main_thread().join(), print("last"))).start()
        case [*_]:
            fail(2)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("programs")
    for name in ("program.py", "package/__main__.py", "package/__init__.py", "directory/__main__.py"):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text("" if "init" in name else textwrap.dedent(PROGRAM))
    (place / "broken.py").write_text("def f(:\n")
    (place / "click.py").write_text("MINE = True\n")
    (place / "own_names.py").write_text("import click\nassert click.MINE\n")
    (place / "link.py").symlink_to(place / "package" / "__main__.py")
    return place


ENDS = {
    ("program.py", "--its-own", "-m", "--", "x"): 1,
    ("program.py", "Ctrl-C"): -2,
    ("program.py", "exit", "3"): 3,
    ("program.py", "exit", "a word"): 1,
    ("program.py", "hook"): 1,
    ("program.py", "bad hook"): 1,
    ("program.py", "chain"): 1,
    ("program.py", "thread"): 0,
    ("program.py", "pool", "fork"): 0,
    ("program.py", "pool", "spawn"): 0,
    ("./link.py",): 1,
    ("directory",): 1,
    ("broken.py",): 1,
    ("own_names.py",): 0,
    ("-m", "program", "Ctrl-C"): -2,
    ("-m", "package", "--record", "none"): 1,
    ("-m", "nothing.of.the.kind"): 1,
}


@pytest.mark.parametrize("words", ENDS, ids=" ".join)
def test_a_program_says_and_ends_as_with_python(folder: Path, warm: Warm, words: tuple[str, ...]) -> None:
    plain = ended([sys.executable, *words], folder)
    assert plain.code == ENDS[words]
    assert warm("run", *words) == plain
    assert not (folder / "none").exists()


@pytest.mark.parametrize("words", [("program.py", "Ctrl-C"), ("-m", "package", "exit", "3")], ids=" ".join)
def test_the_installed_command_runs_a_program_as_python_does(folder: Path, words: tuple[str, ...]) -> None:
    assert ended([str(FARM), "run", *words], folder) == ended([sys.executable, *words], folder)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no such setting")
def test_the_programs_directory_stays_off_the_path_if_the_user_says_so(folder: Path) -> None:
    words = ("program.py", "exit", "0")
    plain = ended([sys.executable, *words], folder, PYTHONSAFEPATH="1")
    assert str(folder) not in plain.out.splitlines()[1]
    assert ended([str(FARM), "run", *words], folder, PYTHONSAFEPATH="1") == plain


def test_numbas_decorators_are_the_farms_and_mode_says_when_calls_compile(folder: Path, warm: Warm) -> None:
    text = "import numba\nf = numba.njit(lambda x: x)\nprint(type(f).__name__, f.mode_now.value)\n"
    (folder / "decorated.py").write_text(text)
    assert warm("run", "--mode", "strict", "decorated.py") == Ended(0, "FarmDispatcher strict\n", "")
    assert warm("run", "decorated.py") == Ended(0, "FarmDispatcher async\n", "")


def test_a_report_is_written_when_the_program_ends(folder: Path, warm: Warm) -> None:
    (folder / "ending.py").write_text("raise SystemExit(3)\n")
    words = ("run", "--report", "out.html", "--report", "out.json", "ending.py")
    assert warm(*words) == Ended(3, "", "")
    assert "ending.py" in (folder / "out.html").read_text()
    assert "traceEvents" in json.loads((folder / "out.json").read_text())
