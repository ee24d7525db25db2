"""What a farm opens on first need, while its settings change."""

from pathlib import Path

import pytest

import farm
from farm.errors import FarmWarning
from farm.observe import events
from farm.reasons import DegradedReason


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
