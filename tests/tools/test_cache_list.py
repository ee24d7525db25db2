"""`farm cache ls|show|stats|trim`: what they say of what is there, to people and to machines."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from farm.job.key import CompileKey
from farm.job.outline import pack
from farm.reasons import MissReason
from farm.store import usage
from farm.store.artifact import Artifact
from farm.store.disk import DiskStore
from farm.store.usage import Usage
from farm.tools.main import main

FARM = Path(sys.executable).with_name("farm")
DAY = 86400.0


def put(root: Path, name: str, *, age_s: float = 0.0, code: int = 100, **meta: Any) -> CompileKey:
    """An artifact of `pkg.<name>` that was used so long ago."""
    key = CompileKey.from_parts({"name": name.encode()})
    about: dict[str, Any] = {
        "function": f"pkg.{name}",
        "signature": "(int64)",
        "package": "pkg",
        "compile_s": 1.0,
        "made_at": 1e9,
        "target": {"cpu": "znver4", "triple": "t", "features": "+avx"},
        "key_parts": dict(key.parts),
        "outline": pack((("constant 1", "3"),)),
    }
    DiskStore(root).put(Artifact(key, about | meta, b"c" * code, b"b", b"e"))
    path = root / "v1" / key.hex[:2] / f"{key.hex}.farm"
    os.utime(path, (time.time() - age_s,) * 2)
    return key


@pytest.fixture
def filled(shell) -> Any:
    """Four artifacts that differ in everything a filter or an order looks at."""
    root = shell.cache_dir
    put(root, "young", code=300, compile_s=2.0)
    put(root, "old", age_s=8 * DAY, code=200, compile_s=3.0, target={"cpu": "skylake"})
    put(root, "middle", age_s=3 * DAY, code=400, compile_s=1.0)
    put(root, "other.deep", age_s=30.0, code=100, package="other", function="other.deep", compile_s=4.0)
    return shell


def names(shell: Any, *options: str) -> list[str]:
    found = json.loads(shell.run("cache", "ls", "--json", *options).stdout)
    return [one["function"].rpartition(".")[2] for one in found["artifacts"]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {"young", "old", "middle", "deep"}),
        (["--function", "pkg.*"], {"young", "old", "middle"}),
        (["--function", "?????"], {"young"}),
        (["--package", "other"], {"deep"}),
        (["--cpu", "skylake"], {"old"}),
        (["--older-than", "7d"], {"old"}),
        (["--older-than", "48h"], {"old", "middle"}),
        (["--newer-than", "1h"], {"young", "deep"}),
        (["--newer-than", "1w", "--older-than", "1d"], {"middle"}),
        (["--function", "nothing"], set()),
    ],
)
def test_filters_choose(filled, options: list[str], expected: set[str]) -> None:
    assert set(names(filled, *options)) == expected


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("size", ["middle", "young", "old", "deep"]),
        ("age", ["old", "middle", "deep", "young"]),
        ("time", ["deep", "old", "young", "middle"]),
        ("name", ["deep", "middle", "old", "young"]),
    ],
)
def test_each_order_has_its_first(filled, order: str, expected: list[str]) -> None:
    assert names(filled, "--sort", order) == expected


def test_a_list_in_a_pipe_is_whole_and_aligned(filled) -> None:
    long = "f" * 300
    key = put(filled.cache_dir, long)
    result = filled.run("cache", "ls")
    assert result.exit_code == 0 and result.stderr == ""
    head, *lines = result.stdout.splitlines()
    assert head.split() == ["key", "size", "compiled", "in", "last", "used", "cpu", "function"]
    assert len(lines) == 5 and any(line.endswith(f"pkg.{long}(int64)") for line in lines)
    at = head.index("function")
    assert all(line[at - 1] == " " and line[at] != " " for line in lines)
    assert any(line.startswith(key.hex[:12]) for line in lines)


def test_a_list_on_a_terminal_is_folded(filled) -> None:
    put(filled.cache_dir, "f" * 300)
    filled.set("FORCE_COLOR", "1")
    filled.set("COLUMNS", "90")
    result = filled.run("cache", "ls")
    assert result.exit_code == 0 and "\x1b[" in result.output and result.output.count("f" * 10) > 3


def test_the_list_for_machines_has_every_field(filled) -> None:
    found = json.loads(filled.run("cache", "ls", "--json", "--function", "young").stdout)
    assert found["directory"] == str(filled.cache_dir)
    (one,) = found["artifacts"]
    assert one["key"] == CompileKey.from_parts({"name": b"young"}).hex
    assert (one["signature"], one["package"], one["cpu"]) == ("(int64)", "pkg", "znver4")
    assert (one["compile_s"], one["made_at"], one["signed"]) == (2.0, 1e9, False)
    assert one["size_bytes"] > 300 and abs(one["used_at"] - time.time()) < 1000


def test_listing_does_not_count_as_use(filled) -> None:
    before = names(filled, "--older-than", "2d")
    filled.run("cache", "ls"), filled.run("cache", "stats")
    assert set(before) == set(names(filled, "--older-than", "2d")) == {"old", "middle"}


def test_an_empty_store_is_an_empty_list(shell) -> None:
    assert shell.run("cache", "ls").output == ""
    assert json.loads(shell.run("cache", "ls", "--json").stdout)["artifacts"] == []
    assert not shell.cache_dir.exists()


@pytest.mark.parametrize("command", ["ls", "stats"])
def test_files_that_tell_nothing_are_mentioned(filled, command: str) -> None:
    key = put(filled.cache_dir, "bad")
    (filled.cache_dir / "v1" / key.hex[:2] / f"{key.hex}.farm").write_bytes(b"garbage")
    for options in ((), ("--json",)):
        result = filled.run("cache", command, *options)
        assert result.exit_code == 0
        assert "1 file tell nothing" in result.stderr and "not an artifact" in result.stderr
    assert len(names(filled)) == 4


@pytest.mark.parametrize("text", ["7", "d", "7 days", "-1d", "1y"])
def test_what_is_no_span_of_time_is_wrong_usage(shell, text: str) -> None:
    result = shell.run("cache", "ls", "--older-than", text)
    assert result.exit_code == 2 and "write 90s, 30m, 12h, 7d or 2w" in result.stderr and result.stdout == ""


def test_show_tells_everything(filled) -> None:
    key = CompileKey.from_parts({"name": b"young"})
    result = filled.run("cache", "show", key.hex[:8])
    assert result.exit_code == 0
    for text in (key.hex, "pkg.young(int64)", "in 2.00 s", "CODE 300 bytes", "signed      no", "cpu znver4"):
        assert text in result.stdout
    assert f"name        {dict(key.parts)['name']}" in result.stdout and "constant 1 = 3" in result.stdout
    found = json.loads(filled.run("cache", "show", key.hex, "--json").stdout)
    assert found["sections"]["CODE"] == 300 and found["outline"] == [["constant 1", "3"]]
    assert found["meta"]["key_parts"] == dict(key.parts) and "outline" not in found["meta"]


def test_what_an_artifact_tells_cannot_steer_a_terminal(shell) -> None:
    """It may have come with a bundle of somebody else's."""
    evil = "\x1b]0;owned\x07\r\n"
    about = {name: evil for name in ("function", "signature", "package")}
    outlined = pack(((f"global {evil}", evil),))
    key = put(shell.cache_dir, "f", **about, outline=outlined, target={"cpu": evil, evil: evil}, versions={evil: evil})
    other = put(shell.cache_dir, "g", outline=pack((("global A", "1"),)))
    for command in (("cache", "ls"), ("cache", "stats"), ("cache", "show", key.hex), ("why", key.hex, other.hex)):
        done = shell.run(*command)
        assert done.exit_code == 0 and "\\x1b]0;owned" in done.stdout
        assert not set(done.stdout) & set("\x1b\x07\r")


