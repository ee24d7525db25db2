"""Attacks on the store, a few rounds each: no wrong value, no exception, nobody killed, nothing left behind.

Those by many processes at once want both processors for themselves: `make attacks` runs all of them.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from attacks import ATTACKS
from children import Outcome, Subject

BY_ONE = ["a callee in another file is edited", "every stored file is cut off", "the writer is killed after an edit"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", BY_ONE)
def test_the_farm_survives(name: str, tmp_path: Path) -> None:
    outcome = ATTACKS[name].run(Subject.FARM, tmp_path, ATTACKS[name].rounds)
    assert outcome.tries and outcome.clean, outcome


def test_an_attack_sees_what_is_wrong(tmp_path: Path) -> None:
    """numba's own cache serves the machine code of a callee that was edited since."""
    outcome = ATTACKS["a callee in another file is edited"].run(Subject.NUMBA, tmp_path, 2)
    assert outcome == Outcome(tries=2, wrong=1)
