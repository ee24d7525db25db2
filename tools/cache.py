"""`farm cache`: where the compiled functions are, how much there is, and their removal.

Exit codes: 0; 1 if the directory is refused, cannot be changed, or the user said no; 2 for a wrong setting.
"""

import os
import warnings
from dataclasses import replace
from pathlib import Path

import click

from farm.config import Config
from farm.errors import StoreRefused
from farm.store.disk import DiskStore, StoreSettings, StoreUnwritable
from farm.store.upkeep import StoreStats
from farm.tools.page import count_text, path_text, print_row, size_text, time_text
from farm.tools.settings import cache_dir_option, read_settings, warnings_as_lines


@click.group()
def cache() -> None:
    """The directory that compiled functions are kept in."""


@cache.command()
@cache_dir_option
def path(cache_dir: str | None) -> None:
    """Print the cache directory, and nothing else."""
    config = _settings(cache_dir)
    # Bytes, because a path need not be text, and what is printed here goes into another command.
    click.echo(os.fsencode(config.cache_dir))


@cache.command()
@cache_dir_option
def stats(cache_dir: str | None) -> None:
    """Print how much is kept, against which limit, and when it was used."""
    config = _settings(cache_dir)
    store = _open(config)
    found = store.stats()
    missing = "" if store.root.is_dir() else " (does not exist: it is made when something is compiled)"
    print_row("directory", path_text(store.root) + missing)
    print_row("artifacts", str(found.entries))
    print_row("size", f"{size_text(found.bytes)} of {size_text(config.cache_size_max_bytes)}")
    if found.oldest_use is not None and found.newest_use is not None:
        print_row("oldest use", time_text(found.oldest_use))
        print_row("newest use", time_text(found.newest_use))
    print_row("quarantine", count_text(found.quarantined, "bad file"))
    for lower in config.lower_cache_dirs:
        print_row("lower", f"{path_text(lower)}: " + _lower_text(lower))


@cache.command()
@cache_dir_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def clear(cache_dir: str | None, yes: bool) -> None:
    """Remove every compiled function and all bad files.

    Programs that run keep what they have loaded. Lower directories are left alone.
    """
    store = _open(_settings(cache_dir))
    before = store.stats()
    if before.entries == before.quarantined == 0:
        click.echo(f"{path_text(store.root)} holds nothing to remove")
        return
    if not yes:
        click.confirm(f"Remove {_amount(before)} from {path_text(store.root)}?", abort=True)
    try:
        removed = store.clear()
    except StoreUnwritable as refused:
        raise click.ClickException(str(refused)) from None
    after = store.stats()
    freed = StoreStats(removed, max(0, before.bytes - after.bytes), max(0, before.quarantined - after.quarantined))
    click.echo(f"removed {_amount(freed)}")
    if removed < before.entries and after.entries:
        raise click.ClickException(f"{count_text(after.entries, 'artifact')} could not be removed")


def _settings(cache_dir: str | None) -> Config:
    settings = read_settings(cache_dir)
    for text in settings.unknown:
        click.echo(f"Warning: {text}", err=True)
    return settings.config


def _open(config: Config) -> DiskStore:
    """The store as a farm with these settings opens it, or an end with the command that makes it acceptable."""
    try:
        with warnings_as_lines():
            # Without the signing key: what is not signed with it is looked after like the rest.
            return replace(StoreSettings.of(config, config.cache_dir), signing_key_file=None).open()
    except StoreRefused as refused:
        raise click.ClickException(str(refused)) from None
    except OSError as error:
        raise click.ClickException(f"{path_text(config.cache_dir)}: {error.strerror}") from None


def _amount(what: StoreStats) -> str:
    bad = f" and {count_text(what.quarantined, 'bad file')}" if what.quarantined else ""
    return f"{count_text(what.entries, 'artifact')} ({size_text(what.bytes)}){bad}"


def _lower_text(path: Path) -> str:
    if not path.is_dir():
        return "does not exist"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # What there is to say of it was said when the whole store was opened.
        return _amount(DiskStore(path, readonly=True).stats())
