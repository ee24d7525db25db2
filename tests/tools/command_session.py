"""Runs `farm` commands one after the other in one process of their own, between edits and damage.

In a process that other tests have run in, numba may have registrations that enter every key. A step is a command
line, or one of these: ["compile"] has workers of a farm compile what `kernels.work()` calls; ["damage", name] cuts the
artifacts of a function off; ["forge", name] changes 3.25 to 4.25 in its machine code, and every digest with it;
["readonly", ...] is a command line in a store that is used read-only.
"""

import contextlib
import importlib
import json
import os
import struct
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Done:
    """What a command gave."""

    exit_code: int
    stdout: str
    stderr: str


def run_session(folder: Path, steps: Mapping[str, tuple[dict[str, str], list[str]]]) -> dict[str, Done]:
    """Run the steps in a folder: (files to write first, command line). What each gave, by its name."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FARM_")}
    environment |= {"FARM_CACHE_DIR": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1", "FARM_WORKERS": "1"}
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps([*steps.values()]),
        capture_output=True,
        text=True,
        timeout=110,
        cwd=folder,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: Done(*one) for name, one in zip(steps, found, strict=True)}


def _compile() -> None:
    import farm

    sys.modules.pop("kernels", None)
    sys.path.insert(0, str(Path.cwd()))
    with farm.enable():
        importlib.import_module("kernels").work()
    assert farm.wait(100)
    sys.path.remove(str(Path.cwd()))
    sys.modules.pop("kernels")


def _files_of(name: str) -> list[Path]:
    return [path for path in Path("cache").glob("v1/??/*.farm") if f'"function":"{name}"'.encode() in path.read_bytes()]


def _forge(name: str) -> None:
    from farm.job.key import CompileKey
    from farm.store.artifact import Stored
    from farm.store.disk import DiskStore

    store = DiskStore(Path("cache"))
    for path in _files_of(name):
        stored = store.peek(CompileKey(path.stem))
        assert isinstance(stored, Stored)
        artifact: Any = stored.artifact()
        code = artifact.code.replace(struct.pack("<d", 3.25), struct.pack("<d", 4.25))
        assert code != artifact.code
        store.put(replace(artifact, code=code))


def _main() -> None:
    from click.testing import CliRunner

    from farm.tools.main import main

    for write, run in json.loads(sys.stdin.read()):
        for name, text in write.items():
            Path(name).write_text(text)
            sys.modules.pop(Path(name).stem, None)
        result: list[Any] = [0, "", ""]
        with contextlib.redirect_stdout(sys.stderr):
            if run[0] == "compile":
                _compile()
            elif run[0] == "damage":
                for path in _files_of(run[1]):
                    path.write_bytes(path.read_bytes()[:-1])
            elif run[0] == "forge":
                _forge(run[1])
            else:
                readonly = run[0] == "readonly"
                done = CliRunner().invoke(main, run[readonly:], env={"FARM_READONLY": "1" if readonly else "0"})
                assert done.exception is None or isinstance(done.exception, SystemExit), done.output
                result = [done.exit_code, done.stdout, done.stderr]
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    _main()
