"""Every attack on the store, a few rounds each: no wrong value, no exception, nobody killed, nothing left behind."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from attacks import ATTACKS, FARM_ALONE
from children import Outcome, Subject

QUICK = {name: attack for name, attack in {**ATTACKS, **FARM_ALONE}.items() if attack.rounds}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", QUICK)
def test_the_farm_survives(name: str, tmp_path: Path) -> None:
    if "tmpfs" in name and not os.path.isdir("/dev/shm"):
        pytest.skip("there is no /dev/shm here")
    outcome = QUICK[name].run(Subject.FARM, tmp_path, QUICK[name].rounds)
    assert outcome.tries and outcome.clean, outcome


def test_an_attack_sees_what_is_wrong(tmp_path: Path) -> None:
    """numba's own cache serves the machine code of a callee that was edited since."""
    outcome = ATTACKS["a callee in another file is edited"].run(Subject.NUMBA, tmp_path, 2)
    assert outcome == Outcome(tries=2, wrong=1)
