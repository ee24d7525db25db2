"""Foreign registrations are found, whichever way they were made; numba's own are not."""

import subprocess
import sys

import pytest

PROGRAM = """
import numba, numpy as np
from numba import njit, types
from numba.extending import *
from farm.port.registry import foreign_registrations

@njit
def warm(x):
    return np.sort(x).sum() + len({{1: 2}})

warm(np.ones(3))
assert foreign_registrations() == (), foreign_registrations()
def stub(x): return None
class Point: pass
class PointType(types.Type):
    def __init__(self): super().__init__("Point")
{registration}
print(foreign_registrations())
"""

WAYS = {
    "overload": "@overload(stub)\ndef mine(x): return lambda x: x",
    "register_jitable": "@register_jitable\ndef mine(x): return x",
    "overload_method": "@overload_method(types.Array, 'twice')\ndef mine(a): return lambda a: a",
    "overload_attribute": "@overload_attribute(types.Array, 'twice')\ndef mine(a): return lambda a: a",
    "type_callable": "@type_callable(stub)\ndef mine(context): return lambda x: x",
    "lower_builtin": "@lower_builtin(stub, types.int64)\ndef mine(context, builder, sig, args): return args[0]",
    "typeof_impl": "@typeof_impl.register(Point)\ndef mine(val, c): return PointType()",
    "unbox": "@unbox(PointType)\ndef mine(typ, obj, c): return None",
    "box": "@box(PointType)\ndef mine(typ, val, c): return None",
    "register_model": "@register_model(PointType)\nclass mine(models.OpaqueModel): pass",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_foreign_registration_is_found(way: str) -> None:
    program = PROGRAM.format(registration=WAYS[way])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "__main__" in done.stdout, done.stdout
