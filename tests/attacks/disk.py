"""Disks that fill up, close, vanish, lie about the time, and files that are torn."""

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from attack import Attack
from children import BOUND_S, ROOT, Child, Outcome, Subject, right_results, together, write_package
from races import MEMORY, SIGNATURES
from troubles import vanishing

FARM_ONLY: Final = (Subject.FARM,)
PACKAGE: Final = {"user.py": SIGNATURES}
FUTURE: Final = 4_000_000_000
ENTRIES: Final = 100_000
LINKS: Final = 1000
SAME_SIZE: Final = """
@compiled
def scale(a):
    return a * {factor}

def work(index):
    try:
        return [scale(3)]
    except Exception:
        return ["raised"]
"""


def torn(subject: Subject, directory: Path, rounds: int) -> Outcome:
    """One artifact is cut at lengths and flipped at places all over it; each is loaded and called."""
    command = [sys.executable, str(Path(__file__).parent / "torn.py"), subject.name, str(directory), str(rounds)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=5 * BOUND_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **subject.environment(directory / "cache")},
    )
    if done.returncode:  # not one try, but the process that does them all
        print(done.stderr, file=sys.stderr)
        return Outcome(tries=rounds, killed=done.returncode < 0, raised=done.returncode > 0)
    return Outcome(*json.loads(done.stdout.splitlines()[-1]))


# -- file systems ------------------------------------------------------------------------------------------


@lru_cache
def namespace() -> tuple[str, ...]:
    """What runs a command in a mount namespace of its own; empty where that is not allowed."""
    for way in (("unshare", "-m"), ("unshare", "-r", "-m")):
        test = [*way, "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/mnt"]
        if shutil.which("unshare") and subprocess.run(test, capture_output=True, check=False).returncode == 0:
            return way
    print("no file system can be mounted here: not tried", file=sys.stderr)
    return ()


def mounted(cache: Path, mount: str) -> Sequence[str]:
    """What runs a command after `mount`, in which $0 is the cache directory."""
    cache.mkdir(mode=0o700, exist_ok=True)
    return [*namespace(), "sh", "-c", f'{mount} && exec "$@"', str(cache)]


def alone(subject: Subject, directory: Path, files: dict[str, str], before: Sequence[str] = ()) -> Outcome:
    """The package runs once, in one process, on the store in `directory`."""
    write_package(directory / "package", subject, files)
    right = right_results(directory / "right", files, [0])
    return together([Child(subject, directory / "package", directory / "cache", before=before)], right)


def full_disk(subject: Subject, directory: Path, rounds: int) -> Outcome:
    """The cache is on a file system of 64 KiB."""
    outcome = Outcome()
    for _ in range(rounds if namespace() else 0):
        before = mounted(directory / "cache", 'mount -t tmpfs -o size=64k,mode=700 tmpfs "$0"')
        outcome += alone(subject, directory, PACKAGE, before)
    return outcome


