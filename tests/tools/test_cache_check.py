"""`farm cache verify`: damage is found and moved aside, and so is what compiling again gives otherwise."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from command_session import Done, run_session
from test_cache_list import put

FARM = Path(sys.executable).with_name("farm")
KERNELS: Final = """
import numba

@numba.njit
def scaled(x):
    return x * 3.25

@numba.njit
def caller(x):
    return scaled(x) + 1.0

@numba.njit("float64(int64)")
def declared(n):
    return n + 0.5

def make(n):
    @numba.njit
    def inside(x):
        return x + n
    return inside

inner = make(3)

def work():
    for function in (scaled, caller, inner):
        function(2.0)
    declared(1)
"""
STEPS: Final[dict[str, tuple[dict[str, str], list[str]]]] = {
    "compile": ({"kernels.py": KERNELS}, ["compile"]),
    "whole": ({}, ["cache", "verify"]),
    "again": ({}, ["cache", "verify", "--recompile", "9"]),
    "one": ({}, ["cache", "verify", "--recompile", "1", "--json"]),
    "edit": (
        {"kernels.py": KERNELS.replace("x * 3.25", "x * 5.0")},
        ["cache", "verify", "--recompile", "9", "--json"],
    ),
    "forge": ({"kernels.py": KERNELS}, ["forge", "kernels.scaled"]),
    "digests fit": ({}, ["cache", "verify"]),
    "forged": ({}, ["cache", "verify", "--recompile", "9", "--json"]),
    "after": ({}, ["cache", "verify", "--recompile", "9"]),
    "stats": ({}, ["cache", "stats", "--json"]),
    "forge again": ({}, ["forge", "kernels.scaled"]),
    "forged again": ({}, ["readonly", "cache", "verify", "--recompile", "9"]),
}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    """All of it in one process, on one store that a real worker has filled."""
    return run_session(tmp_path_factory.mktemp("check"), STEPS)


def outcomes(done: Done) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one in json.loads(done.stdout)["recompiled"]:
        found.setdefault(one["function"].removeprefix("kernels."), set()).add(one["outcome"])
    return found


def test_a_good_store_is_whole(session: dict[str, Done]) -> None:
    done = session["whole"]
    assert done.exit_code == 0 and done.stdout.startswith("4 artifacts whole, 0 bad in "), done


def test_what_is_compiled_again_is_the_same(session: dict[str, Done]) -> None:
    """By import found: three of four. One line for each as it is done, on standard error."""
    done = session["again"]
    assert done.exit_code == 0
    assert "compiled again: 3 the same, 0 different; 1 cannot be compared" in done.stdout
    assert "fewer than 9 have a function that is found by import" in done.stdout
    lines = done.stderr.splitlines()
    for name in ("scaled(float64)", "caller(float64)", "declared(int64)"):
        assert any(line.startswith("the same ") and line.endswith(f"kernels.{name}") for line in lines), lines
    assert any("make.<locals>.inside(float64): its function is made inside another one" in line for line in lines)


def test_no_more_are_compiled_than_were_asked_for(session: dict[str, Done]) -> None:
    found = json.loads(session["one"].stdout)["recompiled"]
    assert session["one"].exit_code == 0
    assert [one["outcome"] for one in found].count("same") == 1


def test_what_is_another_function_today_is_not_compared(session: dict[str, Done]) -> None:
    done = session["edit"]
    found = outcomes(done)
    assert done.exit_code == 0 and found["scaled"] == found["caller"] == {"not compared"}
    assert found["declared"] == {"same"}
    why = [one["why_not"] for one in json.loads(done.stdout)["recompiled"] if one["function"] == "kernels.scaled"]
    assert why == ["kernels.scaled has another key here: its part 'function' differs"]


def test_what_differs_is_told_and_moved_aside(session: dict[str, Done]) -> None:
    """Its digests fit, so only compiling again finds it. Its caller is found to differ by it, or is compared after."""
    assert session["digests fit"].exit_code == 0
    done = session["forged"]
    assert done.exit_code == 1 and "differs" in outcomes(done)["scaled"] | outcomes(done)["caller"]
    differing = [one for one in json.loads(done.stdout)["recompiled"] if one["outcome"] == "differs"]
    assert differing[0]["differences"] and len(differing[0]["bad"]) == 64
    assert "differs " in done.stderr


def test_what_was_moved_aside_is_bad_no_more(session: dict[str, Done]) -> None:
    assert session["after"].exit_code == 0, "what is left, or was compiled in its place, is good"
    assert json.loads(session["stats"].stdout)["quarantined"] == 1


def test_a_difference_is_told_in_full(session: dict[str, Done]) -> None:
    done = session["forged again"]
    assert done.exit_code == 1 and "is not what compiling it again gives" in done.stdout
    assert "The file was left where it is\n" in done.stdout and "run `farm cache clear`" not in done.stdout


def test_bad_files_are_told_and_moved_to_quarantine(shell) -> None:
    put(shell.cache_dir, "good")
    key = put(shell.cache_dir, "bad")
    path = shell.cache_dir / "v1" / key.hex[:2] / f"{key.hex}.farm"
    path.write_bytes(path.read_bytes()[:-1])
    shell.set("FARM_READONLY", "1")
    done = shell.run("cache", "verify")
    assert done.exit_code == 1 and path.exists() and "quarantine" not in done.stdout
    shell.set("FARM_READONLY", "0")
    done = shell.run("cache", "verify")
    assert done.exit_code == 1 and f"bad: {key.hex}: the file is shorter than its header says" in done.stdout
    assert "1 artifact whole, 1 bad, moved to quarantine in" in done.stdout
    assert not path.exists() and len(list((shell.cache_dir / "v1" / "quarantine").iterdir())) == 1
    found = json.loads(shell.run("cache", "verify", "--json").stdout)
    assert found == {"directory": str(shell.cache_dir), "whole": 1, "bad": [], "recompiled": []}


def test_an_empty_store_is_whole(shell) -> None:
    done = shell.run("cache", "verify")
    assert done.exit_code == 0 and done.stdout.startswith("0 artifacts whole, 0 bad in")
    assert not shell.cache_dir.exists()


@pytest.mark.parametrize("number", ["0", "-1", "some"])
def test_a_wrong_number_is_wrong_usage(shell, number: str) -> None:
    assert shell.run("cache", "verify", "--recompile", number).exit_code == 2


def test_a_refused_directory_is_told(shell) -> None:
    put(shell.cache_dir, "f")
    shell.cache_dir.chmod(0o777)
    done: Any = shell.run("cache", "verify")
    assert done.exit_code == 1 and "chmod 700" in done.stderr and done.stdout == ""


@pytest.mark.skipif(not FARM.exists(), reason="the command is not installed beside this Python")
def test_the_installed_command_verifies(tmp_path: Path) -> None:
    put(tmp_path / "cache", "f")
    command = [str(FARM), "cache", "verify", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("1 artifact whole, 0 bad")
