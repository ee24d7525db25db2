"""Counters and the table they print."""

import threading
from dataclasses import FrozenInstanceError

import pytest

from farm.observe.stats import Count, Counters, Duration, FunctionStats, Spent, Stats
from farm.reasons import DegradedReason, MissReason


def test_new_counters_are_all_zero() -> None:
    assert Counters().stats() == Stats()


@pytest.mark.parametrize("what", Count)
def test_each_count_is_a_field(what: Count) -> None:
    counters = Counters()
    counters.count(what, "f", times=2)
    counters.count(what)
    stats = counters.stats()
    assert getattr(stats, what.value) == 3
    assert stats.per_function == {"f": FunctionStats(**{what.value: 2})}


@pytest.mark.parametrize("what", Duration)
def test_each_duration_is_a_field(what: Duration) -> None:
    counters = Counters()
    counters.spend(what, 0.5, "f")
    counters.spend(what, 0.25)
    assert getattr(counters.stats(), what.value) == 0.75
    assert getattr(counters.stats().per_function["f"], what.value) == 0.5


def test_misses_and_degradations_are_counted_by_reason() -> None:
    counters = Counters()
    counters.miss(MissReason.ABSENT)
    counters.miss(MissReason.ABSENT)
    counters.degrade(DegradedReason.DISK_FULL)
    stats = counters.stats()
    assert stats.misses == {MissReason.ABSENT: 2}
    assert stats.degraded == {DegradedReason.DISK_FULL: 1}


def test_stats_stay_as_they_were() -> None:
    counters = Counters()
    before = counters.stats()
    counters.miss(MissReason.ABSENT)
    assert before == Stats() and counters.stats(1).pending == 1
    with pytest.raises(FrozenInstanceError):
        before.pending = 3  # type: ignore[misc]


def test_it_prints_as_a_plain_table() -> None:
    counters = Counters()
    counters.count(Count.COMPILED, "mod.f")
    counters.spend(Duration.COMPILE, 1.5, "mod.f")
    counters.miss(MissReason.ABSENT)
    lines = str(counters.stats()).splitlines()
    rows = dict(line.rsplit("  ", 1) for line in lines)
    table = {label.strip(): value for label, value in rows.items()}
    assert table["compiled"] == "1" and table["compile_s"] == "1.500" and table["pending"] == "0"
    assert table[f"miss: {MissReason.ABSENT.value}"] == "1"
    assert table["mod.f"] == "compiled 1, compile_s 1.5"
    assert len(lines) == 24


@pytest.mark.concurrency
def test_counts_from_many_threads_add_up() -> None:
    counters = Counters()

    def work() -> None:
        for _ in range(2000):
            counters.count(Count.LOADED, "f")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert counters.stats().loaded == counters.stats().per_function["f"].loaded == 8000


@pytest.mark.concurrency
def test_spent_seconds_of_many_threads_add_up_however_often_they_are_drained() -> None:
    spent, drained = Spent(), []

    def add() -> None:
        for _ in range(5000):
            spent.add(0.5)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        drained.append(spent.drain())
    drained.append(spent.drain())
    assert sum(times for times, _ in drained) == 20_000 and sum(seconds for _, seconds in drained) == 10_000.0
    assert spent.drain() == (0, 0.0)
