"""When a process that is starting is given up."""

import os
import subprocess
import sys

import pytest

from farm.pool import patience
from farm.pool.patience import START_MAX_S, Patience, processor_s


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The processor seconds that the process has used: one number, to be changed."""
    seconds = [0.0]
    monkeypatch.setattr(patience, "processor_s", lambda pid: seconds[0])
    return seconds


def test_who_says_nothing_and_does_nothing_is_given_up_after_the_patience(used: list[float]) -> None:
    one = Patience(1, 10.0, now=100.0)
    assert one.check_at == 110.0
    assert not one.has_ended(109.9)
    assert one.has_ended(110.0)


def test_who_uses_the_processor_gets_more_time_for_as_long_as_it_does(used: list[float]) -> None:
    one = Patience(1, 10.0, now=100.0)
    used[0] = 0.5
    assert not one.has_ended(110.0)
    assert one.check_at == 120.0
    used[0] += 0.2
    assert not one.has_ended(120.0)
    used[0] += 0.01  # in ten seconds: it wakes now and then, and waits
    assert one.has_ended(130.0)


def test_who_is_busy_for_ever_is_given_up_too(used: list[float]) -> None:
    one, now = Patience(1, 10.0, now=0.0), 0.0
    while not one.has_ended(now):
        now += 10.0
        used[0] += 5.0
    assert now == START_MAX_S


def test_the_processor_time_is_that_of_the_process() -> None:
    assert processor_s(os.getpid()) > 0
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert processor_s(gone.pid) == 0.0
