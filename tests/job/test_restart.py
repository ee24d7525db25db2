"""What is said of bodies: whether a call may be given up and done again, what they write to, whether they loop."""

import pytest
from bodies import CASES, Case

from farm.job.restart import Restart, restart_of


def described(found: Restart) -> tuple[object, ...]:
    nested = {position for position, _ in found.if_containers}
    return found.writes - nested, nested, found.loops


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.function.__name__)
def test_what_is_said_of_a_body(case: Case) -> None:
    found = restart_of(case.function)
    assert (found.reason or "").startswith(case.reason or "") and (found.reason is None) == (case.reason is None), found
    assert described(found) == (case.writes, case.nested, case.loops)
