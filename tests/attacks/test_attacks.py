"""Attacks, a few rounds each: nothing wrong, raised, killed, stuck or left behind. `make attacks` runs all of them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from attacks import ATTACKS
from children import Child, Outcome, Subject, together, write_package
from deaths import PLAIN, bad_compile

BY_ONE = [
    "a callee in another file is edited",
    "every stored file is cut off",
    "the writer is killed after an edit",
    "a compile never ends",
]
FOR_LONG = ["minutes of calls, kills and damage, four programs"]


AT_ONCE = ["one function, 8 types, 8 processes at once", "8 closures of one factory, 8 processes at once"]


@pytest.mark.timeout(600)  # a round takes 10 s on two free CPUs
@pytest.mark.parametrize("name", AT_ONCE + BY_ONE + FOR_LONG)
def test_the_farm_survives(name: str, tmp_path: Path) -> None:
    outcome = ATTACKS[name].run(Subject.FARM, tmp_path, ATTACKS[name].rounds)
    assert outcome.tries and outcome.clean, outcome


def test_an_attack_sees_what_is_wrong(tmp_path: Path) -> None:
    """numba's own cache serves the machine code of a callee that was edited since."""
    outcome = ATTACKS["a callee in another file is edited"].run(Subject.NUMBA, tmp_path, 2)
    assert outcome == Outcome(tries=2, wrong=1)


def test_an_attack_sees_what_damage_does(tmp_path: Path) -> None:
    """numba's own cache raises what a file that is cut off makes of it."""
    outcome = ATTACKS["a file is cut at all lengths and flipped at many places, and called"].run(
        Subject.NUMBA, tmp_path, 20
    )
    assert outcome.tries == 20 and outcome.raised >= 5, outcome


def test_an_attack_sees_a_process_that_ends(tmp_path: Path) -> None:
    """numba compiles in the process that calls."""
    outcome = bad_compile(("segfault()", PLAIN)).run(Subject.NUMBA, tmp_path, 1)
    assert outcome == Outcome(tries=10, killed=1)


def test_who_does_not_end_in_time_is_stuck(tmp_path: Path) -> None:
    write_package(tmp_path, Subject.PLAIN, {"user.py": "import signal\n\ndef work(index):\n    signal.pause()\n"})
    child = Child(Subject.PLAIN, tmp_path, tmp_path / "cache", bound_s=0.5)
    assert together([child], [[1]]) == Outcome(tries=1, stuck=1)


LEAVES_A_PROCESS = """
import subprocess, sys

def work(index):
    quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True, **quiet)
    return [1]
"""
RAISES = "def work(index):\n    raise ValueError\n"
DIES = "import os\n\ndef work(index):\n    os.abort()\n"


@pytest.mark.parametrize(
    ("program", "seen"),
    [
        (LEAVES_A_PROCESS, Outcome(tries=1, left=1)),
        (RAISES, Outcome(tries=1, raised=1)),
        (DIES, Outcome(tries=1, killed=1)),
        ("def work(index):\n    return [2]\n", Outcome(tries=1, wrong=1)),
        ("def work(index):\n    return ['stuck']\n", Outcome(tries=1, stuck=1)),
        ("def work(index):\n    return ['killed']\n", Outcome(tries=1, killed=1)),
    ],
    ids=["left behind", "raised", "killed", "wrong", "a try is stuck", "a try is killed"],
)
def test_what_a_process_does_is_counted(tmp_path: Path, program: str, seen: Outcome) -> None:
    write_package(tmp_path, Subject.PLAIN, {"user.py": program})
    assert together([Child(Subject.PLAIN, tmp_path, tmp_path / "cache")], [[1]]) == seen
