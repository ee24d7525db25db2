"""Runs the examples of one page, in a directory and with a cache directory of its own, as its reader would."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

from page_blocks import Block, Command, blocks_of, commands_of, difference

COMMAND_S: Final = 100.0
"""No example takes so long, on whatever machine."""
SESSION: Final = Path(__file__).with_name("page_session.py")
EXPORT: Final = re.compile(r"export (\w+)=(\S*)")
KEPT: Final = ("PATH", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "SYSTEMROOT")


class Wrong(Exception):
    """An example does not do what its page says."""


def run_page(page: str, directory: Path, name: str = "page") -> int:
    """Run all examples of a page below an empty directory; give how many there were. Raises Wrong."""
    with Runner(directory, name) as runner:
        blocks = blocks_of(page)
        for block, following in zip(blocks, [*blocks[1:], None], strict=False):
            if block.file_name is not None:
                runner.write(block, block.file_name)
            elif block.language == "python":
                shown = following if following is not None and following.language == "output" else None
                runner.run_python(block, shown)
            elif block.language == "console":
                for command in commands_of(block):
                    runner.run_command(command)
        return runner.count


class Runner:
    """The state of one page: its files, what it has exported, its interpreter."""

    def __init__(self, directory: Path, name: str) -> None:
        self.count = 0
        self._name = name
        self._place = directory / "page"
        self._place.mkdir()
        (directory / "home").mkdir()
        self._environment = {key: os.environ[key] for key in KEPT if key in os.environ} | {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
            "HOME": str(directory / "home"),
            "FARM_CACHE_DIR": str(directory / "cache"),
            "FARM_NICE": "0",  # the machine that tests is busy, and somebody waits
            "COLUMNS": "80",
            "PYTHONPATH": "",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # ours are no business of the page's reader
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self._session: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *error: object) -> None:
        session = self._session
        if session is None:
            return
        assert session.stdin is not None and session.stdout is not None
        with session.stdout, _limit(session):
            with contextlib.suppress(BrokenPipeError):
                session.stdin.close()
            code = session.wait()
        if error[0] is None and code != 0:
            raise Wrong(f"{self._name}: the page's interpreter ended with exit code {code}")

    def write(self, block: Block, file_name: str) -> None:
        """A block that is a file."""
        path = self._place / file_name
        assert path.resolve().is_relative_to(self._place.resolve()), f"{file_name} is not in the page's directory"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text)

    def run_python(self, block: Block, shown: Block | None) -> None:
        """A block in the page's interpreter, and what it prints."""
        self.count += 1
        where = f"{self._name}:{block.line}"
        if self._session is None:
            self._session = subprocess.Popen(
                [sys.executable, str(SESSION)],
                cwd=self._place,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        session = self._session
        assert session.stdin is not None and session.stdout is not None
        with _limit(session):
            session.stdin.write(json.dumps((where, block.text)) + "\n")
            session.stdin.flush()
            answer = session.stdout.readline()
        if not answer:
            raise Wrong(f"{where}: the page's interpreter has ended, exit code {session.wait()}")
        printed, error = json.loads(answer)
        if error is not None:
            raise Wrong(f"{where}: {error}")
        self._compare(where, shown.text if shown is not None else "", printed)

    def run_command(self, command: Command) -> None:
        """A line for the shell, and what it prints on both outputs."""
        self.count += 1
        where = f"{self._name}:{command.line}"
        exported = EXPORT.fullmatch(command.text)
        if exported is not None:
            self._environment[exported[1]] = exported[2]
            return
        process = subprocess.Popen(
            ["/bin/sh", "-c", command.text],
            cwd=self._place,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        with process.stdout, _limit(process):
            got = process.stdout.read()
            code = process.wait()
        if code != 0:
            raise Wrong(f"{where}: `{command.text}` ended with exit code {code}:\n{got}")
        self._compare(where, command.output, got)

    def _compare(self, where: str, expected: str, got: str) -> None:
        if expected.strip() and not expected.replace("...", "").strip():
            raise Wrong(f"{where}: an output that is only `...` says nothing")
        different = difference(expected, got)
        if different is not None:
            raise Wrong(f"{where}: {different}")


@contextlib.contextmanager
def _limit(process: subprocess.Popen[str]):
    """End the process, and what it has started, if the block takes too long or fails."""
    timer = threading.Timer(COMMAND_S, _end, (process,))
    timer.start()
    try:
        yield
    except BaseException:
        _end(process)
        raise
    finally:
        timer.cancel()
        timer.join()


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
