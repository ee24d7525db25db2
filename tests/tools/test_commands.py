"""What holds for every command: its help shows an example and its exit codes, and machines can read what it says."""

import json
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from farm.tools.main import main


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield words, group
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


ALL = dict(commands(main))
SINGLE = [words for words, command in ALL.items() if not isinstance(command, click.Group)]


def test_there_are_commands() -> None:
    assert {("run",), ("prewarm",), ("cache", "ls"), ("manifest", "merge"), ("why",), ("top",), ("doctor",)} <= set(ALL)


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_shows_an_example_of_this_very_command(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, [*words, "--help"])
    assert done.exit_code == 0
    _, found, example = done.output.partition("Example:")
    assert found and " ".join(("farm", *words)) in example


@pytest.mark.parametrize("words", SINGLE, ids=" ".join)
def test_help_says_the_exit_codes(words: tuple[str, ...]) -> None:
    assert "Exit codes:" in CliRunner().invoke(main, [*words, "--help"]).output


@pytest.mark.parametrize("words", [words for words in SINGLE if words != ("run",)], ids=" ".join)
def test_what_it_says_machines_can_read(words: tuple[str, ...]) -> None:
    """But for `farm run`, whose output is the program's."""
    assert any("--json" in option.opts for option in ALL[words].params)


@pytest.mark.parametrize("words", SINGLE, ids=" ".join)
def test_an_option_that_there_is_none_of_is_exit_code_2_and_no_traceback(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, [*words, "--no-such-option"])
    assert done.exit_code == 2 and "--no-such-option" in done.output and "Traceback" not in done.output


def test_an_empty_store_is_cleared_for_machines_too_and_nobody_is_asked(tmp_path) -> None:
    words = ["cache", "clear", "--json", "--cache-dir", str(tmp_path / "cache")]
    refused = CliRunner().invoke(main, words)
    assert refused.exit_code == 2 and "give --yes with it" in refused.output
    done = CliRunner().invoke(main, [*words, "--yes"])
    assert done.exit_code == 0
    assert json.loads(done.output) == {"removed": 0, "removed_bytes": 0, "bad_files": 0, "left": 0, "left_bytes": 0}


def test_the_path_is_a_document_too(tmp_path) -> None:
    done = CliRunner().invoke(main, ["cache", "path", "--json", "--cache-dir", str(tmp_path)])
    assert json.loads(done.output) == {"path": str(tmp_path)}


def test_a_merge_says_what_it_wrote(tmp_path) -> None:
    one, out = tmp_path / "one.jsonl", tmp_path / "out.jsonl"
    from farm.ahead import manifest

    manifest.write(one, ())
    done = CliRunner().invoke(main, ["manifest", "merge", "--json", str(out), str(one)])
    assert json.loads(done.output) == {"path": str(out), "entries": 0} and manifest.read(out) == ()


def test_what_the_doctor_finds_is_a_document_and_a_broken_directory_its_exit_code(tmp_path) -> None:
    tmp_path.chmod(0o777)
    done = CliRunner().invoke(main, ["doctor", "--json", "--cache-dir", str(tmp_path)])
    document = json.loads(done.output)
    assert done.exit_code == 1
    assert {"versions", "python", "target"} <= {one["where"] for one in document["found"]}
    (problem,) = document["problems"]
    assert problem["where"] == "cache" and "chmod" in problem["remedy"]
