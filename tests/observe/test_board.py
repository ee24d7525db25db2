"""The board: whose directory it is, and what a reader makes of the files in it."""

import errno
import json
import os
import stat
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from farm.config import runtime_dirs
from farm.observe import board as module
from farm.observe.board import SIZE_MAX_BYTES, VERSION, Author, Board, start_of

ME = Author.this_process()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the board of these tests is, once something is posted."""
    return tmp_path / "farm"


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board([(tmp_path, True, "farm")])


def put(place: Path, name: str, author: Author = ME, **fields: object) -> Path:
    """A file as a front posts it, but for these fields."""
    place.mkdir(mode=0o700, exist_ok=True)
    path = place / name
    path.write_text(json.dumps({"version": VERSION, "author": asdict(author), **fields}))
    return path


def test_what_is_posted_is_read_replaced_and_removed(board: Board, place: Path) -> None:
    assert board.read() == []
    assert board.post("1-1", ME, {"a": 1}) and board.post("1-1", ME, {"a": 2})
    assert [one["a"] for one in board.read()] == [2]
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()] == [0o600]
    board.remove("1-1")
    board.remove("1-1")
    assert board.read() == [] and list(place.iterdir()) == []


def refuse_mode(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.mkdir(0o700)
    place.chmod(0o750)


def refuse_link(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.parent / "elsewhere").mkdir(0o700)
    place.symlink_to("elsewhere")


def refuse_file(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.touch(0o700)


def refuse_owner(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.mkdir(0o700)
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)


@pytest.mark.parametrize("refuse", [refuse_mode, refuse_link, refuse_file, refuse_owner])
def test_a_directory_that_is_not_ours_alone_is_not_used(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch, refuse
) -> None:
    refuse(place, monkeypatch)
    board = Board([(tmp_path, False, "farm")])
    assert not board.post("1-1", ME, {})
    assert board.read() == []
    board.remove("1-1")
    assert not place.is_dir() or list(place.iterdir()) == []
    assert not list(tmp_path.glob("elsewhere/*"))


def test_the_temporary_directory_is_used_where_the_runtime_directory_is_another_users_or_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, temporary = tmp_path / "run", tmp_path / "tmp"
    temporary.mkdir()
    both = Board([(own, True, "farm"), (temporary, False, "numba-farm")])
    assert both.post("1-1", ME, {})
    assert len(list(temporary.rglob("*.json"))) == 1
    own.mkdir()
    fstat, uid = os.fstat, own.stat()

    def anothers(descriptor: int) -> os.stat_result:
        found = fstat(descriptor)
        if (found.st_dev, found.st_ino) != (uid.st_dev, uid.st_ino):
            return found
        return os.stat_result((*found[:4], found.st_uid + 1, *found[5:]))

    monkeypatch.setattr(os, "fstat", anothers)
    assert both.post("1-2", ME, {}) and not list(own.iterdir())
    monkeypatch.undo()
    assert both.post("1-3", ME, {}) and len(list(own.rglob("*.json"))) == 1
    assert len(both.read()) == 3, "a reader looks in both"


def test_the_directories_are_the_environments(tmp_path: Path) -> None:
    assert runtime_dirs({"XDG_RUNTIME_DIR": str(tmp_path)})[0] == tmp_path
    assert runtime_dirs({"XDG_RUNTIME_DIR": "relative"})[0] is runtime_dirs({})[0] is None
    assert f"numba-farm-{os.geteuid()}" in repr(Board.of_this_user())


def test_files_of_processes_that_are_gone_are_ignored_and_removed(board: Board, place: Path) -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait(60)
    gone = replace(ME, pid=done.pid)
    for name, author in {
        "of the dead": gone,
        "of another with this id": replace(ME, started="1"),
        "from before the machine was started again": replace(ME, boot="another"),
    }.items():
        put(place, f"{name}.json", author)
    put(place, f"{gone.pid}-1.json.new")
    mine = put(place, f"{ME.pid}-1.json"), put(place, f"{ME.pid}-2.json.new")
    assert len(board.read()) == 1
    assert sorted(place.iterdir()) == sorted(mine)


def test_a_zombie_is_gone() -> None:
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert start_of(zombie.pid) is None
    finally:
        zombie.wait(60)
    assert start_of(os.getpid()) == ME.started


def test_files_of_another_container_are_ignored_and_stay(board: Board, place: Path) -> None:
    path = put(place, "1-1.json", replace(ME, ids="pid:[1]", started="1"))
    assert board.read() == [] and path.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"version": 1}',
        b'{"version": 1, "author": {"pid": "x", "started": ""}}',
        b'{"version": 1, "author": {"what": 1}}',
        b'{"version": 2}',
        b"[" * 100_000,
        b"\xff" * 10,
        b" " * (SIZE_MAX_BYTES + 1),
    ],
    ids=lambda content: str(content[:40]),
)
def test_what_no_front_of_this_version_has_posted_is_left_alone(board: Board, place: Path, content: bytes) -> None:
    path = put(place, "1-1.json")
    path.write_bytes(content)
    assert board.read() == [] and path.exists()


def test_a_link_and_a_pipe_are_not_read(board: Board, place: Path, tmp_path: Path) -> None:
    good = put(place, f"{ME.pid}-1.json")
    good.rename(tmp_path / "good")
    good.symlink_to(tmp_path / "good")
    os.mkfifo(place / "2-1.json")
    assert board.read() == []


def test_a_full_disk_leaves_what_was_there(board: Board, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert board.post("1-1", ME, {"a": 1})

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(module.os, "write", full)
    assert not board.post("1-1", ME, {"a": 2})
    monkeypatch.undo()
    assert [one["a"] for one in board.read()] == [1] and len(list(place.iterdir())) == 1
