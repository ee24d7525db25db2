"""`farm cache`: where the compiled functions are, and their removal. What else there is to do, in `cache_*`.

Exit codes: 0; 1 if the directory is refused, cannot be changed, or the user said no; 2 for a wrong setting.
"""

import os

import click

from farm.store.disk import StoreUnwritable
from farm.store.lock import LockOutcome
from farm.store.upkeep import StoreStats
from farm.tools.cache_bundle import export_command, import_command, lower_command
from farm.tools.cache_check import verify
from farm.tools.cache_list import amount, ls, show, stats
from farm.tools.page import count_text, path_text
from farm.tools.settings import JSON_OPTION, cache_dir_option, settings
from farm.tools.stores import open_store, with_size
from farm.tools.table import print_json


@click.group()
def cache() -> None:
    """The directory that compiled functions are kept in.

    \b
    Example:
      farm cache ls --package stumpy --sort size
    """


@cache.command()
@cache_dir_option
@JSON_OPTION
def path(cache_dir: str | None, as_json: bool) -> None:
    """Print the cache directory, and nothing else.

    Exit codes: 0; 2 for a wrong setting.

    \b
    Example:
      ls -l "$(farm cache path)"
    """
    config = settings(cache_dir)
    if as_json:
        return print_json({"path": str(config.cache_dir)})
    # Bytes, because a path need not be text, and what is printed here goes into another command.
    click.echo(os.fsencode(config.cache_dir))


@cache.command()
@cache_dir_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@JSON_OPTION
def clear(cache_dir: str | None, yes: bool, as_json: bool) -> None:
    """Remove every compiled function and all bad files.

    Programs that run keep what they have loaded. Lower directories and the record of use (farm cache stats) are left
    alone.

    Exit codes: 0; 1 if the directory is refused, cannot be changed, or you said no; 2 for a wrong setting.

    \b
    Example:
      farm cache clear --yes
    """
    if as_json and not yes:
        raise click.UsageError("--json does not ask: give --yes with it")
    store = open_store(settings(cache_dir))
    before = store.stats()
    if before.entries == before.quarantined == 0 and not as_json:
        click.echo(f"{path_text(store.root)} holds nothing to remove")
        return
    if not yes:
        click.confirm(f"Remove {amount(before)} from {path_text(store.root)}?", abort=True)
    try:
        removed = store.clear()
    except StoreUnwritable as refused:
        raise click.ClickException(str(refused)) from None
    after = store.stats()
    freed = StoreStats(removed, max(0, before.bytes - after.bytes), max(0, before.quarantined - after.quarantined))
    if as_json:
        left = {"left": after.entries, "left_bytes": after.bytes}
        print_json({"removed": freed.entries, "removed_bytes": freed.bytes, "bad_files": freed.quarantined, **left})
    else:
        click.echo(f"removed {amount(freed)}")
    if removed < before.entries and after.entries:
        raise click.ClickException(f"{count_text(after.entries, 'artifact')} could not be removed")


@cache.command()
@cache_dir_option
@click.option("--to", metavar="SIZE", help="The size to bring it under, instead of the limit: 500MB, 1.5GiB.")
@JSON_OPTION
def trim(cache_dir: str | None, to: str | None, as_json: bool) -> None:
    """Remove what was not used for longest, if the store is over its limit (cache_size_max_bytes) or over SIZE.

    As the farm does it by itself now and then: down to nine tenths of it, and not what was written in the last
    minute. Programs that run keep what they have loaded.

    Exit codes: 0; 1 if the directory is refused, cannot be changed, or is being trimmed; 2 for a wrong setting.

    \b
    Example:
      farm cache trim --to 500MB
    """
    config = settings(cache_dir)
    config = config if to is None else with_size(config, to)
    store = open_store(config)
    try:
        done = store.trim()
    except StoreUnwritable as refused:
        raise click.ClickException(str(refused)) from None
    if done.outcome is LockOutcome.BUSY:
        raise click.ClickException(f"another process is trimming {path_text(store.root)}: try again")
    freed = StoreStats(done.entries_removed, done.bytes_removed)
    left = store.stats()
    if as_json:
        removed = {"removed": freed.entries, "removed_bytes": freed.bytes}
        return print_json({**removed, "left": left.entries, "left_bytes": left.bytes})
    click.echo(f"removed {amount(freed)}; {amount(StoreStats(left.entries, left.bytes))} left")


for command in (stats, ls, show, verify, export_command, import_command, lower_command):
    cache.add_command(command)
