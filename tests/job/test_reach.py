"""Edits that must change a description, edits that must not, and what is refused."""

import ctypes
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy
import pytest
from numba import float64, int64, njit
from numba import types as numba_types
from numba.experimental import jitclass

from farm.errors import NotShippable
from farm.job.reach import _Walk, describe_values, reach
from farm.reasons import RefusalReason

HEAD = "from numba import njit\nimport numpy as np\nimport math\n"


def function_of(source: str, file: str = "m.py", module: str = "m", **more: object) -> Any:
    space: dict[str, Any] = {"__name__": module, **more}
    exec(compile(HEAD + source, file, "exec"), space)
    return space["f"]


def description(source: str, **more: Any) -> bytes:
    return reach(function_of(source, **more)).description


def config_module(**values: object) -> types.ModuleType:
    module = types.ModuleType("cfg")
    vars(module).update(values)
    return module


BASE = "K = 2.0\ndef h(x):\n    return x * K\n@njit\ndef f(x, y=1):\n    return h(x) + y\n"
CHANGES = {
    "global": ("K = 2.0", "K = 3.0"),
    "type of a global": ("K = 2.0", "K = 2"),
    "helper": ("x * K", "x - K"),
    "default": ("y=1", "y=2"),
    "type of a default": ("y=1", "y=True"),
    "option": ("@njit", "@njit(fastmath=True)"),
    "operator": ("+ y", "- y"),
    "jitted helper": ("def h", "@njit\ndef h"),
    "argument name": ("def h(x):\n    return x", "def h(z):\n    return z"),
    "missing global": ("* K", "* L"),
    "locals": ("@njit", "from numba import float32\n@njit(locals={'q': float32})"),
}


@pytest.mark.parametrize("edit", CHANGES)
def test_an_edit_that_counts_changes_the_description(edit: str) -> None:
    old, new = CHANGES[edit]
    assert old in BASE
    assert description(BASE) != description(BASE.replace(old, new))


NO_CHANGES = {
    "blank lines": ("def f", "\n\n\ndef f"),
    "comment": ("    return h", "    # said\n    return h"),
    "unused global": ("K = 2.0", "J = 5\nK = 2.0"),
    "annotation": ("def h(x)", "def h(x: float)"),
}


@pytest.mark.parametrize("edit", NO_CHANGES)
def test_an_edit_that_does_not_count_keeps_the_description(edit: str) -> None:
    old, new = NO_CHANGES[edit]
    source = BASE.replace("@njit\ndef f", "def f")
    assert old in source
    assert description(source) == description(source.replace(old, new))


def test_another_file_and_another_module_keep_the_description() -> None:
    assert description(BASE) == description(BASE, file="/else/where.py", module="other")


def test_docstrings_do_not_count() -> None:
    one, two = (description(f"def f(x):\n    {text!r}\n    return x + 1\n") for text in ("one", "two"))
    assert one == two == description("def f(x):\n    return x + 1\n")
    nothing = (
        "def f(x):\n    {}\n    x[0] = 1\n    y = None\n    x[1] = 258\n"  # a docstring moves the constants' numbers
    )
    assert description(nothing.format("'one'")) == description(nothing.format(""))
    assert description(nothing.format("")) != description(nothing.format("").replace("258", "259"))
    assert description("f = lambda: 'one'\n") != description("f = lambda: 'two'\n")


@pytest.mark.parametrize(("a", "b"), [("0.0", "-0.0"), ("True", "1"), ("1", "1.0"), ("(1, 2)", "(1, 2.0)")])
def test_globals_and_constants_are_told_apart_by_type_and_sign(a: str, b: str) -> None:
    assert description(f"K = {a}\ndef f(): return K\n") != description(f"K = {b}\ndef f(): return K\n")
    assert description(f"def f(): return {a}\n") != description(f"def f(): return {b}\n")


READS = [
    "def f(): return cfg.GAIN\n",
    "def f():\n    m = cfg\n    return m.GAIN\n",
    "def f(): return getattr(cfg, 'GAIN')\n",
]
READS += ["N = 'GAIN'\ndef f(): return getattr(cfg, N)\n", "def h(m): return m.GAIN\ndef f(): return h(cfg)\n"]


@pytest.mark.parametrize("source", READS)
def test_attributes_of_modules_count_however_they_are_read(source: str) -> None:
    found = [reach(function_of(source, cfg=config_module(GAIN=gain, OTHER=gain))) for gain in (1, 2)]
    assert found[0].description != found[1].description
    assert found[0].modules == {"cfg": {"GAIN": 1}}


def test_attributes_that_no_name_mentions_do_not_count() -> None:
    assert description(READS[0], cfg=config_module(GAIN=1, X=1)) == description(
        READS[0], cfg=config_module(GAIN=1, X=2)
    )


def test_names_are_followed_to_a_fixed_point() -> None:
    def with_deep(value: int) -> bytes:
        helper = function_of("def f(m): return m.DEEP\n")
        return description("def f(): return cfg.helper(cfg)\n", cfg=config_module(helper=helper, DEEP=value))

    assert with_deep(1) != with_deep(2)


def test_variables_of_installed_modules_count(monkeypatch: pytest.MonkeyPatch) -> None:
    before = description("def f(): return math.pi\n")
    monkeypatch.setattr("math.pi", 3)
    assert description("def f(): return math.pi\n") != before


