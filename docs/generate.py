"""The parts of the reference that are made from the code: Markdown, for the marks `<!-- generated: name -->` in pages.

What is described is what the code says of itself: the settings' own parsers tell the legal values, the reasons and
events their texts, the commands their help. It needs no Sphinx, so that the tests can look at what comes out.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, Field, fields
from enum import Enum
from typing import Any, Final

import click

from farm import errors, reasons
from farm.ahead import manifest
from farm.config import PARSERS, PREFIX, Config
from farm.errors import ConfigError
from farm.observe import events
from farm.store import artifact, bundle, disk, trust
from farm.tools.main import main

EXIT_CODES: Final = re.compile(r"^Exit codes:.*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)


def settings() -> str:
    """The table of all settings."""
    rows = [
        (f"`{f.name}`<br>`{PREFIX}{f.name.upper()}`", default_of(f), legal_values_of(f.name), meaning_of(f.name))
        for f in fields(Config)
    ]
    return table(("setting, variable", "default", "legal values", "meaning"), rows)


def default_of(one: "Field[Any]") -> str:
    """A setting's default as it is written in a variable; of what is found out on the machine, how."""
    if one.default_factory is not MISSING:
        text = inspect.getdoc(one.default_factory) or ""
        return re.split(r"[.;:]", text)[0].lower()
    value = one.default
    if value is None:
        return next(f"`{word}`" for word in ("auto", "none") if _parses_as_none(one.name, word))
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool):
        value = "yes" if value else "no"
    if isinstance(value, float):
        value = f"{value:g}"
    if isinstance(value, tuple):
        return "none" if not value else ", ".join(map(str, value))
    if isinstance(value, int) and one.name.endswith("_bytes"):
        value = f"{value >> 30}GiB" if not value & ((1 << 30) - 1) else f"{value >> 20}MiB"
    return f"`{value}`"


def _parses_as_none(name: str, word: str) -> bool:
    try:
        return PARSERS[name](name, word) is None
    except ConfigError:
        return False


def legal_values_of(name: str) -> str:
    """What a setting's parser says of a value that is none."""
    try:
        PARSERS[name](name, object())
    except ConfigError as error:
        return error.legal
    raise AssertionError(f"{name} takes anything")


def meaning_of(name: str) -> str:
    """What the docstring of Config says of a setting."""
    return parameters(Config)[name]


def parameters(described: type) -> dict[str, str]:
    """The section Parameters of a docstring: name -> text."""
    _, _, section = (inspect.getdoc(described) or "").partition("Parameters\n----------\n")
    found: dict[str, str] = {}
    names: list[str] = []
    for line in section.splitlines():
        if not line.startswith(" ") and line.strip():
            names = [name.strip() for name in line.split(",")]
            found.update(dict.fromkeys(names, ""))
        elif line.strip():
            for name in names:
                found[name] = f"{found[name]} {line.strip()}".strip()
    return found


def event_classes() -> list[type[events.Event]]:
    """All events, as the module has them: what is only a base is left out."""
    named = [one for _, one in inspect.getmembers(events, inspect.isclass) if issubclass(one, events.Event)]
    leaves = [one for one in named if not one.__subclasses__()]
    return sorted(leaves, key=lambda one: inspect.getsourcelines(one)[1])


def events_table() -> str:
    """One section for each event, with its fields."""
    parts = []
    for one in event_classes():
        described = attribute_docstrings(one)
        rows = [
            (f"`{f.name}`", f"`{one_line(f.type)}`", described.get(f.name) or common_field(f.name)) for f in fields(one)
        ]
        parts.append(f"### {one.__name__}\n\n{inspect.getdoc(one)}\n\n{table(('field', 'type', 'what'), rows)}")
    return "\n\n".join(parts)


COMMON_FIELDS: Final = {
    "function": "`module.function`",
    "signature": "its argument types",
    "key": "the name of the artifact: 64 hexadecimal digits",
    "reason": "see [reasons](reasons.md)",
    "detail": "more, for people",
    "error": "numba's error, or the farm's",
    "worker": "the worker's process id; None if it was no worker's doing",
    "compile_count": "of the function, so far",
    "execution_count": "calls of the function, so far",
    "compile_time_s": "of this compile; for a load, what it took whoever made the artifact",
    "cumulative_compile_time_s": "of the function, so far",
    "used_persistent_cache": "whether it came from the store",
    "queue_time_s": "from the call to the worker",
    "load_time_s": "reading and linking",
    "artifact_bytes": "its size",
    "asked_at": "when it was asked for",
    "began_at": "when it began",
    "ended_at": "when it was over, in `time.monotonic` seconds; 0 if that is not known",
    "attempts": "what workers did at it: process id, from, to, and how it ended",
    "result": "what became of it",
}


