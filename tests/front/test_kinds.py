"""Kinds of functions, end to end: each compiles in a worker, and gives what numba gives."""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba import njit, objmode, prange, stencil, typed, types
from test_farm import run_script

import farm


@pytest.fixture
def barn(tmp_path: Path) -> Iterator[farm.Farm]:
    with farm.Farm(cache_dir=tmp_path / "cache", workers=1, mode="strict") as one:
        yield one


def parallel_sum(x):
    total = 0.0
    for i in prange(x.size):
        total += x[i]
    return total


def with_objmode(x):
    with objmode(y="float64"):
        y = float(np.median(x))
    return y + 1


def generator(n):
    for i in range(n):
        yield i * i


def uses_generator(n):
    total = 0
    for one in inner_generator(n):
        total += one
    return total


inner_generator = njit(generator)


@stencil
def smooth(a):
    return (a[-1] + a[0] + a[1]) / 3


def uses_stencil(x):
    return smooth(x)


def typed_dict(n):
    table = typed.Dict.empty(types.int64, types.float64)
    for i in range(n):
        table[i] = i / 2
    return table[n - 1]


def strings(text):
    return text.upper().split(" ")[0]


def raises(a):
    if a < 0:
        raise ValueError("negative", a)
    return a


def star(a, *rest):
    return a + len(rest)


def keywords(a, b=2, c=3):
    return a * 100 + b * 10 + c


def returns_tuple(a):
    return a, a / 2, "text"


def reflected(numbers):
    numbers.append(4)
    return len(numbers)


def closure_of(factor):
    def scaled(a):
        return a * factor

    return scaled


KINDS: list[tuple[Callable[..., Any], dict[str, Any], tuple[Any, ...]]] = [
    (parallel_sum, {"parallel": True}, (np.arange(100.0),)),
    (with_objmode, {}, (np.arange(9.0),)),
    (uses_generator, {}, (10,)),
    (uses_stencil, {}, (np.arange(9.0),)),
    (typed_dict, {}, (10,)),
    (strings, {}, ("some words",)),
    (star, {}, (1, 2, 3)),
    (returns_tuple, {}, (3,)),
    (closure_of(7), {}, (3,)),
    (parallel_sum, {"fastmath": True, "nogil": True, "boundscheck": True}, (np.arange(100.0),)),
]


