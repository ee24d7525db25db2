"""The report's page in a real browser, where there is one: `make browser` gets it."""

from pathlib import Path

import pytest
from check_report import check
from chromium import browser, executable


@pytest.mark.skipif(executable() is None, reason="there is no Chromium: `make browser` installs it, or says how")
def test_the_page_is_drawn_whole_used_by_mouse_touch_and_keys_and_asks_for_nothing(tmp_path: Path) -> None:
    program = executable()
    assert program is not None
    with browser(program, tmp_path / "profile") as page:
        check(page, tmp_path)
