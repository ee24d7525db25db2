"""The bulletin: what a farm posts about itself, when, and that nothing of it is left."""

import os
import sys
import threading
from pathlib import Path

import pytest
import troubles

import farm
from farm.front.bulletin import Bulletin, program
from farm.observe.board import Board
from farm.observe.stats import Count

eventually = troubles.waiting_for(60)


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    return troubles.board_of_its_own(tmp_path, monkeypatch)


def threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "farm-bulletin"]


@pytest.fixture
def quick(board: Board, tmp_path: Path):
    """A farm that compiles nothing, and its bulletin, which does not wait for a second between two posts."""
    with farm.Farm(cache_dir=tmp_path / "cache", workers=1, publish_status=False) as barn:
        barn.settler()
        bulletin = Bulletin(barn, board, 0.01)
        yield barn, bulletin
        bulletin.close()


@pytest.mark.concurrency
def test_a_farm_says_what_it_compiles_and_what_it_has_compiled_until_it_is_closed(board: Board, tmp_path: Path) -> None:
    with farm.Farm(cache_dir=tmp_path / "cache", workers=1) as barn:
        function = farm.njit(lambda x: x * x + 1, farm=barn)
        assert board.read() == []
        assert function(3) == 10
        eventually(lambda: any(one["pending"] == 1 or one["counters"]["compiled"] for one in board.read()))
        assert function.wait(60)
        eventually(lambda: any(one["pending"] == 0 for one in board.read()))
        (content,) = board.read()
        assert content["author"]["pid"] == os.getpid() and content["state"] == "works"
        assert content["counters"]["compiled"] == 1 and content["counters"]["fallback_calls"] == 1
        assert content["functions"][0]["compile_s"] > 0 and content["hit_rate"] == 0.0
        assert [one["state"] for one in content["workers"]] == ["idle"] and content["queue"]["count"] == 0
    assert board.read() == [] and not threads()
    with farm.Farm(cache_dir=tmp_path / "cache", workers=1) as barn:
        again = farm.njit(lambda x: x * x + 1, farm=barn)
        assert again(3) == 10
        eventually(lambda: any(one["counters"]["loaded"] for one in board.read()))
        (content,) = board.read()
        assert content["hit_rate"] == 1.0 and content["workers"] == []
        assert (content["counters"]["fallback_calls"], content["counters"]["fallback_avoided"]) == (0, 1)


@pytest.mark.concurrency
def test_the_thread_ends_when_nothing_changes_and_the_next_news_starts_another(board: Board, quick) -> None:
    barn, bulletin = quick
    for calls in (1, 2):
        barn.record.counters.count(Count.FALLBACK_CALLS, "f")
        bulletin.news()
        eventually(lambda: not threads())
        assert bulletin._thread is None
        (content,) = board.read()
        assert content["counters"]["fallback_calls"] == calls


@pytest.mark.concurrency
def test_news_that_come_while_the_thread_ends_are_posted(board: Board, quick) -> None:
    barn, bulletin = quick
    for _ in range(300):
        barn.record.counters.count(Count.FALLBACK_CALLS, "f")
        bulletin.news()
    eventually(lambda: [one["counters"]["fallback_calls"] for one in board.read()] == [300])


def test_what_has_not_changed_is_not_written_again(board: Board, quick, monkeypatch: pytest.MonkeyPatch) -> None:
    posts = []
    post = Board.post
    monkeypatch.setattr(Board, "post", lambda *what: posts.append(what) or post(*what))
    _, bulletin = quick
    for _ in range(3):
        bulletin.news()
        eventually(lambda: not threads())
    assert len(posts) == 3, "one for each thread"


def test_a_closed_bulletin_is_gone_and_stays_so(board: Board, quick) -> None:
    _, bulletin = quick
    bulletin.news()
    eventually(board.read)
    bulletin.close()
    bulletin.news()
    assert board.read() == [] and not threads()


def test_it_is_off_by_a_setting_also_later(board: Board, tmp_path: Path) -> None:
    with farm.Farm(cache_dir=tmp_path / "cache", workers=1) as barn:
        function = farm.njit(lambda x: x + 1, farm=barn)
        function(1)
        eventually(board.read)
        barn.configure(publish_status=False)
        assert board.read() == [] and not threads()
        assert function.wait(60)
        farm.njit(lambda x: x + 2, farm=barn)(1)
        assert barn.wait(60) and board.read() == [] and not threads()


def test_a_farm_that_nobody_has_any_more_is_not_posted(board: Board, tmp_path: Path) -> None:
    barn = farm.Farm(cache_dir=tmp_path / "cache", workers=1, publish_status=False)
    barn.settler()
    bulletin = Bulletin(barn, board, 0.01)
    bulletin.news()
    eventually(board.read)
    barn.close()
    del barn
    import gc

    gc.collect()
    assert board.read() == []


def test_a_place_that_cannot_be_used_costs_nothing_else(board: Board, tmp_path: Path, quick) -> None:
    barn, _ = quick
    nowhere = Bulletin(barn, Board([(tmp_path / "missing", False, "farm")]), 0.01)
    nowhere.news()
    eventually(lambda: not threads())
    nowhere.close()
    assert barn.stats().degraded == {}


def test_a_defect_in_it_costs_nothing_else(board: Board, quick, monkeypatch: pytest.MonkeyPatch) -> None:
    _, bulletin = quick

    def broken(*_: object) -> bool:
        raise KeyError("a defect")

    monkeypatch.setattr(Board, "post", broken)
    bulletin.news()
    eventually(lambda: not threads())
    bulletin.news()
    assert not threads(), "no second try"


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["/a/train.py", "x"], "train.py"),
        (["/a/tool/__main__.py"], "tool"),
        (["-c"], "python -c"),
        ([""], "python"),
        ([], "python"),
    ],
)
def test_a_program_has_the_name_that_its_user_knows(
    monkeypatch: pytest.MonkeyPatch, argv: list[str], name: str
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    assert program() == name
