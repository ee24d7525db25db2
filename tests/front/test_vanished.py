"""An artifact that a worker published and that the front does not find: its bytes come over the pipe, once.

The look-up in the front is where it is made to vanish: the files are really removed, or really hidden.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numba
import pytest
from these import bring_up

import farm
from farm.front import settle
from farm.front.pending import Source
from farm.front.supply import Supply
from farm.reasons import DegradedReason, MissReason, RefusalReason
from farm.store.artifact import Miss


@pytest.fixture
def barn(tmp_path: Path) -> Iterator[farm.Farm]:
    with farm.Farm(cache_dir=tmp_path / "cache", workers=1) as one:
        yield one


def remove(barn: farm.Farm) -> None:
    for file in barn.config.cache_dir.glob("v1/??/*.farm"):
        file.unlink(missing_ok=True)


@pytest.fixture(params=["removed", "hidden"])
def vanish(request: pytest.FixtureRequest, barn: farm.Farm, monkeypatch: pytest.MonkeyPatch) -> str:
    """Removed: from the disk, as by a trim. Hidden: from the front alone, as by a file system that lags behind."""
    real = Supply.look_up

    def look_up(supply, config, key):
        if request.param == "removed":
            remove(barn)
            return real(supply, config, key)
        supply._record.missed(MissReason.ABSENT)
        return Miss(MissReason.ABSENT)

    monkeypatch.setattr(Supply, "look_up", look_up)
    return str(request.param)


def double(a):
    return a + a


def check(barn: farm.Farm, function: Callable[..., object], vanish: str) -> None:
    """A worker made it, the front never did; and what was asked once more is told."""
    status = function.status((numba.int64,))  # type: ignore[attr-defined]
    assert status.origin is not None and status.origin.source is Source.WORKER
    stats = barn.stats()
    assert (stats.compiled, stats.local, stats.failed) == (1, 0, 0)
    assert stats.misses[MissReason.ABSENT] >= 2
    assert stats.degraded[DegradedReason.DELIVERED_INLINE] == 1
    assert list(barn.config.cache_dir.glob("v1/??/*.farm")), vanish


def test_somebody_who_waits_gets_the_machine_code(barn: farm.Farm, vanish: str) -> None:
    function = farm.njit(double, farm=barn)
    assert function.compile("(int64,)")(4) == 8
    check(barn, function, vanish)


def test_the_installer_brings_it_to_a_call_that_did_not_wait(barn: farm.Farm, vanish: str) -> None:
    function = farm.njit(double, farm=barn)
    function.submit("(int64,)").result(60)  # a future does not settle: the installer has to
    check(barn, function, vanish)


def test_a_jitted_caller_that_holds_the_compiler_lock_gets_it(barn: farm.Farm, vanish: str) -> None:
    function = farm.njit(double, farm=barn)

    @numba.njit
    def caller(a):
        return function(a) + 1

    bring_up(barn)
    assert caller(4) == 9
    check(barn, function, vanish)


def test_many_who_wait_ask_once(barn: farm.Farm, vanish: str) -> None:
    function = farm.njit(double, farm=barn)
    results: list[object] = []
    threads = [threading.Thread(target=lambda: results.append(function.compile("(int64,)")(4))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [8] * 8
    check(barn, function, vanish)


def test_what_does_not_come_over_the_pipe_either_is_compiled_here(
    barn: farm.Farm, vanish: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "decode", lambda data, key: Miss(MissReason.DIGEST_MISMATCH, "damaged on the way"))
    function = farm.njit(double, farm=barn)
    assert function.compile("(int64,)")(4) == 8
    status = function.status((numba.int64,))
    assert (status.origin.source, status.reason) == (Source.LOCAL, RefusalReason.LOAD_FAILED)
    assert barn.stats().local == 1


@pytest.mark.filterwarnings("ignore:.*FarmClosed")
def test_a_farm_that_closes_meanwhile_answers_everybody(
    barn: farm.Farm, vanish: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()
    real = settle.Settler._ask_for_bytes

    def ask(settler, pending, built):
        barn.close()
        real(settler, pending, built)
        asked.set()

    monkeypatch.setattr(settle.Settler, "_ask_for_bytes", ask)
    function = farm.njit(double, farm=barn)
    future = function.submit("(int64,)")
    assert asked.wait(60)
    assert future.exception(60) is not None or future.result().state is farm.CompileState.COMPILED
    assert function(4) == 8