@pytest.mark.parametrize(("body", "options", "arguments"), KINDS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_kind_of_function_compiles_in_a_worker(
    barn: farm.Farm, body: Callable[..., Any], options: dict[str, Any], arguments: tuple[Any, ...]
) -> None:
    expected = numba.njit(**options)(body)(*arguments)
    found = farm.njit(farm=barn, **options)(body)(*arguments)
    assert np.array_equal(found, expected)
    stats = barn.stats()
    assert (stats.compiled, stats.local) == (1, 0), stats


def test_a_kind_of_function_loads_in_a_farm_that_did_not_compile_it(tmp_path: Path) -> None:
    for loaded in (0, len(KINDS)):
        with farm.Farm(cache_dir=tmp_path / "cache", workers=1, mode="strict") as one:
            for body, options, arguments in KINDS:
                expected = numba.njit(**options)(body)(*arguments)
                assert np.array_equal(farm.njit(farm=one, **options)(body)(*arguments), expected)
            assert (one.stats().loaded, one.stats().local) == (loaded, 0), one.stats()


def test_a_generator_as_entry_point(barn: farm.Farm) -> None:
    assert list(farm.njit(generator, farm=barn)(5)) == [0, 1, 4, 9, 16]

    @farm.njit(farm=barn)
    def peaks(x):
        for i in range(1, x.size - 1):
            if x[i - 1] < x[i] > x[i + 1]:
                yield i

    assert list(peaks(np.array([0.0, 2.0, 1.0, 3.0, 0.0]))) == [1, 3]
    assert barn.stats().local == 0


def test_keyword_arguments_and_defaults(barn: farm.Farm) -> None:
    own, ours = numba.njit(keywords), farm.njit(keywords, farm=barn, mode="async")
    for _ in range(2):
        for call in (lambda f: f(1), lambda f: f(1, 5), lambda f: f(1, b=6), lambda f: f(1, c=7)):
            assert call(ours) == call(own)
        assert ours.wait(60)


def test_an_exception_has_its_class_and_arguments(barn: farm.Farm) -> None:
    function = farm.njit(raises, farm=barn)
    with pytest.raises(ValueError, match="negative") as caught:
        function(-1)
    assert caught.value.args == ("negative", -1)
    assert barn.stats().local == 0


def test_a_reflected_list_is_reflected(barn: farm.Farm) -> None:
    numbers = [1, 2, 3]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert farm.njit(reflected, farm=barn)(numbers) == 4
    assert numbers == [1, 2, 3, 4]


def test_numba_warnings_of_a_worker_are_issued_here(barn: farm.Farm) -> None:
    def nothing_parallel(a):
        return a + 1

    with pytest.warns(numba.NumbaPerformanceWarning, match="parallel"):
        farm.njit(nothing_parallel, farm=barn, parallel=True)(1)
    assert barn.stats().local == 0


def test_a_callee_with_explicit_signatures_converts_as_numba_does(barn: farm.Farm) -> None:
    """By value it must not compile for whatever it is called with: `half(3)` declared for floats is 1.5."""

    def half(a):
        return a // 2 + 0.25

    def make(callee):
        return lambda a: callee(a)

    expected = numba.njit(make(numba.njit("float64(float64)")(half)))(3)
    for callee in (
        numba.njit("float64(float64)")(half),
        farm.njit("float64(float64)", farm=barn)(half),
        farm.njit("float64(float64)", farm=barn, mode="async")(half),
    ):
        found = farm.njit(make(callee), farm=barn)(3)
        assert (type(found), found) == (type(expected), expected)
    assert barn.stats().local == 0, barn.stats()


def test_what_a_worker_imports_starts_no_pool_and_compiles_nothing(tmp_path: Path) -> None:
    (tmp_path / "user_module.py").write_text(
        "import enum, numba, farm\n"
        "farm.enable()\n"
        "class Color(enum.Enum):\n    RED = 1\n    def mix(self): return self\n"
        "class Plain:\n    pass\n"
        "@numba.njit('int64(int64)')\ndef one(a): return a + 1\n"
        "@farm.njit('int64(int64)', mode='strict')\ndef two(a): return a + 2\n"
        "@numba.stencil\ndef both(a): return a[0] + a[-1]\n"
        "numba.njit(cache=True)(lambda a: a)\n"
    )
    done = run_script(
        tmp_path,
        """
        import numpy, psutil, farm, user_module
        @farm.njit(mode="strict")
        def f(x):
            return user_module.both(x).sum() + user_module.one(1) + user_module.two(1)
        assert f(numpy.ones(3)) == 4.0 + 2 + 3
        children = psutil.Process().children(recursive=True)
        print(len(children))
        assert farm.stats().local == 0, farm.stats()
        # The foreman and its worker; a pool inside the worker would be two more.
        assert len(children) <= 3, children
        """,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_module_that_asks_for_everything_at_import_comes_through_in_a_worker(tmp_path: Path) -> None:
    (tmp_path / "user_module.py").write_text(
        "import numba, farm\n"
        "farm.start()\n"
        "own = farm.Farm()\n"
        "own.start()\n"
        "@farm.njit\ndef one(a): return a + 1\n"
        "@numba.stencil\ndef both(a): return a[0] + a[-1]\n"
        "farm.compile_all([(one, 'int64(int64)')], raise_errors=True)\n"
        "farm.explain(one, 1)\n"
        "one.submit('float64(float64)').result()\n"
        "one.status('float64(float64)')\n"
        "one.wait()\n"
        "one.recompile()\n"
        "farm.wait()\n"
        "farm.stats()\n"
    )
    done = run_script(
        tmp_path,
        """
        import numpy, psutil, farm, user_module
        @farm.njit(mode="strict")
        def f(x):
            return user_module.both(x).sum() + user_module.one(1)
        assert f(numpy.ones(3)) == 4.0 + 2
        s = farm.stats()
        assert s.local == s.rejected == 0, s
        # The foremen of two farms, and the workers that each needed: none has a child that is not its worker.
        pools = psutil.Process().children()
        workers = [worker for pool in pools for worker in pool.children()]
        assert len(pools) == 2 and not [below for worker in workers for below in worker.children()], workers
        """,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_pipeline_classes_travel_by_name(barn: farm.Farm) -> None:
    from numba.core.compiler import Compiler

    assert farm.njit(lambda a: a + 1, farm=barn, pipeline_class=Compiler)(1) == 2
    assert barn.stats().local == 0


def test_object_mode_is_compiled_here(barn: farm.Farm) -> None:
    function = farm.jit(lambda a: {"a": a}, farm=barn, forceobj=True)
    assert function(1) == {"a": 1}
    assert barn.stats().local == 1
