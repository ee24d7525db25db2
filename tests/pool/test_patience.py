"""When a process that is starting is given up."""

import os
import subprocess
import sys

import pytest

from farm.job.key import CompileKey
from farm.pool import patience
from farm.pool.patience import START_MAX_S, LockPatience, Patience, processor_s


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


ONE, TWO, THREE = (CompileKey.from_parts({"name": name}) for name in (b"one", b"two", b"three"))


def test_a_key_that_is_taken_is_waited_for_from_the_first_time_it_was_found_taken() -> None:
    locks = LockPatience(30.0, 2.0)
    assert [locks.has_ended(ONE, now) for now in (100.0, 129.9, 130.0)] == [False, False, True]
    assert not locks.has_ended(TWO, 130.0)


def test_after_a_wait_in_vain_the_next_keys_are_given_less_time() -> None:
    """A stopped process may hold all of them, and a program that calls one function after the other meets each."""
    locks = LockPatience(30.0, 2.0)
    assert [locks.has_ended(ONE, now) for now in (0.0, 30.0)] == [False, True]
    assert [locks.has_ended(TWO, now) for now in (30.0, 31.9, 32.0)] == [False, False, True]
    assert [locks.has_ended(ONE, now) for now in (40.0, 42.0)] == [False, True]


def test_a_key_that_comes_after_a_wait_restores_the_patience_and_a_free_one_does_not() -> None:
    locks = LockPatience(30.0, 2.0)
    assert [locks.has_ended(ONE, now) for now in (0.0, 30.0)] == [False, True]
    locks.came(THREE)  # nobody held it: that says nothing of who holds others
    assert [locks.has_ended(TWO, now) for now in (30.0, 31.0)] == [False, False]
    locks.came(TWO)
    assert [locks.has_ended(THREE, now) for now in (40.0, 69.9, 70.0)] == [False, False, True]


def test_no_patience_is_none_for_the_next_keys_either() -> None:
    locks = LockPatience(0.0, 2.0)
    assert locks.has_ended(ONE, 0.0) and locks.has_ended(TWO, 0.0)
