"""What every test of the commands gets: settings of its own, and nothing is left afterwards."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import troubles
from click.testing import CliRunner, Result

from farm.tools.main import main


class Shell:
    """Runs the command in this process, with the test's own cache directory."""

    def __init__(self, cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cache_dir = cache_dir
        self.set = monkeypatch.setenv
        self.set("FARM_CACHE_DIR", str(cache_dir))

    def run(self, *arguments: str, answer: str | None = None) -> Result:
        return CliRunner().invoke(main, list(arguments), input=answer)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    for name in os.environ:
        if name.startswith("FARM_"):
            monkeypatch.delenv(name)
    yield Shell(tmp_path / "cache", monkeypatch)
    assert troubles.children() == []
    assert not list(tmp_path.rglob(".farm-doctor-*"))
