"""What a program posts about itself, however it ends and whoever it forks."""

from pathlib import Path

import pytest
import troubles
from sessions import run

from farm.observe.board import Board


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    return troubles.board_of_its_own(tmp_path, monkeypatch)


PROGRAM = """
from farm.observe.board import Board
import signal
board = Board.of_this_user()
mine = lambda: [one["author"]["pid"] for one in board.read()]
f = farm.njit(power(1))
f(1)
eventually(mine)
"""
LIVES = {
    "a child that leaves": """
if os.fork() == 0:
    sys.exit(0)
assert os.wait()[1] == 0 and mine() == [os.getpid()]
""",
    "a child that compiles and is left without a goodbye": """
child = os.fork()
if child == 0:
    farm.njit(power(2))(1)
    eventually(lambda: os.getpid() in mine())
    assert len(mine()) == 2
    os._exit(0)
assert os.wait()[1] == 0 and mine() == [os.getpid()]
""",
    "Ctrl-C": """
try:
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait(60)
except KeyboardInterrupt:
    assert mine() == [os.getpid()]
""",
}


@pytest.mark.concurrency
@pytest.mark.parametrize("life", LIVES)
def test_a_program_has_one_file_while_it_lives_and_none_afterwards(tmp_path: Path, board: Board, life: str) -> None:
    done = run(tmp_path, PROGRAM + LIVES[life] + "\nprint('done')", FARM_EXIT_GRACE_S="0")
    assert (done.code, done.out, done.err) == (0, "done\n", ""), done
    assert list((tmp_path / "runtime" / "farm").iterdir()) == []


@pytest.mark.concurrency
def test_what_a_program_leaves_that_ends_without_a_goodbye_the_next_reader_removes(
    tmp_path: Path, board: Board
) -> None:
    done = run(tmp_path, PROGRAM + "\nos._exit(0)")
    assert done.code == 0, done
    left = list((tmp_path / "runtime" / "farm").iterdir())
    assert len(left) == 1
    assert board.read() == [] and not left[0].exists()
