"""How a program ends: with jobs in every state, from every place, twice and at once; and nothing is left of it."""

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from sessions import eventually, run

import farm
from farm import CompileState
from farm.errors import FarmClosed
from farm.observe import events

OVERFLOW = 10**9

QUEUED = "asked = [farm.njit(power(n)) for n in range(8)]; [f(1) for f in asked]"
RUNNING = "f = farm.njit(slow(1)); f(np.ones(3)); eventually(busy)"
ENDS = {
    "with jobs queued": QUEUED,
    "with a job running": RUNNING,
    "with an answer on its way into the program": """
        import atexit
        from farm.front.settle import Settler
        obtain, installs, ends = Settler._obtain, threading.Event(), threading.Event()
        def held(*arguments):
            installs.set()
            ends.wait(60)
            return obtain(*arguments)
        Settler._obtain = held
        f = farm.njit(power(1)); f(1)
        installs.wait(60)
        atexit.register(ends.set)
    """,
    "with a thread that goes on calling": """
        def call():
            threading.main_thread().join()
            for number in range(40):
                assert farm.njit(power(number))(2) == 32 + number
        threading.Thread(target=call).start()
        farm.njit(power(1))(1)
    """,
    "with a daemon thread that calls for ever": """
        calls = []
        def call():
            while True:
                farm.njit(power(len(calls)))(2)
                calls.append(1)
        threading.Thread(target=call, daemon=True).start()
        eventually(lambda: len(calls) > 20)
    """,
    "while a daemon thread waits for a strict call": """
        threading.Thread(target=farm.njit(slow(1), mode="strict"), args=(np.ones(3),), daemon=True).start()
        eventually(busy)
        from farm.front import settle
        settle.compile_signature = lambda *arguments: os._exit(9)  # it would be in LLVM when the process ends
    """,
    "while a thread waits for a strict call": """
        threading.Thread(target=lambda: print(farm.njit(slow(1), mode="strict")(np.ones(3)))).start()
        eventually(busy)
    """,
    "and calls from handlers of its end": """
        import atexit
        f, strict, late = (farm.njit(power(n), mode=m) for n, m in enumerate(("async", "strict", "strict")))
        def work():
            assert f(2) == 32 and runs_machine_code(strict) and runs_machine_code(late)
            f.wait(1), farm.wait(1), farm.stats(), farm.explain(f, 2), farm.start(), repr(farm.default_farm())
            farm.default_farm().close()
            assert f(3) == 243
        atexit.register(work)
        f(1), strict(1)
        atexit.register(work)
    """,
    "by a thread that interrupts the main thread": """
        import _thread
        f = farm.njit(slow(1)); f(np.ones(3)); eventually(busy)
        try:
            threading.Thread(target=_thread.interrupt_main).start()
            threading.Event().wait(60)
        except KeyboardInterrupt:
            pass
    """,
    "after os.register_at_fork and a child": RUNNING
    + """
        if os.fork() == 0:
            sys.exit(0)
        assert os.wait()[1] == 0
    """.replace("\n        ", "\n"),
}


@pytest.mark.concurrency
@pytest.mark.parametrize("how", ENDS)
def test_a_program_ends_clean(tmp_path: Path, how: str) -> None:
    done = run(tmp_path, ENDS[how], FARM_EXIT_GRACE_S="0.2")
    assert (done.code, done.err) == (0, ""), done


@pytest.mark.concurrency
def test_exit_codes_and_uncaught_errors_are_the_programs_own(tmp_path: Path) -> None:
    assert run(tmp_path, RUNNING + "\nsys.exit(3)", FARM_EXIT_GRACE_S="0").code == 3
    done = run(tmp_path, RUNNING + "\nraise ValueError('mine')", FARM_EXIT_GRACE_S="0")
    assert done.code == 1 and done.err.count("Traceback") == 1 and done.err.endswith("ValueError: mine\n")


# -- close ------------------------------------------------------------------------------------------------


def power(number: int) -> Callable[[int], int]:
    def fifth(a):
        return a * a * a * a * a + number

    return fifth


class Closes:
    """A listener that closes the farm at the first event of a kind."""

    def __init__(self, barn: farm.Farm, kind: type) -> None:
        self._barn, self._kind = barn, kind

    def on_event(self, event: events.Event) -> None:
        if isinstance(event, self._kind):
            self._barn.close()


def from_a_listener(barn: farm.Farm, function) -> None:
    barn.add_listener(Closes(barn, events.CompileStarted))
    function(1)


def from_a_listener_in_the_installer(barn: farm.Farm, function) -> None:
    done = threading.Event()

    class Tells(Closes):
        def on_event(self, event: events.Event) -> None:
            super().on_event(event)
            if isinstance(event, events.CompileFinished):
                done.set()

    barn.add_listener(Tells(barn, events.CompileFinished))
    function(1)
    assert done.wait(60)


