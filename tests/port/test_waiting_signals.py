"""Signals that wait until something is over."""

import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from farm.port.interrupts import with_signals_waiting

SIGNALS = (signal.SIGINT, signal.SIGALRM, signal.SIGUSR2)


class Heard(Exception):
    pass


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """Which signals were handled; their handlers raise."""
    found: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        found.append(number)
        raise Heard(number)

    before = {number: signal.signal(number, handler) for number in SIGNALS}
    yield found
    assert all(signal.getsignal(number) is handler for number in SIGNALS)
    for number, one in before.items():
        signal.signal(number, one)


def hears(number: int, after: Callable[[], object] = lambda: None) -> Callable[[], object]:
    """Work in which a signal comes."""

    def work() -> object:
        signal.raise_signal(number)
        return after()

    return work


def test_without_a_signal_the_work_is_done(heard: list[int]) -> None:
    assert with_signals_waiting(lambda: 3) == 3
    assert heard == []


def test_a_signal_is_handled_once_the_work_is_over(heard: list[int]) -> None:
    done = []
    with pytest.raises(Heard):
        with_signals_waiting(hears(signal.SIGINT, lambda: done.append(list(heard))))
    assert (done, heard) == ([[]], [signal.SIGINT])


def test_the_second_of_a_kind_is_handled_at_once(heard: list[int]) -> None:
    """Of work that never ends a program must be able to get out."""
    with pytest.raises(Heard):
        with_signals_waiting(hears(signal.SIGINT, hears(signal.SIGINT, pytest.fail)))
    assert heard == [signal.SIGINT] * 2


def test_those_of_two_kinds_both_wait(heard: list[int]) -> None:
    done = []
    with pytest.raises(Heard):
        with_signals_waiting(hears(signal.SIGINT, hears(signal.SIGALRM, lambda: done.append(1))))
    assert (done, heard) == ([1], [signal.SIGINT, signal.SIGALRM])


def test_what_the_work_raises_is_raised_and_the_handlers_are_back(heard: list[int]) -> None:
    with pytest.raises(ZeroDivisionError):
        with_signals_waiting(lambda: 1 / 0)


def test_inside_another_one_the_outer_decides_when(heard: list[int]) -> None:
    done = []

    def work() -> None:
        with_signals_waiting(hears(signal.SIGINT))
        done.append(list(heard))

    with pytest.raises(Heard):
        with_signals_waiting(work)
    assert (done, heard) == ([[]], [signal.SIGINT])


def test_a_handler_that_the_work_sets_stays() -> None:
    before = signal.getsignal(signal.SIGUSR2)
    try:
        signal.signal(signal.SIGUSR2, lambda *_: None)
        with_signals_waiting(lambda: signal.signal(signal.SIGUSR2, signal.SIG_IGN))
        assert signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_what_is_no_handler_in_python_is_left_alone() -> None:
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    assert with_signals_waiting(lambda: signal.getsignal(signal.SIGHUP)) is signal.SIG_DFL


def test_another_thread_has_nothing_to_wait_for(heard: list[int]) -> None:
    found: list[object] = []
    thread = threading.Thread(
        target=lambda: found.append(with_signals_waiting(lambda: signal.getsignal(signal.SIGINT)))
    )
    handler = signal.getsignal(signal.SIGINT)
    thread.start()
    thread.join(60)
    assert found == [handler]


def test_a_handler_that_raises_while_the_handlers_are_put_back_leaves_none_behind(
    heard: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its signal comes when it is back and the others are not."""
    put_back = signal.signal
    order = []

    def put_back_and_hear(number: int, handler: object) -> object:
        found = put_back(number, handler)  # type: ignore[arg-type]
        order.append(number)
        if order.count(number) == 2 and number == signal.SIGINT:  # set to wait, and now back
            signal.raise_signal(number)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(signal, "signal", put_back_and_hear)
        with pytest.raises(Heard):
            with_signals_waiting(lambda: None)
    assert heard == [signal.SIGINT]
