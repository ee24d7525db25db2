"""Who waits for what: waiters that others come before, calls that must not wait, and what no thread is there for."""

import concurrent.futures
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numba
import numpy as np
import pytest
from numba import literally
from test_farm import run_script

import farm
from farm import CompileMode, CompileState
from farm.errors import Degraded, FarmClosed
from farm.front import settle
from farm.front.pending import LiteralsWanted
from farm.pool.instructions import Waited
from farm.port.dispatch import compiler_lock
from farm.reasons import DegradedReason, RefusalReason

LARGE = np.arange(10.0**6)
"""Too large to be sent: what reads it is compiled in this process."""


@pytest.fixture
def barn(tmp_path: Path) -> Iterator[farm.Farm]:
    with farm.Farm(cache_dir=tmp_path / "cache", workers=1) as one:
        yield one


def double(a):
    return a + a


def from_large(i):
    return LARGE[i]


def by_value(a, n):
    return a + literally(n)


def in_thread(function: Callable[..., object], *arguments: object) -> tuple[threading.Thread, list[object]]:
    """Start a call; the list gets what it gives, or raises."""
    found: list[object] = []

    def call() -> None:
        try:
            found.append(function(*arguments))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=call, daemon=True)
    return thread, found


# -- waiters --------------------------------------------------------------------------------------------


