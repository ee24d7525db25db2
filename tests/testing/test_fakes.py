"""The fakes that the farm ships: with them a test says when something is compiled, and no process is started."""

from collections.abc import Iterator
from pathlib import Path

import numba
import numpy as np
import psutil
import pytest

import farm
from farm import CompileState, explain
from farm.errors import FarmClosed
from farm.job.key import CompileKey
from farm.reasons import MissReason
from farm.store.artifact import Artifact, Miss, Stored
from farm.testing import InlinePool, ManualClock, MemoryStore

OVERFLOW = 10**9
"""Cubed, it wraps around in machine code."""


def cube(x: int) -> int:
    return x * x * x


def total(values: "np.ndarray") -> float:
    found = 0.0
    for value in np.sort(values):
        found += value
    return found


def refused(x: int) -> object:
    return object().absent(x)


@pytest.fixture
def pool() -> Iterator[InlinePool]:
    with InlinePool(held=True) as one:
        yield one


@pytest.fixture
def barn(pool: InlinePool) -> Iterator[farm.Farm]:
    with farm.Farm(pool=pool, store=MemoryStore()) as one:
        yield one


def test_what_is_held_compiles_when_the_test_says_so(pool: InlinePool, barn: farm.Farm) -> None:
    function = farm.njit(cube, farm=barn)
    assert function(OVERFLOW) == OVERFLOW**3
    assert pool.queued == (f"{__name__}.cube(int64)",)
    assert function(OVERFLOW) == OVERFLOW**3
    assert pool.run() == 1
    assert barn.wait(60)
    assert function(OVERFLOW) < OVERFLOW**3
    assert (barn.stats().compiled, barn.stats().fallback_calls) == (1, 2)


def test_jobs_are_run_in_the_order_in_which_they_came(pool: InlinePool, barn: farm.Farm) -> None:
    first, second = farm.njit(cube, farm=barn), farm.njit(total, farm=barn)
    first(1), second(np.ones(2))
    assert pool.run(1) == 1
    assert first.wait(60)
    assert first.status("(int64,)").state is CompileState.COMPILED
    assert second.status("(float64[::1],)").state is CompileState.COMPILING
    assert pool.run() == 1


def test_what_is_waited_for_is_not_held(barn: farm.Farm) -> None:
    strict = farm.njit(cube, farm=barn, mode="strict")
    assert strict(OVERFLOW) < OVERFLOW**3
    later = farm.njit(total, farm=barn)
    assert later(np.ones(3)) == 3.0
    assert barn.wait(60)
    assert later.status("(float64[::1],)").state is CompileState.COMPILED
    called = numba.njit(lambda x: strict(x) + 1)
    assert called(np.int32(2)) == 9


def test_a_pool_that_holds_nothing_compiles_in_the_call_that_asks() -> None:
    with farm.Farm(pool=InlinePool(), store=MemoryStore()) as barn:
        function = farm.njit(cube, farm=barn)
        function(2)
        assert barn.wait(60)
        assert function(OVERFLOW) < OVERFLOW**3
        assert (barn.stats().compiled, barn.stats().fallback_calls) in {(1, 0), (1, 1)}


def test_no_process_and_no_file_is_made(pool: InlinePool, barn: farm.Farm, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = psutil.Process().children()
    function = farm.njit(total, farm=barn, mode="strict")
    assert function(np.arange(4.0)) == 6.0
    assert psutil.Process().children() == before
    assert list(tmp_path.iterdir()) == []
    assert not barn.config.cache_dir.is_relative_to(tmp_path)


def test_errors_are_numbas_own(barn: farm.Farm) -> None:
    with pytest.raises(numba.TypingError):
        farm.njit(refused, farm=barn, mode="strict")(1)
    assert barn.stats().failed == 1


def test_a_memory_store_serves_a_second_farm_without_a_compile() -> None:
    store = MemoryStore()
    with farm.Farm(pool=InlinePool(), store=store) as barn:
        farm.njit(cube, farm=barn, mode="strict")(2)
    assert len(store) == 1
    with farm.Farm(pool=InlinePool(held=True), store=store) as barn:
        function = farm.njit(cube, farm=barn, mode="strict")
        assert function(OVERFLOW) < OVERFLOW**3
        assert (barn.stats().loaded, barn.stats().compiled) == (1, 0)
        assert "loaded from the store" in explain(function, 1)
        store.clear()
        farm.njit(cube, farm=barn)(np.float32(2))
        assert barn.stats().misses == {MissReason.ABSENT: 1}


def test_an_empty_memory_store_is_looked_at_and_no_directory_in_its_place(tmp_path: Path) -> None:
    with farm.Farm(cache_dir=tmp_path, pool=InlinePool()) as one:
        farm.njit(cube, farm=one, mode="strict")(3)
    with farm.Farm(cache_dir=tmp_path, pool=InlinePool(held=True), store=MemoryStore()) as other:
        assert farm.njit(cube, farm=other)(3) == 27
        assert other.stats().loaded == 0 and other.pending_now == 1


def test_workers_deliver_into_a_memory_store_too() -> None:
    store = MemoryStore()
    with farm.Farm(store=store, workers=1, nice=0) as barn:
        function = farm.njit(cube, farm=barn, mode="strict")
        assert function(OVERFLOW) < OVERFLOW**3
        assert barn.stats().compiled == len(store) == 1
        assert barn.stats().degraded == {}


@pytest.mark.filterwarnings("ignore:.*the farm is closed")
def test_a_closed_pool_compiles_nothing(pool: InlinePool, barn: farm.Farm) -> None:
    function = farm.njit(cube, farm=barn)
    future = function.submit("(int64,)")
    barn.close()
    assert isinstance(future.exception(60), FarmClosed)
    assert pool.run() == 0
    assert function(OVERFLOW) == OVERFLOW**3


def test_a_memory_store_gives_back_what_was_put_and_nothing_else() -> None:
    store, key = MemoryStore(), CompileKey.from_parts({"function": b"a"})
    assert isinstance(store.get(key), Miss)
    digest = store.put(Artifact(key, {"number": 1}, b"code", b"bitcode", b"environment"))
    found = store.get(key)
    assert isinstance(found, Stored)
    assert (found.meta, found.code, found.bitcode(), found.digest) == ({"number": 1}, b"code", b"bitcode", digest)
    assert store.stored_keys() == (key,) and store.contains(key)
    assert isinstance(store.get(CompileKey.from_parts({"function": b"b"})), Miss)


def test_a_manual_clock_moves_by_hand_only() -> None:
    clock = ManualClock(5.0)
    assert clock() == clock() == 5.0
    clock.advance(2.5)
    assert clock() == 7.5
