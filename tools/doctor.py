"""`farm doctor`: what the farm finds on this machine, and whether it works.

Exit codes: 0; 1 if something is broken, with the reason and what to do; 2 for a wrong setting.
"""

import os
import platform
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import click

from farm.config import Config
from farm.errors import SigningKeyRefused, StoreRefused
from farm.pool.size import workers_allowed
from farm.port.cpu import host, level, runnable_for
from farm.port.target import own_cpu, target, toolchain
from farm.store.disk import DiskStore
from farm.store.signing import read_key
from farm.tools.page import Row, count_text, path_text, print_row, size_text
from farm.tools.settings import JSON_OPTION, Settings, cache_dir_option, read_settings
from farm.tools.table import print_json
from farm.tools.trial import TrialFailed, trial_directory, try_compile, try_lock


@dataclass(frozen=True, slots=True)
class Problem:
    """Something broken: where, what, and what to do about it."""

    where: str
    text: str
    remedy: str


Finding = Row | Problem


@click.command()
@cache_dir_option
@JSON_OPTION
def doctor(cache_dir: str | None, as_json: bool) -> None:
    """Show what the farm finds on this machine, and try it.

    Locks a file, and compiles a function in a worker process. The cache is left as it was.

    Exit codes: 0; 1 if something is broken; 2 for a wrong setting.

    \b
    Example:
      farm doctor --cache-dir /srv/farm-cache
    """
    if as_json:
        found = list(_findings(read_settings(cache_dir)))
        broken = [asdict(one) for one in found if isinstance(one, Problem)]
        rows = [{"where": one[0], "text": one[1]} for one in found if not isinstance(one, Problem)]
        print_json({"found": rows, "problems": broken})
        sys.exit(1 if broken else 0)
    problems: list[Problem] = []
    # Printed as they are found: the trial takes seconds.
    for finding in _findings(read_settings(cache_dir)):
        if isinstance(finding, Problem):
            problems.append(finding)
            print_row(finding.where, "BROKEN, see below", style="bold red")
        else:
            print_row(*finding)
    click.echo()
    if not problems:
        click.echo("Everything works.")
        return
    click.echo(f"{count_text(len(problems), 'problem')}:")
    for problem in problems:
        print_row(problem.where, problem.text, style="bold red")
        print_row("", f"-> {problem.remedy}")
    sys.exit(1)


def _findings(settings: Settings) -> Iterator[Finding]:
    config = settings.config
    yield from _machine(config)
    for text in settings.unknown:
        yield "note", text
    if not config.enabled:
        yield "note", "the farm is switched off (FARM_ENABLED): programs run in Python"
    trusted = True
    for finding in _directories(config):
        trusted = trusted and not isinstance(finding, Problem)
        yield finding
    yield from _signing(config.signing_key_file)
    yield from _trial(config, in_cache=trusted and not config.readonly)


def _machine(config: Config) -> Iterator[Row]:
    tools, made_for = toolchain(), target()
    names = f"numba {tools['numba']}, llvmlite {tools['llvmlite']}, LLVM {tools['llvm']}, numpy {tools['numpy']}"
    yield "versions", f"farm {version('numba-farm')}, {names}"
    yield "python", f"{platform.python_implementation()} {platform.python_version()}, {path_text(Path(sys.executable))}"
    yield "SVML", "in use" if tools["svml"] == "True" else "not in use"
    features = sum(1 for name in made_for["features"].split(",") if name.startswith("+"))
    yield "target", f"{made_for['triple']}, {made_for['cpu']}, {count_text(features, 'feature')}"
    yield "CPU", _levels()
    yield "workers", f"{config.workers}: the setting workers" if config.workers is not None else workers_allowed()[1]
    given = "" if config.worker_memory_max_bytes is not None else ", a quarter of what there is"
    yield "memory", f"{size_text(config.worker_memory_limit_bytes())} for each worker{given}"
    yield "start", config.start_method.value


def _levels() -> str:
    """Which level this CPU has, and what else than its own code is loaded from a store."""
    others = ", ".join(str(cpu) for cpu in runnable_for(own_cpu())) or "none other"
    return f"{host()}, level {level() or 'unknown'}; code that runs here: its own, else {others}"


def _directories(config: Config) -> Iterator[Finding]:
    readonly = ", read-only by setting" if config.readonly else ""
    yield from _judged(
        "cache", config.cache_dir, readonly, readonly=config.readonly, group=config.shared_group, lower=()
    )
    for path in config.lower_cache_dirs:
        # As its own lower directory: so it is judged as one, with what is in it.
        yield from _judged("lower", path, "", readonly=True, group=None, lower=(path,))


def _signing(path: Path | None) -> Iterator[Finding]:
    if path is None:
        yield "signing", "off: artifacts are as trusted as the cache directory"
        return
    try:
        read_key(path)
    except SigningKeyRefused as refused:
        yield Problem("signing", f"{refused.path} is refused: {refused.problem}", refused.remedy)
        return
    mode = stat.S_IMODE(os.stat(path).st_mode)
    yield "signing", f"with the key in {path_text(path)}, mode {mode:04o}: what is not signed with it is not loaded"


def _judged(
    where: str, path: Path, addition: str, *, readonly: bool, group: str | None, lower: tuple[Path, ...]
) -> Iterator[Finding]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            store = DiskStore(path, readonly=readonly, group=group, lower=lower)
            for problem in store.problems:
                raise problem
        except StoreRefused as refused:
            yield Problem(where, f"{refused.path} is refused: {refused.problem}", refused.remedy)
            return
        except OSError as error:
            yield Problem(where, str(error), "set another directory")
            return
    yield where, f"{path_text(store.root)}: {_state(store.root)}{addition}"
    for text in dict.fromkeys(str(one.message) for one in caught):
        yield "note", text


def _state(path: Path) -> str:
    with suppress(OSError):
        mode = stat.S_IMODE(os.stat(path).st_mode)
        return f"exists, mode {mode:04o}, " + ("writable" if os.access(path, os.W_OK | os.X_OK) else "not writable")
    return "does not exist yet"


def _trial(config: Config, *, in_cache: bool) -> Iterator[Finding]:
    try:
        with trial_directory(config.cache_dir if in_cache else Path(tempfile.gettempdir())) as directory:
            if in_cache:
                yield _tried("lock", lambda: try_lock(directory))
            else:
                yield "lock", "not tried: nothing is written to the cache directory"
            yield _tried("compile", lambda: try_compile(directory, config.workers))
    except TrialFailed as failed:
        yield Problem("cache", failed.problem, failed.remedy)


def _tried(where: str, attempt: Callable[[], str]) -> Finding:
    try:
        return where, attempt()
    except TrialFailed as failed:
        return Problem(where, failed.problem, failed.remedy)