def test_closures_of_one_factory_differ() -> None:
    def make(k: float) -> Any:
        return njit(lambda x: x * k)

    assert reach(make(1)).description == reach(make(1)).description != reach(make(2)).description


def test_mutual_recursion_ends_and_counts() -> None:
    source = "@njit\ndef f(n): return n if n < 1 else g(n - 1)\n@njit\ndef g(n): return f(n - {})\n"
    assert description(source.format(1)) == description(source.format(1)) != description(source.format(2))


def test_same_description_under_every_hash_seed(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(
        HEAD + "S = {'a', 'b', 'c'}\n@njit(fastmath={'nnan', 'nsz'})\n"
        "def f(x):\n    return x in ('p', 'q') or x in {'a', 'b', 'c', 'd'} or S\n"
    )
    code = "import hashlib, user; from farm.job.reach import reach; "
    code += "print(hashlib.sha256(reach(user.f).description).hexdigest())"
    texts = set()
    for seed in ("1", "2", "3"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        texts.add(done.stdout)
    assert len(texts) == 1


@jitclass([("x", int64)])  # type: ignore[untyped-decorator, unused-ignore]
class Box:
    def __init__(self) -> None:
        self.x = 1


class Local:
    pass


REFUSED = [
    (numpy.zeros(10**6), RefusalReason.ARRAY_TOO_LARGE),
    (numpy.zeros((9, 9))[::2, ::2], RefusalReason.DYNAMIC_GLOBALS),
    (ctypes.c_int(3), RefusalReason.UNKEYABLE),
    (ctypes.CDLL(None).abs, RefusalReason.UNKEYABLE),
    (Local(), RefusalReason.UNKEYABLE),
    (Box(), RefusalReason.UNKEYABLE),
    (type("Inner", (), {"__qualname__": "g.<locals>.Inner"}), RefusalReason.CLASS_NOT_BY_NAME),
]


@pytest.mark.parametrize(("value", "reason"), REFUSED)
def test_what_has_no_stable_content_is_refused_by_name(value: object, reason: RefusalReason) -> None:
    with pytest.raises(NotShippable) as caught:
        reach(function_of("def f(): return K\n", K=value))
    assert caught.value.reason is reason
    assert "m.K" in caught.value.detail


def test_jitclasses_are_described_by_content() -> None:
    assert reach(function_of("def f(): return K()\n", K=Box)).description


def test_signature_types_are_described_by_structure() -> None:
    arrays = [numba_types.Array(numba_types.float64, 1, layout) for layout in "CFA"]
    others = [numba_types.literal(1), numba_types.Omitted(1), numba_types.Omitted(1.0), numba_types.int64]
    function = function_of("@njit\ndef f(x): return x\n"), function_of("@njit\ndef f(x): return -x\n")
    others += [numba_types.Dispatcher(one) for one in function]
    found = [describe_values((one,)) for one in [*arrays, *others]]
    assert len(set(found)) == len(found)


# -- how often it walks --------------------------------------------------------------------------------------


def walks_of(monkeypatch: pytest.MonkeyPatch, function: Any, *, until_nothing_new: bool = False) -> tuple[int, Any]:
    """How often a function is walked, and what came out."""
    walked: list[object] = []
    part = _Walk.part
    monkeypatch.setattr(_Walk, "part", lambda self, value, path: walked.append(path) or part(self, value, path))
    if until_nothing_new:
        monkeypatch.setattr(_Walk, "would_see_more", lambda self: not self.found <= self.names)
    found = reach(function, ((float64[::1], float64), None))
    monkeypatch.undo()
    return walked.count("signature"), found


PLAIN = "@njit\ndef f(x, w):\n    return np.sort(x)[0] * math.sqrt(w)\n"
BY_NAME = "@njit(nogil=True)\ndef f(x, w):\n    return other.{name} + np.sum(x)\n"


def test_a_function_is_walked_once_if_the_names_of_its_types_and_options_lead_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walks, found = walks_of(monkeypatch, function_of(PLAIN))
    more_walks, more_found = walks_of(monkeypatch, function_of(PLAIN), until_nothing_new=True)
    assert (walks, more_walks) == (1, 2)
    assert found.description == more_found.description and found.values == more_found.values


@pytest.mark.parametrize("name", ["nogil", "float64"])
def test_a_name_that_only_an_option_or_a_type_holds_counts_in_a_module_of_the_user(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = []
    for value in (lambda x: x + 1, lambda x: x + 2):
        function = function_of(BY_NAME.format(name="kept"), other=config_module(kept=1.5, **{name: value}))
        walks, found = walks_of(monkeypatch, function)
        again = function_of(BY_NAME.format(name="kept"), other=config_module(kept=1.5, **{name: value}))
        assert walks == 2 and found == walks_of(monkeypatch, again, until_nothing_new=True)[1]
        described.append(found.description)
    assert described[0] != described[1]


def test_a_variable_of_an_installed_module_counts_under_a_name_that_only_a_type_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    described = []
    for value in (1, 2):
        monkeypatch.setattr(numpy, "nogil", value, raising=False)
        described.append(reach(function_of(BY_NAME.format(name="pi"), other=numpy)).description)
        monkeypatch.undo()
    assert described[0] != described[1]
