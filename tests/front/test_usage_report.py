"""What a farm writes down of its use of the store: when, what, and where nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest
from troubles import waiting_for

import farm
from farm.front import usage as reports
from farm.front.usage import EVERY_S, UsageReport
from farm.observe.stats import Count, Counters, Duration
from farm.reasons import MissReason
from farm.store import usage
from farm.store.artifact import Artifact
from farm.store.disk import DiskStore
from farm.store.usage import Usage

eventually = waiting_for(60)


def total(root: Path) -> Usage:
    places = DiskStore(root).places
    return Usage() if places is None else usage.total(places)


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    from farm.job.key import CompileKey

    made = DiskStore(tmp_path / "cache")
    made.put(Artifact(CompileKey.from_parts({"name": b"f"}), {}, b"", b"", b""))
    return made


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def loads(counters: Counters, number: int = 1) -> None:
    counters.count(Count.LOADED, "f", times=number)
    counters.spend(Duration.SAVED, 0.5 * number, "f")


def test_programs_add_up_what_they_compiled_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first writes while it runs, the second at its end."""
    monkeypatch.setattr(reports, "EVERY_S", 0.05)
    root = tmp_path / "cache"

    def f(x: float) -> float:
        return x + 1

    with farm.Farm(cache_dir=root, workers=1) as barn:
        one = farm.njit(f, farm=barn)
        assert one(1.0) == 2.0 and barn.wait(60)
        eventually(lambda: total(root).compiled == 1)
        first = total(root)
        assert first.programs == 1 and first.loaded == 0 and first.misses == {MissReason.ABSENT: 1}
    monkeypatch.undo()
    with farm.Farm(cache_dir=root, workers=1) as barn:
        assert farm.njit(f, farm=barn)(1.0) == 2.0 and barn.wait(60)
        assert total(root).loaded == 0
    second = total(root)
    assert (second.programs, second.compiled, second.loaded) == (2, 1, 1)
    assert second.saved_s == pytest.approx(first.compile_s, abs=0.002)


def test_it_writes_at_most_every_minute_and_sleeps_when_there_is_no_news(store: DiskStore) -> None:
    counters, clock = Counters(), Clock()
    report = UsageReport(counters, lambda: store, clock)
    loads(counters)
    assert report.pause_s() == EVERY_S and total(store.root) == Usage(), "the first minute is not over"
    clock.now += EVERY_S
    assert report.pause_s() == EVERY_S and total(store.root).loaded == 1
    loads(counters)
    clock.now += 1
    assert report.pause_s() == EVERY_S - 1 and total(store.root).loaded == 1
    clock.now += EVERY_S
    assert report.pause_s() == EVERY_S and total(store.root).loaded == 2
    clock.now += EVERY_S
    assert report.pause_s() is None, "nothing new: until there is news"
    assert (total(store.root).programs, total(store.root).saved_s) == (1, 1.0)


def test_what_a_parent_counted_is_not_told_by_its_forked_child(store: DiskStore) -> None:
    counters = Counters()
    loads(counters, 3)  # by the parent, before the fork
    child = UsageReport(counters, lambda: store)
    assert not child.write() and total(store.root) == Usage()
    loads(counters)
    assert child.write() and total(store.root).loaded == 1


def test_what_cannot_be_written_yet_is_kept(store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[DiskStore] = []
    counters = Counters()
    report = UsageReport(counters, lambda: opened[0] if opened else None)
    loads(counters)
    assert not report.write()
    opened.append(store)
    store.root.chmod(0o777)
    assert not report.write(), "the directory is not private any more"
    store.root.chmod(0o700)
    monkeypatch.setattr(usage, "LINE_MAX_BYTES", 1)
    loads(counters)
    assert not report.write()
    monkeypatch.undo()
    assert report.write() and total(store.root).loaded == 2 and not report.write()


def readonly(root: Path) -> DiskStore:
    return DiskStore(root, readonly=True)


def absent(root: Path) -> DiskStore:
    return DiskStore(root.with_name("none"))


@pytest.mark.parametrize("opened", [readonly, absent])
def test_nothing_is_written_to_a_store_that_is_read_only_or_not_there(
    store: DiskStore, opened: Callable[[Path], DiskStore]
) -> None:
    other, counters = opened(store.root), Counters()
    report = UsageReport(counters, lambda: other)
    loads(counters)
    before = {path: path.stat().st_mtime_ns for path in store.root.parent.rglob("*")}
    assert not report.write()
    assert {path: path.stat().st_mtime_ns for path in store.root.parent.rglob("*")} == before


def test_a_report_that_fails_ends_no_installer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: UsageReport) -> float:
        raise RuntimeError("no")

    monkeypatch.setattr(UsageReport, "pause_s", fails)
    with farm.Farm(cache_dir=tmp_path / "cache", workers=1) as barn:
        one = farm.njit(lambda x: x * 2, farm=barn)
        assert one(1.0) == 2.0
        eventually(lambda: barn.stats().compiled == 1)  # nobody waits for it, so the installer has to do it
