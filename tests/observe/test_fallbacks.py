"""How long fallbacks run: own time, spans, and the bound of what is kept."""

import itertools
import threading

import pytest

from farm.observe import fallbacks as module
from farm.observe.fallbacks import SPANS_MAX, THREADS_MAX, FallbackTime, Watch


class Clock:
    """Tells the time that it is set to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def run(watch: Watch, clock: Clock, function: str, seconds: float, inside=lambda: None) -> None:
    """A fallback that runs so long by itself, with what it calls in the middle."""
    watch.enter()
    clock.now += seconds / 2
    inside()
    clock.now += seconds / 2
    watch.leave(function)


def test_own_time_is_without_what_was_called() -> None:
    clock = Clock()
    watch = Watch(clock)
    run(watch, clock, "f", 1.0, lambda: (run(watch, clock, "g", 2.0), run(watch, clock, "g", 4.0)))
    assert watch.times() == {"f": FallbackTime(1, 1.0, 7.0), "g": FallbackTime(2, 6.0, 6.0)}
    ((thread, (span,)),) = watch.spans()
    assert thread == threading.current_thread().name
    assert (span.function, span.began_at, span.ended_at, span.calls) == ("f", 100.0, 107.0, 1)


def test_recursion_counts_own_time_once() -> None:
    clock = Clock()
    watch = Watch(clock)
    run(watch, clock, "f", 1.0, lambda: run(watch, clock, "f", 1.0))
    assert watch.times()["f"] == FallbackTime(2, 2.0, 3.0)


def test_calls_that_follow_closely_are_one_span() -> None:
    clock = Clock()
    watch = Watch(clock)
    for function, gap in (("f", 0.001), ("f", 0.001), ("g", 1.0), ("f", 0.0)):
        run(watch, clock, function, 0.25)
        clock.now += gap
    ((_, spans),) = watch.spans()
    assert [(span.function, span.calls, span.others) for span in spans] == [("f", 3, True), ("f", 1, False)]


def test_what_is_kept_has_a_bound_and_no_second_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    watch = Watch(clock)
    calls = SPANS_MAX * 5
    for number in range(calls):
        run(watch, clock, "f", 0.01)
        clock.now += 0.02 + number % 7
    ((_, spans),) = watch.spans()
    assert SPANS_MAX / 10 < len(spans) <= SPANS_MAX
    assert sum(span.calls for span in spans) == calls == watch.times()["f"].calls
    assert all(one.ended_at <= two.began_at for one, two in itertools.pairwise(spans))
    assert watch.times()["f"].own_s == pytest.approx(calls * 0.01)


@pytest.mark.concurrency
def test_each_thread_has_its_own_spans_and_of_many_threads_only_sums_are_kept() -> None:
    watch = Watch()

    def work() -> None:
        watch.enter()
        watch.enter()
        watch.leave("g")
        watch.leave("f")

    threads = [threading.Thread(target=work) for _ in range(THREADS_MAX + 4)]
    for thread in threads:
        thread.start()
        thread.join(30)
    assert len(watch.spans()) == THREADS_MAX
    assert watch.times()["f"].calls == watch.times()["g"].calls == THREADS_MAX + 4
    assert module.GAP_S > 0
