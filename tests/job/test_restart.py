"""What is said of bodies: whether a call may be given up and done again, what they write to, whether they loop."""

from pathlib import Path

import aliases
import numpy as np
import pytest
from bodies import CASES, Case
from hypothesis import HealthCheck, given, settings

from farm.job.restart import Restart, restart_of

TOOLS = Path(__file__).parent.parent.parent / "tools"


def described(found: Restart) -> tuple[object, ...]:
    nested = {position for position, _ in found.if_containers}
    return found.writes - nested, nested, found.loops


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.function.__name__)
def test_what_is_said_of_a_body(case: Case) -> None:
    found = restart_of(case.function)
    assert (found.reason or "").startswith(case.reason or "") and (found.reason is None) == (case.reason is None), found
    assert described(found) == (case.writes, case.nested, case.loops)


@given(source=aliases.sources())
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_a_body_changes_was_said_to_be_written(source: str) -> None:
    scope = dict(vars(aliases))
    exec(compile(source, "<drawn>", "exec"), scope)
    found = restart_of(scope["f"])
    values = aliases.arguments()
    before, table = [aliases.content(one) for one in values], aliases.TABLE.copy()
    try:
        scope["f"](*values)
    except Exception:
        pass
    finally:
        unchanged = np.array_equal(aliases.TABLE, table)
        aliases.TABLE[...] = table
    changed = {place for place, one in enumerate(values) if aliases.content(one) != before[place]}
    assert changed <= found.writes_to(values) <= found.writes
    assert unchanged or found.reason is not None
