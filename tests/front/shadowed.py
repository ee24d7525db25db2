"""What the tests of shadows share."""

from typing import Any, NamedTuple

import numpy as np

from farm.front.shadow import Plan, Shadows, plan_shadows

PADDED = np.dtype([("flag", "u1"), ("value", "f8")], align=True)


class Pair(NamedTuple):
    left: Any
    right: Any


def plan_of(*arguments: Any, writes: set[int]) -> Plan:
    plan = plan_shadows(arguments, frozenset(writes))
    assert isinstance(plan, Plan), plan
    return plan


def shadows_of(*arguments: Any, writes: set[int]) -> Shadows:
    return plan_of(*arguments, writes=writes).copy()


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
