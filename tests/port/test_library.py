"""The library as numba's dispatchers see it: what is asked, what is handed over, what is kept apart."""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from numba import float64, int64, types
from numba.core import serialize
from numba.core.bytecode import FunctionIdentity
from numba.core.errors import TypingError
from numba.core.registry import CPUDispatcher

from farm.errors import NotShippable
from farm.port.compile import Parts, compile_signature, take_apart
from farm.port.iterables import picklable_iterables
from farm.port.library import LibraryDispatcher, Request, _refuse_a_type_that_does_not_travel, serving
from farm.port.load import load
from farm.port.target import effective_flags
from farm.reasons import MissReason, RefusalReason


class Shelf:
    """A library in memory, and a diary of what happened to each place."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str, str], Parts] = {}
        self.diary: list[str] = []
        self.refusals: dict[str, RefusalReason] = {}

    def __call__(self, request: Request) -> "ShelfPlace":
        return ShelfPlace(self, request)


class ShelfPlace:
    def __init__(self, shelf: Shelf, request: Request) -> None:
        self.name = request.dispatcher.py_func.__name__
        flags = effective_flags(request.dispatcher.targetoptions, request.caller_flags)
        self.key = self.name, str(request.arguments), flags
        self.shelf = shelf
        self.parts = shelf.kept.get(self.key)
        self.symbol_base = None
        shelf.diary.append(f"ask {self.name}")

    def loaded(self) -> None:
        self.shelf.diary.append(f"loaded {self.name}")

    def unusable(self, reason: MissReason, detail: str) -> None:
        self.shelf.diary.append(f"unusable {self.name}: {reason.name}")

    def publish(self, parts: Parts) -> None:
        self.shelf.kept[self.key] = parts
        self.shelf.diary.append(f"publish {self.name}")

    def withhold(self, refusal: NotShippable) -> None:
        self.shelf.refusals[self.name] = refusal.reason
        self.shelf.diary.append(f"withhold {self.name}")

    def close(self) -> None:
        self.shelf.diary.append(f"close {self.name}")


def jit(function: Callable[..., Any], **options: Any) -> Any:
    return LibraryDispatcher(function, targetoptions={"nopython": True, **options})


def compiled(shelf: Shelf, dispatcher: Any, *arguments: Any) -> tuple[Any, int]:
    """One job: the result and its symbol base."""
    with serving(shelf):
        return compile_signature(dispatcher, arguments, None, None)


def doubled(a):
    return a + a


def make_caller(callee: Any, **options: Any) -> Any:
    def caller(a):
        return callee(a) + 1

    return jit(caller, **options)


def test_what_was_compiled_is_published_and_the_next_job_loads_it() -> None:
    shelf = Shelf()
    callee = jit(doubled)
    compiled(shelf, make_caller(callee), float64)
    assert shelf.diary == ["ask doubled", "publish doubled", "close doubled"]
    shelf.diary.clear()
    result, base = compiled(shelf, make_caller(callee), float64)
    assert shelf.diary == ["ask doubled", "loaded doubled", "close doubled"]
    assert load(take_apart(result, base)).entry_point(2.0) == 5.0


def test_within_a_job_a_callee_is_asked_for_once() -> None:
    shelf = Shelf()
    callee = jit(doubled)
    one, two = make_caller(callee), make_caller(callee)

    def both(a):
        return one(a) + two(a)

    compiled(shelf, jit(both), float64)
    assert shelf.diary.count("ask doubled") == 1


def test_parts_that_do_not_load_are_compiled_again() -> None:
    shelf = Shelf()
    callee = jit(doubled)
    compiled(shelf, make_caller(callee), float64)
    (key,) = shelf.kept
    shelf.kept[key] = dataclasses.replace(shelf.kept[key], bitcode=b"BC nonsense")
    shelf.diary.clear()
    compiled(shelf, make_caller(callee), float64)
    expected = ["ask doubled", "unusable doubled: LOAD_FAILED", "publish doubled", "close doubled"]
    assert shelf.diary == expected


def test_caller_and_callee_have_symbol_bases_of_their_own() -> None:
    shelf = Shelf()
    result, base = compiled(shelf, make_caller(jit(doubled)), float64)
    (callee,) = shelf.kept.values()
    assert callee.meta["symbol_base"] != base
    assert f"v{callee.meta['symbol_base']}" in "".join(callee.meta["defined"])
    assert f"v{base}" in result.fndesc.mangled_name


def test_the_callers_names_do_not_depend_on_whether_its_callee_was_compiled() -> None:
    shelf = Shelf()
    callee = jit(doubled)
    for _ in range(2):
        _, base = compiled(shelf, make_caller(callee), float64)
        assert next(FunctionIdentity._unique_ids) == base + 1
    assert "loaded doubled" in shelf.diary


def test_a_callee_that_returns_a_function_is_withheld() -> None:
    """A copy of the function's type would come back, and a caller that compares types would not compile."""

    def same(function):
        return function

    same, callee = jit(same), jit(doubled)

    def caller(a):
        return same(callee)(a)

    shelf = Shelf()
    result, _ = compiled(shelf, jit(caller), float64)
    assert result.entry_point(2.0) == 4.0
    assert shelf.refusals == {"same": RefusalReason.NOT_SERIALISABLE}


@pytest.mark.parametrize("kind", [float64[:, ::1], types.UniTuple(int64, 3), types.DictType(int64, float64)])
def test_ordinary_return_types_travel(kind: Any) -> None:
    _refuse_a_type_that_does_not_travel(kind)


HUGE = np.zeros(2_000_000)


