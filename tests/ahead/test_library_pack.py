"""The library pack: what it covers, for which flags, and what becomes of a recipe that numba cannot compile."""

from pathlib import Path
from typing import Any

import once
import packed
import pytest

import farm
from farm.ahead import library
from farm.ahead.library import RECIPES, FlagsError, flags_of, read_flags
from farm.ahead.prewarm import Outcome, PrewarmReport
from farm.ahead.recipes import Recipe
from farm.port.dispatch import parse_signature
from farm.port.flagtext import HandedDown


def sample(*wanted: str) -> tuple[Recipe, ...]:
    """These recipes, `name(signature)` each, for that signature alone."""
    found = [Recipe(one.body, (text,)) for one in RECIPES for text in one.signatures if f"{one.name}{text}" in wanted]
    assert len(found) == len(wanted), wanted
    return tuple(found)


SAMPLE = sample("sort(float64[::1],)", "searchsorted(float64[::1], float64)", "dictionary(int64, float64)")


@pytest.fixture(scope="module")
def prewarmed(tmp_path_factory: pytest.TempPathFactory) -> tuple[PrewarmReport, PrewarmReport, PrewarmReport]:
    """The sample packed for default and fast flags; the same again; and then functions that use what is in it."""

    def make(directory: Path) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(library, "RECIPES", SAMPLE)
            owner = farm.default_farm()
            before = owner.config
            owner.config = before.with_changes(cache_dir=directory / "cache", workers=2)
            try:
                first = farm.prewarm_library(flags="fastmath")
                again = farm.prewarm_library(flags=[{"fastmath": True}])
                names = ("ordered", "ordered_fast", "ordered_otherwise", "counted")
                used = farm.prewarm([(f"{packed.__name__}:{name}", "(float64[::1],)") for name in names])
            finally:
                owner.config = before
        return first, again, used

    return once.once(tmp_path_factory, "library-pack", make)


def test_a_pack_has_a_row_for_each_recipe_and_set_of_flags(prewarmed) -> None:
    first, _, _ = prewarmed
    assert [row.outcome for row in first.rows] == [Outcome.COMPILED] * 6, str(first)
    assert {row.function for row in first.rows} == {
        f"library:{one.name}{flags}" for one in SAMPLE for flags in ("", "[fastmath]")
    }
    assert sum(row.callees_compiled or 0 for row in first.rows) > 20


def test_a_second_run_compiles_nothing(prewarmed) -> None:
    _, again, _ = prewarmed
    assert str(again) == "6 in the store already"


def test_functions_that_use_what_is_in_the_pack_compile_nothing_of_numbas(prewarmed) -> None:
    _, _, used = prewarmed
    rows = {row.function.partition(":")[2]: row for row in used.rows}
    assert all(row.outcome is Outcome.COMPILED for row in rows.values()), str(used)
    made = {name: row.callees_compiled for name, row in rows.items()}
    otherwise = made.pop("ordered_otherwise")
    assert made == {"ordered": 0, "ordered_fast": 0, "counted": 0}
    assert otherwise, "under flags that the pack was not made for there is nothing"
    assert sum(row.callees or 0 for row in rows.values()) > 10


def broken(x):
    return x.nothing_like_this


def test_a_recipe_that_numba_cannot_compile_is_skipped_and_named(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(library, "RECIPES", (Recipe(broken, ("(int64,)",)), *sample("hashes(boolean,)")))
    owner = farm.default_farm()
    monkeypatch.setattr(owner, "config", owner.config.with_changes(cache_dir=tmp_path / "cache", workers=1))
    report = farm.prewarm_library()
    assert {row.function: row.outcome for row in report.rows} == {
        "library:broken": Outcome.SKIPPED,
        "library:hashes": Outcome.COMPILED,
    }
    (skipped,) = report.of(Outcome.SKIPPED)
    assert "nothing_like_this" in skipped.detail and not report.failed and not report.to_compile


def test_the_flags_of_what_is_prewarmed_with_it_count(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(library, "RECIPES", SAMPLE[:1])
    owner = farm.default_farm()
    monkeypatch.setattr(owner, "config", owner.config.with_changes(cache_dir=tmp_path / "cache"))
    source = (f"{packed.__name__}:ordered_otherwise", "(float64[::1],)")
    rows = farm.prewarm_library(source=[source], dry_run=True).rows
    assert [row.function for row in rows] == [
        "library:sort",
        "library:sort[error_model=numpy]",
        f"{packed.__name__}:ordered_otherwise",
    ]
    (alone,) = farm.prewarm_library(dry_run=True).rows
    assert alone.function == "library:sort" and not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("text", "options", "written"),
    [
        ("fastmath", {"fastmath": True}, "fastmath"),
        ("fastmath=nsz+nnan", {"fastmath": {"nnan", "nsz"}}, "fastmath=nnan+nsz"),
        ("error_model=numpy", {"error_model": "numpy"}, "error_model=numpy"),
        ("fastmath, error_model=numpy", {"fastmath": True, "error_model": "numpy"}, "fastmath,error_model=numpy"),
        ("error_model=python", {"fastmath": False}, ""),
    ],
)
def test_flags_as_text_and_as_options_are_the_same_and_are_what_numba_hands_down(text, options, written) -> None:
    found = read_flags(text)
    assert found == flags_of(options) and str(found) == written
    assert HandedDown.of_function({"nopython": True, "boundscheck": None, **found.options()}, None) == (found,)


def test_parallel_loops_call_numbas_own_under_an_error_model_of_theirs() -> None:
    assert HandedDown.of_function({"parallel": True, "fastmath": True}, None) == (
        HandedDown(("fast",)),
        HandedDown(("fast",), "numpy"),
    )
    assert HandedDown.of_function({"parallel": True, "error_model": "numpy"}, None) == (HandedDown((), "numpy"),)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("fast", "'fast' is no flag that a function hands down to numba's own"),
        ("fastmath=quick", "Unrecognized fastmath flags"),
        ("error_model", "error_model is python or numpy, not ''"),
        ("fastmath,fastmath", "fastmath is there twice"),
        ("", "'' is no flag"),
    ],
)
def test_what_is_no_set_of_flags_is_refused_with_what_to_write(text: str, problem: str) -> None:
    with pytest.raises(FlagsError) as caught:
        read_flags(text)
    assert problem in str(caught.value) and "write fastmath, fastmath=nnan+nsz, error_model=numpy" in str(caught.value)


def test_recipes_have_names_of_their_own_and_signatures_that_numba_reads() -> None:
    names = [one.name for one in RECIPES]
    assert len(names) == len(set(names)) > 90
    for one in RECIPES:
        assert one.signatures and len(set(one.signatures)) == len(one.signatures), one.name
        for text in one.signatures:
            assert len(parse_signature(text)[0]) == one.body.__code__.co_argcount, f"{one.name}{text}"
