"""Which bodies are not run as Python: each claim is checked against what Python really does with the body."""

import subprocess
import sys
import textwrap

PROGRAM = """
import ctypes
import numpy as np
import numba as nb
from numba import float64, int64, njit, objmode, prange, types, literally, literal_unroll, carray
from numba import cfunc, stencil, vectorize
from numba.experimental import jitclass
from numba.extending import intrinsic, overload, overload_attribute, overload_method, register_jitable
from numba.typed import Dict, List
from farm.job.differs import differs_in_python

def stub(a): return None
@overload(stub)
def _(a): return lambda a: a + 1
@intrinsic
def same(context, a): return a(a), lambda c, b, s, args: args[0]
@overload_method(types.Integer, "twice")
def _(a): return lambda a: 2 * a
@overload_attribute(types.Integer, "real")
def _(a): return lambda a: a
@register_jitable
def helper(a): return a + 1
@register_jitable
def deep(a): return stub(a)
@njit
def dispatcher(a): return stub(a)
@cfunc("float64(float64)")
def callback(a): return a
@stencil
def kernel(a): return a[0] + a[1]
@vectorize
def ufunc(a): return a + 1
@jitclass([("x", types.int64)])
class Box:
    def __init__(self): self.x = 1
external = types.ExternalFunction("labs", types.int64(types.int64))
namespace = type(nb)("namespace")
namespace.stub, namespace.same, namespace.kind = stub, same, float64
STUBS = (helper, stub)

def differs_1(a): return stub(a) + 0
def differs_2(a): return same(a)
def differs_3(a): return external(a)
def differs_4(a): return np.zeros(a, dtype=float64)
def differs_5(a): return np.zeros(a, dtype=nb.float64)
def differs_6(a): return np.zeros(a, dtype=nb.types.float64)
def differs_7(a): return namespace.stub(a) + 0
def differs_8(a): return namespace.same(a)
def differs_9(a): return np.zeros(a, namespace.kind)
def differs_10(a): return deep(a) + 0
def differs_11(a):
    def inner(): return stub(a) + 0
    return inner()
def differs_12(a): return STUBS[1](a) + 0
def differs_13(a): return a.twice()
def make_differs(kind):
    def differs_14(a): return np.zeros(a, kind)
    return differs_14
differs_14 = make_differs(float64)

def same_1(a):
    n = 0
    for i in prange(a): n += i
    return n
def same_2(a): return literally(a)
def same_3(a):
    for one in literal_unroll((1, 2.0)): a += one
    return a
def same_4(a):
    with objmode(b="int64"): b = a
    return b
def same_5(a):
    d = Dict.empty(types.int64, types.float64)
    d[a] = 1.0
    return d[a]
def same_6(a): return List([a])[0]
def same_7(a): return helper(a)
def same_8(a): return dispatcher(a)
def same_9(a): return callback(a) + kernel(np.arange(3.0)).sum() + ufunc(a)
def same_10(a): return Box().x
def same_11(a): return nb.int32(a) + float64(a) + types.int64(a)
def same_12(a): return np.zeros(a, dtype=np.float64)
def same_13(a): return carray(np.ones(3).ctypes.data_as(ctypes.POINTER(ctypes.c_double)), (3,)).sum()
def same_14(a): return np.float64(nb.prange(a)[0] if False else a)
def same_15(a): return a.real

def same_16(a):
    d = nb.typed.Dict.empty(key_type=types.int64, value_type=types.float64[:])
    d[a] = np.zeros(len(d) + a)
    return List.empty_list(int64)
def differs_15(a):
    d = Dict.empty(types.int64, types.float64)
    x = np.zeros(a)
    return x.astype(float64), d

UNKEYABLE = ctypes.c_int(3)
def unkeyable_differs(a): return UNKEYABLE.value + stub(a)

for name, function in list(globals().items()):
    if name.startswith(("differs_", "same_")) and name != "differs_in_python":
        found = differs_in_python(function)
        assert found == differs_in_python(njit(function)), name
        try:
            function(2)
            runs = True
        except Exception as error:
            runs = False
        print(name, runs, found, sep="|")
assert differs_in_python(unkeyable_differs)
class Angry:
    def __getattribute__(self, name): raise SystemExit
    def __hash__(self): raise ValueError
    def __eq__(self, other): raise ValueError
ANGRY = Angry()
def asks(a): return ANGRY.x
for odd in (3, None, len, asks, Angry()):
    assert differs_in_python(odd) is None
"""

NAMED = {
    "differs_1": "__main__.stub has an @overload",
    "differs_2": "same is an intrinsic",
    "differs_3": "external is an ExternalFunction",
    "differs_5": "nb.float64 is a numba type",
}


def test_a_body_is_said_to_differ_exactly_if_python_does_not_run_it() -> None:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    rows = [line.split("|") for line in done.stdout.splitlines()]
    assert sum(name.startswith("differs") for name, *_ in rows) == 15
    assert sum(name.startswith("same") for name, *_ in rows) == 16
    for name, runs, found in rows:
        assert (found == "None") == (runs == "True") == name.startswith("same"), (name, runs, found)
    found_for = {name: found for name, _, found in rows}
    assert {name: found_for[name] for name in NAMED} == NAMED