def test_what_holds_addresses_is_withheld_without_a_warning_and_the_compile_goes_on() -> None:
    def huge(a):
        return HUGE[a]

    shelf = Shelf()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result, base = compiled(shelf, make_caller(jit(huge)), int64)
    assert shelf.refusals == {"huge": RefusalReason.DYNAMIC_GLOBALS}
    assert result.entry_point(3) == 1.0
    with pytest.raises(NotShippable):
        take_apart(result, base)


def make_mutual() -> tuple[Any, Any]:
    def ping(n):
        return 0 if n <= 0 else pong(n - 1) + 1

    def pong(n):
        return 0 if n <= 0 else ping(n - 1) + 2

    ping, pong = jit(ping), jit(pong)
    return ping, pong


def test_a_callee_that_calls_back_into_an_unfinished_compile_is_withheld_with_all_that_follow() -> None:
    ping, _ = make_mutual()
    callee, early = jit(doubled), jit(lambda a: a - 1)

    def all_of_them(n):
        return early(n) + ping(n) + callee(n)

    shelf = Shelf()
    compiled(shelf, jit(all_of_them), int64)
    assert [key[0] for key in shelf.kept] == ["<lambda>"]
    assert shelf.refusals == dict.fromkeys(("pong", "ping", "doubled"), RefusalReason.UNRESOLVED_SYMBOLS)
    compiled(shelf, make_caller(callee), int64)
    assert "doubled" in [key[0] for key in shelf.kept], "the next job starts anew"


def test_a_callee_that_calls_only_itself_is_published() -> None:
    def make():
        def fact(n):
            return 1 if n < 2 else n * fact(n - 1)

        fact = jit(fact)
        return fact

    shelf = Shelf()
    fact = make()
    compiled(shelf, make_caller(fact), int64)
    result, base = compiled(shelf, make_caller(fact), int64)
    assert "loaded fact" in shelf.diary
    assert load(take_apart(result, base)).entry_point(5) == 121


def test_a_callee_that_fails_is_let_go_and_not_published() -> None:
    inner = jit(lambda a: a.missing)

    def outer(a):
        return inner(a)

    shelf = Shelf()
    with pytest.raises(TypingError, match="missing"):
        compiled(shelf, make_caller(jit(outer)), float64)
    asked = ["ask outer", "ask <lambda>"]
    if numba.version_info.short < (0, 62):  # numba does not remember what failed: each level tries its callee twice
        asked = ["ask outer", "ask <lambda>", "ask <lambda>", "ask outer"]
    assert shelf.diary == asked + [one.replace("ask", "close") for one in reversed(asked)]


@pytest.mark.parametrize("first", [0, 1])
def test_each_caller_links_the_callee_that_has_its_flags(first: int) -> None:
    def divided(a):
        return 1.0 / a

    callee = jit(divided)
    callers = [make_caller(callee, error_model="numpy"), make_caller(callee)]
    if first:
        callers.reverse()
    one, two = callers

    def both(a):
        return one(a) + two(a)

    shelf = Shelf()
    result, base = compiled(shelf, jit(both), float64)
    assert shelf.diary.count("publish divided") == 2
    assert load(take_apart(result, base)).entry_point(1.0) == 4.0
    with pytest.raises(ZeroDivisionError):
        result.entry_point(0.0)
    careful, careful_base = compiled(shelf, make_caller(callee), float64)
    with pytest.raises(ZeroDivisionError):
        load(take_apart(careful, careful_base)).entry_point(0.0)


def test_a_function_passed_as_an_argument_has_the_return_type_that_numba_gives_it() -> None:
    """The declared one from numba 0.68 on, the inferred one before."""

    def seven(a):
        return 7

    expected = numba.njit(seven).get_compile_result(float64(int64)).signature.return_type
    with serving(Shelf()):
        assert jit(seven).get_compile_result(float64(int64)).signature.return_type == expected


def test_outside_a_job_nobody_is_asked_and_python_can_call() -> None:
    shelf = Shelf()
    callee = jit(doubled)
    compiled(shelf, make_caller(callee), float64)
    compiled(shelf, make_caller(callee), float64)
    shelf.diary.clear()
    assert callee(2.0) == 4.0
    assert callee(2.0) == 4.0
    assert not shelf.diary


def test_globals_that_changed_between_two_jobs_count() -> None:
    def scaled(a):
        return a * FACTOR

    callee = jit(scaled)
    values = []
    for factor in (2, 3):
        globals()["FACTOR"] = factor
        result, _ = compiled(Shelf(), make_caller(callee), int64)
        values.append(result.entry_point(10))
    assert values == [21, 31]


FACTOR = 1


def test_in_a_pickle_it_is_an_ordinary_dispatcher() -> None:
    assert b"LibraryDispatcher" not in serialize.dumps(jit(doubled))
    assert b"CPUDispatcher" in serialize.dumps(jit(doubled))
    assert repr(jit(doubled)) == repr(CPUDispatcher(doubled))


def test_the_types_that_containers_are_gone_through_by_are_the_same_after_a_pickle() -> None:
    """numba's own reduction of these, which hold themselves, gives what cannot be unpickled."""
    a_dict, a_list = types.DictType(int64, float64), types.ListType(float64)
    iterables = [types.DictKeysIterableType(a_dict), types.DictValuesIterableType(a_dict)]
    iterables += [types.DictItemsIterableType(a_dict), types.ListTypeIterableType(a_list)]
    picklable_iterables()
    for kind in (*iterables, *(one.iterator_type for one in iterables)):
        assert serialize.loads(serialize.dumps(kind)) == kind
