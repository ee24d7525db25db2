"""Bodies that run alone: what they call runs in Python as part of them, and what that must not change."""

import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import farm
from farm import CompileState
from farm.front import alone as alone_module
from farm.front import switch
from farm.front.alone import alone
from farm.testing import InlinePool, MemoryStore


@pytest.fixture
def held() -> Iterator[farm.Farm]:
    """Nothing is compiled before the test says so."""
    with farm.Farm(pool=InlinePool(held=True), store=MemoryStore()) as made:
        yield made


def adds(state):
    return state * 16807 % 2147483647


def fills(row, state, *, step=1):
    for i in range(0, row.size, step):
        row[i] = state % 1000
        state += 1
    return state


def pair(barn: farm.Farm, part: Any, **options: Any) -> tuple[Any, Any]:
    """An outer function that loops, and the farm function that it calls."""
    signature = options.pop("signature", None)
    inner = farm.njit(signature, farm=barn)(part) if signature else farm.njit(part, farm=barn, **options)

    @farm.njit(farm=barn)
    def outer(n):
        state = 1
        for _ in range(n):
            state = inner(state)
        return state

    return outer, inner


def was_asked(function: Any) -> bool:
    return bool(function.table.entries())


def put_in(outer: Any, name: str) -> Any:
    """What a closure of the outer function's body holds while it is pending."""
    (entry,) = outer.table.entries()
    function = alone(outer, outer.farm().requests.of(entry))
    return dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))[name].cell_contents


def test_what_does_not_loop_is_a_part_of_the_body_and_is_not_asked_for(held: farm.Farm) -> None:
    outer, inner = pair(held, adds)
    expected = 1
    for _ in range(50):
        expected = adds(expected)
    assert outer(50) == expected
    assert was_asked(outer) and not was_asked(inner)
    assert isinstance(put_in(outer, "inner"), types.FunctionType)


def loops(state):
    for _ in range(3):
        state += 1
    return state


def test_what_loops_is_a_part_of_the_body_for_a_while(held: farm.Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    outer, inner = pair(held, loops)
    assert outer(5) == 16 and not was_asked(inner)
    monkeypatch.setattr(alone_module, "ALONE_S", 0.0)
    outer, inner = pair(held, loops)
    assert outer(5) == 16 and was_asked(inner)
    assert held.stats().per_function[inner.label].fallback_calls == 5


def test_a_function_that_is_read_from_a_module_is_a_part_too(held: farm.Farm) -> None:
    module = types.ModuleType("rows")
    module.fills, module.adds = farm.njit(fills, farm=held), farm.njit(adds, farm=held)  # type: ignore[attr-defined]
    module.constant = 3  # type: ignore[attr-defined]
    scope: dict[str, Any] = {"rows": module}
    exec(
        "def outer(rows_of_it):\n state = rows.constant\n for row in rows_of_it:\n"
        "  state = rows.adds(rows.fills(row, state, step=2))\n return state",
        scope,
    )
    outer, array, expected = farm.njit(scope["outer"], farm=held), np.zeros((4, 6)), np.zeros((4, 6))
    state = 3
    for row in expected:
        state = adds(fills(row, state, step=2))
    assert outer(array) == state and array.tobytes() == expected.tobytes()
    assert not was_asked(module.fills) and not was_asked(module.adds)
    assert scope["rows"] is module and vars(module)["fills"].py_func is fills


def test_functions_that_call_each_other_stay_among_themselves(held: farm.Farm) -> None:
    scope: dict[str, Any] = {}
    exec(
        "def even(n):\n return True if n == 0 else odd(n - 1)\ndef odd(n):\n return False if n == 0 else even(n - 1)",
        scope,
    )
    functions = {name: farm.njit(scope[name], farm=held) for name in ("even", "odd")}
    scope.update(functions)
    assert functions["even"](10) is True
    assert was_asked(functions["even"]) and not was_asked(functions["odd"])
    assert scope["even"] is functions["even"]


def test_what_has_machine_code_runs_it(held: farm.Farm) -> None:
    outer, inner = pair(held, adds)
    inner.compile("(int64,)")
    outer(5)
    assert put_in(outer, "inner") is inner


@pytest.mark.parametrize("options", [{"fallback": "wait"}, {"mode": "strict"}, {"signature": "int64(int64)"}], ids=str)
def test_what_does_not_just_run_its_body_is_called_as_itself(held: farm.Farm, options: dict[str, Any]) -> None:
    outer, inner = pair(held, adds, **options)
    outer(0)
    assert put_in(outer, "inner") is inner


@pytest.fixture(scope="module")
def barn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[farm.Farm]:
    with farm.Farm(cache_dir=tmp_path_factory.mktemp("cache"), workers=1) as made:
        made.start()
        yield made


def counts_down(barn: farm.Farm, decorate: Callable[..., Any]) -> Any:
    scope: dict[str, Any] = {}
    exec("def ways(n):\n return 1 if n < 2 else ways(n - 1) + ways(n - 2)", scope)
    scope["ways"] = decorate(scope["ways"])
    return scope["ways"]


@pytest.mark.concurrency
@pytest.mark.parametrize("signature", [None, "int64(int64)"])
def test_a_body_that_is_never_seen_outside_its_calls_leaves_at_the_entrance_of_one(
    barn: farm.Farm, monkeypatch: pytest.MonkeyPatch, signature: str | None
) -> None:
    """Declared types are converted at each call, so that each goes through the farm; else each does that is told so."""
    monkeypatch.setattr(switch, "stop", lambda run: False)
    if signature is None:
        monkeypatch.setattr("farm.front.meanwhile.alone", lambda dispatcher, pending: dispatcher.py_func)
    function = counts_down(barn, farm.njit(signature, farm=barn) if signature else farm.njit(farm=barn))
    assert function(40) == 165580141
    assert barn.stats().per_function[function.label].switched >= 1
    assert function.status("(int64,)").state is CompileState.COMPILED
    assert not [one for one in switch.runs_here() if one.open]


def test_no_call_is_noted_once_there_is_an_answer(held: farm.Farm) -> None:
    outer, _ = pair(held, adds)
    outer(1)
    (entry,) = outer.table.entries()
    pending, noted = outer.farm().requests.of(entry), list[str]()

    class Ticket:
        def note_call(self) -> None:
            noted.append("call")

    pending.ticket = Ticket()
    pending.note_call()
    pending.answer.set_result(None)
    pending.note_call()
    assert noted == ["call"]
