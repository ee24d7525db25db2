"""Locks against real processes that stop, die and hold on."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import filelock
import pytest

from farm.job.key import CompileKey
from farm.store.artifact import Artifact
from farm.store.disk import DiskStore
from farm.store.lock import LockOutcome, key_lock

HOLD = """
import sys
from pathlib import Path
from farm.store.lock import key_lock
with key_lock(Path(sys.argv[1]), 5) as outcome:
    print(outcome.name, flush=True)
    sys.stdin.readline()
"""

Start = Callable[..., "Popen[str]"]


def hold(child: Start, path: Path) -> "Popen[str]":
    """A process that holds the lock until it reads a line."""
    process = child(HOLD, path)
    assert process.stdout is not None and process.stdout.readline() == "ACQUIRED\n"
    return process


def test_a_free_lock_is_acquired_and_freed(tmp_path: Path) -> None:
    for _ in range(2):
        with key_lock(tmp_path / "l", 0) as outcome:
            assert outcome is LockOutcome.ACQUIRED
            assert (tmp_path / "l").stat().st_mode & 0o777 == 0o600


def test_a_held_lock_is_busy_in_the_same_process_too(tmp_path: Path) -> None:
    with key_lock(tmp_path / "l", 0), key_lock(tmp_path / "l", 0) as second:
        assert second is LockOutcome.BUSY


def test_an_error_in_the_block_frees_the_lock_and_travels_on(tmp_path: Path) -> None:
    with pytest.raises(KeyError), key_lock(tmp_path / "l", 0):
        raise KeyError("x")
    with key_lock(tmp_path / "l", 0) as outcome:
        assert outcome is LockOutcome.ACQUIRED


@pytest.mark.concurrency
def test_lock_freed_on_sigkill(child: Start, tmp_path: Path) -> None:
    holder = hold(child, tmp_path / "l")
    with key_lock(tmp_path / "l", 0) as outcome:
        assert outcome is LockOutcome.BUSY
    os.kill(holder.pid, signal.SIGKILL)
    assert holder.wait() == -signal.SIGKILL
    with key_lock(tmp_path / "l", 0) as outcome:
        assert outcome is LockOutcome.ACQUIRED


@pytest.mark.concurrency
def test_lock_of_a_stopped_holder_times_out_within_its_bound(child: Start, tmp_path: Path) -> None:
    holder = hold(child, tmp_path / "l")
    os.kill(holder.pid, signal.SIGSTOP)
    os.waitpid(holder.pid, os.WUNTRACED)
    started = time.monotonic()
    with key_lock(tmp_path / "l", 0.2) as outcome:
        assert outcome is LockOutcome.BUSY
    assert 0.15 < time.monotonic() - started < 5


@pytest.mark.concurrency
def test_a_waiter_gets_the_lock_when_the_holder_lets_go(child: Start, tmp_path: Path) -> None:
    holder = hold(child, tmp_path / "l")
    assert holder.stdin is not None
    holder.stdin.write("\n")
    holder.stdin.flush()
    with key_lock(tmp_path / "l", 30) as outcome:
        assert outcome is LockOutcome.ACQUIRED


def test_a_lock_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    with key_lock(tmp_path / "none" / "l", 0) as outcome:
        assert outcome is LockOutcome.UNAVAILABLE
    assert not (tmp_path / "none").exists()


def test_a_symbolic_link_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "l").symlink_to(tmp_path / "target")
    with key_lock(tmp_path / "l", 0) as outcome:
        assert outcome is not LockOutcome.ACQUIRED
    assert not (tmp_path / "target").exists()


def test_an_older_filelock_without_the_option_serves_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    current = filelock.FileLock

    def older(path: Path, timeout: float, mode: int) -> filelock.BaseFileLock:
        return current(path, timeout, mode)

    monkeypatch.setattr(filelock, "FileLock", older)
    with key_lock(tmp_path / "l", 0) as outcome:
        assert outcome is LockOutcome.ACQUIRED


def test_a_lock_without_a_bound_is_the_callers_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="bound"), key_lock(tmp_path / "l", -1):
        pass


def test_the_store_locks_one_key_and_not_the_others(
    root: Path, make: Callable[..., Artifact], key_of: Callable[[str], CompileKey]
) -> None:
    store = DiskStore(root)
    with store.lock(key_of("f"), 0) as first, store.lock(key_of("f"), 0) as again, store.lock(key_of("g"), 0) as other:
        assert (first, again, other) == (LockOutcome.ACQUIRED, LockOutcome.BUSY, LockOutcome.ACQUIRED)
    with DiskStore(root, readonly=True).lock(key_of("f"), 0) as outcome:
        assert outcome is LockOutcome.UNAVAILABLE
