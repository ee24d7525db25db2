"""The protocol's own claims, end to end: modes, thresholds, limits, megamorphism, with real workers."""

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import farm
from farm import CompileState
from farm.front.policy import FunctionProfile, Limits
from farm.observe import events

BIG = 10**9
"""The fifth power of it differs between Python and machine arithmetic."""
SCALARS = (1, 1.5, 1j, True, np.float32(1), np.int32(1), np.uint8(1))
COMBINATIONS = list(itertools.product(SCALARS, SCALARS))


@pytest.fixture
def barn(tmp_path: Path) -> Iterator[farm.Farm]:
    with farm.Farm(cache_dir=tmp_path / "cache", workers=2) as one:
        yield one


def fifth_power(a):
    return a * a * a * a * a


def pair(a, b):
    return a + b


def state(function: object, *arguments: object) -> CompileState:
    entry = function.table.get(function.types_of_call(arguments))  # type: ignore[attr-defined]
    return CompileState.UNCOMPILED if entry is None else entry.snapshot().state


def test_async_success(barn: farm.Farm) -> None:
    done = threading.Event()

    class Listener:
        def on_event(self, event: events.Event) -> None:
            if isinstance(event, events.CompileFinished):
                done.set()

    barn.add_listener(Listener())
    function = farm.njit(fifth_power, farm=barn)
    assert function(BIG) == BIG**5
    assert done.wait(60)
    assert state(function, BIG) is CompileState.COMPILED
    assert function(BIG) != BIG**5


def test_should_compile_false_runs_fallback(barn: farm.Farm) -> None:
    function = farm.njit(fifth_power, farm=barn, mode="lazy")
    function(1.5)
    assert function.wait(60)
    assert function(BIG) == BIG**5, "the second signature, asked for once: below the threshold"
    assert state(function, BIG) is CompileState.UNCOMPILED
    assert barn.stats().pending == 0


def run_signatures(function: object, combinations: list[tuple[object, object]], runs: int) -> None:
    """Each signature is called until it is compiled, and `runs` times in all."""
    for a, b in combinations:
        called = 0
        while state(function, a, b) is not CompileState.COMPILED and called < 2:
            function(a, b)  # type: ignore[operator]
            called += 1
            assert function.wait(60)  # type: ignore[attr-defined]
        for _ in range(runs - called):
            function(a, b)  # type: ignore[operator]


def test_is_megamorphic(barn: farm.Farm) -> None:
    function = farm.njit(pair, farm=barn, mode="lazy")
    heard: list[events.Event] = []

    class Listener:
        def on_event(self, event: events.Event) -> None:
            heard.append(event)

    barn.add_listener(Listener())
    run_signatures(function, COMBINATIONS[:40], 49)
    new = COMBINATIONS[40]
    for _ in range(50):
        function(*new)
    assert barn.wait(60)
    assert state(function, *new) is CompileState.UNCOMPILED
    assert barn.stats().compiled == 11, "compiled ones go on, new ones stay out"
    assert len([one for one in heard if isinstance(one, events.Megamorphic)]) == 1
    assert "megamorphic" in farm.explain(function, *new)


def test_is_not_megamorphic(barn: farm.Farm) -> None:
    function = farm.njit(pair, farm=barn, mode="lazy")
    run_signatures(function, COMBINATIONS[:12], 1000)
    new = COMBINATIONS[12]
    for _ in range(2):
        function(*new)
        assert barn.wait(60)
    assert state(function, *new) is CompileState.COMPILED
    assert barn.stats().compiled == 13


@pytest.mark.parametrize(("compiles", "executions"), [(10, 50), (1, 7), (100, 3)])
def test_calls_that_the_farm_no_longer_sees_cannot_make_a_function_megamorphic(compiles: int, executions: int) -> None:
    """Whoever is past probation has paid its share: a busy function may have any number of signatures."""
    limits = Limits.from_config(
        farm.Config(megamorphic_compiles=compiles, megamorphic_executions_per_compile=executions), workers=1
    )
    profile = FunctionProfile()
    for _ in range(3 * compiles + 20):
        profile = profile.with_compilation(0.1)
        for _ in range(limits.probation_calls):
            profile = profile.with_execution(limits)
    assert not profile.megamorphic


def test_racing_first_calls_of_many_threads_make_one_job(barn: farm.Farm) -> None:
    function = farm.njit(fifth_power, farm=barn)
    start = threading.Barrier(8)

    def call() -> None:
        start.wait()
        function(BIG)

    threads = [threading.Thread(target=call) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert function.wait(60)
    stats = barn.stats()
    assert (stats.compiled, stats.local, stats.fallback_calls) == (1, 0, 8)


def test_calls_of_a_pending_signature_are_all_counted(barn: farm.Farm) -> None:
    """Most of them take the shortcut, which asks nobody."""
    function = farm.njit(fifth_power, farm=barn)
    in_python = calls = 0
    while state(function, BIG) is not CompileState.COMPILED and calls < 10**7:
        in_python += function(BIG) == BIG**5  # the last ones may be answered by machine code just installed
        calls += 1
    assert function.wait(60)
    assert barn.stats().fallback_calls == in_python > 0
    # The rest ran machine code: counted on probation, and by nobody once numba's C code answers them.
    assert in_python <= barn.record.profiler.profile(function.identity).execution_count <= calls


def test_limits_hold_for_compiles_and_not_for_loads(tmp_path: Path) -> None:
    """A signature that the store has is loaded at its first call, whatever the threshold says."""
    settings = {"cache_dir": tmp_path / "cache", "workers": 1}
    with farm.Farm(**settings) as first:
        one = farm.njit(pair, farm=first, mode="strict")
        one(1, 1)
        one(1.5, 1)
    with farm.Farm(**settings, lazy_threshold=1000) as second:
        two = farm.njit(pair, farm=second, mode="lazy")
        two(1, 1)
        two(1.5, 1)
        assert second.wait(60)
        assert (second.stats().loaded, second.stats().compiled) == (2, 0)
