"""The parts of the reference that are made from the code: nothing is missing, and every part has its place."""

import importlib.util
import inspect
import re
from dataclasses import fields
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from page_blocks import PAGES, ROOT

import farm
from farm import errors, reasons
from farm.config import PARSERS, Config
from farm.observe import events
from farm.tools.main import main


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(table: str) -> list[list[str]]:
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def test_every_setting_is_in_the_table_with_all_that_is_to_be_said_of_it(generate: Any) -> None:
    found = {row[0].split("<br>")[0].strip("`"): row for row in rows(generate.settings())}
    assert list(found) == [f.name for f in fields(Config)] and found.keys() == PARSERS.keys()
    for name, (names, default, legal, meaning) in found.items():
        assert names == f"`{name}`<br>`FARM_{name.upper()}`"
        assert default and legal and meaning.endswith("."), name


def test_the_defaults_in_the_table_are_those_of_the_code(generate: Any) -> None:
    for f in fields(Config):
        shown = generate.default_of(f)
        if shown.startswith("`"):
            assert getattr(Config(**{f.name: shown.strip("`")}), f.name) == f.default, f.name
        else:
            assert f.name in {"cache_dir", "lower_cache_dirs", "start_method"}, f.name


def test_a_setting_without_a_meaning_is_no_table(generate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Config, "__doc__", (Config.__doc__ or "").replace("    nice\n", "    nicer\n"))
    with pytest.raises(KeyError, match="nice"):
        generate.settings()


def test_every_event_and_each_of_its_fields_is_told_of(generate: Any) -> None:
    told = generate.events_table()
    classes = [one for _, one in inspect.getmembers(events, inspect.isclass) if issubclass(one, events.Event)]
    for one in set(classes) - {events.Event, events.SignatureEvent}:
        (section,) = re.findall(rf"^### {one.__name__}\n(.*?)(?=^### |\Z)", told, re.DOTALL | re.MULTILINE)
        assert {row[0].strip("`") for row in rows(section)} == {f.name for f in fields(one)}
        assert all(kind and what for _, kind, what in rows(section)), one
        assert inspect.getdoc(one) in section


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ("misses", reasons.MissReason),
        ("refusals", reasons.RefusalReason),
        ("degradations", reasons.DegradedReason),
    ],
)
def test_every_reason_is_told_of(generate: Any, part: str, kind: type[Enum]) -> None:
    assert rows(generate.PARTS[part]()) == [[f"`{one.name}`", one.value] for one in kind]


def leaves(command: click.Command, path: str) -> dict[str, click.Command]:
    if not isinstance(command, click.Group):
        return {path: command}
    found: dict[str, click.Command] = {}
    for name, one in command.commands.items():
        found |= leaves(one, f"{path} {name}")
    return found


def test_every_command_is_shown_with_its_options_and_exit_codes(generate: Any) -> None:
    told = generate.command_line()
    known = leaves(main, "farm")
    sections = dict(re.findall(r"^## (farm [^\n]+)\n(.*?)(?=^## |\Z)", told, re.DOTALL | re.MULTILINE))
    assert sections.keys() == known.keys() and len(known) >= 4
    for path, command in known.items():
        assert f"Usage: {path} " in sections[path]
        for parameter in command.params:
            if not getattr(parameter, "hidden", False):
                assert any(name in sections[path] for name in (*parameter.opts, str(parameter.human_readable_name)))
        assert re.search(r"\n *Exit codes: .*2", sections[path], re.DOTALL), path


def test_every_error_and_warning_is_described(generate: Any) -> None:
    described = generate.PARTS["error_classes"]()
    tree = generate.PARTS["errors"]()
    for name, one in inspect.getmembers(errors, inspect.isclass):
        if one.__module__ == errors.__name__:
            assert f".. autoexception:: farm.errors.{name}\n" in described + "\n" and name in tree


def test_every_public_name_is_in_the_reference() -> None:
    reference = "\n".join(path.read_text() for path in (ROOT / "docs" / "reference").glob("*.md"))
    described = set(re.findall(r"^\.\. auto\w+:: ([\w.]+)", reference, re.MULTILINE))
    assert {f"farm.{name}" for name in farm.__all__} <= described
    assert {f"farm.testing.{name}" for name in importlib.import_module("farm.testing").__all__} <= described


def test_every_counter_is_in_the_table_of_counters() -> None:
    told = rows((ROOT / "docs" / "reference" / "counters.md").read_text())
    assert [row[0].strip("`") for row in told] == [f.name for f in fields(farm.Stats)]
    assert [f.name for f in fields(farm.FunctionStats)][-1] == "waited_s"  # which the page names as the last of them


def test_the_format_of_an_artifact_is_told_byte_by_byte(generate: Any) -> None:
    told = generate.PARTS["artifact_format"]()
    assert re.search(r"```text\noffset +size +what\n +0 +8 +magic", told)
    assert told.count("```") == 2
    assert "<root>/v1/<2 hex>/<key>.farm" in generate.PARTS["store_layout"]()


def test_every_part_has_its_place_and_every_place_its_part(generate: Any) -> None:
    marks = [mark for page in PAGES for mark in re.findall(r"<!-- generated: (\w+) -->", Path(page).read_text())]
    assert sorted(marks) == sorted(generate.PARTS)