def common_field(name: str) -> str:
    """What a field is that several events have."""
    return COMMON_FIELDS.get(name, "")


def attribute_docstrings(described: type) -> dict[str, str]:
    """The texts below the fields of a class: name -> text."""
    (node,) = ast.parse(inspect.cleandoc(inspect.getsource(described))).body
    assert isinstance(node, ast.ClassDef)
    found = {}
    for before, after in zip(node.body, node.body[1:], strict=False):
        is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and is_text:
            found[before.target.id] = one_line(after.value.value)  # type: ignore[attr-defined]
    return found


def reasons_table(kind: type[Enum]) -> Callable[[], str]:
    """What makes the table of one set of reasons."""
    return lambda: table(("reason", "in words"), [(f"`{one.name}`", one.value) for one in kind])


def commands(group: click.Command = main, path: str = "farm") -> Iterator[tuple[str, click.Command]]:
    """(how it is called, the command) of every command that is no group, in the order of the help."""
    if not isinstance(group, click.Group):
        yield path, group
        return
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield from commands(command, f"{path} {name}")


def command_line() -> str:
    """Each command's help as it prints it, and its exit codes."""
    parts = []
    for path, command in commands():
        with context_of(path.split()) as context:
            shown = command.get_help(context)
        codes = "" if "Exit codes:" in shown else exit_codes_of(command)
        parts.append(f"## {path}\n\n{fenced(shown)}\n\n{codes}".rstrip())
    return "\n\n".join(parts)


def context_of(names: list[str]) -> click.Context:
    """The context in which a command of these names runs: its help names it in full."""
    command: click.Command = main
    context = click.Context(main, info_name=names[0], terminal_width=88, **main.context_settings)
    for name in names[1:]:
        assert isinstance(command, click.Group)
        command = command.commands[name]
        context = click.Context(command, parent=context, info_name=name, **command.context_settings)
    return context


def exit_codes_of(command: click.Command) -> str:
    """What the command's module says of its exit codes."""
    assert command.callback is not None
    module = importlib.import_module(inspect.unwrap(command.callback).__module__)
    found = EXIT_CODES.search(inspect.getdoc(module) or "")
    return one_line(found[0]) if found else ""


def text_of(module: Any) -> Callable[[], str]:
    """What makes a page's text of a module's docstring: its indented parts are set as they are."""
    return lambda: docstring_as_markdown(inspect.getdoc(module) or "")


def docstring_as_markdown(text: str) -> str:
    """Paragraphs stay paragraphs; indented parts become blocks. The first line is the module's own name for itself."""
    parts: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        indented = all(line.startswith("    ") for line in paragraph.splitlines())
        if indented and parts and parts[-1].startswith("```"):
            parts[-1] = parts[-1][: -len("\n```")] + "\n\n" + inspect.cleandoc(paragraph) + "\n```"
        else:
            parts.append(fenced(inspect.cleandoc("\n" + paragraph)) if indented else paragraph)
    return "\n\n".join(parts)


def error_classes() -> str:
    """All errors and warnings, as autodoc is to describe them."""
    named = [one for _, one in inspect.getmembers(errors, inspect.isclass) if one.__module__ == errors.__name__]
    ordered = sorted(named, key=lambda one: inspect.getsourcelines(one)[1])
    return (
        "```{eval-rst}\n" + "\n\n".join(f".. autoexception:: farm.errors.{one.__name__}" for one in ordered) + "\n```"
    )


def fenced(text: str) -> str:
    """A block that is shown as it is."""
    return f"```text\n{text.rstrip()}\n```"


def one_line(text: object) -> str:
    """Text of several lines on one."""
    return " ".join(str(getattr(text, "__name__", text)).split())


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


PARTS: Final[dict[str, Callable[[], str]]] = {
    "settings": settings,
    "events": events_table,
    "misses": reasons_table(reasons.MissReason),
    "refusals": reasons_table(reasons.RefusalReason),
    "degradations": reasons_table(reasons.DegradedReason),
    "commands": command_line,
    "artifact_format": text_of(artifact),
    "store_layout": text_of(disk),
    "trust_rules": text_of(trust),
    "manifest_format": text_of(manifest),
    "bundle_format": text_of(bundle),
    "errors": text_of(errors),
    "error_classes": error_classes,
}
"""Name in a mark -> what makes its text."""
