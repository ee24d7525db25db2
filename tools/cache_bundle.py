"""`farm cache export|import|lower`: artifacts taken from one store to another, and into images."""

import os
import secrets
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from farm.errors import BundleRefused, StoreRefused
from farm.store import bundle, lower
from farm.store.bundle import Imported
from farm.store.disk import StoreUnwritable
from farm.store.signing import read_key
from farm.tools.page import count_text, path_text, size_text
from farm.tools.settings import JSON_OPTION, cache_dir_option, settings
from farm.tools.stores import (
    chosen,
    entries,
    filter_options,
    open_store,
    reported,
    tell_unreadable,
    with_size,
)
from farm.tools.table import print_json, progress

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(name="export")
@cache_dir_option
@filter_options
@click.argument("file", type=FILE)
@JSON_OPTION
def export_command(cache_dir: str | None, file: Path, as_json: bool, **options: Any) -> None:
    """Write artifacts into FILE, a bundle for `farm cache import`.

    All of them, or those that fit all options. The same artifacts give the same bytes, with one version of zstandard.
    FILE appears whole or not at all; one that is there is replaced.

    Exit codes: 0; 1 if FILE cannot be written, the directory is refused, or an artifact is damaged and was left out;
    2 for wrong usage or a wrong setting.

    \b
    Example:
      farm cache export kernels.bundle --package mypackage
    """
    config = settings(cache_dir)
    store = open_store(config)
    with reported(config):
        found, unreadable = entries(store.places, chosen(**options))
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as out, progress("exported", len(found)) as shown:
            done = bundle.write(store, found, out, shown.step)
        os.replace(temporary, file)
    except BundleRefused as refused:
        raise click.ClickException(str(refused)) from None
    except OSError as error:
        raise click.ClickException(f"{path_text(file)} cannot be written: {error.strerror}") from None
    finally:
        with suppress(OSError):
            temporary.unlink()
    tell_unreadable(unreadable)
    _tell_bad(done.left_out, "was left out")
    size = file.stat().st_size
    if as_json:
        print_json(
            {
                "file": path_text(file),
                "file_bytes": size,
                "artifacts": done.artifacts,
                "bytes": done.bytes,
                "left_out": _named(done.left_out),
            }
        )
    else:
        what = f"{count_text(done.artifacts, 'artifact')} ({size_text(done.bytes)})"
        click.echo(f"exported {what} into {path_text(file)} ({size_text(size)})")
    if done.left_out or unreadable:
        sys.exit(1)


@click.command(name="import")
@cache_dir_option
@click.argument("file", type=FILE)
@click.option("--max-size", metavar="SIZE", help="What it may have unpacked; else the store's limit: 500MB, 1.5GiB.")
@JSON_OPTION
def import_command(cache_dir: str | None, file: Path, max_size: str | None, as_json: bool) -> None:
    """Put the artifacts of FILE, a bundle of `farm cache export`, into the store.

    Each is read to its last digest before it is put, and has to be signed if a signing key is set. What the store has
    already, the same or newer, stays. Bad members are passed over and told of. A bundle is loaded as code in the end,
    so it is to be trusted like a program; digests say that it is whole, and only a signature says who made it.

    Exit codes: 0; 1 if anything in it is bad, it is no bundle, or the store cannot be written; 2 for wrong usage or a
    wrong setting.

    \b
    Example:
      farm cache import kernels.bundle
    """
    config = settings(cache_dir)
    limit = config if max_size is None else with_size(config, max_size)
    store = open_store(config, signing=True)
    done, problem = Imported(), None
    with reported(config):
        key = None if config.signing_key_file is None else read_key(config.signing_key_file)
    try:
        with file.open("rb") as source:
            total = limit.cache_size_max_bytes
            bundle.read(source, store, total_max_bytes=total, signing_key=key, report=done)
    except BundleRefused as refused:
        problem = f"{path_text(file)}: {refused}"
    except StoreUnwritable as refused:
        problem = str(refused)
    except OSError as error:
        problem = f"{path_text(file)} cannot be read: {error.strerror}"
    _tell_bad(done.bad, "was passed over")
    if as_json:
        bad = _named(done.bad)
        print_json({"file": path_text(file), "put": done.put, "kept": done.kept, "bad": bad, "problem": problem})
    else:
        there = f"; {done.kept} there already" if done.kept else ""
        click.echo(f"imported {count_text(done.put, 'artifact')}{there}")
    if problem is not None:
        raise click.ClickException(problem)
    if done.bad:
        sys.exit(1)


@click.command(name="lower")
@cache_dir_option
@filter_options
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@JSON_OPTION
def lower_command(cache_dir: str | None, directory: Path, as_json: bool, **options: Any) -> None:
    """Make DIRECTORY a lower cache: one that programs read and never write, for images.

    A directory that is not there, or is empty, gets a copy of the store, or of those artifacts that fit all options.
    One that is a copy of a cache directory is made a lower cache as it is: files 0444, directories 0755, and no more
    locks, temporary files or quarantine. Whoever could write to it before is trusted from then on. As root all of it is
    given to root, whose files every user's programs accept. Prints the variable that has programs look into it.

    Exit codes: 0; 1 if the directory holds other things or is refused, or an artifact is damaged; 2 for wrong usage or
    a wrong setting.

    \b
    Example:
      farm cache lower /opt/kernels --package mypackage
    """
    config = settings(cache_dir)
    store = open_store(config)
    bad: list[tuple[str, str]] = []
    where = Path(os.path.realpath(directory))
    if os.pathsep in str(where):
        raise click.UsageError(f"FARM_LOWER_CACHE_DIRS cannot name a path with {os.pathsep!r} in it")
    if where == store.root or where in store.root.parents or store.root in where.parents:
        raise click.UsageError(f"{path_text(where)} and the cache directory must lie apart: name another")
    try:
        if not lower.is_store(where):
            if where.is_dir() and any(where.iterdir()):
                raise click.ClickException(f"{path_text(where)} holds other things than a cache: name an empty one")
            with reported(config):
                found, unreadable = entries(store.places, chosen(**options))
            tell_unreadable(unreadable)
            if where.is_dir():
                where.chmod(0o700)
            with progress("copied", len(found)) as shown:
                bad += [(name, "it is damaged") for name in lower.copy(store, found, where, shown.step)]
            (where / "v1").mkdir(parents=True, exist_ok=True)
        elif any(value is not None for value in options.values()):
            raise click.UsageError("options choose what is copied, and this directory is a cache already")
        made = lower.open_up(where)
    except (StoreRefused, StoreUnwritable) as refused:
        raise click.ClickException(str(refused)) from None
    except OSError as error:
        raise click.ClickException(f"{path_text(where)}: {error.strerror}") from None
    bad += made.left_out
    _tell_bad(bad, "is damaged")
    variable = f"FARM_LOWER_CACHE_DIRS={shlex.quote(path_text(where))}"
    if as_json:
        print_json(
            {
                "directory": path_text(where),
                "artifacts": made.artifacts,
                "bytes": made.bytes,
                "bad": _named(bad),
                "variable": variable,
            }
        )
    else:
        what = f"{count_text(made.artifacts, 'artifact')} ({size_text(made.bytes)})"
        click.echo(f"{what} in {path_text(where)}", err=True)
        click.echo(variable)
    if bad:
        sys.exit(1)


def _tell_bad(bad: Sequence[tuple[str, str]], what: str) -> None:
    for name, why in bad:
        click.echo(f"Warning: {name} {what}: {why}", err=True)


def _named(bad: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"name": name, "reason": why} for name, why in bad]
