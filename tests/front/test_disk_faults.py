"""A program with a cache directory that fails: its results are right, nothing is raised, and it is told, once.

The programs are processes of their own (`disk_program`), with file systems of their own where that is possible.
"""

import json
import os
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pytest

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
BOUND_S: Final = 100
FUNCTIONS: Final = 3 + 1
CALLS: Final = 3 + 3 * 1
"""A call of a function that is compiled in the background is made twice, and waited for in between."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@lru_cache
def namespace() -> tuple[str, ...]:
    """What runs a command in a mount namespace of its own; nothing where that is not allowed."""
    for way in (("unshare", "-m"), ("unshare", "-r", "-m")):
        test = [*way, "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/mnt"]
        if shutil.which("unshare") and subprocess.run(test, capture_output=True).returncode == 0:
            return way
    return ()


def small_disk(cache: Path) -> list[str]:
    """What runs a command with a file system of 36 KiB at `cache`, which goes with the command."""
    if not namespace():
        pytest.skip("no file system can be mounted here, not in a namespace of our own either")
    cache.mkdir()
    mount = 'mount -t tmpfs -o size=36k,mode=700 tmpfs "$0" && exec "$@"'
    return [*namespace(), "sh", "-c", mount, str(cache)]


def without_roots_powers() -> list[str]:
    """What runs a command to which a closed directory is closed: root may look into all of them."""
    if os.geteuid():
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root sees what is closed, and there is no setpriv to take that from it")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


def report_of(cache: Path, fault: str, *, before: list[str] | None = None) -> dict[str, Any]:
    done = subprocess.run(
        [*(before or []), sys.executable, str(HERE / "disk_program.py"), str(cache), fault],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert (report["wrong"], report["raised"]) == (0, []), report
    assert (report["failed"], report["died"], report["local"]) == (0, 0, 0), report
    return report


def told(report: dict[str, Any], reason: str, text: str) -> None:
    """Counted by its reason, warned of once, and an error for those who ask for errors."""
    assert report["degraded"][reason] >= 1, report
    assert len([one for one in report["warned"] if text in one]) == 1 == len(report["warned"]), report["warned"]
    assert "set FARM_CACHE_DIR" in report["warned"][0] or "set another directory" in report["warned"][0]
    assert report["raises"] and all("Degraded" in one for one in report["raises"]), report["raises"]


def test_a_full_disk(folder: Path) -> None:
    cache = folder / "cache"
    report = report_of(cache, "nothing", before=small_disk(cache))
    told(report, "DISK_FULL", "free some space")
    assert report["calls"] == CALLS and report["compiled"] == FUNCTIONS
    assert 1 <= report["kept"] < FUNCTIONS, "what there was room for is kept"
    assert report["degraded"]["DELIVERED_INLINE"] == FUNCTIONS - report["kept"] == report["degraded"]["DISK_FULL"]


def test_a_disk_that_turns_read_only(folder: Path) -> None:
    cache = folder / "cache"
    report = report_of(cache, "turns_read_only", before=small_disk(cache))
    told(report, "STORE_UNWRITABLE", "Read-only file system")
    assert report["kept"] == 1 and report["degraded"]["DELIVERED_INLINE"] == FUNCTIONS


def test_directories_that_are_closed_to_an_ordinary_user(folder: Path) -> None:
    report = report_of(folder / "cache", "closes", before=without_roots_powers())
    told(report, "STORE_UNWRITABLE", "Permission denied")
    assert report["degraded"]["DELIVERED_INLINE"] == FUNCTIONS


@pytest.mark.parametrize("fault", ["vanishes_before_the_load", "vanishes_all_the_time"])
def test_a_directory_that_vanishes_while_the_program_runs(folder: Path, fault: str) -> None:
    report = report_of(folder / "cache", fault)
    assert report["compiled"] == FUNCTIONS + 1 and report["calls"] == 1 + CALLS
    if fault == "vanishes_before_the_load":
        # Nothing is wrong with the disk: no warning, and each artifact is asked for over the pipe.
        assert report["warned"] == [] and report["degraded"] == {"DELIVERED_INLINE": FUNCTIONS}


def test_a_program_without_descriptors_whose_pool_runs(folder: Path) -> None:
    report = report_of(folder / "cache", "has_no_descriptors")
    assert report["misses"]["UNREADABLE"] >= FUNCTIONS and report["compiled"] == FUNCTIONS + 1
    assert report["degraded"] == {"DELIVERED_INLINE": FUNCTIONS} and report["kept"] == FUNCTIONS + 1


def test_a_disk_whose_reads_fail(folder: Path) -> None:
    report = report_of(folder / "cache", "reads_fail")
    assert report["misses"]["UNREADABLE"] >= FUNCTIONS and report["compiled"] == FUNCTIONS + 1
    assert report["degraded"] == {"DELIVERED_INLINE": FUNCTIONS}
    assert report["kept"] == FUNCTIONS + 1, "what cannot be read now may be good: nothing is set aside"


@pytest.mark.parametrize(
    ("what", "place"), [("file", ""), ("link", "v1"), ("link", "v1/tmp"), ("file", "v1/shards"), ("file", "v1/locks")]
)
def test_something_else_in_the_place_of_a_directory(folder: Path, what: str, place: str) -> None:
    (folder / "elsewhere").mkdir(mode=0o700)
    report = report_of(folder / "cache", f"{what}:{place}")
    if place == "v1/locks":  # without locks work may be done twice
        assert report["degraded"] == {} and report["warned"] == [] and report["kept"] == FUNCTIONS
        assert report["raises"] == []
    else:
        assert report["kept"] == 0
        reason = "STORE_UNWRITABLE" if place == "v1/shards" else "STORE_REFUSED"
        told(report, reason, str(folder / "cache"))
    assert list((folder / "elsewhere").iterdir()) == [], "nothing is written through a link"
