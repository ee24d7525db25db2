"""A body is stopped exactly where it may be: not before it begins, not after it has ended, and nowhere beside it."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from interrupted import interrupted, places

from farm.front import switch
from farm.front.switch import Run, Stopper, Switched, run_stoppable, runs_here, runs_of, stop

BOUND_S = 60.0


class Compile:
    """What brings the code, one day."""

    def __init__(self, *, there: bool = False) -> None:
        self.there = there


def loops_for_ever() -> int:
    total = 0
    while True:
        total += 1


def run_of(*bodies: Callable[..., Any], owner: Any = None) -> Run:
    return Run(owner or Compile(), frozenset(body.__code__ for body in bodies))


def nothing_is_pending() -> bool:
    """Whether an exception that was sent to this thread would have come by now."""
    total = 0
    for number in range(1000):
        total += abs(number)
    return total == 499500 and not [one for one in runs_here() if one.open]


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + BOUND_S
    while not true():
        assert time.monotonic() < end, "it did not come about in a minute"
        time.sleep(0.001)


class Caller(threading.Thread):
    """Runs a body in a thread, and keeps what comes of it."""

    def __init__(self, body: Callable[..., Any], *arguments: Any, codes: tuple[Callable[..., Any], ...] = ()) -> None:
        super().__init__(daemon=True)
        self.body, self.arguments, self.codes = body, arguments, codes or (body,)
        self.run_: Run | None = None
        self.outcome: Any = None
        self.clean = False
        self.there = False

    def run(self) -> None:
        self.run_ = run_of(*self.codes, owner=self)
        try:
            self.outcome = run_stoppable(self.run_, self.body, self.arguments)
        except BaseException as error:
            self.outcome = error
        self.clean = nothing_is_pending()

    def stopped(self) -> bool:
        """Try to stop it once."""
        return self.run_ is not None and stop(self.run_)


@pytest.fixture
def stopper() -> Iterator[Stopper]:
    made = Stopper()
    yield made
    until(lambda: made._thread is None)


def test_a_loop_is_stopped_and_nothing_is_pending_afterwards() -> None:
    caller = Caller(loops_for_ever)
    caller.start()
    until(caller.stopped)
    caller.join(BOUND_S)
    assert caller.outcome == (False, None) and caller.clean


def test_a_body_that_ends_by_itself_gives_its_result() -> None:
    over: list[bool] = []
    assert run_stoppable(Run(Compile(), frozenset()), max, (1, 2), lambda: over.append(True)) == (True, 2)
    assert over == [True] and nothing_is_pending()


def test_a_body_whose_code_came_first_never_begins() -> None:
    began: list[int] = []
    assert run_stoppable(Run(Compile(there=True), frozenset()), began.append, (1,)) == (False, None)
    assert not began


def test_what_the_body_raises_comes_out_after_what_it_wrote_is_kept() -> None:
    over: list[bool] = []

    def body() -> None:
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        run_stoppable(run_of(body), body, (), lambda: over.append(True))
    assert over == [True] and nothing_is_pending()


def test_nothing_is_sent_while_the_thread_is_in_code_that_is_not_known() -> None:
    """What waits on a lock, imports, compiles: any function that is not among the codes."""
    inside, go_on = threading.Event(), threading.Event()

    def body() -> int:
        inside.set()
        assert go_on.wait(BOUND_S)
        return loops_for_ever()

    caller = Caller(body, codes=(body, loops_for_ever))
    caller.start()
    assert inside.wait(BOUND_S)
    until(lambda: codes_of(caller)[0] is not body.__code__)
    assert not any(caller.stopped() for _ in range(50))
    assert caller.run_ is not None and not caller.run_.sent
    go_on.set()
    until(caller.stopped)
    caller.join(BOUND_S)
    assert caller.outcome == (False, None) and caller.clean


def test_nothing_is_sent_through_a_function_that_is_not_known() -> None:
    """The frame that runs is of a known function, but a stranger is between it and the body."""

    def stranger() -> int:
        return stops_at()

    def body() -> int:
        return stranger()

    stops_at_go.clear()
    caller = Caller(body, codes=(body, stops_at))
    caller.start()
    until(lambda: stops_at.__code__ in codes_of(caller))
    assert not any(caller.stopped() for _ in range(50))
    stops_at_go.set()
    caller.join(BOUND_S)
    assert caller.outcome == (True, 0) and caller.clean


def codes_of(thread: threading.Thread) -> list[Any]:
    """What the thread runs, the innermost first."""
    frame = sys._current_frames().get(thread.ident or 0)
    found = []
    while frame is not None:
        found.append(frame.f_code)
        frame = frame.f_back
    return found


stops_at_go = threading.Event()


def stops_at() -> int:
    while not stops_at_go.is_set():
        pass
    return 0


def test_after_the_body_nothing_is_sent_not_even_in_the_callers_finally() -> None:
    run = run_of(loops_for_ever)
    sent: list[bool] = []
    try:
        run_stoppable(run, max, (1, 2), lambda: sent.append(stop(run)))
    finally:
        sent.append(stop(run))
    assert sent == [False, False] and not run.sent and nothing_is_pending()


@pytest.mark.parametrize("when", ["last step", "in the return"])
def test_one_that_comes_with_the_last_step_of_the_body_is_taken_back_or_counts(when: str) -> None:
    """Sent from inside, so that it is pending when the body returns: after its last check, or in a C function."""
    run = Run(Compile(), frozenset())
    run.sent = True
    if when == "in the return":  # a body that is C code: the next check is the caller's
        outcome = run_stoppable(run, switch._send, (run.thread, Switched))
        assert outcome in ((False, None), (True, 1))
    else:
        assert run_stoppable(run, lambda: switch._send(run.thread, Switched), ()) == (False, None)
    assert nothing_is_pending()


def test_the_switch_of_an_outer_body_goes_through_the_inner_one() -> None:
    outer, kept = Run(Compile(), frozenset()), list[str]()
    outer.sent = True

    def inner_call() -> Any:
        inner = Run(Compile(), frozenset())
        return run_stoppable(inner, switch._send, (inner.thread, Switched), lambda: kept.append("inner"))

    assert run_stoppable(outer, inner_call, (), lambda: kept.append("outer")) == (False, None)
    assert kept in ([], ["inner"]) and nothing_is_pending()


def test_the_switch_of_an_inner_body_leaves_the_outer_one_alone() -> None:
    results: list[Any] = []

    def outer_body() -> str:
        inner = Run(Compile(), frozenset())
        inner.sent = True
        results.append(run_stoppable(inner, lambda: switch._send(inner.thread, Switched), ()))
        return "went on"

    assert run_stoppable(Run(Compile(), frozenset()), outer_body, ()) == (True, "went on")
    assert results == [(False, None)] and nothing_is_pending()


class Dies:
    def __del__(self) -> None:
        for _ in range(20):
            pass


def with_finalizers() -> None:
    while True:
        Dies()


@pytest.mark.concurrency
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_that_is_swallowed_in_a_finalizer_is_sent_again(stopper: Stopper) -> None:
    for _ in range(20):
        caller = Caller(with_finalizers)
        caller.start()
        until(lambda caller=caller: caller.run_ is not None and bool(runs_of(caller)))  # type: ignore[misc]
        stopper.stop_all(caller)
        caller.join(BOUND_S)
        assert caller.outcome == (False, None) and caller.clean


@pytest.mark.concurrency
def test_all_threads_in_the_bodies_of_one_owner_are_stopped_and_no_others(stopper: Stopper) -> None:
    mine = [Caller(loops_for_ever) for _ in range(8)]
    other = Caller(loops_for_ever)
    owner = Compile()

    def run(caller: Caller) -> None:
        caller.run_ = run_of(loops_for_ever, owner=owner)
        caller.outcome = run_stoppable(caller.run_, loops_for_ever, ())
        caller.clean = nothing_is_pending()

    for caller in mine:
        caller.run = lambda caller=caller: run(caller)  # type: ignore[method-assign, misc]
        caller.start()
    other.start()
    until(lambda: len(runs_of(owner)) == 8 and bool(runs_of(other)))
    stopper.stop_all(owner)
    for caller in mine:
        caller.join(BOUND_S)
        assert caller.outcome == (False, None) and caller.clean
    assert other.is_alive()
    stopper.stop_all(other)
    other.join(BOUND_S)


@pytest.mark.concurrency
def test_a_body_under_a_debugger_or_profiler_is_stopped_and_they_go_on(stopper: Stopper) -> None:
    seen: list[tuple[Any, Any]] = []

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        return trace

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        return None

    def run() -> None:
        sys.settrace(trace)
        sys.setprofile(profile)
        caller.run_ = run_of(loops_for_ever, owner=caller)
        caller.outcome = run_stoppable(caller.run_, loops_for_ever, ())
        seen.append((sys.gettrace(), sys.getprofile()))
        sys.settrace(None)
        sys.setprofile(None)
        caller.clean = nothing_is_pending()

    for _ in range(5):
        caller = Caller(loops_for_ever)
        caller.run = run  # type: ignore[method-assign]
        caller.start()
        until(lambda caller=caller: bool(runs_of(caller)))  # type: ignore[misc]
        stopper.stop_all(caller)
        caller.join(BOUND_S)
        assert caller.outcome == (False, None) and caller.clean
    assert seen == [(trace, profile)] * 5


def test_a_body_in_one_long_c_call_is_stopped_when_the_call_returns(stopper: Stopper) -> None:
    lock = threading.Lock()
    lock.acquire()

    def body() -> None:
        lock.acquire()
        loops_for_ever()

    caller = Caller(body, codes=(body, loops_for_ever))
    caller.start()
    until(lambda: bool(runs_of(caller)))
    stopper.stop_all(caller)
    until(lambda: caller.run_ is not None and caller.run_.sent)
    assert caller.is_alive()
    lock.release()
    caller.join(BOUND_S)
    assert caller.outcome == (False, None) and caller.clean


@pytest.mark.concurrency
def test_a_ward_has_time_to_end_and_is_stopped_after_that_whenever_it_began(stopper: Stopper) -> None:
    caller = Caller(loops_for_ever)
    with stopper.ward(caller, 0.05):
        caller.start()  # after the compile that it is in the way of
        caller.join(BOUND_S)
    assert caller.outcome == (False, None) and caller.clean
    with stopper.ward(caller, BOUND_S):
        assert run_stoppable(run_of(loops_for_ever, owner=caller), max, (1, 2)) == (True, 2)


def test_ctrl_c_at_every_place_of_a_run_comes_out_and_leaves_nothing() -> None:
    def ends() -> Any:
        return run_stoppable(Run(Compile(), frozenset()), max, (1, 2), list)

    def is_stopped() -> Any:
        run = Run(Compile(), frozenset())
        run.sent = True
        return run_stoppable(run, lambda: switch._send(run.thread, Switched), (), list)

    tried = 0
    for call in (ends, is_stopped):
        for place in places(call):
            tried += interrupted(call, place)
            assert nothing_is_pending(), place
            assert not runs_here() or not runs_here()[-1].open
    assert tried >= 8
