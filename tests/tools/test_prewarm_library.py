"""`farm prewarm --library`: what it takes, says and answers. The pack itself: tests/ahead/test_library_pack.py."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from farm.ahead import library
from farm.ahead.library import RECIPES
from farm.ahead.recipes import Recipe


def broken(x):
    return x.nothing_like_this


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pack of two, of which numba compiles one."""
    (hashes,) = [one for one in RECIPES if one.name == "hashes"]
    monkeypatch.setattr(library, "RECIPES", (Recipe(hashes.body, ("(boolean,)",)), Recipe(broken, ("(int64,)",))))


def test_a_pack_is_made_once_and_what_numba_cannot_compile_is_named(shell, short) -> None:
    missing = shell.run("prewarm", "--library", "--check")
    assert missing.exit_code == 1 and "Error: 2 of 2 would have to be compiled" in missing.stderr
    made = shell.run("prewarm", "--library", "--workers", "1")
    assert made.exit_code == 0
    heading, row, count = made.stdout.splitlines()  # a table of what is worth a look, and the sum
    assert heading.split()[:2] == ["function", "signature"]
    assert row.startswith("library:broken") and "skipped" in row and "nothing_like_this" in row
    assert count == "1 compiled, 1 skipped"
    assert "/2] library:hashes(boolean,): compiled\n" in made.stderr or "left] library:hashes" in made.stderr
    again = shell.run("prewarm", "--library", "--dry-run", "--json")
    rows = {row["function"]: row for row in json.loads(again.stdout)["rows"]}
    assert again.exit_code == 0 and rows["library:hashes"]["outcome"] == "there"


def test_flags_are_for_the_library_and_wrong_ones_are_wrong_usage(shell, short) -> None:
    alone = shell.run("prewarm", "x.jsonl", "--flags", "fastmath")
    assert alone.exit_code == 2 and "give --library with it" in alone.stderr
    wrong = shell.run("prewarm", "--library", "--flags", "fast")
    assert wrong.exit_code == 2 and wrong.stdout == "" and "'fast' is no set of flags" in wrong.stderr
    words = ("prewarm", "--library", "--flags", "fastmath", "--flags", "error_model=numpy", "--dry-run", "--json")
    rows = json.loads(shell.run(*words).stdout)["rows"]
    assert {row["function"] for row in rows} == {
        f"library:{name}{flags}" for name in ("hashes", "broken") for flags in ("", "[fastmath]", "[error_model=numpy]")
    }


def test_the_whole_pack_is_looked_up_in_a_process_of_its_own(tmp_path: Path) -> None:
    environment = {**os.environ, "FARM_CACHE_DIR": str(tmp_path / "cache")}
    command = [str(Path(sys.executable).parent / "farm"), "prewarm", "--library", "--check", "--json"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1 and "would have to be compiled" in done.stderr
    assert json.loads(done.stdout)["counts"] == {"absent": sum(len(one.signatures) for one in RECIPES)}
