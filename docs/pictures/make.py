"""Makes the pictures of the docs again: python docs/pictures/make.py

    prewarm.svg   a terminal in which `farm prewarm` compiles what a program was seen to use
    top.svg       a terminal with `farm top`, while that program runs
    report.png    the page that `farm.report` wrote of it, in a headless Chromium

The program is real, and so is what is shown. Needs an environment in which farm is installed.
"""

import contextlib
import os
import pty
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Final

from rich.console import CONSOLE_SVG_FORMAT, Console, RenderableType
from rich.text import Text

from farm.observe.board import Board
from farm.tools.top import picture

HERE: Final = Path(__file__).parent
WIDTH: Final = 100
SIZE_MAX_BYTES: Final = 200_000
NAMES: Final = ("weights", "drift", "smooth", "spread", "energy", "distance", "overlap", "score", "rank", "blend")
PROGRAM: Final = '''
"""Many kernels, called in a loop, as an interactive program does."""
import sys, time, warnings
import numpy as np
import farm

large = np.arange(10.0**6)
warnings.simplefilter("ignore")
{kernels}
@farm.njit
def lookup(x):
    return large[int(x[0])] + x.sum()

@farm.njit
def broken(x):
    return x.nothing_of_the_kind if len(x) > 3 else 0.0

def main(seconds):
    x = np.linspace(0.0, 1.0, 3)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for kernel in [{names}, lookup, broken][:int(sys.argv[2])]:
            kernel(x)
        time.sleep(0.01)
        if seconds > 60 and not farm.stats().pending:
            break

if __name__ == "__main__":
    main(float(sys.argv[1]))
    farm.wait()
'''
KERNEL: Final = """
@farm.njit
def {name}(x):
    return np.median(x) * {number} + np.std(x) + np.percentile(x, {number})
"""


def main() -> None:
    """Make all three."""
    sys.path.insert(0, str(HERE.parents[1] / "tests" / "browser"))
    from chromium import browser, executable

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        script = folder / "simulation.py"
        kernels = "".join(KERNEL.format(name=name, number=number) for number, name in enumerate(NAMES, start=1))
        script.write_text(PROGRAM.format(kernels=textwrap.dedent(kernels), names=", ".join(NAMES)))
        (folder / "run").mkdir(0o700)
        os.environ.update(XDG_RUNTIME_DIR=f"{name}/run", FARM_CACHE_DIR=f"{name}/cache", FARM_WORKERS="2")
        make_prewarm(folder)
        (folder / "cache").rename(folder / "full")
        run(folder, "500", "4")  # some of it is in the store, for the report
        make_top(folder, script)
        program = executable()
        if program is None:
            print("report.png is left as it is: there is no Chromium (Debian: apt-get install chromium)")
        else:
            with browser(program, folder / "profile") as page:
                page.open(folder / "report.html", 1000)
                page.picture(HERE / "report.png")
    for path in sorted(HERE.glob("*.svg")) + sorted(HERE.glob("*.png")):
        size = path.stat().st_size
        print(f"{path.name}: {size // 1000} KB")
        assert size < SIZE_MAX_BYTES, f"{path} is too large to be kept"


def run(folder: Path, *arguments: str) -> None:
    """Run the program to its end."""
    subprocess.run([sys.executable, "simulation.py", *arguments], cwd=folder, check=True)


def make_prewarm(folder: Path) -> None:
    """Record what the program uses, forget what was compiled, and compile it ahead of time."""
    record = ["run", "--record", "simulation.jsonl", "simulation.py", "500", "11"]
    subprocess.run([farm(), *record], cwd=folder, check=True)
    (folder / "cache").rename(folder / "first")
    prewarm = ["prewarm", "simulation.jsonl", "--script", "simulation.py"]
    shown = Text("$ farm " + " ".join(record) + "\n", "bold") + Text("$ farm " + " ".join(prewarm) + "\n", "bold")
    save(shown + Text.from_ansi(on_terminal([farm(), *prewarm], folder)), "farm prewarm", HERE / "prewarm.svg")


def make_top(folder: Path, script: Path) -> None:
    """Take a frame of the live view while the program runs with a report."""
    start = f"import sys, farm; farm.report('report.html'); sys.argv = {[script.name, '500', '12']!r}; "
    code = f"{start}import runpy; runpy.run_path({script.name!r}, run_name='__main__')"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=folder)
    board, end = Board.of_this_user(), time.monotonic() + 300
    found = []
    while process.poll() is None and time.monotonic() < end:
        found = [one for one in board.read() if one["program"] == script.name]  # and not what else runs here
        busy = [worker for one in found for worker in one["workers"] if worker["job"]]
        if len(busy) == 2 and found[0]["counters"]["compiled"] > 1 and found[0]["queue"]["count"]:
            break
        time.sleep(0.1)
    frame = picture(found, time.time())
    save(Text("$ farm top", "bold"), "farm top", HERE / "top.svg", frame)
    process.wait(300)


def farm() -> str:
    """The command."""
    return str(Path(sys.executable).with_name("farm"))


def on_terminal(command: list[str], folder: Path) -> str:
    """What a terminal shows in the end that a command has drawn on, colours included."""
    ours, theirs = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, WIDTH, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    data = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while more := os.read(ours, 65536):
            data += more
    os.close(ours)
    process.wait(60)
    return last_look(data.decode())


def last_look(data: str) -> str:
    """The lines that are left once every one that was drawn over is gone."""
    lines, row, fresh = [""], 0, True
    for part in re.split(r"(\r\n|\r|\n|\x1b\[[0-9;?]*[A-Za-z])", data):
        if part in ("\r\n", "\n"):
            row, fresh = row + 1, True
            lines += [""] * (row + 1 - len(lines))
        elif part == "\r":
            fresh = True
        elif re.fullmatch(r"\x1b\[\d*A", part):
            row = max(0, row - int(part[2:-1] or 1))
        elif re.fullmatch(r"\x1b\[2?K", part):
            lines[row] = ""
        elif re.fullmatch(r"\x1b\[[0-9;]*m", part):
            lines[row] += part
        elif part and not part.startswith("\x1b"):
            lines[row] = part if fresh and not lines[row].startswith("\x1b") else lines[row] + part
            fresh = False
    return "\n".join(lines).rstrip()


def save(head: Text, title: str, path: Path, *more: RenderableType) -> None:
    """As SVG, with no font from anywhere."""
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True, color_system="truecolor")
        for one in (head, *more, ""):  # without an empty line the last one is cut off at its base line
            console.print(one)
        template = re.sub(r"@font-face \{\{.*?\}\}\n|<!--.*?-->", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
        assert "url(" not in template.replace("url(#", "")
        text = console.export_svg(title=title, code_format=template, unique_id=path.stem)
    path.write_text(re.sub(r"[ \t]+\n", "\n", text), encoding="utf-8")


if __name__ == "__main__":
    main()
