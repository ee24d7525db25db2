"""`farm manifest`: what is in a manifest, several as one, and which entries have gone.

Exit codes: 0; 1 if a manifest cannot be read or written, or if an entry no longer resolves; 2 for wrong usage.
"""

import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from farm.ahead import manifest as manifests
from farm.ahead.manifest import ManifestEntry
from farm.ahead.prewarm import unresolved
from farm.ahead.program import Program
from farm.errors import FarmError
from farm.tools.as_main import own_directory_on_path
from farm.tools.page import count_text
from farm.tools.settings import JSON_OPTION
from farm.tools.table import print_json, print_table


@click.group()
def manifest() -> None:
    """What programs use, as `farm run --record` writes it down.

    \b
    Example:
      farm manifest show farm.jsonl
    """


@manifest.command(epilog="\b\nExample:\n  farm manifest merge all.jsonl monday.jsonl tuesday.jsonl\n")
@click.argument("out", metavar="OUT")
@click.argument("manifests_in", metavar="IN...", nargs=-1, required=True)
@JSON_OPTION
def merge(out: str, manifests_in: tuple[str, ...], as_json: bool) -> None:
    """Write the entries of all manifests IN into OUT, each once.

    Exit codes: 0; 1 if one cannot be read or written; 2 for wrong usage.
    """
    entries = manifests.merged(*(_read(name) for name in manifests_in))
    try:
        manifests.write(Path(out), entries)
    except FarmError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        return print_json({"path": out, "entries": len(entries)})
    click.echo(f"{_entries_text(len(entries))} in {click.format_filename(out)}")


@manifest.command(epilog="\b\nExample:\n  farm manifest show farm.jsonl\n")
@click.argument("file", metavar="FILE")
@JSON_OPTION
def show(file: str, as_json: bool) -> None:
    """Print a manifest as a table.

    Exit codes: 0; 1 if it cannot be read; 2 for wrong usage.
    """
    entries = manifests.merged(_read(file))
    if as_json:
        print_json({"entries": [json.loads(entry.line()) for entry in entries]})
        return
    print_table(("function", "signature", "program", "notes"), [_cells(entry) for entry in entries])


def _cells(entry: ManifestEntry) -> tuple[str, str, str, str]:
    returns = "" if entry.returns is None else f" -> {entry.returns}"
    notes = []
    if entry.reason is not None:
        notes.append(f"cannot be asked for: {entry.reason}")
    if entry.flags is not None:
        flags = json.loads(entry.flags)
        notes.append("from a caller with " + (", ".join(f"{name}={flags[name]}" for name in flags) or "default flags"))
    if entry.pickles:
        notes.append(count_text(len(entry.pickles), "pickle"))
    return entry.function, entry.signature + returns, entry.program or "", "; ".join(notes)


@manifest.command(epilog="\b\nExample:\n  farm manifest check farm.jsonl --script program.py\n")
@click.argument("file", metavar="FILE")
@click.option("--script", metavar="FILE", help="The program that __main__ in the manifest is.")
@click.option("-m", "module", metavar="MODULE", help="As --script, for what `python -m` runs.")
@JSON_OPTION
def check(file: str, script: str | None, module: str | None, as_json: bool) -> None:
    """Look for entries whose function or types are not there any more, and say why.

    Modules that the manifest names are imported, and its pickles are read: trust it as you trust a program. Entries
    that could not be asked for when they were recorded are left out.

    Exit codes: 0; 1 if an entry no longer resolves, or the manifest cannot be read; 2 for wrong usage.
    """
    if script is not None and module is not None:
        raise click.UsageError("give --script or -m, not both: a process has one main module")
    program = None if script is None and module is None else Program(None if script is None else Path(script), module)
    entries = [entry for entry in manifests.merged(_read(file)) if entry.reason is None]
    try:
        with own_directory_on_path(), contextlib.redirect_stdout(sys.stderr):
            gone = unresolved(entries, program)
    except FarmError as error:
        raise click.ClickException(str(error)) from None
    _print_gone(gone, as_json)
    if gone:
        click.echo(f"Error: {len(gone)} of {_entries_text(len(entries))} no longer resolve", err=True)
        sys.exit(1)
    if not as_json:
        click.echo(f"{_entries_text(len(entries))}, and each resolves")


def _print_gone(gone: Sequence[tuple[ManifestEntry, str]], as_json: bool) -> None:
    if as_json:
        rows = [{"function": one.function, "signature": one.signature, "detail": detail} for one, detail in gone]
        print_json({"unresolved": rows})
    elif gone:
        print_table(
            ("function", "signature", "problem"), [(one.function, one.signature, detail) for one, detail in gone]
        )


def _entries_text(number: int) -> str:
    return "1 entry" if number == 1 else f"{number} entries"


def _read(name: str) -> tuple[ManifestEntry, ...]:
    try:
        return manifests.read(Path(name))
    except FarmError as error:
        raise click.ClickException(str(error)) from None
