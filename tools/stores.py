"""What the commands about a cache directory share: opening it, choosing artifacts, naming one by its key."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, NoReturn, TypeVar

import click

from farm.config import Config
from farm.errors import ConfigError, StoreRefused
from farm.job.key import CompileKey
from farm.port.role import collecting
from farm.store import catalog
from farm.store.catalog import Entry, Filter, Unreadable
from farm.store.disk import DiskStore, StoreSettings
from farm.store.places import Places
from farm.tools.as_main import own_directory_on_path
from farm.tools.page import count_text, path_text
from farm.tools.settings import SettingError, warnings_as_lines
from farm.tools.table import progress

F = TypeVar("F", bound=Callable[..., Any])

UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def _seconds(context: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """A span of time as seconds; fails as click wants it."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r} is no span of time: write 90s, 30m, 12h, 7d or 2w", context, option)
    return float(found[1]) * UNITS[found[2]]


def filter_options(command: F) -> F:
    """The options that choose artifacts, for every command that takes some of many; they come as `chosen`."""
    options = [
        click.option("--function", metavar="GLOB", help="Of these functions: a pattern for module.name, or name."),
        click.option("--package", metavar="NAME", help="Of this top-level module."),
        click.option("--cpu", metavar="NAME", help="Made for this CPU."),
        click.option(
            "--older-than", callback=_seconds, metavar="AGE", help="Not used for so long: 90s, 30m, 12h, 7d, 2w."
        ),
        click.option("--newer-than", callback=_seconds, metavar="AGE", help="Used within this time."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def chosen(
    function: str | None, package: str | None, cpu: str | None, older_than: float | None, newer_than: float | None
) -> Filter:
    """What the options say."""
    now = time.time()
    return Filter(
        function=function,
        package=package,
        cpu=cpu,
        used_before=None if older_than is None else now - older_than,
        used_after=None if newer_than is None else now - newer_than,
    )


def with_size(config: Config, text: str) -> Config:
    """The settings with another limit of the store's size. Raises SettingError."""
    try:
        return config.with_changes(cache_size_max_bytes=text)
    except ConfigError as error:
        raise SettingError(str(error)) from None


def open_store(config: Config, *, signing: bool = False) -> DiskStore:
    """The store as a farm with these settings opens it, or an end with the command that makes it acceptable.

    Without the signing key, unless something is to be loaded or signed: what is not signed is looked after like the
    rest.
    """
    with reported(config), warnings_as_lines():
        wanted = StoreSettings.of(config, config.cache_dir)
        return (wanted if signing else replace(wanted, signing_key_file=None)).open()


@contextmanager
def reported(config: Config) -> Iterator[None]:
    """What the disk or the store's rules refuse ends the command with one sentence."""
    try:
        yield
    except StoreRefused as refused:
        raise click.ClickException(str(refused)) from None
    except OSError as error:
        raise click.ClickException(f"{path_text(config.cache_dir)}: {error.strerror}") from None


def entries(places: Places | None, chosen: Filter) -> tuple[list[Entry], list[Unreadable]]:
    """The artifacts that are meant, shortened, and the files that tell nothing; shows how far it is.

    Raises as `catalog`.
    """
    good, bad = list[Entry](), list[Unreadable]()
    for one in all_entries(places):
        if isinstance(one, Unreadable):
            bad.append(one)
        elif chosen.admits(one):
            good.append(one.shortened())
    return good, bad


def all_entries(places: Places | None) -> Iterator[Entry | Unreadable]:
    """Everything that lies there, one after the other; shows how far it is. Raises as `catalog`."""
    if places is None:
        return
    try:
        with progress("looked at", catalog.count(places)) as shown:
            yield from shown.of(catalog.entries(places))
    except FileNotFoundError:  # nothing was compiled yet, or somebody has just removed it
        return


@contextmanager
def nothing_compiles() -> Iterator[None]:
    """For the block, modules are found as by `python -m`, and what they ask for is not compiled."""
    with own_directory_on_path(), collecting():
        yield


def tell_unreadable(bad: list[Unreadable]) -> None:
    """One line on standard error about files that are no artifacts."""
    if bad:
        first = f"{bad[0].name}: {bad[0].miss.reason.value}"
        click.echo(f"Warning: {count_text(len(bad), 'file')} tell nothing ({first}): farm cache verify", err=True)


def the_key(places: Places | None, text: str) -> CompileKey:
    """The key that begins so. Ends the command, with 2 if it is no beginning of a key, with 1 if there is not one."""
    try:
        catalog.as_prefix(text)  # also where there is no store
        found = [] if places is None else catalog.keys_that_begin(places, text)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if len(found) == 1:
        return found[0]
    if not found:
        raise click.ClickException(f"no artifact's key begins with {text}: farm cache ls shows them")
    shown = ", ".join(key.hex[:16] for key in found[:3])
    raise click.ClickException(f"{len(found)} keys begin with {text} ({shown}): write more digits")


def the_entry(places: Places | None, text: str) -> Entry:
    """The artifact whose key begins so. Ends the command as `the_key`."""
    key = the_key(places, text)
    found = None if places is None else catalog.entry(places, key)
    if isinstance(found, Entry):
        return found
    why = "it has just gone" if found is None else found.miss.reason.value
    _fail(f"{key.hex[:16]} cannot be read ({why}): farm cache verify sets bad files aside")


def _fail(text: str) -> NoReturn:
    raise click.ClickException(text)
