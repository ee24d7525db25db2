"""`farm top`: what it shows of which programs, and what becomes of the terminal."""

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import troubles
from rich.console import Console

from farm.observe.board import VERSION, Author, Board
from farm.observe.stats import Counters
from farm.tools.top import NOBODY, fronts, picture, span_text

FARM = Path(sys.executable).with_name("farm")
ME = Author.this_process()
NOW = 1_000_000.0
BOUND_S = 60
eventually = troubles.waiting_for(BOUND_S)


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    return troubles.board_of_its_own(tmp_path, monkeypatch)


def content(**changes: Any) -> dict[str, Any]:
    """What a front with two workers has posted."""
    summary = Counters().summary(10)
    counters = summary["counters"] | {"compiled": 3, "loaded": 9, "fallback_calls": 1234, "fallback_avoided": 9}
    job = "model.score(float64)"
    return {
        "at": NOW,
        "program": "train.py",
        "python": "3.11.7",
        "state": "works",
        "pending": 3,
        "workers_max": 2,
        "workers": [
            {"pid": 101, "state": "busy", "job": job, "since": NOW - 12.34, "rss_bytes": 140 << 20},
            {"pid": None, "state": "starting", "job": None, "since": None, "rss_bytes": None},
            {"pid": 103, "state": "idle", "job": None, "since": None, "rss_bytes": None},
        ],
        "queue": {"count": 4, "labels": ["a.f()", "a.g()", "a.h()", "a.i()"]},
        "hit_rate": 0.75,
        **summary,
        "counters": counters | {"saved_s": 35.2, "failed": 1, "died": 1, "timed_out": 1},
        "degraded": {"DISK_FULL": 2, "OF_A_LATER_FARM": 1},
        "functions": [{"function": "model.score", "compile_s": 7.5}, {"function": "a.f", "compile_s": 0.0}],
        **changes,
    }


def posted(**changes: Any) -> dict[str, Any]:
    """The same as a reader gets it."""
    return {"version": VERSION, "author": asdict(ME), **content(**changes)}


def text_of(found: list[dict[str, Any]], width: int = 100) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(picture(found, NOW))
    return captured.get()


@pytest.mark.parametrize(
    "said",
    [
        "train.py  pid PID  Python 3.11.7",
        "101         12 s  model.score(float64)  140.0 MiB",
        "starting",
        "103     idle",
        "4: a.f(), a.g(), a.h(), ...",
        "3 compiled, 9 from the store (hit rate 75 %), 1 failed, 2 lost",
        "1,234 in Python, 9 more avoided; 35 s saved",
        "the disk is full (2 times)",
        "OF_A_LATER_FARM (1 time)",
        "model.score 7.5 s\n",
    ],
)
def test_a_front_is_described(said: str) -> None:
    said = said.replace("PID", str(ME.pid))  # not in the parameter: every process of a run has to name its tests alike
    lines = "\n".join(line.rstrip() for line in text_of([posted()]).splitlines()) + "\n"
    assert said in lines


def test_a_front_without_work_says_since_when() -> None:
    idle = posted(pending=0, workers=[], queue={"count": 0, "labels": []}, hit_rate=None, state="switched off")
    text = text_of([idle | {"at": NOW - 120}])
    assert "switched off  nothing to do for 2 min" in text and "none now, up to 2" in text
    assert "queue" not in text and "hit rate" not in text


def test_the_busiest_comes_first_and_what_cannot_be_understood_is_left_out() -> None:
    found = [posted(program="b", pending=1), {"version": VERSION}, posted(program="a", pending=2), posted(workers=None)]
    assert [front.title.split()[0] for front in fronts(found, NOW)] == ["a", "b"]


def test_a_text_of_a_program_cannot_steer_the_terminal() -> None:
    bad = "\x1b[2Jx\r\n\x9b[b]"
    text = text_of([posted(program=bad, degraded={bad: 1}, queue={"count": 1, "labels": [bad]})])
    assert "\x1b" not in text and "\x9b" not in text and "\r" not in text and "[2Jx" in text and "[b]" in text


@pytest.mark.parametrize("width", [20, 40, 200])
def test_it_fits_the_terminal(width: int) -> None:
    lines = text_of([posted()], width).splitlines()
    assert all(len(line) <= width for line in lines)
    assert any(line.startswith("calls") and line.rstrip().endswith("…") for line in lines) == (width < 60)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.9, "9.9 s"), (59, "59 s"), (300, "5 min"), (7200, "2 h"), (float("inf"), "?")],
)
def test_spans_are_written_as_people_do(seconds: float, text: str) -> None:
    assert span_text(seconds) == text


def test_without_a_program_it_says_so_and_how_to_get_one_with_exit_code_1(shell, board: Board) -> None:
    result = shell.run("top", "--once")
    assert result.exit_code == 1 and result.output == NOBODY + "\n" and "farm.njit" in NOBODY
    result = shell.run("top", "--json")
    assert result.exit_code == 1 and json.loads(result.stdout) == {"version": 1, "fronts": []}


