"""numba's objects are recognised and taken apart without compiling anything."""

import json
import os
import sys
import types as python_types
from pathlib import Path

import numba
import numpy
import pytest
from numba import cfunc, int64, njit, stencil, types
from numba.core import config
from numba.cpython.unsafe.tuple import tuple_setitem
from numba.experimental import jitclass

from farm.port import describe


def body(x):  # type: ignore[no-untyped-def]
    return x


@stencil
def smooth(a):  # type: ignore[no-untyped-def]
    return a[-1] + a[1]


@cfunc("int64(int64)")
def callback(x):  # type: ignore[no-untyped-def]
    return x


@jitclass([("x", int64)])
class Box:
    def __init__(self):  # type: ignore[no-untyped-def]
        self.x = 1


def test_a_dispatcher_comes_apart() -> None:
    jitted = njit(fastmath=True, locals={"q": types.float32})(body)
    function, options, local_types, pipeline, explicit = describe.dispatcher_parts(jitted) or pytest.fail("no parts")
    assert function is body
    assert options["fastmath"] is True
    assert local_types == {"q": types.float32}
    assert pipeline == "numba.core.compiler:Compiler"
    assert explicit == ()
    assert not jitted.overloads
    assert describe.dispatcher_parts(body) is None


@pytest.mark.parametrize(
    ("obj", "tag"), [(smooth, "stencil"), (callback, "cfunc"), (Box, "jitclass"), (tuple_setitem, "intrinsic")]
)
def test_objects_are_classified(obj: object, tag: str) -> None:
    found = describe.parts(obj)
    assert found is not None
    assert found[0] == tag


def test_jitclass_types_hold_no_address() -> None:
    assert "#" not in repr(describe.type_parts(Box.class_type)[1][:2])
    assert describe.is_jitclass_instance(Box())
    assert not describe.is_jitclass_instance(Box)


def test_modules_are_installed_by_where_their_file_lies() -> None:
    assert (describe.installed(numpy) or "").startswith(f"numpy=={numpy.__version__}+")
    assert describe.installed(json) == "python"
    assert describe.installed(describe.python_types) == "python"
    assert describe.installed(python_types.ModuleType("mine")) is None
    shadow = python_types.ModuleType("json")
    shadow.__file__ = "/home/user/json.py"
    assert describe.installed(shadow) is None


def test_a_directory_on_the_path_that_cannot_be_read_holds_no_distributions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a PYTHONPATH into somebody else's home would keep every function from being sent to a worker."""
    closed = tmp_path / "closed"
    (closed / "packages").mkdir(parents=True)
    closed.chmod(0)
    monkeypatch.setattr(sys, "path", [*sys.path, str(closed / "packages")])
    if (child := os.fork()) == 0:
        try:
            if os.geteuid() == 0:  # who reads everything
                os.setresuid(54321, 54321, 54321)
            packages, _ = describe._roots.__wrapped__()
            os._exit(0 if packages and closed / "packages" not in packages else 1)
        finally:
            os._exit(2)
    status = os.waitpid(child, 0)[1]
    closed.chmod(0o700)
    assert status == 0


def test_objects_are_found_by_name_only_if_identical() -> None:
    assert describe.by_name(numba.njit) == (numba.core.decorators, "njit")
    home = sys.modules[numpy.random.rand.__module__ or "numpy.random"]  # numpy names its private module before 2.2
    assert describe.by_name(numpy.random.rand) == (home, "rand") and home.rand is numpy.random.rand
    assert describe.by_name(numpy.add) == (numpy, "add")
    assert describe.by_name(lambda: 0) is None
    assert config is not None


def test_global_names_include_nested_code() -> None:
    code = compile("def f():\n    def g(): return INNER\n    return g, OUTER.attribute\n", "m", "exec").co_consts[0]
    assert describe.global_names(code) == {"INNER", "OUTER"}
