"""`farm prewarm`: fill the store before programs run.

Exit codes: 0; 1 if something failed, was not found or was interrupted, or with --check if something would have to be
compiled; 2 for wrong usage or a wrong setting.
"""

import contextlib
import functools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

import farm
from farm.ahead.library import PREFIX, FlagsError
from farm.ahead.prewarm import FAILURES, Outcome, PrewarmInterrupted, PrewarmProgress, PrewarmReport, PrewarmRow
from farm.ahead.program import Program
from farm.ahead.sources import SourceError
from farm.errors import ConfigError, CpuError, FarmError, SignatureError
from farm.tools.as_main import own_directory_on_path
from farm.tools.page import size_text
from farm.tools.settings import JSON_OPTION, SettingError, cache_dir_option, settings, warnings_as_lines
from farm.tools.table import print_json, print_table

WRONG_USAGE = (ConfigError, CpuError, FlagsError, SignatureError, SourceError)
QUIET = frozenset({Outcome.COMPILED, Outcome.THERE})
"""What is in no table for people, if the pack has it: hundreds of lines that say nothing went wrong."""
EPILOG = """\b
Example:
  farm run --record farm.jsonl program.py     # write down what the program uses
  farm prewarm farm.jsonl --script program.py # compile it, here or on another machine
  farm prewarm farm.jsonl --script program.py --check
  farm prewarm shop 'shop.prices:total' 'float64(float64[::1])' --cpu x86-64-v3
  farm prewarm --library --flags fastmath     # numba's own functions, once for a machine
"""


@click.command(epilog=EPILOG)
@click.argument("sources", nargs=-1, metavar="[SOURCE]...")
@click.option("--library", is_flag=True, help="Compile what programs use most of numba's own functions, too.")
@click.option(
    "--flags",
    multiple=True,
    metavar="FLAGS",
    help="With --library: for callers with these flags as well (fastmath, error_model=numpy); repeatable.",
)
@click.option("--cpu", "cpus", multiple=True, metavar="CPU", help="Compile for this CPU; repeatable. Default: host.")
@click.option("--workers", metavar="N", help="How many processes compile, instead of FARM_WORKERS.")
@click.option("--script", metavar="FILE", help="The program that __main__ in a manifest is. It is run as an import.")
@click.option("-m", "module", metavar="MODULE", help="As --script, for what `python -m` runs; its package is a source.")
@click.option("--dry-run", is_flag=True, help="Show what would be compiled, and compile nothing.")
@click.option("--check", is_flag=True, help="Compile nothing; exit code 1 if a program would have to compile.")
@JSON_OPTION
@cache_dir_option
def prewarm(
    sources: tuple[str, ...],
    library: bool,
    flags: tuple[str, ...],
    cpus: tuple[str, ...],
    workers: str | None,
    script: str | None,
    module: str | None,
    dry_run: bool,
    check: bool,
    as_json: bool,
    cache_dir: str | None,
) -> None:
    """Compile ahead of time what programs will ask for, into the cache directory.

    A SOURCE is a manifest (x.jsonl) that `farm run --record` or `farm.record` wrote; a package, for the explicit
    signatures in it and the farm-manifest.jsonl beside its modules; or module:function, with signatures after it.

    --library is for a machine or an image, whatever runs there: sorting, reductions, linear algebra, lists and
    dictionaries, text, random numbers, for the usual types. numba compiles these anew for callers with other flags:
    --flags names some, and the flags of functions that a SOURCE gives count by themselves.

    Modules that a source names are imported, and a manifest may hold pickles: trust it as you trust a program.

    What is in the store already is left alone: run it again after an interruption, and it goes on.

    Exit codes: 0, everything is in the store; 1, something failed, was not found, or was interrupted; 2, wrong usage
    or a wrong setting. With --check, 1 means that a program would have to compile, and the table says what.
    """
    if script is not None and module is not None:
        raise click.UsageError("give --script or -m, not both: a process has one main module")
    if not (sources or script or module or library):
        raise click.UsageError("give a manifest, a package or module:function, or --script, -m or --library")
    if flags and not library:
        raise click.UsageError("--flags says what numba's own functions are compiled for: give --library with it")
    program = None if script is None and module is None else Program(None if script is None else Path(script), module)
    try:
        with _settings(cache_dir, workers), warnings_as_lines(), own_directory_on_path():
            report = _prewarm(_paired(sources), cpus, program, flags if library else None, dry_run=dry_run, check=check)
    except PrewarmInterrupted as interrupted:
        _print(interrupted.report, as_json)
        click.echo("Error: interrupted; what is compiled is kept: run it again to go on", err=True)
        sys.exit(1)
    except WRONG_USAGE as error:
        raise SettingError(str(error)) from None
    except FarmError as error:
        raise click.ClickException(str(error)) from None
    _print(report, as_json)
    if check and report.to_compile:
        click.echo(f"Error: {len(report.to_compile)} of {len(report.rows)} would have to be compiled", err=True)
    if report.failed or (check and report.to_compile):
        sys.exit(1)


