"""What a farm opens on first need, while its settings change."""

import errno
import os
import threading
from pathlib import Path

import pytest

import farm
from farm.errors import FarmWarning
from farm.observe import events
from farm.port.target import settings
from farm.reasons import DegradedReason
from farm.store import disk
from farm.store.disk import DiskStore
from farm.store.places import Places


def test_a_store_that_is_opened_while_settings_change_serves_who_opened_it(tmp_path: Path) -> None:
    """A listener hears of the lower directory that is left out, and changes a setting at once."""
    lower = tmp_path / "lower"
    (lower / "v1").mkdir(parents=True)
    (lower / "v1").chmod(0o777)

    class Changes:
        def on_event(self, event: events.Event) -> None:
            if isinstance(event, events.Degraded):
                told.append(event.reason)
                barn.configure(lazy_threshold=3)

    told: list[DegradedReason] = []
    with farm.Farm(cache_dir=tmp_path / "cache", lower_cache_dirs=(lower,), workers=1) as barn:
        barn.add_listener(Changes())
        with pytest.warns(FarmWarning, match="refused"):
            assert barn.settler().supply.store(barn.config) is not None
    assert told == [DegradedReason.STORE_REFUSED]


def test_a_lower_directory_that_cannot_be_read_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower = tmp_path / "lower"
    (lower / "v1").mkdir(parents=True)
    judged = Places.check

    def check(places: Places) -> None:
        if places.root == lower:  # as where it is private to somebody else
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "v1")
        judged(places)

    monkeypatch.setattr(Places, "check", check)
    with (
        farm.Farm(cache_dir=tmp_path / "cache", lower_cache_dirs=(lower,), workers=1) as barn,
        pytest.warns(FarmWarning, match="Permission denied") as warned,
    ):
        assert barn.settler().supply.store(barn.config) is not None
    (text,) = (str(one.message) for one in warned)
    assert str(lower) in text and "chmod -R go+rX" in text and "FARM_LOWER_CACHE_DIRS" in text


@pytest.mark.concurrency
def test_a_store_that_opens_slowly_keeps_nobody_waiting_who_needs_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file server that does not answer must not stop the pool's thread, or whoever looks at the farm."""
    opening, may_open, opened = threading.Event(), threading.Event(), list[object]()

    def slow(*what: object, **how: object) -> DiskStore:
        opened.append(what)
        opening.set()
        assert may_open.wait(60)
        return DiskStore(*what, **how)  # type: ignore[arg-type]

    with farm.Farm(cache_dir=tmp_path / "cache", workers=1) as barn:
        own = barn.settler().supply
        monkeypatch.setattr(disk, "DiskStore", slow)
        got: list[DiskStore | None] = []
        callers = [threading.Thread(target=lambda: got.append(own.store(barn.config))) for _ in range(4)]
        for caller in callers:
            caller.start()
        try:
            assert opening.wait(60)
            done = threading.Event()

            def looks() -> None:
                repr(barn)
                own.pool(barn.config, settings())
                own.pools.take_dead()
                barn.configure(lazy_threshold=3)
                done.set()

            looker = threading.Thread(target=looks)
            looker.start()
            assert done.wait(60), "it waits for the store"
            looker.join()
            assert got == []
        finally:
            may_open.set()
            for caller in callers:
                caller.join(60)
        assert len(got) == 4 and None not in got
        # The first was opened under settings that have changed meanwhile, so the others opened it once more.
        assert len(opened) == 2 and len({id(one) for one in got}) == 2
