"""numba extensions registered outside numba, end to end: what ships, what stays, and that the code is right.

Every test is a script of its own: a registration cannot be taken back.
"""

import os
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

IMPORTS = """
import farm, numba, numpy as np
from numba import njit, types
from numba.extending import *
"""


def run(folder: Path, script: str, **modules: str) -> "subprocess.CompletedProcess[str]":
    """Run a script beside modules of the user; fails with what it printed."""
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(IMPORTS + textwrap.dedent(text))
    (folder / "script.py").write_text(IMPORTS + textwrap.dedent(script))
    environment = {**os.environ, "FARM_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, str(folder / "script.py")],
        capture_output=True,
        text=True,
        timeout=110,
        env=environment,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return done


SHIPPED = """
s = farm.stats()
assert (s.compiled, s.local, s.rejected, s.failed) == ({compiled}, 0, 0, 0), s
"""

STUB = """
def stub(a): return None
@overload(stub)
def _stub(a): return lambda a: a + 1
"""

IN_MAIN = {
    "overload": (STUB, "stub(a)", 2),
    "overload of numpy": (
        "@overload(np.busday_count)\ndef o(a, b): return lambda a, b: a + b",
        "np.busday_count(a, 1)",
        2,
    ),
    "overload_method": ("@overload_method(types.Integer, 'up')\ndef o(a): return lambda a: a + 1", "a.up()", 2),
    "overload_attribute": ("@overload_attribute(types.Integer, 'up')\ndef o(a): return lambda a: a + 1", "a.up", 2),
    "register_jitable": ("K = 1\n@register_jitable\ndef helper(a): return a + K", "helper(a)", 2),
    "intrinsic": (
        "@intrinsic\ndef helper(context, a):\n    return a(a), lambda c, b, s, args: b.add(args[0], args[0])",
        "helper(a)",
        2,
    ),
    "intrinsic with options": (
        "@intrinsic(prefer_literal=True)\ndef helper(context, a):\n"
        "    n = 10 * isinstance(a, types.Literal)\n"
        "    return types.int64(a), lambda c, b, s, args: c.get_constant(types.int64, n)",
        "a + helper(3)",
        11,
    ),
    "inlined overload": (STUB.replace("@overload(stub)", "@overload(stub, inline='always')"), "stub(a)", 2),
    "external function": (
        "labs = types.ExternalFunction('labs', types.int64(types.int64))",
        "labs(-a) + 1",
        2,
    ),
}


@pytest.mark.parametrize("way", IN_MAIN)
def test_a_simple_registration_of_main_ships_by_value(way: str, tmp_path: Path) -> None:
    registration, expression, result = IN_MAIN[way]
    program = f"{registration}\n@farm.njit(mode='strict')\ndef f(a): return {expression}\n"
    run(tmp_path, f"{program}assert f(1) == {result}, f(1)\n{SHIPPED.format(compiled=1)}")


POINT = """
from numba.core import cgutils
class Point:
    def __init__(self, x): self.x = x
class PointType(types.Type):
    def __init__(self): super().__init__("Point")
point_type = PointType()
@typeof_impl.register(Point)
def _typeof(value, c): return point_type
@register_model(PointType)
class _Model(models.StructModel):
    def __init__(self, dmm, fe_type): super().__init__(dmm, fe_type, [("x", types.int64)])
make_attribute_wrapper(PointType, "x", "x")
@overload_method(PointType, "twice")
def _twice(p): return lambda p: 2 * p.x
@unbox(PointType)
def _unbox(kind, obj, c):
    held = c.pyapi.object_getattr_string(obj, "x")
    made = cgutils.create_struct_proxy(kind)(c.context, c.builder)
    made.x = c.pyapi.long_as_longlong(held)
    c.pyapi.decref(held)
    return NativeValue(made._getvalue())
"""


def test_a_type_of_a_module_ships_by_import(tmp_path: Path) -> None:
    script = """
    from points import Point
    @farm.njit(mode="strict")
    def f(p): return p.x + p.twice()
    assert f(Point(2)) == 6
    """
    run(tmp_path, textwrap.dedent(script) + SHIPPED.format(compiled=1), points=POINT)


def test_a_type_of_main_stays_here_and_keeps_nobody_else(tmp_path: Path) -> None:
    script = """
    @farm.njit(mode="strict")
    def f(p): return p.x + p.twice()
    @farm.njit(mode="strict")
    def g(a): return a + 1
    assert (f(Point(2)), g(1)) == (6, 2)
    s = farm.stats()
    assert (s.compiled, s.local, s.rejected) == (1, 1, 1), s
    """
    run(tmp_path, POINT + textwrap.dedent(script))


def test_an_overload_that_asks_an_enum_of_main_is_compiled_here(tmp_path: Path) -> None:
    """A worker has a stand-in for it, without the method."""
    script = """
    import enum
    class Color(enum.Enum):
        RED = 1
        def weight(self): return 7
    def stub(a): return None
    @overload(stub)
    def _(a):
        k = Color.RED.weight() if hasattr(Color, "weight") else 0
        return lambda a: a + k
    @farm.njit(mode="strict")
    def f(a): return stub(a)
    assert f(1) == 8
    s = farm.stats()
    assert (s.compiled, s.local, s.rejected) == (0, 1, 1), s
    """
    run(tmp_path, script)


def test_stubs_of_a_module_that_is_imported_are_the_registered_ones(tmp_path: Path) -> None:
    script = """
    import points
    from points import Point, stub
    @farm.njit(mode="strict")
    def f(p): return stub(p.x) + points.stub(p.twice())
    assert f(Point(2)) == 8
    """
    run(tmp_path, textwrap.dedent(script) + SHIPPED.format(compiled=1), points=POINT + STUB)


def test_keys_follow_the_registrations_that_a_function_reaches_and_no_others(tmp_path: Path) -> None:
    script = """
    from farm.job.functor import compute_key
    def other(a): return a
    def stub(a): return a
    @njit
    def f(a): return stub(a)
    @njit
    def g(a): return a
    def key(of): return compute_key(of, (types.int64,), None, None)
    none = key(f), key(g)
    K = 1
    @overload(stub)
    def _(a): return lambda a: a + K
    one = key(f), key(g)
    assert one[0].first_difference(none[0]) == "extensions" and one[1] == none[1]
    @overload(other)
    def _(a): return lambda a: a + K
    assert (key(f), key(g)) == one
    K = 2
    assert key(f).first_difference(one[0]) == "extensions" and key(g) == one[1]
    @overload(np.busday_count)
    def _(a, b): return lambda a, b: a
    assert key(f).first_difference(one[0]) == key(g).first_difference(one[1]) == "extensions"
    """
    run(tmp_path, script)


def test_registrations_of_one_job_do_not_change_the_next(tmp_path: Path) -> None:
    """One worker; the same function before and after an overload on a numpy function, and one that is replaced."""
    script = """
    farm_of_one = farm.Farm(workers=1)
    def make(n):
        def f(a): return stub(a) + np.busday_count(a, n)
        return farm.njit(f, farm=farm_of_one, mode="strict")
    def stub(a): return None
    def register(k):
        @overload(stub)
        def _(a): return lambda a: a + k
        @overload(np.busday_count)
        def _(a, b): return lambda a, b: b * k
    with farm_of_one:
        register(1)
        assert make(10)(1) == 12
        assert make(100)(1) == 102
        register(5)
        expected = njit(make(10).py_func)(1)
        assert make(10)(1) == expected
        s = farm_of_one.stats()
        assert (s.compiled, s.local, s.rejected) == (3, 0, 0), s
    """
    run(tmp_path, script)


def test_an_extension_for_any_function_that_comes_late_goes_to_a_fresh_worker(tmp_path: Path) -> None:
    script = """
    farm_of_one = farm.Farm(workers=1)
    with farm_of_one:
        @farm.njit(farm=farm_of_one, mode="strict")
        def f(x): return np.diff(x).sum()
        assert f(np.arange(4.0)) == 3
        @overload(np.busday_count)
        def _(a, b): return lambda a, b: a + b
        @farm.njit(farm=farm_of_one, mode="strict")
        def g(x): return np.diff(x).sum() + np.busday_count(1, 2)
        assert g(np.arange(4.0)) == 6
        s = farm_of_one.stats()
        assert (s.compiled, s.local, s.rejected) == (2, 0, 0), s
    """
    run(tmp_path, script)


def test_a_module_that_a_worker_imports_starts_no_farm_there(tmp_path: Path) -> None:
    module = """
    import pathlib
    @farm.njit
    def helper(a): return a + 1
    helper(1)
    helper.wait(60)
    with open(pathlib.Path(__file__).with_name("compiled"), "a") as file:
        file.write(f"{farm.stats().compiled} ")
    @overload_method(PointType, "thrice")
    def _thrice(p): return lambda p: helper(p.x) * 3
    """
    script = """
    import pathlib
    from points import Point
    @farm.njit(mode="strict")
    def f(p): return p.thrice()
    assert f(Point(2)) == 9
    assert pathlib.Path("compiled").read_text().split() == ["1", "0"]
    """
    done = run(tmp_path, textwrap.dedent(script) + SHIPPED.format(compiled=2), points=POINT + textwrap.dedent(module))
    assert not done.stderr


def test_a_typing_error_with_extensions_is_looked_at_again_here(tmp_path: Path) -> None:
    script = f"""
    {textwrap.indent(STUB, "    ").strip()}
    @farm.njit(mode="strict")
    def f(a): return stub(a).nothing
    try:
        f(1)
    except numba.TypingError as error:
        assert "nothing" in str(error)
    s = farm.stats()
    assert s.rejected == 1, s
    """
    run(tmp_path, script)


def test_an_installed_library_ships_with_its_registrations(tmp_path: Path) -> None:
    """Laid out as an installer would, in a user's site-packages of its own."""
    base = tmp_path / "base"
    packages = Path(sysconfig.get_path("purelib", "posix_user", vars={"userbase": str(base)}))
    info = packages / "points-1.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: points\nVersion: 1.5\n")
    (info / "top_level.txt").write_text("points\n")
    (packages / "points").mkdir()
    (packages / "points" / "__init__.py").write_text("from points.inside import Point, stub\n")
    (packages / "points" / "inside.py").write_text(IMPORTS.replace("farm, ", "") + POINT + STUB)
    script = """
    import points
    from farm.job.reach import reach
    @farm.njit(mode="strict")
    def f(p): return p.x + points.stub(p.twice())
    assert f(points.Point(2)) == 7
    @farm.njit(mode="strict")
    def g(a): return a + 1
    assert g(1) == 2
    assert reach(f.py_func).registrations and not reach(g.py_func).registrations
    assert b"points==1.5" in reach(f.py_func).extensions
    """
    (tmp_path / "script.py").write_text(IMPORTS + textwrap.dedent(script) + SHIPPED.format(compiled=2))
    environment = {
        **os.environ,
        "FARM_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONUSERBASE": str(base),
        "PYTHONPATH": os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(packages)]),
    }
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")], capture_output=True, text=True, timeout=110, env=environment
    )
    assert done.returncode == 0, done.stderr
