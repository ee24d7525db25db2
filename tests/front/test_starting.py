"""A pool that is not up yet: who waits compiles in his own thread, as with numba; the store gets it all the same."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba import literally
from test_farm import run_script
from these import bring_up

import farm
from farm import CompileState, explain
from farm.errors import Degraded
from farm.front import pools, settle
from farm.front.pending import Source
from farm.observe.events import CompiledLocally, Event, JobEnded
from farm.reasons import DegradedReason, RefusalReason
from farm.testing import InlinePool, MemoryStore

STARTING = RefusalReason.POOL_STARTING
OVERFLOW = 10**9
"""Cubed, it wraps around in machine code."""


class StartingPool(InlinePool):
    """A pool that has not said that it is there; what nobody waits for is held until the test says so."""

    ready = False
    started = False

    def __init__(self) -> None:
        super().__init__(held=True)

    def start(self) -> None:
        self.started = True


class Heard:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)


@pytest.fixture
def pool() -> Iterator[StartingPool]:
    with StartingPool() as one:
        yield one


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def barn(pool: StartingPool, store: MemoryStore) -> Iterator[farm.Farm]:
    with farm.Farm(pool=pool, store=store) as one:
        yield one


@pytest.fixture
def compilers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads that compile in this process, one for each compile."""
    names: list[str] = []
    compile_signature = settle.compile_signature

    def noted(*arguments: Any) -> Any:
        names.append(threading.current_thread().name)
        return compile_signature(*arguments)

    monkeypatch.setattr(settle, "compile_signature", noted)
    return names


def cube(a):
    return a * a * a


def by_value(a, n):
    return a + literally(n)


def refused(a):
    return object().absent(a)


def source_of(function: Any, types: str = "(int64,)") -> Source | None:
    origin = function.status(types).origin
    return None if origin is None else origin.source


# -- who compiles at once -----------------------------------------------------------------------------------


def test_a_call_that_waits_compiles_in_its_own_thread_and_says_why(
    barn: farm.Farm, pool: StartingPool, compilers: list[str]
) -> None:
    heard = Heard()
    barn.add_listener(heard)
    function = farm.njit(cube, farm=barn, fallback="wait")
    assert function(OVERFLOW) < OVERFLOW**3
    assert compilers == [threading.current_thread().name]
    status, stats = function.status("(int64,)"), barn.stats()
    assert (status.state, status.reason, source_of(function)) == (CompileState.COMPILED, STARTING, Source.LOCAL)
    assert (stats.local, stats.compiled, stats.rejected, stats.pending) == (1, 0, 0, 0)
    assert STARTING.value in explain(function, OVERFLOW)
    (local,) = [one for one in heard.events if isinstance(one, CompiledLocally)]
    assert local.reason is STARTING
    assert not any(isinstance(one, JobEnded) for one in heard.events), "the job is the store's, and goes on"
    assert pool.queued == (f"{__name__}.cube(int64)",)


def test_a_body_that_cannot_run_as_python_is_compiled_at_once_too(barn: farm.Farm, compilers: list[str]) -> None:
    def zeros(n):
        return np.zeros(n, dtype=numba.float64).size

    function = farm.njit(zeros, farm=barn)
    assert function(3) == 3
    assert compilers == [threading.current_thread().name]


def test_a_jitted_caller_has_its_callees_compiled_at_once_however_deep(barn: farm.Farm, compilers: list[str]) -> None:
    inner = farm.njit(cube, farm=barn)

    @farm.njit(farm=barn)
    def middle(a):
        return inner(a) + 1

    @numba.njit
    def outer(a):
        return middle(a) + 1

    assert outer(OVERFLOW) < OVERFLOW**3
    assert len(compilers) == 2
    for one in (inner, middle):
        assert (source_of(one), one.status("(int64,)").reason) == (Source.LOCAL, STARTING)


def test_what_was_asked_for_before_is_compiled_at_once_when_somebody_has_to_wait(
    barn: farm.Farm, pool: StartingPool, compilers: list[str]
) -> None:
    function = farm.njit(cube, farm=barn)
    assert function(OVERFLOW) == OVERFLOW**3, "it runs in Python meanwhile"
    assert pool.queued and not compilers

    @numba.njit
    def outer(a):
        return function(a)

    assert outer(OVERFLOW) == function(OVERFLOW) < OVERFLOW**3
    assert source_of(function) is Source.LOCAL
    assert barn.pending_now == 0


def test_a_function_that_numba_compiles_by_value_is_compiled_at_once_for_each(barn: farm.Farm) -> None:
    function = farm.njit(by_value, farm=barn, fallback="wait")
    assert [function(1, n) for n in (1, 2)] == [2, 3]
    assert barn.stats().local == 2


def test_what_numba_refuses_is_raised_at_once_and_once(
    barn: farm.Farm, pool: StartingPool, compilers: list[str]
) -> None:
    function = farm.njit(refused, farm=barn, fallback="wait")
    for _ in range(2):
        with pytest.raises(numba.TypingError):
            function(1)
    pool.run()
    with pytest.raises(numba.TypingError):
        function(1)
    assert len(compilers) == 1
    assert barn.stats().failed == 1


