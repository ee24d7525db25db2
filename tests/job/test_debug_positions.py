"""Files and lines are part of a description exactly if some reachable function is compiled with debug information."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from numba import njit
from numba.core import config

from farm.job.reach import reach


def body(*, blank_lines: int, file: str = "user.py", inner: str = "") -> Callable[..., Any]:
    space: dict[str, Any] = {"__name__": "user"}
    exec(compile("\n" * blank_lines + f"def f(x):\n{inner}    return x + 1\n", file, "exec"), space)
    found: Callable[..., Any] = space["f"]
    return found


def descriptions(wrap: Callable[[Any], Any]) -> set[bytes]:
    """The descriptions of one function at four places."""
    places: list[dict[str, Any]] = [{}, {"blank_lines": 3}, {"file": "copy.py"}, {"inner": "    # a comment\n"}]
    return {reach(wrap(body(**{"blank_lines": 0, **place}))).description for place in places}


def caller_of(callee: Any, **options: Any) -> Any:
    @njit(**options)
    def caller(x):
        return callee(x)

    return caller


def test_without_debug_positions_do_not_count() -> None:
    assert len(descriptions(njit)) == 1
    assert len(descriptions(njit(debug=False))) == 1


def test_with_debug_each_position_counts() -> None:
    assert len(descriptions(njit(debug=True))) == 4


def test_a_debug_callee_of_a_plain_caller_counts() -> None:
    assert len(descriptions(lambda function: caller_of(njit(debug=True)(function)))) == 4


def test_a_plain_callee_of_a_debug_caller_counts() -> None:
    assert len(descriptions(lambda function: caller_of(njit(function), debug=True))) == 4


def test_debug_information_by_default_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "DEBUGINFO_DEFAULT", 1)
    assert len(descriptions(njit)) == 4


SCRIPT = """\
import farm
{blank}
@farm.njit(mode="strict"{option})
def f(x):
    return x + 1

assert f(1) == 2
stats = farm.stats()
assert stats.{count} == 1 and not stats.local, stats
"""


@pytest.mark.parametrize(("option", "variable"), [(", debug=True", "0"), ("", "1")])
def test_a_moved_debug_function_misses_and_one_in_its_place_hits(option: str, variable: str, tmp_path: Path) -> None:
    env = {**os.environ, "FARM_CACHE_DIR": str(tmp_path / "cache"), "FARM_WORKERS": "1", "NUMBA_DEBUGINFO": variable}
    for blank, count in (("", "compiled"), ("", "loaded"), ("\n\n", "compiled")):
        (tmp_path / "script.py").write_text(SCRIPT.format(blank=blank, option=option, count=count))
        command = [sys.executable, str(tmp_path / "script.py")]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stdout + done.stderr
