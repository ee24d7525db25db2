"""What a call does whose machine code is pending: with a real pool where code is to arrive, without one elsewhere."""

import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import farm
from farm import CompileState, explain
from farm.errors import CompileFailedWarning
from farm.front import meanwhile, switch
from farm.front.meanwhile import magnitude
from farm.front.switch import runs_here
from farm.observe.stats import Count, Duration
from farm.testing import InlinePool, MemoryStore

LONG = 10**8
"""So many steps take many seconds in Python."""


def sums(n):
    total = 0
    for i in range(n):
        total += i % 7
    return total


def fills(a, n):
    for k in range(n):
        for i in range(a.size):
            a[i] = a[i] * 0.5 + k % 3
    return a[1:]


def prints(n):
    total = 0
    for i in range(n):
        total += i
    print("total", total)
    return total


def prints_once(n):
    print("n", n)
    return n


def spreads(first, *others):
    total = 0
    for i in range(first):
        for other in others:
            total += other + i % 2
    return total


def with_default(n, step=3):
    total = 0
    for i in range(n):
        total += step + i % 2
    return total


def fibonacci(n):
    return n if n < 2 else recursive(n - 1) + recursive(n - 2)


recursive: Any = fibonacci


def raises(a, n):
    for i in range(n):
        a[0] = i
        if i == 1000:
            raise ValueError("at 1000")
    return 0


def impossible(thing):
    for _ in range(3):
        pass
    return thing.no_such_attribute


@pytest.fixture(scope="module")
def barn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[farm.Farm]:
    with farm.Farm(cache_dir=tmp_path_factory.mktemp("cache"), workers=2) as made:
        made.start()
        yield made


@pytest.fixture
def held() -> Iterator[farm.Farm]:
    """Nothing is compiled before the test says so."""
    with farm.Farm(pool=InlinePool(held=True), store=MemoryStore()) as made:
        yield made


def counted(barn: farm.Farm, function: Any) -> farm.FunctionStats:
    return barn.stats().per_function[function.label]


def test_a_heavy_call_is_left_when_its_code_comes(barn: farm.Farm) -> None:
    function = farm.njit(sums, farm=barn)
    assert function(LONG) == numba.njit(sums)(LONG)
    assert (counted(barn, function).switched, counted(barn, function).waited) == (1, 0)
    assert function.status("(int64,)").state is CompileState.COMPILED and not [one for one in runs_here() if one.open]


def test_a_call_that_writes_is_left_and_its_array_is_as_if_python_had_never_begun(barn: farm.Farm) -> None:
    function, array, expected = farm.njit(fills, farm=barn), np.ones(1000), np.ones(1000)
    returned, as_numba = function(array, 100_000), numba.njit(fills)(expected, 100_000)
    assert counted(barn, function).switched == 1
    assert array.tobytes() == expected.tobytes() and returned.tobytes() == as_numba.tobytes()
    assert returned.base is array or np.shares_memory(returned, array)


@pytest.mark.parametrize(
    ("body", "arguments"), [(spreads, (LONG, 1, 2)), (with_default, (LONG,)), (with_default, (LONG, 5))]
)
def test_star_arguments_and_defaults_come_through(barn: farm.Farm, body: Any, arguments: tuple[int, ...]) -> None:
    function = farm.njit(body, farm=barn)
    assert function(*arguments) == numba.njit(body)(*arguments)
    assert counted(barn, function).switched >= 1


def test_declared_signatures_are_left_too_and_convert_as_declared(barn: farm.Farm) -> None:
    def halves(x, n):
        for _ in range(n):
            x = x * 0.5 + 1
        return x

    function = farm.njit("float64(float64, int64)", farm=barn)(halves)
    assert function(3, 200_000_000) == 2.0
    assert isinstance(function(3, 1), float)


