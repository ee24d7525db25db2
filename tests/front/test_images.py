"""The recipe for images (docs/how-to/images.md), as far as it needs no container: another user, directory and date."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from farm.port.cpu import level

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else"),
    pytest.mark.skipif(level() not in ("x86-64-v3", "x86-64-v4"), reason="a CPU of level 3 is wanted: the code is run"),
]
PROGRAM = Path(__file__).parent / "target_program.py"
SOMEBODY = 54321
"""In no list of users, as in many containers."""

# Python itself may lie where that user cannot read: what is imported, and which versions there are, is known before.
AS_SOMEBODY = """
import importlib, os, pkgutil, runpy, sys
import farm
for found in pkgutil.walk_packages(farm.__path__, "farm."):
    if not found.name.startswith("farm.tools"):
        importlib.import_module(found.name)
user, program = int(sys.argv[1]), sys.argv[2]
for function, signature in runpy.run_path(program, run_name="known")["FUNCTIONS"].items():
    farm.job.functor.make_functor(function, *farm.port.dispatch.parse_signature(signature))
os.setgroups([]); os.setresgid(user, user, user); os.setresuid(user, user, user)
sys.argv = [program]
runpy.run_path(program, run_name="__main__")
"""


@pytest.fixture
def image() -> Iterator[Path]:
    """A directory that everybody can reach: the temporary directory of a test is closed to others."""
    with tempfile.TemporaryDirectory(prefix="farm-image-", dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        yield Path(directory)


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FARM_")}
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=100,
        env={**inherited, "FARM_WORKERS": "1", **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_store_made_by_root_serves_another_user_in_another_directory_at_another_date(image: Path) -> None:
    build, run_time, cache = image / "build", image / "srv" / "app", image / "farm-cache"
    build.mkdir()
    shutil.copy(PROGRAM, build / "app.py")
    shutil.copy(PROGRAM.parent / "these.py", build)
    run(build / "app.py", "fill", "x86-64-v3", FARM_CACHE_DIR=str(cache))
    for path in (cache, *cache.rglob("*")):  # chmod -R go+rX
        path.chmod(0o755 if path.is_dir() else 0o644)
    before = sorted((str(path), path.stat().st_mtime_ns) for path in cache.rglob("*"))

    run_time.mkdir(parents=True)
    shutil.move(build / "app.py", run_time / "app.py")
    os.utime(run_time / "app.py", (10**9, 10**9))
    mine = image / "mine"  # cannot be made by that user: a file system that is read-only
    done = run(
        "-c",
        AS_SOMEBODY,
        str(SOMEBODY),
        run_time / "app.py",
        FARM_LOWER_CACHE_DIRS=str(cache),
        FARM_CACHE_DIR=str(mine),
    )
    report = json.loads(done.stdout)
    assert (report["compiled"], report["loaded"]) == (0, 2), report["explained"]
    assert report["cpus"] == ["x86-64-v3"] * 2 and done.stderr == ""
    assert not mine.exists()
    after = sorted((str(path), path.stat().st_mtime_ns) for path in cache.rglob("*"))
    assert after == before, "nothing is written there"
