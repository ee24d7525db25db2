"""`farm cache verify`: whether what the store holds is whole, and whether it is what compiling it again gives."""

import random
import sys
from contextlib import suppress
from typing import Any

import click

from farm.ahead.recheck import Rechecked, recheck
from farm.config import Config
from farm.enable import enable
from farm.errors import StoreRefused
from farm.front.farm import Farm
from farm.job.key import CompileKey
from farm.store import catalog, upkeep
from farm.store.catalog import EVERYTHING
from farm.store.disk import DiskStore
from farm.store.upkeep import Verified
from farm.tools.cache_list import SHORT_KEY
from farm.tools.page import count_text, path_text
from farm.tools.settings import JSON_OPTION, cache_dir_option, settings
from farm.tools.stores import entries, nothing_compiles, open_store, reported
from farm.tools.table import print_json, progress


@click.command()
@cache_dir_option
@click.option("--recompile", type=click.IntRange(min=1), metavar="N", help="Compile N artifacts again, and compare.")
@JSON_OPTION
def verify(cache_dir: str | None, recompile: int | None, as_json: bool) -> None:
    """Read every artifact to its last digest. Bad ones are moved to quarantine.

    With --recompile N, after that: N artifacts, chosen at random among those whose function can be found by import
    (with the current directory on the path), are compiled again, each in a fresh worker, and compared, as with the
    setting verify. What cannot be compared is told: functions of scripts and those that are made inside others, and
    functions that are not today what they were. One that differs is moved to quarantine too. (In a store that is used
    read-only nothing is moved.)

    Exit codes: 0; 1 if anything is bad, or the directory is refused; 2 for wrong usage or a wrong setting.

    \b
    Example:
      farm cache verify
      farm cache verify --recompile 20
    """
    config = settings(cache_dir)
    store = open_store(config)
    found = _read_all(store)
    rechecked: list[Rechecked] = []
    if recompile is not None:
        with reported(config):
            rechecked = _recompile(config, store, recompile, as_json)
    different = [one for one in rechecked if one.differs is not None]
    if as_json:
        print_json(_document(store, found, rechecked))
    else:
        _tell(store, found, recompile, rechecked)
    if found.bad or different:
        sys.exit(1)


def _read_all(store: DiskStore) -> Verified:
    number = 0
    with suppress(StoreRefused, OSError):
        number = 0 if store.places is None else catalog.count(store.places)
    with progress("read", number) as shown:
        return store.verify(shown.step)


def _recompile(config: Config, store: DiskStore, number: int, as_json: bool) -> list[Rechecked]:
    good, _ = entries(store.places, EVERYTHING)
    random.shuffle(good)
    done: list[Rechecked] = []

    def note(one: Rechecked) -> None:
        done.append(one)
        if one.bad is not None:
            _set_aside(store, one.bad)
        if one.compared or len(done) <= number:  # not of thousands that cannot be
            click.echo(_line(one), err=True)
            sys.stderr.flush()

    with nothing_compiles(), enable(), _workers(config) as farm:
        recheck(farm, store, iter(good), number, note)
    return done


def _workers(config: Config) -> Farm:
    """A farm for its workers: its settings are those of the command."""
    names = ("cache_dir", "lower_cache_dirs", "shared_group", "signing_key_file", "workers", "readonly")
    return Farm(verify=True, **{name: getattr(config, name) for name in names})


def _set_aside(store: DiskStore, key: CompileKey) -> None:
    if store.readonly or store.places is None:
        return
    with suppress(StoreRefused, OSError):
        upkeep.set_aside(store.places, key, "differs")


def _line(one: Rechecked) -> str:
    name = f"{one.entry.key.hex[:SHORT_KEY]} {one.entry.function}{one.entry.signature}"
    if one.differs is not None:
        return f"differs       {name}"
    return f"the same      {name}" if one.compared else f"not compared  {name}: {one.why_not}"


def _tell(store: DiskStore, found: Verified, recompile: int | None, rechecked: list[Rechecked]) -> None:
    for key, miss in found.bad:
        detail = f" ({miss.detail})" if miss.detail else ""
        click.echo(f"bad: {key}: {miss.reason.value}{detail}")
    moved = "" if store.readonly or not found.bad else ", moved to quarantine"
    click.echo(f"{count_text(found.good, 'artifact')} whole, {len(found.bad)} bad{moved} in {path_text(store.root)}")
    if recompile is None:
        return
    different = [one.differs for one in rechecked if one.differs is not None]
    for differs in different:
        # Without its last line, which says where the file was left.
        click.echo("\n" + str(differs).rpartition("\n")[0])
        click.echo("  The file " + ("was left where it is" if store.readonly else "was moved to quarantine"))
    same = sum(one.compared and one.differs is None for one in rechecked)
    not_compared = sum(not one.compared for one in rechecked)
    click.echo(f"compiled again: {same} the same, {len(different)} different; {not_compared} cannot be compared")
    if same + len(different) < recompile:
        click.echo(f"fewer than {recompile} have a function that is found by import and is what it was")


def _document(store: DiskStore, found: Verified, rechecked: list[Rechecked]) -> dict[str, Any]:
    return {
        "directory": path_text(store.root),
        "whole": found.good,
        "bad": [{"key": key, "reason": miss.reason.name, "detail": miss.detail} for key, miss in found.bad],
        "recompiled": [
            {
                "key": one.entry.key.hex,
                "function": one.entry.function,
                "signature": one.entry.signature,
                "outcome": "differs" if one.differs is not None else "same" if one.compared else "not compared",
                "why_not": one.why_not or None,
                "differences": None if one.differs is None else [list(row) for row in one.differs.differences],
                "bad": None if one.bad is None else one.bad.hex,
            }
            for one in rechecked
        ],
    }