@pytest.mark.concurrency
def test_a_wait_goes_on_while_another_thread_installs(barn: farm.Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    settler, installs, go_on = barn.settler(), threading.Event(), threading.Event()
    obtain = settler._obtain

    def held(*arguments: object) -> object:
        installs.set()
        assert go_on.wait(60)
        return obtain(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(settler, "_obtain", held)
    function = farm.njit(double, farm=barn)
    function.submit("(int64,)")
    assert installs.wait(60)
    assert not function.wait(0.01)
    assert not barn.wait(0)
    go_on.set()
    assert function.wait(60)
    assert function.status("(int64,)").state is CompileState.COMPILED


@pytest.mark.concurrency
def test_a_wait_with_a_limit_does_not_compile(barn: farm.Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    """The installer hears of it later: until then nobody compiles, and above all not the thread that waits."""
    settler, threads, arrived = barn.settler(), [], []
    compile_signature, arrive = settle.compile_signature, settler.installer.arrive

    def noted(*arguments: object) -> object:
        threads.append(threading.current_thread().name)
        return compile_signature(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(settle, "compile_signature", noted)
    monkeypatch.setattr(settler.installer, "arrive", arrived.append)
    function = farm.njit(from_large, farm=barn)
    function.submit("(int64,)")
    assert not function.wait(0.01)
    assert not function.wait(0)
    assert not threads
    arrive(*arrived)
    assert function.wait(60)
    assert threads == ["farm-installer"]
    assert function.status("(int64,)").state is CompileState.COMPILED


@pytest.mark.concurrency
def test_a_wait_with_a_limit_keeps_it_while_another_thread_compiles(barn: farm.Farm) -> None:
    holds, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with compiler_lock:
            holds.set()
            let_go.wait(30)

    holder, _ = in_thread(hold)
    holder.start()
    assert holds.wait(60)
    function = farm.njit(double, farm=barn)
    function.submit("(int64,)")
    (pending,) = barn.requests.all()
    assert pending.wait(60)
    assert not function.wait(0.01)
    assert not function.wait(0)
    assert holder.is_alive()
    let_go.set()
    assert function.wait(60)
    assert function.status("(int64,)").state is CompileState.COMPILED
    holder.join(60)


@pytest.mark.concurrency
def test_a_waiter_that_is_overtaken_in_the_middle_of_its_wait_asks_again(
    barn: farm.Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    settler = barn.settler()
    wait = settler.wait
    function = farm.njit(double, farm=barn, mode="strict")

    def overtaken(*arguments: object, **more: object) -> bool:
        monkeypatch.setattr(settler, "wait", wait)
        for entry in function.table.entries():
            entry.recompile()
        return wait(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(settler, "wait", overtaken)
    thread, found = in_thread(function, 3)
    thread.start()
    thread.join(60)
    assert found == [6]
    assert barn.stats().pending == 0


def test_who_waits_for_a_future_that_its_owner_cancelled_is_told(barn: farm.Farm) -> None:
    function = farm.njit(double, farm=barn)
    future = function.submit("(int64,)")
    assert future.cancel()
    assert concurrent.futures.wait([future], 60).done == {future}
    assert function.wait(60)
    assert function.status("(int64,)").state is CompileState.COMPILED


@pytest.mark.concurrency
def test_a_wait_that_begins_before_there_is_a_ticket_still_moves_the_job(
    barn: farm.Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    settler, posted = barn.settler(), []
    make_ticket = settler._ticket

    def waited_for_meanwhile(pending, order, *, waited):
        ticket = make_ticket(pending, order, waited=waited)
        post = ticket._post
        ticket._post = lambda note: (posted.append(type(note)), post(note))
        pending.note_wait()
        return ticket

    monkeypatch.setattr(settler, "_ticket", waited_for_meanwhile)
    function = farm.njit(double, farm=barn)
    function(1)
    assert posted == [Waited]
    assert function.wait(60)


@pytest.mark.concurrency
def test_a_farm_that_closes_just_before_a_job_is_taken_leaves_nobody_waiting(
    barn: farm.Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    settler = barn.settler()
    take = barn.requests.take

    def closing(*arguments: object, **more: object) -> object:
        barn.close()
        return take(*arguments, **more)  # type: ignore[arg-type]

    function = farm.njit(double, farm=barn)
    with monkeypatch.context() as patch:
        patch.setattr(barn.requests, "take", closing)
        status = function.submit("(int64,)")
    assert isinstance(status.exception(60), FarmClosed) or status.result().state is CompileState.UNCOMPILED
    assert barn.stats().pending == 0
    assert not settler.can_install()
    assert function(1) == 2


# -- literals -------------------------------------------------------------------------------------------


@pytest.mark.concurrency
def test_two_first_calls_that_both_learn_of_literals_both_get_their_result(
    barn: farm.Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ask with plain types; the second hears of the literals when the first is done."""
    function = farm.njit(by_value, farm=barn, mode="strict")
    ask, both_ask = barn.code_for_call, threading.Barrier(2)

    def held(dispatcher, arguments):
        if arguments == (numba.int64, numba.int64):
            both_ask.wait(60)
        try:
            return ask(dispatcher, arguments)
        except LiteralsWanted:
            if threading.current_thread() is second:
                first.join(60)
            raise

    monkeypatch.setattr(barn, "code_for_call", held)
    (first, found), (second, also_found) = in_thread(function, 1, 2), in_thread(function, 1, 2)
    for thread in (first, second):
        thread.start()
    for thread in (first, second):
        thread.join(60)
    assert (found, also_found) == ([3], [3])


def test_literals_that_are_wanted_one_after_the_other(barn: farm.Farm) -> None:
    def make(decorate):
        inner = decorate(lambda b: literally(b) + 1)

        def outer(a, b):
            first = literally(a)
            return inner(b) + first

        return decorate(outer)

    own, ours = make(numba.njit), make(farm.njit(farm=barn, mode="strict"))
    assert ours(1, 2) == own(1, 2) == 4
    assert ours(3, 2) == own(3, 2) == 6
    relaxed = make(farm.njit(farm=barn))
    for _ in range(4):
        assert relaxed(1, 2) == 4
        assert relaxed.wait(60)
    assert "runs machine code" in farm.explain(relaxed, 1, 2)


def test_an_argument_that_cannot_be_a_literal_is_refused_as_with_numba(barn: farm.Farm) -> None:
    for mode in ("strict", "async"):
        function = farm.njit(by_value, farm=barn, mode=mode)
        for _ in range(3):
            if mode == "strict":
                with pytest.raises(numba.errors.ForceLiteralArg):
                    function(1, 2.5)
            else:
                assert function(1, 2.5) == 3.5
                assert function.wait(60)


# -- calls that do not wait -----------------------------------------------------------------------------


@pytest.mark.concurrency
@pytest.mark.parametrize("fallback", ["auto", "python"])
def test_a_call_does_not_wait_for_what_this_process_compiles_itself(
    barn: farm.Farm, monkeypatch: pytest.MonkeyPatch, fallback: str
) -> None:
    compile_signature, begun, threads = settle.compile_signature, threading.Event(), []

    def noted(*arguments: object) -> object:
        threads.append(threading.current_thread().name)
        begun.set()
        return compile_signature(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(settle, "compile_signature", noted)
    function = farm.njit(from_large, farm=barn, fallback=fallback)
    assert function(3) == 3.0
    assert begun.wait(60)
    assert function.wait(60)
    assert threads == ["farm-installer"]
    assert function.status("(int64,)").reason is RefusalReason.ARRAY_TOO_LARGE


def test_explain_says_of_a_call_that_came_past_the_limit_that_it_did(barn: farm.Farm) -> None:
    barn.configure(max_ongoing=1)
    first, second = farm.njit(double, farm=barn), farm.njit(lambda a: a * 3, farm=barn)
    second(1.5)  # a function's first execution is past the limit
    assert second.wait(60)
    slot = object()
    assert barn.record.profiler.should_compile(first.identity, CompileMode.ASYNC, 1, slot).compiles and second(1) == 3
    assert "1 compiles are running, and 1 may (setting max_ongoing)" in farm.explain(second, 1)
    barn.record.profiler.release(slot)
    assert "Its next call asks for it." in farm.explain(second, 1)


# -- where no thread can be started ---------------------------------------------------------------------


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("farm-"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    return monkeypatch


def test_without_threads_calls_run_and_who_waits_compiles_here(barn: farm.Farm, no_threads: pytest.MonkeyPatch) -> None:
    barn.start()
    function, strict = farm.njit(double, farm=barn), farm.njit(double, farm=barn, mode="strict")
    assert function(1) == function(1) == 2
    assert strict(2) == 4
    assert strict.status("(int64,)").reason is RefusalReason.NO_POOL
    assert function.submit("(float64,)").result(60).state is CompileState.UNCOMPILED
    assert not farm.compile_all([(function, "(float64,)")]).rows[0].compiled
    assert "Its next call asks for it" in farm.explain(function, 1)
    assert farm.njit("int64(int64)", farm=barn)(double)(3) == 6
    stats = barn.stats()
    assert (stats.pending, stats.local, stats.failed) == (0, 1, 0)
    assert set(stats.degraded) == {DegradedReason.POOL_UNAVAILABLE}
    assert stats.degraded[DegradedReason.POOL_UNAVAILABLE] == 2  # once for the background, once for the waiter's job
    no_threads.undo()
    function(1)
    assert function.wait(60)
    assert function.status("(int64,)").state is CompileState.COMPILED


def test_a_missing_installer_is_an_error_for_those_who_ask_for_errors(
    tmp_path: Path, no_threads: pytest.MonkeyPatch
) -> None:
    with farm.Farm(cache_dir=tmp_path / "cache", on_degraded="raise") as barn:
        function = farm.njit(double, farm=barn)
        with pytest.raises(Degraded, match="can't start new thread"):
            function(1)
        assert function(1) == 2


@pytest.mark.parametrize("late", ["a thread", "atexit"])
def test_first_calls_when_the_main_thread_has_ended_give_results(tmp_path: Path, late: str) -> None:
    """Whether threads can still be started then differs from Python to Python; the results do not."""
    done = run_script(
        tmp_path,
        f"""
        import atexit, sys, threading, farm
        @farm.njit
        def double(a): return a + a
        @farm.njit(mode="strict")
        def strictly(a): return a + a
        def work():
            if threading.current_thread() is not threading.main_thread():
                threading.main_thread().join()
            print(double(1), strictly(2), double.wait(60), double(3), farm.stats().pending)
        if {late!r} == "atexit":
            atexit.register(work)
        else:
            threading.Thread(target=work).start()
        """,
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["2", "4", "True", "6", "0"], "")
