"""Recording: everything that a program asked for is in its manifest when it ends, whichever way it ends."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import farm
from farm.ahead import recording
from farm.ahead.manifest import read
from farm.errors import ManifestError
from farm.port.role import collecting

HEAD = "import farm, os, sys\nfarm.configure(enabled=False)\n"
"""What is asked for is recorded the same way whether or not anything is compiled; without it costs no worker."""


def run(folder: Path, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    program = folder / "program.py"
    program.write_text(HEAD + textwrap.dedent(text))
    environment = {one: value for one, value in os.environ.items() if not one.startswith("FARM_")}
    environment["FARM_CACHE_DIR"] = str(folder / "cache")
    return subprocess.run(
        [sys.executable, str(program), *words], capture_output=True, text=True, timeout=100, env=environment, cwd=folder
    )


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(entry.line()) for entry in read(folder / "m.jsonl")]


KINDS = """
import enum, functools
import numpy as np
from collections import namedtuple
Point = namedtuple("Point", "x y")

@farm.njit("float64(float64)")
def declared(x):
    return x

@farm.njit
def inner(x):
    return x / 2

@farm.njit
def outer(x, k=3):
    return inner(x) * k

@farm.njit
def first(p):
    return p.x

def make(n):
    @farm.njit
    def made(x):
        return x + n
    return made

held, nowhere = make(1), [make(2), farm.njit(lambda x: x)]
named = farm.njit(lambda x: x)
def plain(x):
    return x
quick = farm.njit(plain)
class Kernels:
    @staticmethod
    @farm.njit
    def area(x):
        return x * x
@farm.njit
def wrong(x):
    return x.nothing
@farm.njit
def never(x):
    return x

recording = farm.record("m.jsonl")
outer(1.0)
first(Point(1, 2))
held(1), nowhere[0](2), named(3), quick(4), Kernels.area(5), nowhere[1](6)
wrong.fallback = lambda x: x
farm.configure(enabled=True)  # only this one, as it is numba that says what is wrong
wrong(np.ones(3))
farm.wait()
"""


@pytest.fixture(scope="module")
def of_all_kinds(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    folder = tmp_path_factory.mktemp("kinds")
    done = run(folder, KINDS)
    assert done.returncode == 0, done.stderr
    assert str(folder) not in (folder / "m.jsonl").read_text()
    return lines(folder)


def test_what_was_asked_for_is_written_with_its_types(of_all_kinds: list[dict[str, object]]) -> None:
    found = {one["function"]: one for one in of_all_kinds if "reason" not in one}
    assert found["__main__:declared"]["signature"] == "(float64)" == f"({found['__main__:declared']['returns']})"
    assert found["__main__:outer"]["signature"] == "(float64, Omitted(3))"
    assert found["__main__:first"]["signature"] == "(NamedUniTuple('__main__:Point', int64, 2))"
    assert {one["program"] for one in of_all_kinds} == {"program.py"}
    assert "__main__:never" not in found


def test_a_function_is_written_under_the_name_that_finds_it(of_all_kinds: list[dict[str, object]]) -> None:
    found = {one["function"] for one in of_all_kinds if "reason" not in one}
    assert found >= {"__main__:held", "__main__:named", "__main__:quick", "__main__:Kernels.area"}


def test_what_no_name_finds_and_what_does_not_compile_is_written_with_the_reason(
    of_all_kinds: list[dict[str, object]],
) -> None:
    reasons = {one["function"]: str(one["reason"]) for one in of_all_kinds if "reason" in one}
    assert reasons["__main__:make.<locals>.made"] == "it is made inside a function, and no module holds it by a name"
    assert reasons["__main__:<lambda>"] == "it is a lambda that no module holds by a name"
    assert reasons["__main__:wrong"].startswith("it does not compile: TypingError: Unknown attribute 'nothing'")


def test_a_caller_compiled_here_is_recorded_with_what_it_hands_down(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        @farm.njit
        def inner(x):
            return x / 2
        @farm.njit(fastmath=True, error_model="numpy", fallback="wait")
        def outer(x):
            return inner(x)
        with farm.record("m.jsonl"):
            outer(1.0)
        """,
    )
    assert done.returncode == 0, done.stderr
    inner, outer = lines(tmp_path)
    assert (inner["function"], inner["signature"]) == ("__main__:inner", "(float64)")
    handed_down = {"error_model": "numpy", "fastmath": ["fast"], "nrt": True}
    assert inner["flags"] == {"forceinline": False, **handed_down}
    assert outer == {"function": "__main__:outer", "signature": "(float64)", "program": "program.py"}