def read_only(subject: Subject, directory: Path, rounds: int) -> Outcome:
    """The cache is filled, and then it is read-only: with what it holds, and after an edit."""
    outcome = Outcome()
    for factor in range(2, (2 + rounds) if namespace() else 2):
        outcome += alone(subject, directory, {"user.py": SAME_SIZE.format(factor=factor)})
        before = mounted(directory / "cache", 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0"')
        outcome += alone(subject, directory, {"user.py": SAME_SIZE.format(factor=factor)}, before)
        outcome += alone(subject, directory, {"user.py": SAME_SIZE.format(factor=factor + 100)}, before)
    return outcome


def vanished(subject: Subject, directory: Path, rounds: int) -> Outcome:
    """The directory is removed again and again while the program runs."""
    outcome = Outcome()
    for _ in range(rounds):
        with vanishing(directory / "cache"):
            outcome += alone(subject, directory, PACKAGE)
    return outcome


def in_the_way(subject: Subject, directory: Path, rounds: int) -> Outcome:
    """A file lies where the directory should be, or one in it."""
    outcome, cache = Outcome(), directory / "cache"
    for number in range(rounds):
        shutil.rmtree(cache, ignore_errors=True)
        cache.unlink(missing_ok=True)
        if number % 2 == 0:
            cache.touch()
        else:
            outcome += alone(subject, directory, PACKAGE)
            for path in (one for one in sorted(cache.rglob("*"), reverse=True) if one.is_dir()):
                if not any(one.is_dir() for one in path.iterdir()):  # the innermost: shards, tmp, locks
                    shutil.rmtree(path)
                    path.touch()
        outcome += alone(subject, directory, PACKAGE)
    return outcome


def clock_set_back(subject: Subject, directory: Path, rounds: int) -> Outcome:
    """What is stored is dated decades ahead; a source is edited, and keeps its size and its date."""
    outcome, package = Outcome(), directory / "package"
    for number in range(rounds):
        for factor in (2 * number, 2 * number + 1):
            text = SAME_SIZE.format(factor=100 + factor)
            write_package(package, subject, {"user.py": text})
            shutil.rmtree(package / "__pycache__", ignore_errors=True)
            os.utime(package / "user.py", (FUTURE, FUTURE))
            outcome += together([Child(subject, package, directory / "cache")], [[3 * (100 + factor)]])
            for path in (directory / "cache").rglob("*"):
                os.utime(path, (FUTURE, FUTURE))
    return outcome


def links(subject: Subject, directory: Path, rounds: int) -> Outcome:
    """Symbolic links in the store lead to old files of the user's; then it is swept. A file that is gone is wrong."""
    from farm.store.disk import DiskStore, StoreUnwritable

    outcome, cache = Outcome(), directory / "cache"
    for number in range(rounds):
        place = ("v1", "v1/tmp", "v1/locks", "v1/quarantine", "v1/shards")[number % 5]
        outside = directory / f"outside-{number}"
        inner = [outside / name for name in ("tmp", "locks", "quarantine", "00", "ff")]
        for path in (outside, *inner):
            path.mkdir()
            for name in ("letter", f"{'0' * 64}.farm", f"{'0' * 64}.lock"):
                (path / name).write_bytes(b"mine")
                os.utime(path / name, (0, 0))
        before = sorted(map(str, outside.rglob("*")))
        shutil.rmtree(cache, ignore_errors=True)
        (cache / "v1").mkdir(parents=True, mode=0o700)
        cache.chmod(0o700)
        for name in [f"v1/{shard:02x}" for shard in range(256)] if place == "v1/shards" else [place]:
            if (cache / name).is_dir():
                (cache / name).rmdir()
            (cache / name).symlink_to(outside)
        outcome += alone(subject, directory, {"user.py": SAME_SIZE.format(factor=100 + number)})
        store = DiskStore(cache, size_max_bytes=1)
        for sweep in (store.trim, store.verify, store.clear):
            try:
                sweep()
            except StoreUnwritable:
                continue
        after = sorted(map(str, outside.rglob("*")))
        outcome += Outcome(tries=len(before), wrong=len(set(before) ^ set(after)))
        shutil.rmtree(cache)
    return outcome


def crowded(subject: Subject, directory: Path, rounds: int) -> Outcome:
    """The store holds 100,000 other artifacts, more than its limit: it is trimmed while the program runs."""
    base = Path(MEMORY or directory) / f"farm-attack-{secrets.token_hex(4)}"
    shards = [base / "v1" / f"{number:02x}" for number in range(256)]
    try:
        for path in (base / "v1" / "tmp", *shards):
            path.mkdir(parents=True, mode=0o700)
        base.chmod(0o700)
        for number in range(0, ENTRIES, LINKS):
            one = base / "v1" / "00" / f"00{secrets.token_hex(31)}.farm"
            one.write_bytes(b"x" * 1000)
            os.utime(one, (number, number))
            for shard in (shards[other % 256] for other in range(1, LINKS)):
                os.link(one, shard / f"{shard.name}{secrets.token_hex(31)}.farm")
        write_package(directory / "package", subject, PACKAGE)
        right = right_results(directory / "right", PACKAGE, [0])
        limit = ["env", "FARM_CACHE_SIZE_MAX_BYTES=1000000"]
        outcome = Outcome()
        for _ in range(rounds):
            outcome += together([Child(subject, directory / "package", base, before=limit)], right)
        return outcome
    finally:
        shutil.rmtree(base, ignore_errors=True)


ATTACKS: Final = {
    "a file is cut at all lengths and flipped at many places, and called": Attack(torn, 150, 4000),
    "the disk is full (64 KiB)": Attack(full_disk, 1, 10),
    "the store is read-only": Attack(read_only, 1, 10),
    "the directory vanishes during the run": Attack(vanished, 1, 20),
    "a file is in the place of a directory": Attack(in_the_way, 2, 10),
    "the clock was set back, and a source keeps its date": Attack(clock_set_back, 2, 20),
    "symbolic links in the store lead elsewhere": Attack(links, 5, 25, FARM_ONLY),
    "100,000 other artifacts, over the limit": Attack(crowded, 1, 5, FARM_ONLY),
}
"""By what is tried."""
