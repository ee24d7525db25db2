"""recompile() beside everything else: pending compiles, waiting threads, failures; and what is kept alive."""

import gc
import pickle
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import numba
import numpy as np
import pytest
from numba import literally

import farm
from farm import CompileState
from farm.errors import CompileFailedWarning, SignatureError
from farm.observe import events

GAIN = 1


@pytest.fixture
def barn(tmp_path: Path) -> Iterator[farm.Farm]:
    with farm.Farm(cache_dir=tmp_path / "cache", workers=1) as one:
        yield one


def gained(a):
    return a * GAIN


def by_value(a, n):
    return a + literally(n)


def impossible(a):
    return a.no_such_attribute


@pytest.mark.concurrency
def test_a_result_that_recompile_overtook_is_dropped(barn: farm.Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old result is held back until recompile() has begun, and let go before the new one is there."""
    function = farm.njit(gained, farm=barn)
    settler = barn.settler()
    obtain, begun = settler._obtain, threading.Event()

    def slow(*arguments: object) -> object:
        found = obtain(*arguments)  # type: ignore[arg-type]
        if threading.current_thread().name == "farm-installer":
            begun.wait(1)
        return found

    monkeypatch.setattr(settler, "_obtain", slow)
    function(1.0)
    monkeypatch.setitem(globals(), "GAIN", 2)
    for entry in function.table.entries():
        entry.recompile()
    begun.set()
    function.recompile()
    assert function.wait(60)
    function(1.0)
    assert function.wait(60)
    assert function(1.0) == 2.0
    assert barn.stats().pending == 0


@pytest.mark.concurrency
def test_a_strict_waiter_that_recompile_overtakes_gets_the_new_code(barn: farm.Farm) -> None:
    function = farm.njit(gained, farm=barn, mode="strict")
    found: list[float] = []
    waiter = threading.Thread(target=lambda: found.append(function(3.0)))
    waiter.start()
    for _ in range(20):
        function.recompile()
    waiter.join(60)
    assert found == [3.0]


def test_recompile_of_a_function_compiled_by_value(barn: farm.Farm) -> None:
    function = farm.njit(by_value, farm=barn, mode="strict")
    assert function(1, 2) == 3
    function.recompile()
    assert function(1, 2) == 3
    assert function(1, 5) == 6


@pytest.mark.concurrency
def test_calls_go_on_while_explicit_signatures_are_compiled_again(
    barn: farm.Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = farm.njit("float64(float64)", farm=barn)(gained)
    assert function.wait(60)
    assert (function(2), function._can_compile) == (2.0, False)
    settler, found = barn.settler(), []
    hand_over = settler.hand_over

    def called_meanwhile(pending, *, waited):
        caller = threading.Thread(target=lambda: found.append(function(2)))
        caller.start()
        caller.join(60)
        hand_over(pending, waited=waited)

    monkeypatch.setattr(settler, "hand_over", called_meanwhile)
    monkeypatch.setitem(globals(), "GAIN", 3)
    function.recompile()
    assert found == [6.0]
    assert (function(2), function._can_compile) == (6.0, False)


def test_an_explicit_signature_that_cannot_be_compiled_again_stays_in_python(
    barn: farm.Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = farm.njit("float64(float64)", farm=barn)(gained)
    assert function.wait(60)

    class Gain:
        def __rmul__(self, other: object) -> str:
            return "in Python"

    monkeypatch.setitem(globals(), "GAIN", Gain())
    with pytest.raises(numba.TypingError):
        function.recompile()
    with pytest.warns(CompileFailedWarning):
        assert function(2) == "in Python"
    monkeypatch.setitem(globals(), "GAIN", 3)
    function.recompile()
    assert function(2) == 6.0


def test_what_cannot_compile_stays_in_python(barn: farm.Farm) -> None:
    function = farm.njit(impossible, farm=barn)

    class Thing:
        no_such_attribute = 3

    assert function(Thing()) == 3 and function.wait(60)
    with pytest.warns(CompileFailedWarning):
        assert function(Thing()) == 3
    assert function(Thing()) == 3
    strict = farm.njit(impossible, farm=barn, mode="strict")
    with pytest.raises(numba.TypingError):
        strict(1)


def test_an_undeclared_signature_is_refused(barn: farm.Farm) -> None:
    function = farm.njit("float64(float64)", farm=barn)(gained)
    with pytest.raises(SignatureError, match="explicit"):
        function.submit("int64(int64)")
    assert function.submit("float64(float64)").result(60).state is CompileState.COMPILED


def test_a_memoised_error_keeps_no_arguments_alive(barn: farm.Farm) -> None:
    function = farm.njit(impossible, farm=barn, mode="strict")
    alive = []
    for _ in range(5):
        array = np.zeros(3)
        alive.append(weakref.ref(array))
        with pytest.raises(numba.TypingError):
            function(array)
        del array
    gc.collect()
    assert sum(one() is not None for one in alive) <= 1


def test_a_listener_may_wait_for_what_it_hears_of(barn: farm.Farm) -> None:
    function = farm.njit(gained, farm=barn)
    waited: list[bool] = []

    class Waits:
        def on_event(self, event: events.Event) -> None:
            if isinstance(event, events.CompileStarted):
                waited.append(function.wait(60))

    barn.add_listener(Waits())
    function(1.0)
    assert waited == [True]


def test_an_unpickled_dispatcher_belongs_to_the_default_farm() -> None:
    made = type(module_level)._rebuild("some uuid", **_states(module_level))
    assert made in farm.default_farm().dispatchers()
    assert pickle.loads(pickle.dumps(made)) is made


def _states(function: object) -> dict[str, object]:
    states = function._reduce_states()  # type: ignore[attr-defined]
    del states["uuid"]
    return states


module_level = farm.njit(gained)