ONE = """
@farm.njit
def one(x):
    return x
recording = farm.record("m.jsonl")
one(1)
"""
ENDS = {
    "its end": "",
    "an exception": "raise ValueError",
    "sys.exit": "sys.exit(3)",
    "Ctrl-C": "raise KeyboardInterrupt",
    "a failing atexit callback": "import atexit; atexit.register(lambda: 1 / 0)",
    "a fork": "if os.fork(): os.wait(); recording.stop(); os._exit(0)\none(1.0); sys.exit()",
}
FORKS = """
@farm.njit
def one(x):
    return x
import json
for name, text in json.loads(sys.argv[1]).items():
    if os.fork() == 0:  # which goes on to the end of this script, and ends as a process
        recording = farm.record(f"{name}.jsonl")
        one(1)
        exec(text)
        break
    os.wait()
"""


def test_the_manifest_is_written_whichever_way_a_process_ends(tmp_path: Path) -> None:
    assert run(tmp_path, FORKS, json.dumps(ENDS)).returncode == 0
    found = {end: [entry.signature for entry in read(tmp_path / f"{end}.jsonl")] for end in ENDS}
    assert found == {**{key: ["(int64)"] for key in ENDS}, "a fork": ["(float64)", "(int64)"]}
    assert not list(tmp_path.glob(".*.jsonl*"))


def test_children_of_multiprocessing_add_what_they_asked_for(tmp_path: Path) -> None:
    children = """
    import multiprocessing
    def child(value):
        one(value)
    context = multiprocessing.get_context("fork")
    started = [context.Process(target=child, args=(value,)) for value in (1.0, "a", None)]
    for each in started: each.start()
    for each in started: each.join()
    """
    done = run(tmp_path, ONE + textwrap.dedent(children))
    assert (done.returncode, done.stderr) == (0, "")
    assert [one["signature"] for one in lines(tmp_path)] == ["(float64)", "(int64)", "(none)", "(unicode_type)"]


def test_a_function_of_a_program_without_a_file_says_so(tmp_path: Path) -> None:
    text = HEAD + textwrap.dedent(ONE)
    command = [sys.executable, "-c", text]
    environment = {**os.environ, "FARM_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run(command, check=True, cwd=tmp_path, env=environment, timeout=60)
    (entry,) = lines(tmp_path)
    assert entry["reason"] == "it belongs to an interactive session, or to a program without a file"


def test_a_file_that_is_no_manifest_is_refused_at_the_beginning_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine\n")
    with pytest.raises(ManifestError, match="it is no manifest"):
        farm.record(path)
    assert path.read_text() == "mine\n"
    with pytest.raises(ManifestError, match="cannot be written: No such file"):
        farm.record(tmp_path / "none" / "m.jsonl")


def test_what_is_only_looked_at_records_nothing(tmp_path: Path) -> None:
    with collecting(), farm.record(tmp_path / "m.jsonl"):
        pass
    assert not (tmp_path / "m.jsonl").exists()


def test_a_recording_that_was_stopped_can_begin_again(tmp_path: Path) -> None:
    recorded = farm.record(tmp_path / "m.jsonl")
    recorded.stop()
    (tmp_path / "m.jsonl").unlink()
    recorded.stop()
    assert not (tmp_path / "m.jsonl").exists()
    recorded.start()
    recorded.stop()
    assert read(tmp_path / "m.jsonl") == recording.entries(None)
