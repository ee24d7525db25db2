"""`farm cache stats|ls|show`: what the store holds, what it was good for, and what one artifact tells."""

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import click

from farm.job.outline import OUTLINE, unpack
from farm.store import usage as usages
from farm.store.catalog import EVERYTHING, Entry, printable
from farm.store.disk import DiskStore
from farm.store.upkeep import StoreStats
from farm.store.usage import Usage
from farm.tools.page import count_text, path_text, print_row, size_text, time_text
from farm.tools.settings import JSON_OPTION, cache_dir_option, settings
from farm.tools.stores import (
    chosen,
    entries,
    filter_options,
    open_store,
    reported,
    tell_unreadable,
    the_entry,
)
from farm.tools.table import print_json, print_table

SHORT_KEY: Final = 12
SORTS: Final = {
    "size": lambda one: (-one.size_bytes, one.function),
    "age": lambda one: (one.used_at, one.function),
    "time": lambda one: (-one.compile_s, one.function),
    "name": lambda one: (one.function, one.signature, one.made_at),
}


@click.command()
@cache_dir_option
@JSON_OPTION
def stats(cache_dir: str | None, as_json: bool) -> None:
    """Print how much is kept, against which limit, when it was used, and what it was good for.

    The second half is what programs have written into the store at their end, and every minute before. What a
    program had not written yet when it was killed is not in it, nor what child processes did that end without
    Python's own ending (os._exit, which multiprocessing uses).

    Exit codes: 0; 1 if the directory is refused; 2 for a wrong setting.

    \b
    Example:
      farm cache stats
      farm cache stats --json | jq .usage.saved_s
    """
    config = settings(cache_dir)
    store = open_store(config)
    found = store.stats()
    with reported(config):
        artifacts, bad = entries(store.places, EVERYTHING)
        used = _usage(store)
    packages = _packages(artifacts)
    if as_json:
        document = {
            "directory": path_text(store.root),
            "exists": store.root.is_dir(),
            "entries": found.entries,
            "bytes": found.bytes,
            "limit_bytes": config.cache_size_max_bytes,
            "quarantined": found.quarantined,
            "oldest_use": found.oldest_use,
            "newest_use": found.newest_use,
            "lower": [{"directory": path_text(one), "holds": _lower_text(one)} for one in config.lower_cache_dirs],
            "packages": packages,
            "usage": _usage_json(used),
        }
        print_json(document)
        return tell_unreadable(bad)
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
    _print_usage(used)
    if packages:
        click.echo()
        headings = ("package", "artifacts", "size", "compile time")
        rows = [
            (one["package"], str(one["artifacts"]), size_text(one["bytes"]), f"{one['compile_s']:.1f} s")
            for one in packages
        ]
        print_table(headings, rows, right=frozenset(headings[1:]))
    tell_unreadable(bad)


@click.command()
@cache_dir_option
@filter_options
@click.option("--sort", type=click.Choice([*SORTS]), default="name", show_default=True, help="What comes first.")
@JSON_OPTION
def ls(cache_dir: str | None, sort: str, as_json: bool, **options: Any) -> None:
    """List the artifacts: each is one function for one list of types.

    --sort size: the largest first; age: what was not used for longest; time: what took longest to compile. Times of
    use may be an hour behind.

    Exit codes: 0, also if nothing fits; 1 if the directory is refused; 2 for wrong usage or a wrong setting.

    \b
    Example:
      farm cache ls --package numba_celltree --sort time
      farm cache ls --function 'mymodule.*' --older-than 7d --json
    """
    config = settings(cache_dir)
    store = open_store(config)
    with reported(config):
        artifacts, bad = entries(store.places, chosen(**options))
    artifacts.sort(key=SORTS[sort])
    if as_json:
        print_json({"directory": path_text(store.root), "artifacts": [*map(entry_json, artifacts)]})
        return tell_unreadable(bad)
    if artifacts:
        headings = ("key", "size", "compiled in", "last used", "cpu", "function")
        print_table(headings, map(_row, artifacts), right=frozenset(headings[1:3]))
    tell_unreadable(bad)


def _row(one: Entry) -> tuple[str, ...]:
    return (
        one.key.hex[:SHORT_KEY],
        size_text(one.size_bytes),
        f"{one.compile_s:.2f} s",
        time_text(one.used_at),
        one.cpu,
        one.function + one.signature,
    )


