"""`farm top`: what the programs of this user that use the farm are doing now.

It reads what each of them posts about itself (`farm.observe.board`), and speaks to none of them.
"""

import contextlib
import json
import math
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from farm.observe.board import Board
from farm.reasons import DegradedReason
from farm.tools.page import LABEL_WIDTH, Row, count_text, size_text

LABELS_SHOWN: Final = 3
FUNCTIONS_SHOWN: Final = 3
NOBODY: Final = (
    "No program of yours uses the farm now. Start one that calls functions decorated by farm.njit; "
    "it is listed from its first compile on, unless FARM_PUBLISH_STATUS is 0."
)


@dataclass(frozen=True, slots=True)
class Front:
    """One program's farm, as it is shown: a title, and rows of a label and a text."""

    title: str
    rows: tuple[Row, ...]


EXAMPLE: Final = """\b
Example:
  farm top
  farm top --json | jq '.fronts[].hit_rate'
"""


@click.command(epilog=EXAMPLE)
@click.option("--once", is_flag=True, help="Print what there is now, and end.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How often the view is drawn. Programs tell what they do once a second.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with all that is known, and end.")
def top(once: bool, interval: float, as_json: bool) -> None:
    """Show what programs that use the farm are doing: workers, queue, hit rate, calls in Python.

    Ends with q or Ctrl-C. Where standard output is no terminal it prints once, as with --once. Programs are found
    that have the same user, and the same XDG_RUNTIME_DIR or else the same temporary directory.

    Exit codes: 0; 1 if --once or --json found no such program; 2 for wrong usage.
    """
    board = Board.of_this_user()
    console = Console(highlight=False)
    if as_json:
        found = board.read()
        click.echo(json.dumps({"version": 1, "fronts": found}))
    elif once or not console.is_terminal or console.is_dumb_terminal:
        found = board.read()
        print_once(console, found)
    else:
        watch(console, board, interval)
        return
    if not found:
        raise click.exceptions.Exit(1)


def print_once(console: Console, found: list[dict[str, Any]]) -> None:
    """One frame: for people on a terminal, as plain lines elsewhere."""
    if console.is_terminal:
        console.print(picture(found, time.time()))
        return
    if not found:
        click.echo(NOBODY)
    for number, front in enumerate(fronts(found, time.time())):
        click.echo(("\n" if number else "") + front.title)
        for label, text in front.rows:
            click.echo(f"  {label:<{LABEL_WIDTH}}  {text}".rstrip())


# -- what is shown ------------------------------------------------------------------------------------------


def picture(found: list[dict[str, Any]], now: float) -> RenderableType:
    """What a terminal shows."""
    shown = fronts(found, now)
    parts: list[RenderableType] = []
    for front in shown:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, min_width=LABEL_WIDTH)
        table.add_column()
        for label, text in front.rows:
            style = "yellow" if label == "degraded" else ""
            table.add_row(Text(label, "bold"), Text(text, style, no_wrap=True, overflow="ellipsis"))
        parts += [Rule(Text(front.title, "bold cyan"), align="left", style="dim"), table]
    return Group(*parts) if parts else Text(NOBODY)


def fronts(found: list[dict[str, Any]], now: float) -> list[Front]:
    """As they are shown, the busiest first. What cannot be understood is left out."""
    shown = []
    for content in found:
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError, IndexError):
            shown.append((-int(content["pending"]), Front(_title(content, now), tuple(_rows(content, now)))))
    return [front for _, front in sorted(shown, key=lambda one: one[0])]


def _title(content: dict[str, Any], now: float) -> str:
    age = max(0.0, now - float(content["at"]))
    parts = [shown(content["program"]), f"pid {int(content['author']['pid'])}", f"Python {shown(content['python'])}"]
    if content["state"] != "works":
        parts.append(shown(content["state"]))
    if not content["pending"]:
        parts.append(f"nothing to do for {span_text(age)}" if age >= 3 else "nothing to do")
    return "  ".join(parts)


