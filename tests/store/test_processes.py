"""The store between real processes: killed writers, full disks, many at once."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest

from farm.reasons import MissReason
from farm.store.artifact import Artifact, Miss, Stored
from farm.store.disk import DiskStore

Make = Callable[..., Artifact]
Start = Callable[..., "Popen[str]"]

COMMON = """
import os, sys
from pathlib import Path
from farm.job.key import CompileKey
from farm.store.artifact import Artifact, Stored
from farm.store.disk import DiskStore, StoreUnwritable
store = DiskStore(Path(sys.argv[1]))
def make(name, code):
    return Artifact(CompileKey.from_parts({"name": name.encode()}), {"function": name}, code, code[::-1], b"env")
"""

# Stands still between the last written byte and the renaming.
STOP_BEFORE_RENAME = """
def gate(source, target, **where):
    print("written", flush=True)
    sys.stdin.readline()
os.replace = gate
store.put(make("f", b"code"))
"""

SMALL_FILES_ONLY = """
import resource
store.put(make("small", b"x"))
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    store.put(make("f", b"x" * 1_000_000))
except StoreUnwritable as error:
    print(error.reason.name, flush=True)
"""

# Every process writes its own bytes under the shared keys; whatever is read must be one process's, whole.
PUT_AND_GET = """
mark = sys.argv[2].encode()
print("ready", flush=True)
sys.stdin.readline()
read = 0
for turn in range(25):
    for name in ("a", "b", "c", "d"):
        store.put(make(name, mark * 20_000))
        found = store.get(make(name, b"").key)
        assert isinstance(found, Stored), found
        bitcode = found.bitcode()
        assert found.code == found.code[:1] * 20_000 == bitcode, name
        read += 1
assert not store.misses, store.misses
print(read, flush=True)
"""


def line(process: "Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def release(process: "Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.concurrency
def test_writer_killed_before_rename_leaves_a_miss(root: Path, make: Make, child: Start) -> None:
    writer = child(COMMON + STOP_BEFORE_RENAME, root)
    assert line(writer) == "written"
    os.kill(writer.pid, signal.SIGKILL)
    assert writer.wait() == -signal.SIGKILL
    store = DiskStore(root)
    assert store.get(make("f").key) == Miss(MissReason.ABSENT) and not store.contains(make("f").key)
    assert len(os.listdir(root / "v1" / "tmp")) == 1
    assert store.remove_temp_of(writer.pid + 1) == 0
    assert store.remove_temp_of(writer.pid) == 1
    store.put(make("f"))
    assert isinstance(store.get(make("f").key), Stored)


def test_disk_full_is_unwritable_and_leaves_nothing(root: Path, make: Make, child: Start) -> None:
    writer = child(COMMON + SMALL_FILES_ONLY, root)
    assert line(writer) == "DISK_FULL"
    assert writer.wait() == 0
    store = DiskStore(root)
    assert store.contains(make("small").key) and not store.contains(make("f").key)
    assert os.listdir(root / "v1" / "tmp") == []


@pytest.mark.concurrency
def test_eight_processes_on_the_same_keys_never_read_a_torn_artifact(root: Path, child: Start) -> None:
    processes = [child(COMMON + PUT_AND_GET, root, mark) for mark in "12345678"]
    assert [line(process) for process in processes] == ["ready"] * 8
    for process in processes:
        release(process)
    assert [line(process) for process in processes] == ["100"] * 8
    assert [process.wait() for process in processes] == [0] * 8
    store = DiskStore(root)
    report = store.verify()
    assert (report.good, report.bad) == (4, ()) and store.stats().quarantined == 0