def test_show_of_what_is_not_there(filled) -> None:
    key = CompileKey.from_parts({"name": b"young"}).hex
    absent = ("0" if key[0] != "0" else "1") * 8
    result = filled.run("cache", "show", absent)
    assert result.exit_code == 1 and f"no artifact's key begins with {absent}" in result.stderr
    result = filled.run("cache", "show", "12345")
    assert result.exit_code == 2 and "6 to 64 hexadecimal digits" in result.stderr
    path = filled.cache_dir / "v1" / key[:2] / f"{key}.farm"
    (path.parent / f"{key[:10]}{'0' * 54}.farm").write_bytes(path.read_bytes())
    result = filled.run("cache", "show", key[:10])
    assert result.exit_code == 1 and "2 keys begin with" in result.stderr
    path.write_bytes(b"garbage")
    result = filled.run("cache", "show", key)
    assert result.exit_code == 1 and "not an artifact" in result.stderr and "farm cache verify" in result.stderr


def test_stats_tell_of_packages_and_of_use(filled) -> None:
    places = DiskStore(filled.cache_dir).places
    assert places is not None
    misses = {MissReason.ABSENT: 4, MissReason.TRUNCATED: 1}
    usage.add(places, Usage(programs=1, loaded=7, compiled=4, saved_s=12.34, load_s=0.5, misses=misses), 1e9)
    result = filled.run("cache", "stats")
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert any(line.split() == ["pkg", "3", *line.split()[2:4], "6.0", "s"] for line in lines)
    assert any(line.split() == ["other", "1", *line.split()[2:4], "4.0", "s"] for line in lines)
    assert "hits        7 loads in 0.5 s, for 12.3 s of compiling" in lines
    assert f"misses      5: 4 because {MissReason.ABSENT.value}; 1 because {MissReason.TRUNCATED.value}" in lines
    assert any(line.startswith("programs    1 since 2001-09-09") for line in lines)
    found = json.loads(filled.run("cache", "stats", "--json").stdout)
    assert found["usage"]["loaded"] == 7 and found["usage"]["misses"] == {"ABSENT": 4, "TRUNCATED": 1}
    assert {row["package"]: row["artifacts"] for row in found["packages"]} == {"pkg": 3, "other": 1}
    assert found["entries"] == 4 and found["bytes"] == sum(row["bytes"] for row in found["packages"])