def _rows(content: dict[str, Any], now: float) -> Iterator[Row]:
    counters, queue = content["counters"], content["queue"]
    workers = content["workers"]
    for number, worker in enumerate(workers):
        yield ("workers" if number == 0 else ""), _worker_text(worker, now)
    if not workers:
        yield "workers", f"none now, up to {int(content['workers_max'])}"
    if queue["count"]:
        labels = [shown(label) for label in queue["labels"][:LABELS_SHOWN]]
        more = ", ..." if queue["count"] > len(labels) else ""
        yield "queue", f"{int(queue['count'])}: {', '.join(labels)}{more}"
    made = f"{int(counters['compiled'])} compiled, {int(counters['loaded'])} from the store"
    rate = content["hit_rate"]
    made += "" if rate is None else f" (hit rate {100 * float(rate):.0f} %)"
    made += f", {int(counters['local'])} in the program" if counters["local"] else ""
    lost = {
        name: sum(int(counters[field]) for field in fields)
        for name, fields in {"failed": ("failed",), "lost": ("died", "timed_out", "out_of_memory")}.items()
    }
    yield "code", made + "".join(f", {number} {name}" for name, number in lost.items() if number)
    calls, avoided = int(counters["fallback_calls"]), int(counters["fallback_avoided"])
    yield "calls", f"{calls:,} in Python, {avoided:,} more avoided; {span_text(float(counters['saved_s']))} saved"
    for name, times in content["degraded"].items():
        known = DegradedReason.__members__.get(name)
        yield "degraded", f"{shown(name) if known is None else known.value} ({count_text(int(times), 'time')})"
    costs = [(float(one["compile_s"]), shown(one["function"])) for one in content["functions"] if one["compile_s"]]
    if costs:
        yield "dearest", ", ".join(f"{name} {span_text(cost)}" for cost, name in costs[:FUNCTIONS_SHOWN])


def _worker_text(worker: dict[str, Any], now: float) -> str:
    if worker["pid"] is None:
        return "starting"
    text = f"{int(worker['pid']):<8}"
    if worker["job"] is None:
        return f"{text}idle"
    memory = "" if worker["rss_bytes"] is None else f"  {size_text(int(worker['rss_bytes']))}"
    spent = span_text(max(0.0, now - float(worker["since"])))
    return f"{text}{spent:>8}  {shown(worker['job'])}{memory}"


def shown(text: object) -> str:
    """A text of somebody else's without what would steer the terminal."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in str(text))


def span_text(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min`, `2 h`."""
    if not math.isfinite(seconds):
        return "?"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


# -- the live view ------------------------------------------------------------------------------------------


def watch(console: Console, board: Board, interval_s: float) -> None:
    """Draw again and again until q or Ctrl-C. The terminal is then as it was, also after SIGTERM and SIGHUP."""
    with contextlib.suppress(KeyboardInterrupt), Keys() as keys:
        live = Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        keys.on_stop, keys.on_continue = live.stop, live.start
        with live:
            ended = False
            while not ended:
                live.update(_frame(board.read()), refresh=True)
                ended = keys.wait(interval_s)


def _frame(found: list[dict[str, Any]]) -> RenderableType:
    now = time.time()
    head = Text.assemble(
        ("farm top", "bold"), f"  {time.strftime('%H:%M:%S', time.localtime(now))}  {count_text(len(found), 'front')}"
    )
    head.append("  q ends", "dim")
    return Group(head, Text(""), picture(found, now))


class Keys:
    """Single keys from a terminal, and the signals that a full screen has to do with."""

    def __init__(self) -> None:
        self.on_stop: Callable[[], None] = lambda: None
        self.on_continue: Callable[[], None] = lambda: None
        self._input: int | None = None
        self._modes: list[Any] = []
        self._handlers: dict[int, Any] = {}
        self._wakes, self._wake = os.pipe()

    def __enter__(self) -> "Keys":
        with contextlib.suppress(OSError, ValueError):  # no standard input
            self._input = sys.stdin.fileno() if sys.stdin.isatty() else None
        self._take_terminal()
        handlers: dict[int, Callable[[int, object], None]] = {
            signal.SIGWINCH: self._draw_anew,
            signal.SIGTSTP: self._stop,
            signal.SIGTERM: self._end,
            signal.SIGHUP: self._end,
        }
        for number, handler in handlers.items():
            self._handlers[number] = signal.signal(number, handler)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._give_terminal_back()
        os.close(self._wakes)
        os.close(self._wake)

    def wait(self, seconds: float) -> bool:
        """Wait so long, or for a resized terminal or a key. True if the key means the end."""
        inputs = [self._wakes] if self._input is None else [self._wakes, self._input]
        ready, _, _ = select.select(inputs, [], [], seconds)
        if self._wakes in ready:
            os.read(self._wakes, 4096)
        if self._input is None or self._input not in ready:
            return False
        keys = os.read(self._input, 4096)
        return not keys or b"q" in keys.lower()  # nothing: the terminal is gone

    def _take_terminal(self) -> None:
        if self._input is not None:
            import termios
            import tty

            self._modes = termios.tcgetattr(self._input)
            tty.setcbreak(self._input)

    def _give_terminal_back(self) -> None:
        if self._input is not None:
            import termios

            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(self._input, termios.TCSADRAIN, self._modes)

    def _draw_anew(self, number: int, frame: object) -> None:
        os.write(self._wake, b".")

    def _stop(self, number: int, frame: object) -> None:
        """Ctrl-Z: the shell gets its terminal as it was, and `fg` brings the view back."""
        self.on_stop()
        self._give_terminal_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take_terminal()
        self.on_continue()
        self._draw_anew(number, frame)

    def _end(self, number: int, frame: object) -> None:
        raise SystemExit(128 + number)
