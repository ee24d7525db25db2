"""`farm cache`: what it prints, what it removes, and what it refuses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from farm.job.key import CompileKey
from farm.store.artifact import Artifact
from farm.store.disk import DiskStore
from farm.tools.main import main

FARM = Path(sys.executable).with_name("farm")


def put(root: Path, name: str, used_at: float = 1e9) -> Path:
    """An artifact that was last used then."""
    key = CompileKey.from_parts({"name": name.encode()})
    DiskStore(root).put(Artifact(key, {}, b"\x7fELF code", b"BC bitcode", b"environment"))
    (path,) = root.rglob(f"{key.hex}.farm")
    os.utime(path, (used_at, used_at))
    return path


def rows(output: str) -> dict[str, str]:
    return {line[:12].strip(): line[12:] for line in output.splitlines()}


def test_path_prints_the_directory_and_nothing_else(shell) -> None:
    result = shell.run("cache", "path")
    assert (result.exit_code, result.output) == (0, f"{shell.cache_dir}\n")
    assert shell.run("cache", "path", "--cache-dir", "/else/where").output == "/else/where\n"
    assert not shell.cache_dir.exists()


def test_path_prints_bytes_that_are_no_text_as_they_are(shell, tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/\xff[bold]"
    shell.set("FARM_CACHE_DIR", os.fsdecode(odd))
    assert shell.run("cache", "path").stdout_bytes == odd + b"\n"
    assert shell.run("cache", "stats").exit_code == 0


def test_stats_counts_what_is_there(shell, tmp_path: Path) -> None:
    sizes = [put(shell.cache_dir, name, at).stat().st_size for name, at in (("f", 1e9), ("g", 1.1e9))]
    bad = put(shell.cache_dir, "h")
    bad.write_bytes(b"garbage")
    DiskStore(shell.cache_dir).get(CompileKey(bad.stem))
    put(tmp_path / "lower", "f")
    shell.set("FARM_CACHE_SIZE_MAX_BYTES", "1536MiB")
    shell.set("FARM_LOWER_CACHE_DIRS", f"{tmp_path / 'lower'}{os.pathsep}{tmp_path / 'none'}")
    result = shell.run("cache", "stats")
    assert result.exit_code == 0
    found = rows(result.output)
    assert found["directory"] == str(shell.cache_dir)
    assert found["artifacts"] == "2"
    assert found["size"] == f"{sum(sizes)} bytes of 1.5 GiB"
    assert found["oldest use"].startswith("2001-09-0") and found["newest use"].startswith("2004-11-0")
    assert found["quarantine"] == "1 bad file"
    assert f"{tmp_path / 'lower'}: 1 artifact ({sizes[0]} bytes)" in result.output
    assert f"{tmp_path / 'none'}: does not exist" in result.output


def test_stats_of_a_directory_that_does_not_exist_makes_none(shell) -> None:
    result = shell.run("cache", "stats")
    assert result.exit_code == 0 and "does not exist" in result.output
    assert not shell.cache_dir.exists()


def test_clear_asks_first(shell) -> None:
    path = put(shell.cache_dir, "f")
    refused = shell.run("cache", "clear", answer="n\n")
    assert refused.exit_code == 1 and path.exists()
    assert "Remove 1 artifact" in refused.output and str(shell.cache_dir) in refused.output
    nobody_there = shell.run("cache", "clear", answer="")
    assert nobody_there.exit_code == 1 and path.exists()
    assert shell.run("cache", "clear", answer="y\n").exit_code == 0
    assert not path.exists()


def test_clear_says_what_it_freed_and_leaves_lower_directories(shell, tmp_path: Path) -> None:
    size = sum(put(shell.cache_dir, name).stat().st_size for name in ("f", "g"))
    lower = put(tmp_path / "lower", "f")
    shell.set("FARM_LOWER_CACHE_DIRS", str(tmp_path / "lower"))
    result = shell.run("cache", "clear", "--yes")
    assert (result.exit_code, result.output) == (0, f"removed 2 artifacts ({size} bytes)\n")
    assert lower.exists() and not list(shell.cache_dir.rglob("*.farm"))
    again = shell.run("cache", "clear")
    assert again.exit_code == 0 and "nothing to remove" in again.output


def test_clear_of_another_directory_leaves_the_environments_alone(shell, tmp_path: Path) -> None:
    own, other = put(shell.cache_dir, "f"), put(tmp_path / "other", "f")
    assert shell.run("cache", "clear", "--yes", "--cache-dir", str(tmp_path / "other")).exit_code == 0
    assert own.exists() and not other.exists()


def test_clear_of_a_readonly_store_is_refused(shell) -> None:
    path = put(shell.cache_dir, "f")
    shell.set("FARM_READONLY", "1")
    result = shell.run("cache", "clear", "--yes")
    assert result.exit_code == 1 and "read-only" in result.stderr and path.exists()


@pytest.mark.parametrize("command", ["stats", "clear"])
def test_a_directory_that_others_may_write_to_is_refused_with_what_to_run(shell, command: str) -> None:
    path = put(shell.cache_dir, "f")
    shell.cache_dir.chmod(0o777)
    result = shell.run("cache", command)
    assert result.exit_code == 1 and result.stdout == ""
    assert result.stderr.startswith("Error: ") and f"run: chmod 700 {shell.cache_dir}" in result.stderr
    assert path.exists()


@pytest.mark.parametrize("command", [("cache", "path"), ("cache", "stats"), ("cache", "clear"), ("doctor",)])
def test_a_setting_that_does_not_parse_is_one_line_and_exit_code_2(shell, command: tuple[str, ...]) -> None:
    shell.set("FARM_WORKERS", "many")
    result = shell.run(*command)
    assert result.exit_code == 2 and result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: setting 'workers' cannot be 'many': use ")


def test_a_variable_that_is_no_setting_is_mentioned_and_harmless(shell) -> None:
    shell.set("FARM_CACHEDIR", "/tmp")
    result = shell.run("cache", "path")
    assert result.exit_code == 0 and result.stdout == f"{shell.cache_dir}\n"
    assert result.stderr == "Warning: FARM_CACHEDIR is no setting of the farm: did you mean FARM_CACHE_DIR?\n"


def test_a_long_path_is_whole_in_a_pipe_and_folded_on_a_terminal(shell, tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*(letter * 60 for letter in "abcd"))
    shell.set("FARM_CACHE_DIR", str(deep))
    shell.set("COLUMNS", "50")
    assert f"directory   {deep} (does not exist" in shell.run("cache", "stats").output
    shell.set("FORCE_COLOR", "1")  # what makes rich take its output for a terminal
    lines = shell.run("cache", "stats").output.splitlines()
    assert max(map(len, lines)) < 80 < len(str(deep))
    assert str(deep) in "".join(line.removeprefix(" " * 12).strip() for line in lines)


@pytest.mark.skipif(not FARM.exists(), reason="the command is not installed beside this Python")
def test_the_installed_command_clears_a_cache(tmp_path: Path) -> None:
    path = put(tmp_path / "cache", "f")
    command = [str(FARM), "cache", "clear", "--yes", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("removed 1 artifact (")
    assert not path.exists()


def test_every_command_explains_itself(shell) -> None:
    for command in ((), *((name,) for name in main.commands), ("cache", "clear")):
        result = shell.run(*command, "--help")
        assert result.exit_code == 0 and "Usage: " in result.output