@pytest.mark.concurrency
def test_many_threads_that_wait_make_one_compile(
    barn: farm.Farm, pool: StartingPool, compilers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some come while it is handed over, and wait for the pool: the one who asked compiles for them as well."""
    monkeypatch.setattr(pool, "_note", lambda _: None)  # a pool that is not up hears of waiters, and does nothing
    function = farm.njit(cube, farm=barn, fallback="wait")
    together, found = threading.Barrier(8), []

    def call() -> None:
        together.wait(60)
        found.append(function(OVERFLOW))

    threads = [threading.Thread(target=call, daemon=True) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    assert len(found) == 8 and len(set(found)) == 1
    assert len(compilers) == 1
    assert barn.stats().pending == 0


def test_an_interrupted_compile_is_given_up_and_the_next_call_asks_again(
    barn: farm.Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_signature = settle.compile_signature

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    function = farm.njit(cube, farm=barn, fallback="wait")
    monkeypatch.setattr(settle, "compile_signature", interrupted)
    with pytest.raises(KeyboardInterrupt):
        function(OVERFLOW)
    assert barn.pending_now == 0
    monkeypatch.setattr(settle, "compile_signature", compile_signature)
    assert function(OVERFLOW) < OVERFLOW**3
    assert source_of(function) is Source.LOCAL


# -- who does not ---------------------------------------------------------------------------------------------


def strictly(function: Any) -> None:
    function(OVERFLOW)


def by_future(function: Any) -> None:
    found: Future[Any] = function.submit("(int64,)")
    assert function.wait(60)
    found.result(60)


def of_all(function: Any) -> None:
    assert farm.compile_all([(function, "(int64,)")]).rows[0].compiled


def by_name(function: Any) -> None:
    function.compile("(int64,)")


@pytest.mark.parametrize("ask", [strictly, by_future, of_all, by_name])
def test_who_asks_for_a_workers_compile_gets_it(
    barn: farm.Farm, compilers: list[str], ask: Callable[[Any], None]
) -> None:
    function = farm.njit(cube, farm=barn, mode="strict" if ask is strictly else None)
    ask(function)
    assert source_of(function) is Source.WORKER
    assert not compilers


def draws(n):
    """Cannot be done again, so that its calls wait."""
    for _ in range(n):
        np.random.random()
    return n**3


@pytest.mark.parametrize(("fallback", "body"), [("wait", cube), ("auto", draws)])
def test_declared_signatures_wait_for_the_workers(
    barn: farm.Farm, compilers: list[str], fallback: str, body: Callable[..., Any]
) -> None:
    function = farm.njit("int64(int64)", farm=barn, fallback=fallback)(body)  # with "wait" it waits here
    number = OVERFLOW if body is cube else 3
    assert function(number) == numba.njit(body)(number)
    assert source_of(function) is Source.WORKER
    assert not compilers


def test_what_is_to_be_verified_waits_for_the_workers(pool: StartingPool, compilers: list[str]) -> None:
    with farm.Farm(pool=pool, store=MemoryStore(), verify=True) as barn:
        assert farm.njit(cube, farm=barn, fallback="wait")(OVERFLOW) < OVERFLOW**3
        assert not compilers


def test_what_the_store_has_is_loaded_while_the_pool_starts(
    barn: farm.Farm, pool: StartingPool, store: MemoryStore, compilers: list[str]
) -> None:
    farm.njit(cube, farm=barn, fallback="wait")(OVERFLOW)
    pool.run()
    with farm.Farm(pool=StartingPool(), store=store) as other:
        function = farm.njit(cube, farm=other, fallback="wait")
        assert function(OVERFLOW) < OVERFLOW**3
        assert source_of(function) is Source.STORE
    assert len(compilers) == 1


def test_a_pool_that_comes_up_before_the_compile_begins_is_waited_for(
    barn: farm.Farm, pool: StartingPool, monkeypatch: pytest.MonkeyPatch, compilers: list[str]
) -> None:
    """The job was handed over for the store alone: whoever waits for it now gets its answer."""
    answers = iter([False, False])
    monkeypatch.setattr(StartingPool, "ready", property(lambda _: next(answers, True)))
    function = farm.njit(cube, farm=barn, fallback="wait")
    assert function(OVERFLOW) < OVERFLOW**3
    assert source_of(function) is Source.WORKER
    assert not compilers and not pool.queued
    assert next(answers, None) is None


# -- what becomes of the job -----------------------------------------------------------------------------------


def test_what_the_pool_makes_for_the_store_is_there_and_is_not_loaded(
    barn: farm.Farm, pool: StartingPool, store: MemoryStore
) -> None:
    function = farm.njit(cube, farm=barn, fallback="wait")
    function(OVERFLOW)
    assert barn.wait(0), "nothing is pending"
    installed = dict(function.overloads)
    assert not len(store)
    assert pool.run() == 1
    assert len(store) == 1
    assert function.overloads == installed
    stats = barn.stats()
    assert (stats.local, stats.compiled, stats.loaded, stats.pending) == (1, 0, 0, 0)


def test_a_pool_that_could_not_start_is_counted_though_nobody_waited_for_it(
    barn: farm.Farm, pool: StartingPool
) -> None:
    farm.njit(cube, farm=barn, fallback="wait")(OVERFLOW)
    pool.close()
    assert barn.stats().degraded == {DegradedReason.POOL_UNAVAILABLE: 1}


def test_who_wants_degradations_raised_hears_of_a_pool_that_cannot_start(pool: StartingPool) -> None:
    pool.close()
    with farm.Farm(pool=pool, store=MemoryStore(), on_degraded="raise") as barn, pytest.raises(Degraded):
        farm.njit(cube, farm=barn, fallback="wait")(OVERFLOW)


def test_nothing_is_made_for_a_store_that_takes_nothing_and_the_pool_starts_all_the_same(
    pool: StartingPool, tmp_path: Path
) -> None:
    with farm.Farm(pool=pool, cache_dir=tmp_path, readonly=True) as barn:
        function = farm.njit(cube, farm=barn, fallback="wait")
        assert function(OVERFLOW) < OVERFLOW**3
        assert function.status("(int64,)").reason is STARTING
        assert pool.started and not pool.queued


def test_a_real_pool_that_is_held_back_keeps_no_caller_and_fills_the_store_before_the_farm_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compilers: list[str]
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    monkeypatch.setenv("HELD_POOL", str(gate))
    monkeypatch.setattr(pools, "PRELOAD", "held_pool:held")
    with farm.Farm(cache_dir=tmp_path / "cache", workers=1) as barn:
        function = farm.njit(cube, farm=barn, fallback="wait")
        assert function(OVERFLOW) < OVERFLOW**3
        assert compilers == [threading.current_thread().name]
        assert repr(barn) == "<Farm [1 ready | 0 pending | <Pool [0 idle, 0 busy | 1 queued]>]>"
        gate.write_text("go on")  # blocks until the foreman has come so far
        barn.close(grace_s=60)
    with farm.Farm(cache_dir=tmp_path / "cache") as other:
        farm.njit(cube, farm=other, fallback="wait")(OVERFLOW)
        assert other.stats().loaded == 1


WAITS = """
    import farm
    @farm.njit(fallback="wait")
    def cube(a):
        return a * a * a
    cube(3)
    print(farm.stats().local, farm.stats().loaded)
    """


def test_a_program_that_ends_at_once_leaves_what_it_compiled_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FARM_EXIT_GRACE_S", "60")  # the machine may be busy
    first, second = run_script(tmp_path, WAITS), run_script(tmp_path, WAITS)
    assert (first.stdout.split(), second.stdout.split()) == (["1", "0"], ["0", "1"]), first.stderr + second.stderr


def test_a_pool_that_never_comes_up_does_not_keep_the_program_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    monkeypatch.setenv("HELD_POOL", str(gate))
    monkeypatch.setenv("FARM_EXIT_GRACE_S", "0.1")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    done = run_script(
        tmp_path, f"    import farm.front.pools\n    farm.front.pools.PRELOAD = 'held_pool:held'\n{WAITS}"
    )
    assert (done.returncode, done.stdout.split()) == (0, ["1", "0"]), done.stderr


# -- early -----------------------------------------------------------------------------------------------------


UP = """
    import farm, psutil, time
    from farm.port.target import settings
    barn = farm.default_farm()
    end = time.monotonic() + 60
    while barn.settler().supply.starting(barn.config, settings()) and time.monotonic() < end:
        time.sleep(0.01)
    print(not barn.settler().supply.starting(barn.config, settings()), len(psutil.Process().children(recursive=True)))
    """


def test_with_the_setting_importing_farm_brings_one_pool_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARM_PRESTART", "1")
    done = run_script(tmp_path, UP)
    assert done.stdout.split() == ["True", "1"], done.stderr  # the foreman, which imports farm too, starts none


@pytest.mark.parametrize("variables", [{"FARM_PRESTART": "0"}, {"FARM_PRESTART": "1", "FARM_ENABLED": "0"}])
def test_without_it_and_in_a_farm_that_is_off_nothing_is_started(variables: dict[str, str]) -> None:
    program = "import farm, threading, psutil; print(threading.active_count(), len(psutil.Process().children()))"
    environment = {**os.environ, **variables}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.stdout.split() == ["1", "0"], done.stderr


def test_a_value_that_is_none_is_told_by_the_first_farm_not_by_the_import() -> None:
    program = "import farm\ntry:\n    farm.default_farm()\nexcept farm.errors.ConfigError as error:\n    print(error)"
    environment = {**os.environ, "FARM_PRESTART": "perhaps"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert "prestart" in done.stdout and "perhaps" in done.stdout, done.stderr


def test_a_started_farm_has_its_pool_up_without_a_compile(tmp_path: Path) -> None:
    with farm.Farm(cache_dir=tmp_path / "cache", workers=1) as barn:
        bring_up(barn)
        function = farm.njit(cube, farm=barn, fallback="wait")
        assert function(OVERFLOW) < OVERFLOW**3
        assert source_of(function) is Source.WORKER
