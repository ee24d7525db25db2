"""Listeners: free when unused, and harmless when they raise."""

import logging
from collections.abc import Callable

import pytest

from farm.observe.events import CompileFinished, CompileStarted, Degraded, Event
from farm.observe.listeners import Listeners
from farm.reasons import DegradedReason

STARTED = CompileStarted(function="f", signature="(int64,)")


class Recorder:
    """Keeps what it hears, and does what it is told with it."""

    def __init__(self, then: Callable[[Event], object] = lambda event: None) -> None:
        self.heard: list[Event] = []
        self.flushed = 0
        self._then = then

    def on_event(self, event: Event) -> None:
        self.heard.append(event)
        self._then(event)

    def flush(self) -> None:
        self.flushed += 1


def raising(error: BaseException) -> Callable[[Event], object]:
    def then(event: Event) -> object:
        raise error

    return then


def unbuildable() -> Event:
    raise AssertionError("an event was built for nobody")


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="farm")


def test_an_event_is_not_built_when_nobody_listens() -> None:
    Listeners().emit(unbuildable)


def test_log_strings_not_built_when_off(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[int] = []
    monkeypatch.setattr(CompileStarted, "__str__", lambda self: texts.append(1) or "text")
    listeners, recorder = Listeners(), Recorder()
    listeners.add(recorder)
    listeners.emit(lambda: STARTED)
    assert recorder.heard == [STARTED] and texts == [] and caplog.text == ""
    caplog.set_level(logging.DEBUG, logger="farm")
    listeners.emit(lambda: STARTED)
    assert texts and "text" in caplog.text


@pytest.mark.parametrize("error", [ValueError("mine"), SystemExit(3), GeneratorExit()])
def test_listener_error_keeps_the_result(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    dropped: list[str] = []
    listeners, bad, good = Listeners(dropped.append), Recorder(raising(error)), Recorder()
    listeners.add(bad)
    listeners.add(good)
    listeners.emit(lambda: STARTED)
    listeners.emit(lambda: STARTED)
    assert good.heard == [STARTED, STARTED]
    assert bad.heard == [STARTED]
    assert dropped == ["Recorder"] and len(listeners) == 1
    assert "Recorder raised and was dropped" in caplog.text


def test_a_keyboard_interrupt_is_the_users_and_drops_nobody() -> None:
    listeners = Listeners()
    listeners.add(Recorder(raising(KeyboardInterrupt())))
    with pytest.raises(KeyboardInterrupt):
        listeners.emit(lambda: STARTED)
    assert len(listeners) == 1


def test_a_listener_may_emit_add_and_remove() -> None:
    listeners, late = Listeners(), Recorder()
    degraded = Degraded(reason=DegradedReason.DISK_FULL)

    def then(event: Event) -> None:
        if event is STARTED:
            listeners.add(late)
            listeners.emit(lambda: degraded)
            listeners.remove(first)

    first = Recorder(then)
    listeners.add(first)
    listeners.emit(lambda: STARTED)
    assert first.heard == [STARTED, degraded] and late.heard == [degraded]
    listeners.emit(lambda: STARTED)
    assert len(first.heard) == 2


def test_adding_twice_and_removing_a_stranger_change_nothing() -> None:
    listeners, recorder = Listeners(), Recorder()
    listeners.add(recorder)
    listeners.add(recorder)
    listeners.remove(Recorder())
    listeners.emit(lambda: STARTED)
    assert recorder.heard == [STARTED]


def test_an_object_without_on_event_is_refused() -> None:
    with pytest.raises(TypeError, match=r"on_event\(event\)"):
        Listeners().add(object())  # type: ignore[arg-type]


def test_flush_reaches_those_who_have_it() -> None:
    listeners, recorder = Listeners(), Recorder()
    listeners.add(recorder)
    listeners.flush()
    assert recorder.flushed == 1


def test_finished_carries_what_the_design_names() -> None:
    names = "compile_count compile_time_s cumulative_compile_time_s used_persistent_cache queue_time_s load_time_s"
    assert set(CompileFinished.__dataclass_fields__) == {
        "function", "signature", *names.split(), "worker", "artifact_bytes", "cpu", "saved_s"
    }  # fmt: skip
