"""What the processes of a farm can reach: their descriptors, one by one, their sockets, environment and command line.

A worker runs code of the user that it unpickles. What it does not hold it cannot leak, keep open, or answer on.
"""

import contextlib
import os
import re
import socket
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest

import farm
from farm.config import StartMethod

SECRET: Final = b"a-key-that-is-in-no-process-but-ours"

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are looked at through /proc")


@pytest.fixture(params=StartMethod, ids=lambda method: method.value)
def start_method(request: pytest.FixtureRequest) -> StartMethod:
    method: StartMethod = request.param
    return method


@pytest.fixture
def held(tmp_path: Path) -> Iterator[set[str]]:
    """What the front holds open when the pool starts, half of it inheritable; as /proc names it."""
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(tmp_path / "file", "w"))
        pair = [stack.enter_context(one) for one in socket.socketpair()]
        listening = stack.enter_context(socket.socket(socket.AF_INET))
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        pipe = os.pipe()
        stack.callback(os.close, pipe[0])
        stack.callback(os.close, pipe[1])
        memory = stack.enter_context(tempfile.TemporaryFile())
        directory = os.open(tmp_path, os.O_RDONLY)
        stack.callback(os.close, directory)
        numbers = [file.fileno(), *(one.fileno() for one in (*pair, listening)), *pipe, memory.fileno(), directory]
        for number in numbers:
            os.set_inheritable(number, True)
        yield {os.readlink(f"/proc/self/fd/{number}") for number in numbers}


def add(a):
    return a + 1


def workers_of(foreman_or_front: int) -> list[int]:
    return sorted(child.pid for child in psutil.Process(foreman_or_front).children())


def descriptors(pid: int) -> dict[int, str]:
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
    return found


def kinds(found: dict[int, str]) -> Counter[str]:
    """`socket:[123]` -> socket."""
    return Counter(re.sub(r":?\[\d+\]$", "", target) for target in found.values())


@contextlib.contextmanager
def running(tmp_path: Path, start_method: StartMethod) -> Iterator[tuple[list[int], list[int]]]:
    """(foremen, workers) of a farm whose two workers have done a job each."""
    with farm.Farm(cache_dir=tmp_path / "cache", workers=2, start_method=start_method, nice=0) as barn:
        function = farm.njit(add, farm=barn)
        for value in (1, 1.0, 1j, True):  # all are queued before there is a foreman, so there will be two workers
            function(value)
        assert function.wait(100)
        children = workers_of(os.getpid())
        if start_method is StartMethod.FORK:
            yield children, [worker for foreman in children for worker in workers_of(foreman)]
        else:
            yield [], children


def test_a_foreman_and_its_workers_hold_what_they_need_and_nothing_else(
    tmp_path: Path, start_method: StartMethod, held: set[str]
) -> None:
    with running(tmp_path, start_method) as (foremen, workers):
        assert len(foremen) == (start_method is StartMethod.FORK) and len(workers) == 2
        ours = set(descriptors(os.getpid()).values())
        assert held < ours
        seen: set[str] = set()
        for pid in workers:
            found = descriptors(pid)
            assert found.keys() == {0, 1, 2, *found} and found[0] == "/dev/null"
            assert found[1] == found[2] and found[1] in ours, "its output is a pipe to the front"
            assert kinds(found) == {"/dev/null": 1, "pipe": 2, "socket": 1}, found
            assert not held & set(found.values())
            own = {target for number, target in found.items() if number > 0}
            assert not own & seen, "no worker holds anything of another one"
            seen |= own
        for pid in foremen:
            found = descriptors(pid)
            assert found[0] == "/dev/null" and found[1] == found[2] and found[1] in ours
            # The way to the front, and what wakes it when a worker ends.
            assert kinds(found) == {"/dev/null": 1, "pipe": 2, "socket": 3, "anon_inode:[eventpoll]": 1}, found
            assert not held & set(found.values()) and not set(found.values()) & seen - {"/dev/null"}


def test_no_socket_of_a_farm_has_a_name_that_another_process_could_connect_to(
    tmp_path: Path, start_method: StartMethod
) -> None:
    before = set(descriptors(os.getpid()).values())
    with running(tmp_path, start_method) as (foremen, workers):
        sockets = {
            target
            for pid in (os.getpid(), *foremen, *workers)
            for target in descriptors(pid).values()
            if target.startswith("socket:") and target not in before
        }
        assert len(sockets) >= 4
        rows = {
            f"socket:[{row.split()[6]}]": row.split() for row in Path("/proc/net/unix").read_text().splitlines()[1:]
        }
        for one in sockets:
            assert one in rows, "it is a Unix socket"
            assert len(rows[one]) == 7, f"it has a name: {rows[one]}"
            listening = int(rows[one][3], 16) & 0x10000
            assert not listening and rows[one][5] == "03", "it is one end of a connected pair"
    assert not [path for path in tmp_path.rglob("*") if path.is_socket()]


def test_the_signing_key_is_in_no_environment_and_no_command_line(
    tmp_path: Path, start_method: StartMethod, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_file = tmp_path / "signing.key"
    key_file.write_bytes(SECRET)
    key_file.chmod(0o600)
    monkeypatch.setenv("FARM_SIGNING_KEY_FILE", str(key_file))
    with running(tmp_path, start_method) as (foremen, workers):
        looked_at = 0
        for pid in (*foremen, *workers):
            for name in ("environ", "cmdline"):
                text = Path(f"/proc/{pid}/{name}").read_bytes()
                assert text
                for form in (SECRET, SECRET.hex().encode()):
                    assert form not in text, (pid, name)
                looked_at += 1
        assert looked_at == 2 * len((*foremen, *workers)) >= 4
        signed = list((tmp_path / "cache").glob("v1/??/*.farm"))
        assert signed and all(path.read_bytes()[220:252] != bytes(32) for path in signed), "the key was in use"
