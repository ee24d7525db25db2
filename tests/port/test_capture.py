"""What is captured comes back in a fresh interpreter: same description, same compiled result."""

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from numba import njit

from farm.errors import NotShippable
from farm.port import describe
from farm.port.capture import dump, restore
from farm.reasons import RefusalReason

HEAD = "import math\nimport enum\nimport numpy as np\nfrom numba import njit, vectorize, stencil, cfunc, types\n"
SEND = """
import sys
from farm.job.reach import reach
from farm.port.capture import dump
from user import f
found = reach(f)
open(sys.argv[1], "wb").write(dump(f, found.modules, found.imports))
from numba import njit
print(found.description.hex(), repr(f(3.0)))
"""
RECEIVE = """
import sys
from farm.job.reach import reach
from farm.port.capture import restore
f = restore(open(sys.argv[1], "rb").read())
assert sys.argv[2] == "imports" or not hasattr(sys.modules.get("user"), "f")
assert not f.overloads
text = reach(f).description.hex()
print(text, repr(f(3.0)))
"""
CASES = {
    "plain": "@njit\ndef f(x): return x + 1\n",
    "helpers": "K = 2\n@njit\ndef h(x): return x * K\n@njit\ndef f(x, y=3): return h(x) + math.pi + y\n",
    "cached": "@njit(cache=True)\ndef f(x): return x + 1\n",
    "self recursion with a default": "@njit\ndef f(x, n=3): return x if n < 1 else f(x * 2, n - 1)\n",
    "mutual recursion": "@njit('f8(f8, i8)')\ndef g(x, n): return x if n < 1 else g(x + n, n - 1)\n"
    "@njit\ndef f(x): return g(x, 4)\n",
    "closure": "def make(k):\n    @njit\n    def inner(x): return x * k\n    return inner\nf = make(7)\n",
    "closure over a dispatcher": "def make(g):\n    @njit\n    def inner(x): return g(x) + g(2)\n    return inner\n"
    "f = make(njit(lambda x: x * 3))\n",
    "module": "import cfg\n@njit\ndef f(x): return x * cfg.GAIN + cfg.helper(x)\n",
    "alias of a module": "import cfg\n@njit\ndef f(x):\n    m = cfg\n    return x * m.GAIN + m.helper(x)\n",
    "getattr of a module": "import cfg\n@njit\ndef f(x): return x * getattr(cfg, 'GAIN')\n",
    "read only array": "A = np.arange(4.0)\nA.flags.writeable = False\n@njit\ndef f(x): return A[2] * x\n",
    "fortran array": "A = np.asfortranarray(np.arange(6.0).reshape(2, 3))\n@njit\ndef f(x): return A[1, 2] * x\n",
    "frozenset": "@njit(fastmath={'nnan', 'nsz'})\ndef f(x): return x if x in (1, 2, 3) else -0.0\n",
    "random": "from numpy.random import seed\n@njit\ndef f(x):\n    seed(3)\n    return np.random.rand() * x\n",
    "numba type": "@njit\ndef f(x): return types.float32(x)\n",
    "installed dispatcher": "from numba_celltree.utils import allocate_stack\n"
    "@njit\ndef f(x): return len(allocate_stack()) + x\n",
    "intrinsic": "from numba.extending import intrinsic\n@intrinsic\ndef twice(context, x):\n"
    "    def build(context, builder, signature, args): return builder.fadd(args[0], args[0])\n"
    "    return x(x), build\n@njit\ndef f(x): return twice(x)\n",
    "enum": "class E(enum.Enum):\n    A = 1\n    B = 2\n@njit\ndef f(x): return x + E.B.value\n",
    "exception": "class Bad(ValueError): pass\n@njit\ndef f(x):\n    if x < 0: raise Bad('no')\n    return x\n",
    "tuple of dispatchers": "FS = (njit(lambda x: x + 1), njit(lambda x: x * 2))\n"
    "@njit\ndef f(x): return FS[0](x) + FS[1](x)\n",
}
IMPORTING = {
    "stencil": "@stencil\ndef s(a): return a[-1] + a[1]\n@njit\ndef f(x): return s(np.ones(5) * x)[2]\n",
    "jitclass": "from numba.experimental import jitclass\n@jitclass([('v', types.float64)])\nclass B:\n"
    "    def __init__(self, v): self.v = v\n    def twice(self): return self.v * 2\n"
    "@njit\ndef f(x): return B(x).twice()\n",
}


def run(code: str, *arguments: object, path: Path, seed: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(path), "PYTHONHASHSEED": seed, "NUMBA_CACHE_DIR": str(path / "cache")}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def round_trip(source: str, tmp_path: Path, *, importable: bool) -> None:
    (tmp_path / "user.py").write_text(HEAD + source)
    (tmp_path / "cfg.py").write_text(
        "from numba import njit\nGAIN = 2.5\nOTHER = 1\n@njit\ndef helper(x): return x + GAIN\n"
    )
    sent = run(SEND, tmp_path / "bytes", path=tmp_path, seed="1")
    away = tmp_path if importable else tmp_path / "nothing"
    got = run(RECEIVE, tmp_path / "bytes", "imports" if importable else "alone", path=away, seed="2")
    assert sent.split()[1] == got.split()[1]
    assert sent == got


@pytest.mark.parametrize("name", CASES)
def test_a_fresh_interpreter_rebuilds_the_function_without_its_module(name: str, tmp_path: Path) -> None:
    round_trip(CASES[name], tmp_path, importable=False)


@pytest.mark.parametrize("name", IMPORTING)
def test_objects_that_exist_by_name_are_imported(name: str, tmp_path: Path) -> None:
    round_trip(IMPORTING[name], tmp_path, importable=True)


def function_with(value: object) -> Any:
    space: dict[str, Any] = {"__name__": "m", "K": value}
    exec("def f(): return K\n", space)
    return space["f"]


def test_local_classes_are_refused() -> None:
    class Local:
        pass

    with pytest.raises(NotShippable) as caught:
        dump(function_with(Local))
    assert caught.value.reason is RefusalReason.CLASS_NOT_BY_NAME
    assert "Local" in caught.value.detail


@pytest.mark.parametrize("value", [(i for i in "ab"), types.ModuleType("unwalked")])
def test_what_does_not_pickle_is_refused(value: object) -> None:
    with pytest.raises(NotShippable) as caught:
        dump(function_with(value))
    assert caught.value.reason is RefusalReason.NOT_PICKLABLE


def test_unreadable_bytes_are_a_failed_restore() -> None:
    with pytest.raises(NotShippable) as caught:
        restore(b"nothing")
    assert caught.value.reason is RefusalReason.RESTORE_FAILED


def test_only_named_globals_travel() -> None:
    space: dict[str, Any] = {"__name__": "m", "USED": 1, "UNUSED": b"x" * 100_000}
    exec("def f(): return USED\n", space)
    data = dump(njit(space["f"]))
    assert len(data) < 10_000
    assert restore(data)() == 1


def test_the_file_and_the_lines_of_a_function_travel() -> None:
    space: dict[str, Any] = {"__name__": "m"}
    exec(compile("\n\ndef f():\n    return [i for i in (lambda: 3)()]\n", "somewhere/user.py", "exec"), space)
    code, sent = restore(dump(space["f"])).__code__, space["f"].__code__
    for one, other in zip(describe.nested_code(code), describe.nested_code(sent), strict=True):
        assert (one.co_filename, list(one.co_lines())) == ("somewhere/user.py", list(other.co_lines()))
