"""The key has no positions, and yet a traceback shows the file and line that the raising process has."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = '''\
import sys, traceback
import farm
{blank}
@farm.njit(mode="strict")
def constant(n):
{inner}    if n < 0:
        raise ValueError("constant")  # raises: constant
    return n

@farm.njit(mode="strict")
def runtime(n):
    """{doc}"""
    m = n * 2
    if n < 0:
        raise ValueError("runtime", m)  # raises: runtime
    return m

@farm.njit
def callee(n):
    def inner(m):
        if m < -5:
            raise ValueError("inner", m)  # raises: inner
        return m
    if n > 9:
        raise ValueError("callee")  # raises: callee
    return inner(n)

@farm.njit(mode="strict")
def caller(n):
    return callee(n) + 1

@farm.njit(mode="strict")
def nothing(n):
{docstring}    last = None
    if n < 0:
        raise ValueError("nothing")  # raises: nothing

lines = open(__file__).read().splitlines()
for function, argument, name in (
    (constant, -1, "constant"), (runtime, -1, "runtime"), (runtime, -2, "runtime"),
    (nothing, -1, "nothing"), (caller, 10, "callee"), (caller, -6, "inner"),
):
    try:
        function(argument)
    except ValueError as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
    else:
        raise AssertionError(name)
    wanted = 1 + next(at for at, line in enumerate(lines) if line.endswith("# raises: " + name))
    assert (last.name, last.filename, last.lineno) == (name, __file__, wanted), (name, last, wanted)
stats = farm.stats()
assert not stats.local and stats.{count} == 4, stats
'''


def run(script: Path, cache: Path, **parts: str) -> None:
    script.parent.mkdir(exist_ok=True)
    script.write_text(
        SCRIPT.format(**{"blank": "", "inner": "", "doc": "", "docstring": "", "count": "loaded", **parts})
    )
    env = {**os.environ, "FARM_CACHE_DIR": str(cache), "FARM_WORKERS": "1"}
    done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    """A script whose functions have been compiled into the store `cache` beside it."""
    run(tmp_path / "script.py", tmp_path / "cache", count="compiled")
    return tmp_path


def test_blank_lines_above_and_inside_a_function_hit_and_move_its_traceback(compiled: Path) -> None:
    moved = {
        "blank": "\n\n\n# a comment\n",
        "inner": "    # another\n\n",
        "doc": "now with a docstring",
        "docstring": "    'said'\n",
    }
    run(compiled / "script.py", compiled / "cache", **moved)


def test_a_copy_at_another_path_hits_and_shows_its_own_path(compiled: Path) -> None:
    (compiled / "script.py").rename(compiled / "gone.py")
    run(compiled / "elsewhere" / "copied.py", compiled / "cache", blank="\n\n")