@click.command()
@cache_dir_option
@click.argument("key")
@JSON_OPTION
def show(cache_dir: str | None, key: str, as_json: bool) -> None:
    """Print everything that an artifact tells of itself. KEY: its first digits, six or more.

    Exit codes: 0; 1 if there is no such artifact, or it cannot be read; 2 for what is no key, or a wrong setting.

    \b
    Example:
      farm cache show 3fa94c
    """
    config = settings(cache_dir)
    store = open_store(config)
    with reported(config):
        one = the_entry(store.places, key)
    if as_json:
        return print_json(whole_json(one))
    print_entry(one)


def print_entry(one: Entry) -> None:
    """Everything that an artifact tells, for people."""
    print_row("key", one.key.hex)
    print_row("function", one.function + one.signature)
    print_row("package", one.package)
    print_row("made", f"{time_text(one.made_at)}, in {one.compile_s:.2f} s")
    print_row("last used", time_text(one.used_at))
    sections = ", ".join(f"{name} {size_text(size)}" for name, size in one.description.sections.items())
    print_row("size", f"{size_text(one.size_bytes)}: {sections}")
    print_row("signed", "yes" if one.description.signed else "no")
    for name, content in (("target", one.meta.get("target")), ("versions", one.meta.get("versions"))):
        if isinstance(content, dict):
            print_row(name, printable(", ".join(f"{label} {value}" for label, value in content.items())))
    print_row("digest", one.description.digest.hex)
    parts = one.meta.get("key_parts")
    if isinstance(parts, dict):
        click.echo("\nthe key's parts")
        for label, digest in parts.items():
            click.echo(printable(f"  {label:<12}{digest}"))
    outline = unpack(one.meta.get(OUTLINE))
    if outline:
        click.echo("\nwhat they cover, outlined")
        for name, text in outline:
            click.echo(printable(f"  {name} = {text}"))


def entry_json(one: Entry) -> dict[str, Any]:
    """One line of the list, for machines."""
    return {
        "key": one.key.hex,
        "function": one.function,
        "signature": one.signature,
        "package": one.package,
        "cpu": one.cpu,
        "size_bytes": one.size_bytes,
        "compile_s": one.compile_s,
        "made_at": one.made_at,
        "used_at": one.used_at,
        "signed": one.description.signed,
    }


def whole_json(one: Entry) -> dict[str, Any]:
    """Everything that an artifact tells, for machines."""
    meta = {name: value for name, value in one.meta.items() if name != OUTLINE}
    return {
        **entry_json(one),
        "sections": one.description.sections,
        "digest": one.description.digest.hex,
        "outline": [list(pair) for pair in unpack(one.meta.get(OUTLINE))],
        "meta": meta,
    }


def amount(what: StoreStats) -> str:
    """`2 artifacts (1.5 MiB) and 1 bad file`."""
    bad = f" and {count_text(what.quarantined, 'bad file')}" if what.quarantined else ""
    return f"{count_text(what.entries, 'artifact')} ({size_text(what.bytes)}){bad}"


def _lower_text(path: Path) -> str:
    if not path.is_dir():
        return "does not exist"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # What there is to say of it was said when the whole store was opened.
        return amount(DiskStore(path, readonly=True).stats())


def _packages(artifacts: Iterable[Entry]) -> list[dict[str, Any]]:
    sums: dict[str, dict[str, Any]] = {}
    for one in artifacts:
        row = sums.setdefault(one.package, {"package": one.package, "artifacts": 0, "bytes": 0, "compile_s": 0.0})
        row["artifacts"] += 1
        row["bytes"] += one.size_bytes
        row["compile_s"] += one.compile_s
    return sorted(sums.values(), key=lambda row: (-row["bytes"], row["package"]))


def _usage(store: DiskStore) -> Usage:
    places = store.places
    try:
        return Usage() if places is None else usages.total(places)
    except FileNotFoundError:
        return Usage()


def _print_usage(used: Usage) -> None:
    if used.since is None:
        return
    print_row("programs", f"{used.programs} since {time_text(used.since)}")
    print_row(
        "hits", f"{count_text(used.loaded, 'load')} in {used.load_s:.1f} s, for {used.saved_s:.1f} s of compiling"
    )
    print_row("compiled", f"{used.compiled} by workers, {used.local} in the program, in {used.compile_s:.1f} s")
    reasons = sorted(used.misses.items(), key=lambda item: -item[1])
    why = "; ".join(f"{number} because {reason.value}" for reason, number in reasons)
    print_row("misses", str(sum(used.misses.values())) + (f": {why}" if why else ""))


def _usage_json(used: Usage) -> dict[str, Any]:
    numbers = {name: getattr(used, name) for name in (*usages.COUNTED, *usages.SPENT)}
    return {**numbers, "since": used.since, "misses": {reason.name: number for reason, number in used.misses.items()}}
