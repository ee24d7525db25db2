"""Foreign registrations are found, whichever way they were made; numba's own are not."""

import json
import subprocess
import sys

import pytest
from once import once

# A registration cannot be taken back, so each is made in a fork, of a process that has compiled much of numba's own.
PROGRAM = """
import json, os, sys
import numba, numpy as np
from numba import njit, types
from numba.extending import *
from farm.port.registry import registrations

@njit
def warm(x):
    return np.sort(x).sum() + len({1: 2})

warm(np.ones(3))
assert registrations() == (), registrations()
def stub(x): return None
class Point: pass
class PointType(types.Type):
    def __init__(self): super().__init__("Point")

for number, registration in enumerate(json.loads(sys.argv[1])):
    if not os.fork():
        exec(registration)
        for one in registrations():
            print(number, one.kind.value, one.how, one.name, one.home, [s.__name__ for s in one.subjects])
        sys.stdout.flush()
        os._exit(0)
    assert os.wait()[1] == 0, registration
"""

WAYS = {
    "overload": "@overload(stub)\ndef mine(x): return lambda x: x",
    "overload of numpy": "@overload(np.sort)\ndef mine(x): return lambda x: x",
    "register_jitable": "@register_jitable\ndef mine(x): return x",
    "overload_method": "@overload_method(types.Array, 'twice')\ndef mine(a): return lambda a: a",
    "overload_attribute": "@overload_attribute(types.Array, 'twice')\ndef mine(a): return lambda a: a",
    "make_attribute_wrapper": "make_attribute_wrapper(PointType, 'x', 'x')",
    "registry of numba": "from numba.np.npyimpl import registry\n@registry.lower(stub)\ndef mine(*a): return None",
    "rewrite": "from numba.core.rewrites import *\n@register_rewrite('before-inference')\nclass mine(Rewrite): pass",
    "as_numba_type": "as_numba_type.register(Point, types.int64)",
    "replaced model": "@register_model(types.Array)\nclass mine(models.OpaqueModel): pass",
    "type_callable": "@type_callable(stub)\ndef mine(context): return lambda x: x",
    "lower_builtin": "@lower_builtin(stub, types.int64)\ndef mine(context, builder, sig, args): return args[0]",
    "typeof_impl": "@typeof_impl.register(Point)\ndef mine(val, c): return PointType()",
    "unbox": "@unbox(PointType)\ndef mine(typ, obj, c): return None",
    "box": "@box(PointType)\ndef mine(typ, val, c): return None",
    "register_model": "@register_model(PointType)\nclass mine(models.OpaqueModel): pass",
}


FOR_ANY_FUNCTION = {"overload of numpy", "overload_method", "overload_attribute", "rewrite", "replaced model"}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return once(tmp_path_factory, "found", lambda _: dict(zip(WAYS, found_by(*WAYS.values()), strict=True)))


@pytest.mark.parametrize("way", WAYS)
def test_a_foreign_registration_is_found(found: dict[str, list[str]], way: str) -> None:
    lines = [line for line in found[way] if "__main__" in line]
    assert lines
    assert any(line.endswith("[]") for line in lines) == (way in FOR_ANY_FUNCTION)


def test_what_numba_derives_from_a_registration_is_none_of_its_own() -> None:
    """Contexts and the typing of intrinsics register more, when they come to it: keys must not depend on when."""
    before = """
@overload_method(types.Array, 'twice')
def mine(a): return lambda a: a
@overload_attribute(types.Array, 'half')
def ours(a): return lambda a: a
@intrinsic
def same(context, a): return a(a), lambda c, b, s, args: args[0]
"""
    after = "\nassert njit(lambda a: same(a.twice().half.sum()))(np.ones(3)) == 3\n"
    first, second = found_by(before, before + after)
    assert first == second != []


def found_by(*programs: str) -> list[list[str]]:
    """What is registered after each of them, alone."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(programs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
    return [[text for number, text in lines if int(number) == at] for at in range(len(programs))]
