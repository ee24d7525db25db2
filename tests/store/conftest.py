"""What every store test gets: a directory, artifacts, child processes; and nothing is left afterwards."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import troubles

from farm.job.key import CompileKey
from farm.store.artifact import Artifact

Child = subprocess.Popen[str]


def make_key(name: str) -> CompileKey:
    return CompileKey.from_parts({"name": name.encode()})


def make_artifact(name: str = "f", code: bytes = b"\x7fELF code", bitcode: bytes = b"BC bitcode") -> Artifact:
    return Artifact(make_key(name), {"function": name, "n": [1, 2.5, None]}, code, bitcode, b"environment")


@pytest.fixture(name="key_of")
def fixture_key_of() -> Callable[[str], CompileKey]:
    return make_key


@pytest.fixture
def make() -> Callable[..., Artifact]:
    return make_artifact


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def nothing_is_left(root: Path) -> Iterator[None]:
    """No child process, no descriptor and no temporary file outlives a test."""
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert troubles.children() == []
    assert len(os.listdir("/proc/self/fd")) == before
    temporary = root / "v1" / "tmp"
    assert not temporary.is_dir() or os.listdir(temporary) == []


@pytest.fixture
def child(nothing_is_left: None) -> Iterator[Callable[..., Child]]:
    """Start a Python process on a script; it talks by lines on its standard input and output."""
    started: list[Child] = []

    def start(script: str, *arguments: object) -> Child:
        command = [sys.executable, "-c", script, *map(str, arguments)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