def test_one_frame_is_plain_and_whole_in_a_pipe(shell, board: Board) -> None:
    long = "model." + "f" * 300
    board.post(f"{ME.pid}-1", ME, content(queue={"count": 1, "labels": [long]}))
    result = shell.run("top", "--once")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].startswith("train.py") and f"  queue       1: {long}" in lines and "\x1b" not in result.output
    assert shell.run("top").output.splitlines()[1:2] != [], "without a terminal it is the same"


def test_json_has_all_that_was_posted(shell, board: Board) -> None:
    board.post(f"{ME.pid}-1", ME, content())
    result = shell.run("top", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"version": 1, "fronts": [posted()]}


def test_a_front_that_is_gone_is_not_shown(shell, board: Board) -> None:
    board.post("1-1", replace(ME, started="1"), content())
    assert shell.run("top", "--once").exit_code == 1


@pytest.mark.parametrize("interval", ["0", "-1", "x"])
def test_a_wrong_interval_is_wrong_usage(shell, interval: str) -> None:
    result = shell.run("top", "--interval", interval)
    assert result.exit_code == 2 and "--interval" in result.output


def test_help_has_the_exit_codes_and_an_example(shell) -> None:
    result = shell.run("top", "--help")
    assert result.exit_code == 0 and "Exit codes:" in result.output
    assert result.output.rstrip().endswith("farm top --json | jq '.fronts[].hit_rate'")


# -- on a terminal ------------------------------------------------------------------------------------------

ALTERNATE, NORMAL = b"\x1b[?1049h", b"\x1b[?1049l"
HIDDEN, VISIBLE = b"\x1b[?25l", b"\x1b[?25h"


class Terminal:
    """A program on a pseudo terminal, and what it has written there."""

    def __init__(self, *command: str) -> None:
        self._ours, self._theirs = pty.openpty()
        self.resize(24, 100)
        self.modes = termios.tcgetattr(self._theirs)
        self.screen = b""
        self.process = subprocess.Popen(
            command,
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            # Without the size that some test runners say a terminal has: this one changes its size.
            env={k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")} | {"TERM": "xterm-256color"},
        )

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def shows(self, text: bytes) -> None:
        """Wait until it has written this since it was asked last; forget what is before it."""
        end = time.monotonic() + BOUND_S
        while text not in self.screen:
            assert time.monotonic() < end, (text, self.screen[-2000:])
            if select.select([self._ours], [], [], 0.05)[0]:
                self.screen += os.read(self._ours, 65536)
        self.screen = self.screen.partition(text)[2]

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def end(self) -> int:
        """Its exit code, once it has ended."""
        end = time.monotonic() + BOUND_S
        while self.process.poll() is None:
            assert time.monotonic() < end, "it did not end"
            if select.select([self._ours], [], [], 0.05)[0]:
                self.screen += os.read(self._ours, 65536)
        while select.select([self._ours], [], [], 0)[0]:
            self.screen += os.read(self._ours, 65536)
        return self.process.returncode

    @property
    def is_as_before(self) -> bool:
        return termios.tcgetattr(self._theirs) == self.modes

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(BOUND_S)
        os.close(self._ours)
        os.close(self._theirs)


@pytest.fixture
def terminal(board: Board) -> Iterator[Terminal]:
    """The live view, with one front."""
    board.post(f"{ME.pid}-1", ME, content())
    with contextlib.closing(Terminal(str(FARM), "top", "--interval", "0.1")) as made:
        made.shows(ALTERNATE)
        made.shows(b"train.py")
        yield made


ENDS = {
    "q": (lambda one: one.type(b"q"), 0),
    "Ctrl-C": (lambda one: one.type(b"\x03"), 0),
    "SIGTERM": (lambda one: one.process.send_signal(signal.SIGTERM), 128 + signal.SIGTERM),
}


@pytest.mark.concurrency
@pytest.mark.parametrize("end", ENDS)
def test_however_it_ends_the_terminal_is_as_it_was(terminal: Terminal, end: str) -> None:
    eventually(lambda: not terminal.is_as_before)
    how, code = ENDS[end]
    how(terminal)
    assert terminal.end() == code
    assert NORMAL in terminal.screen and VISIBLE in terminal.screen.rpartition(HIDDEN)[2]
    assert b"Traceback" not in terminal.screen and terminal.is_as_before


@pytest.mark.concurrency
def test_it_follows_what_is_posted_and_the_size_of_the_terminal_and_stops_and_goes_on(
    terminal: Terminal, board: Board
) -> None:
    board.post(f"{ME.pid}-2", ME, content(program="second.py"))
    terminal.shows(b"second.py")
    board.remove(f"{ME.pid}-2")
    terminal.shows(b"1 front")
    terminal.resize(30, 30)
    terminal.shows("…".encode())  # what does not fit any more
    terminal.type(b"\x1a")
    terminal.shows(NORMAL)
    eventually(lambda: terminal.is_as_before)
    terminal.process.send_signal(signal.SIGCONT)
    terminal.shows(ALTERNATE)
    terminal.shows(b"train.py")
    board.remove(f"{ME.pid}-1")
    terminal.shows(NOBODY[:20].encode())
    terminal.type(b"q")
    assert terminal.end() == 0 and terminal.is_as_before
