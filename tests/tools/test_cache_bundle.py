"""`farm cache export|import|lower`: what they make, what they refuse, and what they say."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_cache_list import put

from farm.store.artifact import Stored
from farm.store.disk import DiskStore

FARM = Path(sys.executable).with_name("farm")


@pytest.fixture
def filled(shell) -> Any:
    for name in ("one", "two"):
        put(shell.cache_dir, name)
    put(shell.cache_dir, "other", package="other")
    return shell


def keys(root: Path) -> set[str]:
    return {path.stem for path in root.rglob("v1/??/*.farm")}


def test_export_and_import_take_what_fits(filled, tmp_path: Path) -> None:
    file = tmp_path / "a.bundle"
    file.write_text("an old one is replaced")
    done = filled.run("cache", "export", str(file), "--package", "pkg")
    assert done.exit_code == 0 and done.stderr == ""
    assert done.stdout.startswith("exported 2 artifacts (") and str(file) in done.stdout
    to = ("--cache-dir", str(tmp_path / "there"))
    done = filled.run("cache", "import", str(file), *to)
    assert (done.exit_code, done.output) == (0, "imported 2 artifacts\n")
    done = filled.run("cache", "import", str(file), *to)
    assert (done.exit_code, done.output) == (0, "imported 0 artifacts; 2 there already\n")
    assert len(keys(tmp_path / "there")) == 2 and keys(tmp_path / "there") < keys(filled.cache_dir)
    assert sorted(os.listdir(tmp_path)) == ["a.bundle", "cache", "there"], "no temporary file is left"


def test_for_machines(filled, tmp_path: Path) -> None:
    file = str(tmp_path / "a.bundle")
    found = json.loads(filled.run("cache", "export", file, "--json").stdout)
    assert (found["artifacts"], found["left_out"]) == (3, []) and found["file_bytes"] == os.path.getsize(file)
    found = json.loads(filled.run("cache", "import", file, "--json", "--cache-dir", str(tmp_path / "b")).stdout)
    assert found == {"file": file, "put": 3, "kept": 0, "bad": [], "problem": None}
    found = json.loads(filled.run("cache", "lower", str(tmp_path / "low"), "--json").stdout)
    assert found["artifacts"] == 3 and found["variable"] == f"FARM_LOWER_CACHE_DIRS={tmp_path / 'low'}"


def test_an_empty_store_gives_an_empty_bundle(shell, tmp_path: Path) -> None:
    done = shell.run("cache", "export", str(tmp_path / "a.bundle"))
    assert done.exit_code == 0 and "exported 0 artifacts" in done.stdout
    assert shell.run("cache", "import", str(tmp_path / "a.bundle")).output == "imported 0 artifacts\n"
    assert not shell.cache_dir.exists()


def test_a_damaged_artifact_is_left_out_and_told(filled, tmp_path: Path) -> None:
    path = next(filled.cache_dir.rglob("*.farm"))
    path.write_bytes(path.read_bytes()[:-1] + b"X")
    done = filled.run("cache", "export", str(tmp_path / "a.bundle"))
    assert done.exit_code == 1 and "exported 2 artifacts" in done.stdout
    assert f"{path.name} was left out: a section's digest does not match its bytes" in done.stderr
    done = filled.run("cache", "lower", str(tmp_path / "low"))
    assert done.exit_code == 1 and f"{path.name} is damaged" in done.stderr and len(keys(tmp_path / "low")) == 2


def test_what_cannot_be_written_or_read_is_one_sentence(filled, tmp_path: Path) -> None:
    done = filled.run("cache", "export", str(tmp_path / "none" / "a.bundle"))
    assert done.exit_code == 1 and done.stderr.endswith("cannot be written: No such file or directory\n")
    done = filled.run("cache", "import", str(tmp_path / "none.bundle"))
    assert done.exit_code == 1 and "cannot be read: No such file or directory" in done.stderr
    (tmp_path / "text").write_text("no bundle at all")
    done = filled.run("cache", "import", str(tmp_path / "text"))
    assert done.exit_code == 1 and "it is damaged, or no bundle" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_bad_member_is_told_and_the_others_come(filled, tmp_path: Path) -> None:
    import zstandard

    file = tmp_path / "a.bundle"
    filled.run("cache", "export", str(file))
    plain = zstandard.ZstdDecompressor().decompressobj().decompress(file.read_bytes())
    assert plain.count(b"c" * 100) == 3
    file.write_bytes(zstandard.ZstdCompressor().compress(plain.replace(b"c" * 100, b"C" * 100, 1)))
    done = filled.run("cache", "import", str(file), "--cache-dir", str(tmp_path / "b"))
    assert done.exit_code == 1 and done.stdout == "imported 2 artifacts\n"
    assert ".farm was passed over: a section's digest does not match its bytes" in done.stderr
    found = json.loads(filled.run("cache", "import", str(file), "--json", "--cache-dir", str(tmp_path / "c")).stdout)
    assert found["put"] == 2 and len(found["bad"]) == 1


def test_a_bundle_has_a_limit(filled, tmp_path: Path) -> None:
    file, to = str(tmp_path / "a.bundle"), ("--cache-dir", str(tmp_path / "b"))
    filled.run("cache", "export", file)
    done = filled.run("cache", "import", file, "--max-size", "2KiB", *to)
    assert done.exit_code == 1 and "--max-size" in done.stderr
    done = filled.run("cache", "import", file, "--max-size", "some", *to)
    assert done.exit_code == 2
    assert filled.run("cache", "import", file, "--max-size", "1MiB", *to).exit_code == 0


def test_import_into_a_readonly_store_and_without_the_key_are_refused(filled, tmp_path: Path) -> None:
    file, to = str(tmp_path / "a.bundle"), ("--cache-dir", str(tmp_path / "b"))
    filled.run("cache", "export", file)
    filled.set("FARM_READONLY", "1")
    done = filled.run("cache", "import", file, *to)
    assert done.exit_code == 1 and "read-only" in done.stderr
    filled.set("FARM_READONLY", "0")
    (tmp_path / "key").write_bytes(b"k" * 32)
    filled.set("FARM_SIGNING_KEY_FILE", str(tmp_path / "key"))
    (tmp_path / "key").chmod(0o644)
    done = filled.run("cache", "import", file, *to)
    assert done.exit_code == 1 and "chmod 600" in done.stderr
    (tmp_path / "key").chmod(0o600)
    done = filled.run("cache", "import", file, *to)
    assert done.exit_code == 1 and done.stderr.count("is not signed") == 3
    assert not (tmp_path / "b").exists()


def accepted(directory: Path, keys_wanted: set[str]) -> bool:
    from farm.job.key import CompileKey

    store = DiskStore(directory.with_name("empty"), lower=(directory,))
    return not store.problems and all(isinstance(store.get(CompileKey(key)), Stored) for key in keys_wanted)


def modes(directory: Path) -> set[tuple[bool, int]]:
    return {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in (directory, *directory.rglob("*"))}


def test_a_copy_of_the_store_is_a_lower_cache(filled, tmp_path: Path) -> None:
    low = tmp_path / "new" / "low"
    low.parent.mkdir()
    done = filled.run("cache", "lower", str(low))
    assert (done.exit_code, done.stdout) == (0, f"FARM_LOWER_CACHE_DIRS={low}\n")
    assert done.stderr.startswith("3 artifacts (")
    assert accepted(low, keys(filled.cache_dir)) and modes(low) == {(True, 0o755), (False, 0o444)}
    assert modes(filled.cache_dir) != modes(low), "the store itself is as before"


def test_a_directory_that_is_a_copy_is_made_one_as_it_is(filled, tmp_path: Path) -> None:
    import shutil

    low = tmp_path / "low"
    with DiskStore(filled.cache_dir).lock(next(iter(map_keys(filled.cache_dir))), 0):
        pass
    (filled.cache_dir / "v1" / "usage.jsonl").write_text("{}\n")
    (filled.cache_dir / "v1" / "quarantine").mkdir()
    (filled.cache_dir / "v1" / "quarantine" / "bad.farm").write_bytes(b"")
    shutil.copytree(filled.cache_dir, low)
    for path in low.rglob("*"):
        path.chmod(0o777)
    done = filled.run("cache", "lower", str(low))
    assert done.exit_code == 0, done.output
    assert accepted(low, keys(filled.cache_dir)) and modes(low) == {(True, 0o755), (False, 0o444)}
    assert all(len(name) == 2 for name in os.listdir(low / "v1"))
    done = filled.run("cache", "lower", str(low), "--package", "pkg")
    assert done.exit_code == 2 and "is a cache already" in done.stderr
    again = filled.run("cache", "lower", str(low))
    assert again.exit_code == 0


def map_keys(root: Path) -> Any:
    from farm.job.key import CompileKey

    return map(CompileKey, keys(root))


def test_only_some_artifacts_can_be_taken(filled, tmp_path: Path) -> None:
    done = filled.run("cache", "lower", str(tmp_path / "low"), "--function", "pkg.one")
    assert done.exit_code == 0 and len(keys(tmp_path / "low")) == 1


def test_an_empty_store_makes_an_empty_lower_cache(shell, tmp_path: Path) -> None:
    done = shell.run("cache", "lower", str(tmp_path / "low"))
    assert done.exit_code == 0 and done.stderr.startswith("0 artifacts"), done.output
    assert accepted(tmp_path / "low", set())


def test_directories_that_must_not_become_one_are_left_alone(filled, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    before = modes(other)
    done = filled.run("cache", "lower", str(other))
    assert done.exit_code == 1 and "holds other things than a cache" in done.stderr and modes(other) == before
    for where in (filled.cache_dir, filled.cache_dir / "v1", tmp_path):
        done = filled.run("cache", "lower", str(where))
        assert done.exit_code == 2 and "must lie apart" in done.stderr
    done = filled.run("cache", "lower", str(tmp_path / "a:b"))
    assert done.exit_code == 2 and "':'" in done.stderr
    assert len(keys(filled.cache_dir)) == 3 and stat.S_IMODE(filled.cache_dir.stat().st_mode) == 0o700


def test_links_inside_a_copy_lead_nowhere(filled, tmp_path: Path) -> None:
    """Modes of what they point to stay, and nothing outside goes."""
    low, outside = tmp_path / "low", tmp_path / "outside"
    filled.run("cache", "lower", str(low))
    outside.mkdir(mode=0o700)
    (outside / "x.farm").write_text("mine")
    (outside / "x.farm").chmod(0o600)
    (low / "v1" / "ab").symlink_to(outside)
    (low / "v1" / "tmp").symlink_to(outside)
    done = filled.run("cache", "lower", str(low))
    assert done.exit_code == 1 and len(done.stderr.splitlines()) == 1
    assert modes(outside) == {(True, 0o700), (False, 0o600)}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_made_by_root_all_of_it_is_roots(filled, tmp_path: Path) -> None:
    low = tmp_path / "low"
    filled.run("cache", "lower", str(low))
    for path in (low, *low.rglob("*")):
        os.chown(path, 12345, 12345)
    assert not accepted(low, set())
    assert filled.run("cache", "lower", str(low)).exit_code == 0
    assert accepted(low, keys(filled.cache_dir))
    assert {path.stat().st_uid for path in (low, *low.rglob("*"))} == {0}


@pytest.mark.skipif(not FARM.exists(), reason="the command is not installed beside this Python")
def test_the_installed_commands_take_artifacts_along(tmp_path: Path) -> None:
    put(tmp_path / "cache", "f")
    script = f"""set -e
    {FARM} cache export a.bundle --cache-dir cache
    {FARM} cache import a.bundle --cache-dir there
    {FARM} cache lower low --cache-dir there
    """
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"FARM_LOWER_CACHE_DIRS={tmp_path / 'low'}\n" in done.stdout and keys(tmp_path / "low")