def test_a_recursive_call_is_left_at_its_first_call(barn: farm.Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    function = farm.njit(fibonacci, farm=barn)
    monkeypatch.setitem(globals(), "recursive", function)
    assert function(35) == 9227465
    assert counted(barn, function).switched == 1


def test_an_outer_call_is_left_while_it_is_in_an_inner_one(barn: farm.Farm) -> None:
    @farm.njit(farm=barn)
    def inner(a, n):
        for k in range(n):
            a[k % 10] += k % 5
        return a[0]

    @farm.njit(farm=barn)
    def outer(a, n):
        total = 0.0
        for _ in range(n):
            total += inner(a, 1000)
        return total

    array, expected = np.zeros(10), np.zeros(10)
    found = outer(array, 30_000)
    plain_inner = numba.njit(inner.py_func)
    namespace: dict[str, Any] = {"inner": plain_inner}
    exec("def outer(a, n):\n total = 0.0\n for _ in range(n):\n  total += inner(a, 1000)\n return total", namespace)
    assert found == numba.njit(namespace["outer"])(expected, 30_000)
    assert array.tobytes() == expected.tobytes()
    assert not [one for one in runs_here() if one.open]


@pytest.mark.concurrency
@pytest.mark.parametrize("watches", [False, True])
def test_an_outer_call_is_left_in_the_middle_of_an_inner_one_that_has_shadows(
    held: farm.Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, watches: bool
) -> None:
    @farm.njit(farm=held)
    def inner(a, n):
        for k in range(n):
            a[k % 10] += k % 5
        return a[0]

    @farm.njit(farm=held)
    def outer(a, n):
        total = 0.0
        for k in range(1, 3):
            total += inner(a, n * k)
        return total

    def run() -> None:
        threads.append(threading.get_ident())
        found.append(outer(array, 3_000_000))

    monkeypatch.setattr("farm.front.alone.ALONE_S", 0.0)  # from the beginning the inner one is a call of its own
    array, threads, found = np.zeros(10), list[int](), list[float]()
    with farm.report(tmp_path / "out.json", farm=held) if watches else nullcontext():
        thread = threading.Thread(target=run)
        thread.start()
        end = time.monotonic() + 60
        stopped = False
        while not stopped and not found:
            assert time.monotonic() < end
            running = switch._runs.get(threads[0], []) if threads else []
            stopped = len(running) == 2 and switch.stop(running[0])
            time.sleep(0.001)
        assert stopped, "the inner call had ended before"
        thread.join(60)
    assert counted(held, outer).switched == 1 and len(found) == 1


@pytest.mark.concurrency
def test_all_threads_in_one_body_are_left(barn: farm.Farm) -> None:
    def weighs(n, weight):
        total = 0
        for i in range(n):
            total += i % weight
        return total

    function, found = farm.njit(weighs, farm=barn), dict[int, int]()
    threads = [threading.Thread(target=lambda w=w: found.update({w: function(LONG, w)})) for w in range(2, 6)]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    as_numba = numba.njit(weighs)
    assert found == {w: as_numba(LONG, w) for w in range(2, 6)}
    assert counted(barn, function).switched == 4


def test_what_is_not_restartable_waits_and_explain_says_why(barn: farm.Farm, capfd: pytest.CaptureFixture[str]) -> None:
    function = farm.njit(prints, farm=barn)
    assert function(1000) == 499500
    assert capfd.readouterr().out.count("total 499500") == 1
    assert (counted(barn, function).waited, counted(barn, function).fallback_calls) == (1, 0)


def test_explain_says_whether_a_call_can_be_left(held: farm.Farm) -> None:
    restartable, other = farm.njit(sums, farm=held), farm.njit(prints, farm=held)
    restartable(3)
    other.submit("(int64,)")
    assert "done again by it: the function is restartable" in explain(restartable, 3)
    assert "wait, unless such a call is known to be over sooner" in explain(other, 3)
    assert "not restartable, because it calls print" in explain(other, 3)


def test_what_has_no_loop_runs_in_python_whatever_it_does(held: farm.Farm, capsys: pytest.CaptureFixture[str]) -> None:
    function = farm.njit(prints_once, farm=held)
    assert function(3) == 3
    assert capsys.readouterr().out == "n 3\n" and counted(held, function).finished_in_python == 1


def test_what_cannot_be_left_runs_in_python_if_that_is_known_to_be_quick(
    held: farm.Farm, capsys: pytest.CaptureFixture[str]
) -> None:
    function = farm.njit(prints, farm=held)
    function.seconds_in_python[magnitude((1000,))] = 1e-6
    assert function(1000) == 499500
    assert capsys.readouterr().out == "total 499500\n"
    assert function.seconds_in_python[magnitude((1000,))] != 1e-6  # measured anew


def test_what_is_too_large_to_copy_waits(barn: farm.Farm) -> None:
    barn.configure(shadow_max_bytes=1000)
    try:
        function = farm.njit(lambda a, n: fills_like(a, n), farm=barn)
        array = np.ones(1000)
        function(array, 3)
        assert counted(barn, function).waited == 1
        assert array.tobytes() == fills_like.py_func(np.ones(1000), 3).tobytes()
    finally:
        barn.configure(shadow_max_bytes="256MiB")


@farm.njit
def fills_like(a, n):
    for k in range(n):
        for i in range(a.size):
            a[i] = a[i] * 0.5 + k
    return a


def test_nothing_is_copied_where_the_last_call_was_over_sooner(
    held: farm.Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, array = farm.njit(fills, farm=held), np.ones(8)
    function(array, 1)
    size = magnitude((array, 1))
    function.seconds_in_python[size] = 1e-6
    monkeypatch.setattr(meanwhile, "plan_shadows", None)  # to call it would raise
    function(array, 1)
    assert function.seconds_in_python[size] != 1e-6 and counted(held, function).finished_in_python == 2


def test_a_body_that_ends_first_gives_the_callers_own_arrays(held: farm.Farm) -> None:
    function, array = farm.njit(fills, farm=held), np.ones(8)
    expected = np.ones(8)
    assert np.shares_memory(function(array, 2), array)
    fills(expected, 2)
    assert array.tobytes() == expected.tobytes() and counted(held, function).finished_in_python == 1


def test_what_the_body_raises_is_raised_with_what_it_wrote(held: farm.Farm) -> None:
    function, array = farm.njit(raises, farm=held), np.zeros(2)
    with pytest.raises(ValueError, match="at 1000"):
        function(array, 5000)
    assert array[0] == 1000.0 and counted(held, function).finished_in_python == 1


def test_what_cannot_be_compiled_runs_to_its_end_and_is_told(barn: farm.Farm) -> None:
    class Thing:
        no_such_attribute = 3

    function = farm.njit(impossible, farm=barn)
    with pytest.warns(CompileFailedWarning):
        assert function(Thing()) == 3
        assert function.wait(60)
        assert function(Thing()) == 3


@pytest.mark.concurrency
def test_what_this_process_compiles_itself_takes_the_place_of_a_heavy_body(barn: farm.Farm) -> None:
    large = np.arange(200_000.0)  # too large to be sent to a worker: over 1 MB

    def looks_up(n):
        total = 0.0
        for i in range(n):
            total += large[i % 1000]
        return total

    function = farm.njit(looks_up, farm=barn)
    assert function(LONG) == numba.njit(looks_up)(LONG)
    assert (counted(barn, function).local, counted(barn, function).switched) == (1, 1)


def test_fallback_python_is_never_left(held: farm.Farm) -> None:
    function = farm.njit(sums, farm=held, fallback="python")
    assert function(1000) == sums(1000)
    assert (counted(held, function).finished_in_python, counted(held, function).fallback_calls) == (0, 1)


def test_a_report_sees_bodies_that_may_be_left(held: farm.Farm, tmp_path: Path) -> None:
    function = farm.njit(sums, farm=held)
    with farm.report(tmp_path / "out.json", farm=held):
        function(1000)
        function(1000)
    assert "sums" in (tmp_path / "out.json").read_text()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ((np.zeros(100), 3), (np.ones(100), 3), True),
        ((np.zeros(100),), (np.zeros(1000),), False),
        ((10,), (10**9,), False),
        ((1e3,), (1e9,), False),
        (("a",), ("a" * 1000,), False),
        (((np.zeros(10), 3),), ((np.zeros(10_000), 3),), False),
        ((float("nan"), float("inf")), (0.0, 0.5), True),
    ],
)
def test_magnitude_tells_small_arguments_from_large_ones(one: Any, other: Any, same: bool) -> None:
    assert (magnitude(one) == magnitude(other)) is same


def test_what_a_compile_is_expected_to_take_is_what_others_took(held: farm.Farm) -> None:
    function, other = farm.njit(sums, farm=held), farm.njit(prints, farm=held)
    function(1)
    assert held.expected_compile_s(function) == pytest.approx(0.5)  # a guess: nobody has compiled anything
    held.record.counters.count(Count.COMPILED, times=2)
    held.record.counters.spend(Duration.COMPILE, 3.0)
    assert held.expected_compile_s(function) == pytest.approx(1.5)  # what others took here
    held.record.profiler.register_compilation(other.identity, 7.0)
    assert held.expected_compile_s(other) == pytest.approx(7.0)  # what it took itself


def test_a_store_tells_what_its_programs_compiles_took(tmp_path: Path) -> None:
    with farm.Farm(cache_dir=tmp_path, workers=1) as first:
        function = farm.njit(sums, farm=first, mode="strict")
        function(3)
        took_s = first.stats().compile_s
    with farm.Farm(cache_dir=tmp_path, pool=InlinePool(held=True)) as second:
        other = farm.njit(prints_once, farm=second)
        other(3)
        assert second.expected_compile_s(other) == pytest.approx(took_s, rel=0.01)