def test_trim_brings_the_store_under_a_size(filled) -> None:
    size = json.loads(filled.run("cache", "stats", "--json").stdout)["bytes"]
    unchanged = filled.run("cache", "trim")
    assert unchanged.exit_code == 0 and unchanged.output.startswith("removed 0 artifacts (0 bytes); 4 artifacts")
    result = filled.run("cache", "trim", "--to", f"{size - 1}")
    assert result.exit_code == 0 and result.output.startswith("removed 1 artifact (")
    assert "; 3 artifacts (" in result.output and set(names(filled)) == {"young", "middle", "deep"}
    found = json.loads(filled.run("cache", "trim", "--to", "1KiB", "--json").stdout)
    assert (found["removed"], found["left"]) == (1, 2), "what was written in the last minute stays"


def test_trim_of_a_readonly_store_and_to_no_size_are_refused(filled) -> None:
    result = filled.run("cache", "trim", "--to", "much")
    assert result.exit_code == 2 and "cache_size_max_bytes" in result.stderr
    filled.set("FARM_READONLY", "1")
    result = filled.run("cache", "trim")
    assert result.exit_code == 1 and "read-only" in result.stderr
    assert len(names(filled)) == 4


def test_trim_beside_another_trim_says_so(filled) -> None:
    from farm.store.lock import key_lock

    (filled.cache_dir / "v1" / "locks").mkdir(exist_ok=True, mode=0o700)
    with key_lock(filled.cache_dir / "v1" / "locks" / "trim.lock", 0):
        result = filled.run("cache", "trim")
    assert result.exit_code == 1 and "another process is trimming" in result.stderr


@pytest.mark.parametrize("command", ["ls", "trim", "show"])
def test_a_directory_that_is_not_private_is_refused(filled, command: str) -> None:
    filled.cache_dir.chmod(0o777)
    result = filled.run("cache", command, *(["123456"] if command == "show" else []))
    assert result.exit_code == 1 and result.stdout == "" and "chmod 700" in result.stderr


def test_many_artifacts_are_looked_at_with_progress(filled, monkeypatch: pytest.MonkeyPatch) -> None:
    from farm.tools import table

    monkeypatch.setattr(table, "SHOWN_FROM", 2)
    monkeypatch.setattr(table, "LINE_EVERY", 2)
    monkeypatch.setattr(table.progress.__wrapped__, "__defaults__", (2,))
    result = filled.run("cache", "ls", "--json")
    assert result.stderr.splitlines() == ["looked at: 2 of 4", "looked at: 4 of 4"]
    assert len(json.loads(result.stdout)["artifacts"]) == 4


def test_each_command_says_its_exit_codes_and_an_example(shell) -> None:
    for name in main.commands["cache"].commands:  # type: ignore[attr-defined]
        text = shell.run("cache", name, "--help").output
        assert "Exit codes:" in text and "Example:" in text and f"farm cache {name}" in text, name


@pytest.mark.skipif(not FARM.exists(), reason="the command is not installed beside this Python")
def test_the_installed_command_lists_a_cache(tmp_path: Path) -> None:
    put(tmp_path / "cache", "f")
    command = [str(FARM), "cache", "ls", "--json", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["artifacts"][0]["function"] == "pkg.f"
