"""Source that changes while a program runs: on disk, by a reload, by an assignment. Every call is right.

A worker may import a module of the user. What it finds on the disk may then be newer than what the front has in memory.
"""

from pathlib import Path

import pytest
from test_extensions import IMPORTS, run

KINDS = {
    "a callee": ("@njit\ndef gain(x): return x * {k}", "module.gain(x)"),
    "a farm's callee": ("@farm.njit\ndef gain(x): return x * {k}", "module.gain(x)"),
    "a constant": ("K = {k}", "x * module.K"),
    "an array": ("K = np.full(3, {k})", "x * module.K[1]"),
    "a default argument": ("@njit\ndef gain(x, k={k}): return x * k", "module.gain(x)"),
    "an enum": ("import enum\nclass Gain(enum.IntEnum):\n    HIGH = {k}", "x * module.Gain.HIGH"),
    "a named tuple": (
        "import collections\nGain = collections.namedtuple('Gain', 'k')\ngain = Gain({k})",
        "x * module.gain.k",
    ),
    "a static method": (
        "class Gain:\n    @staticmethod\n    @njit\n    def get(x): return x * {k}\nget = Gain.get",
        "module.get(x)",
    ),
    "a stencil": ("@numba.stencil\ndef kernel(a): return a[0] * {k}", "module.kernel(np.full(3, x))[1]"),
    "a jitclass": (
        "from numba.experimental import jitclass\n@jitclass([('v', types.int64)])\nclass Box:\n"
        "    def __init__(self, v): self.v = v * {k}\n    def get(self): return self.v",
        "module.Box(x).get()",
    ),
    "an overload": ("def stub(x): pass\n@overload(stub)\ndef _stub(x): return lambda x: x * {k}", "module.stub(x)"),
    "a register_jitable": ("@register_jitable\ndef gain(x): return x * {k}", "module.gain(x)"),
    "an intrinsic": (
        "@intrinsic\ndef gain(typing, x):\n    def code(context, builder, signature, arguments):\n"
        "        return builder.mul(arguments[0], context.get_constant(types.int64, {k}))\n"
        "    return types.int64(types.int64), code",
        "module.gain(x)",
    ),
}
"""A module with a constant in it, and what a function reads of it."""

SCRIPT = """
import importlib, module, pathlib
from farm.reasons import RefusalReason
strict = farm.njit(mode="strict")
def make():
    def f(x): return {read}
    return f
before = strict(make())
{before}
pathlib.Path(module.__file__).write_text({newer!r})
# The front's memory has the older one, also where a worker finds the newer one.
assert before(2) == 2, before(2)
assert before(np.int32(2)) == 2
importlib.reload(module)
before.recompile()
assert before(2) == 2000, before(2)
assert strict(make())(2) == 2000
s = farm.stats()
assert s.failed == 0, s
if {by_name}: assert s.rejected >= 1 and s.local >= 1, s
"""
BY_NAME = ("a stencil", "a jitclass")
"""Such things exist by name only: a worker imports the module, refuses what it finds, and the front compiles."""


def script(kind: str, before: str = "") -> tuple[str, str]:
    """The script for a kind, and the module that it begins with."""
    module, read = KINDS[kind]
    newer = IMPORTS + module.format(k=1000)
    return SCRIPT.format(read=read, newer=newer, before=before, by_name=kind in BY_NAME and not before), module.format(
        k=1
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_module_that_is_edited_and_reloaded_gives_what_the_front_has(tmp_path: Path, kind: str) -> None:
    text, module = script(kind)
    run(tmp_path, text, module=module)


@pytest.mark.parametrize("kind", ["a jitclass", "an overload"])
def test_so_it_does_where_a_worker_has_imported_the_older_one(tmp_path: Path, kind: str) -> None:
    text, module = script(kind, before="assert before(2.0) == 2.0")
    run(tmp_path, text, module=module)


@pytest.mark.parametrize("kind", ["a callee", "an overload"])
def test_the_next_run_takes_the_newer_one(tmp_path: Path, kind: str) -> None:
    text, module = script(kind)
    run(tmp_path, text, module=module)
    text = f"import module\n@farm.njit(mode='strict')\ndef f(x): return {KINDS[kind][1]}\nassert f(2) == 2000\n"
    run(tmp_path, text)


PATCHED = """
import module
@{decorator}
def f(x): return module.gain(x)
seen = [f(2)]
module.gain = module.other
seen += [f(2), f(2.0)]
f.recompile()
seen += [f(2)]
print(seen)
"""


def test_a_function_that_is_exchanged_counts_as_with_numba(tmp_path: Path) -> None:
    """Machine code keeps what it was compiled with; a new signature, and `recompile`, take what is there now."""
    module = "@njit\ndef gain(x): return x * 10\n@njit\ndef other(x): return x * 1000\n"
    gave = [
        run(tmp_path, PATCHED.format(decorator=decorator), module=module).stdout
        for decorator in ("numba.njit", "farm.njit(mode='strict')")
    ]
    assert gave == ["[20, 20, 2000.0, 2000]\n"] * 2


WHILE_COMPILING = """
import threading, time
GAIN = 10
@farm.njit
def f(x): return x * GAIN
f(2)
GAIN = 1000
assert f(2) in (20, 2000)        # machine code of before, or the Python body of now
f.recompile()                    # overtakes what is on its way
assert f.wait(60)
f(2)
assert f.wait(60) and f.overloads
assert f(2) == 2000, f(2)
"""


def test_a_global_that_changes_during_the_compile_counts_from_recompile_on(tmp_path: Path) -> None:
    run(tmp_path, WHILE_COMPILING)