def _prewarm(
    sources: Sequence[Any],
    cpus: tuple[str, ...],
    program: Program | None,
    flags: Sequence[str] | None,
    *,
    dry_run: bool,
    check: bool,
) -> PrewarmReport:
    call = farm.prewarm if flags is None else functools.partial(farm.prewarm_library, flags=flags)
    with contextlib.redirect_stdout(sys.stderr), _display() as show:  # what modules print while they are imported
        return call(
            source=sources,
            cpus=cpus or ("host",),
            script=None if program is None else program.script,
            module=None if program is None else program.module,
            dry_run=dry_run,
            check=check,
            progress=None if dry_run or check else show,
        )


@contextlib.contextmanager
def _settings(cache_dir: str | None, workers: str | None) -> Iterator[None]:
    """The environment's settings and the options, for the default farm. Raises SettingError."""
    config = settings(cache_dir)
    owner = farm.default_farm()
    before = owner.config
    try:
        owner.config = config if workers is None else config.with_changes(workers=workers)
    except ConfigError as error:
        raise SettingError(str(error)) from None
    try:
        yield
    finally:
        owner.config = before


def _paired(words: tuple[str, ...]) -> list[Any]:
    """Signatures belong to the function before them."""
    found: list[Any] = []
    for word in words:
        if "(" in word and found and (isinstance(found[-1], tuple) or ":" in found[-1]):
            name, *signatures = found[-1] if isinstance(found[-1], tuple) else (found[-1],)
            found[-1] = (name, *signatures, word)
        else:
            found.append(word)
    return found


# -- showing it ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def _display() -> Iterator[Any]:
    """A bar on a terminal, with what compiles now; elsewhere a line for each thing that gets done."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _print_line
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None, left="")

        def show(now: PrewarmProgress) -> None:
            left = "" if now.remaining_s is None else f"about {_seconds_text(now.remaining_s)} left"
            running = ", ".join(now.running)
            bar.update(task, completed=now.done, total=now.total, left=left, description=running.replace("[", r"\["))

        yield show


def _print_line(now: PrewarmProgress) -> None:
    row = now.finished
    if row is not None and row.outcome is not Outcome.THERE:
        left = "" if now.remaining_s is None else f", about {_seconds_text(now.remaining_s)} left"
        click.echo(f"[{now.done}/{now.total}{left}] {row.function}{row.signature}: {row.outcome.value}", err=True)
        sys.stderr.flush()


def _seconds_text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _print(report: PrewarmReport, as_json: bool) -> None:
    if as_json:
        print_json({"rows": [_as_json(row) for row in report.rows], "counts": _counts(report)})
        return
    shown = [row for row in report.rows if not (row.function.startswith(PREFIX) and row.outcome in QUIET)]
    if shown:
        rows = [
            (
                row.function,
                row.signature,
                row.cpu,
                "" if row.seconds is None else f"{row.seconds:.2f}",
                "" if row.size_bytes is None else size_text(row.size_bytes),
                f"{row.outcome.value}: {' '.join(row.detail.split())}" if row.detail else row.outcome.value,
            )
            for row in shown
        ]
        headings = ("function", "signature", "cpu", "seconds", "size", "result")
        print_table(headings, rows, right=frozenset({"seconds", "size"}))
    click.echo(str(report))


def _as_json(row: PrewarmRow) -> dict[str, Any]:
    return {
        "function": row.function,
        "signature": row.signature,
        "cpu": row.cpu or None,
        "outcome": row.outcome.name.lower(),
        "failed": row.outcome in FAILURES,
        "seconds": row.seconds,
        "size_bytes": row.size_bytes,
        "callees": row.callees,
        "callees_compiled": row.callees_compiled,
        "detail": row.detail,
        "key": row.key,
    }


def _counts(report: PrewarmReport) -> dict[str, int]:
    return {outcome.name.lower(): len(report.of(outcome)) for outcome in Outcome if report.of(outcome)}