def from_a_future(barn: farm.Farm, function) -> None:
    done = threading.Event()
    function.submit("(int64,)").add_done_callback(lambda _: (barn.close(), done.set()))
    assert done.wait(60)


def from_a_fallback(barn: farm.Farm, function) -> None:
    function.fallback = lambda a: barn.close()
    function(1)
    function.fallback = None


def from_two_threads(barn: farm.Farm, function) -> None:
    function(1)
    barrier = threading.Barrier(2)
    threads = [threading.Thread(target=lambda: (barrier.wait(60), barn.close())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def from_a_signal_handler(barn: farm.Farm, function) -> None:
    """Which comes while this thread holds a lock of the farm."""
    before = signal.signal(signal.SIGUSR1, lambda *_: barn.close())
    try:
        function(1)
        with barn._lock:
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def from_a_handler_in_the_middle_of_a_wait(barn: farm.Farm, function) -> None:
    strict = farm.njit(power(10), farm=barn, mode="strict")
    before = signal.signal(signal.SIGUSR1, lambda *_: barn.close())
    main = threading.main_thread().ident
    barn.add_listener(Signals(main))
    try:
        assert strict(OVERFLOW) < OVERFLOW**3
    finally:
        signal.signal(signal.SIGUSR1, before)


class Signals:
    """Sends the main thread a signal when a compile has begun."""

    def __init__(self, thread: int | None) -> None:
        self._thread = thread

    def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.CompileStarted) and self._thread is not None:
            signal.pthread_kill(self._thread, signal.SIGUSR1)


@pytest.mark.concurrency
@pytest.mark.parametrize(
    "close",
    [
        from_a_listener,
        from_a_listener_in_the_installer,
        from_a_future,
        from_a_fallback,
        from_two_threads,
        from_a_signal_handler,
        from_a_handler_in_the_middle_of_a_wait,
    ],
    ids=lambda close: close.__name__,
)
@pytest.mark.filterwarnings("ignore:.*the farm is closed")
def test_closing_is_harmless_wherever_it_comes_from(tmp_path: Path, close) -> None:
    with farm.Farm(cache_dir=tmp_path / "cache", workers=1, nice=0, exit_grace_s=0) as barn:
        function = farm.njit(power(0), farm=barn)
        close(barn, function)
        assert barn.closed
        barn.close()
        assert function(2) == 32
        assert barn.wait(60)
        assert barn.stats().pending == 0
        with pytest.raises(FarmClosed):
            function.submit("(int64,)")
        strict = farm.njit(power(1), farm=barn, mode="strict")
        assert strict(OVERFLOW) < OVERFLOW**3
        assert strict.status("(int64,)").state is CompileState.COMPILED


@pytest.mark.concurrency
@pytest.mark.parametrize("caller", ["a strict call", "a jitted caller"])
def test_who_waits_while_the_farm_is_closed_gets_the_result(tmp_path: Path, caller: str) -> None:
    with farm.Farm(cache_dir=tmp_path / "cache", workers=1, nice=0, exit_grace_s=0) as barn:
        other = farm.njit(lambda x: np.median(x) + np.std(x), farm=barn)
        function = farm.njit(power(0), farm=barn, mode="strict")
        call = function if caller == "a strict call" else numba.njit(lambda a: function(a))
        found: list[object] = []
        thread = threading.Thread(target=lambda: found.append(call(OVERFLOW)))
        other(np.ones(3))  # which keeps the only worker busy
        thread.start()
        eventually(lambda: function.status("(int64,)").state is CompileState.COMPILING)
        barn.close()
        thread.join(60)
        assert found and found[0] < OVERFLOW**3
        assert function.status("(int64,)").state is CompileState.COMPILED
        assert barn.stats().local == 1


@pytest.mark.concurrency
def test_a_strict_call_that_has_asked_when_the_farm_is_closed_compiles_once_and_is_known(tmp_path: Path) -> None:
    returned = threading.Event()
    with farm.Farm(cache_dir=tmp_path / "cache", workers=1, nice=0, exit_grace_s=0) as barn:
        function = farm.njit(power(0), farm=barn, mode="strict")
        ask, forget_calls = barn._start_for_call, function.table.finalize
        closing = threading.Thread(target=barn.close)

        def ask_and_close(*arguments: Any) -> None:
            ask(*arguments)
            closing.start()
            eventually(lambda: barn.closed)

        def forget_calls_later() -> None:
            assert returned.wait(60)
            forget_calls()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(barn, "_start_for_call", ask_and_close)
            patch.setattr(function.table, "finalize", forget_calls_later)
            assert function(OVERFLOW) < OVERFLOW**3
            returned.set()
            closing.join(60)
        assert function.status("(int64,)").state is CompileState.COMPILED
        assert (barn.stats().local, barn.stats().pending) == (1, 0)
