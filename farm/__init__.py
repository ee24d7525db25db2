"""Numba functions compile in worker processes while the program goes on.

    from farm import njit

    @njit
    def score(x, w): ...

The decorators, then what speaks to the default farm, then farms of one's own and what they give.
"""

from typing import TYPE_CHECKING, Any

from farm.config import CompileMode, Config, Fallback, wants_prestart
from farm.enable import Enabled, enable
from farm.front.default import default_farm
from farm.front.farm import Farm
from farm.front.status import Status
from farm.front.table import CompileState
from farm.jit import jit, njit
from farm.observe.listeners import Listener
from farm.observe.stats import FunctionStats, Stats

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from os import PathLike
    from pathlib import Path

    from farm.ahead.prewarm import PrewarmReport, Tell
    from farm.ahead.recording import Recording
    from farm.front.batch import Progress, Report
    from farm.front.report import Report as Timeline

__all__ = [  # noqa: RUF022 - grouped as a reader needs them
    "jit",
    "njit",
    "enable",
    "compile_all",
    "record",
    "prewarm",
    "prewarm_library",
    "explain",
    "report",
    "start",
    "wait",
    "stats",
    "configure",
    "add_listener",
    "remove_listener",
    "default_farm",
    "Farm",
    "CompileMode",
    "CompileState",
    "Config",
    "Enabled",
    "Fallback",
    "FunctionStats",
    "Listener",
    "Stats",
    "Status",
]


def compile_all(
    pairs: "Iterable[tuple[Any, Any]]", progress: "Progress | None" = None, *, raise_errors: bool = False
) -> "Report":
    """Compile many (function, signature) pairs in parallel: see `farm.front.batch.compile_all`."""
    from farm.front.batch import compile_all  # these two bring in modules that few programs need

    return compile_all(pairs, progress, raise_errors=raise_errors)


def record(path: "str | Path") -> "Recording":
    """Write into a manifest what this process asks for, for `farm.prewarm`: see `farm.ahead.recording.Recording`.

    Begins at once. Written at the end of a `with` block, by `stop()`, or when the interpreter ends.
    """
    from pathlib import Path

    from farm.ahead.recording import Recording

    return Recording(Path(path))


def prewarm(
    source: Any,
    *,
    cpus: "Sequence[str]" = ("host",),
    workers: int | None = None,
    script: "Path | None" = None,
    module: str | None = None,
    dry_run: bool = False,
    check: bool = False,
    progress: "Tell | None" = None,
) -> "PrewarmReport":
    """Compile into the store what programs are going to ask for: see `farm.ahead.prewarm.prewarm`.

    Parameters
    ----------
    source
        A manifest's path, a package, `'module:function float64(float64)'`, or a list of these.
    script, module
        The program that `__main__` in a manifest is: a file, or what `python -m` runs.
    """
    how = {"cpus": cpus, "workers": workers, "dry_run": dry_run, "check": check, "progress": progress}
    return _prewarm(source, script, module, **how)


def _prewarm(source: Any, script: "Path | None", module: str | None, **how: Any) -> "PrewarmReport":
    from farm.ahead.prewarm import prewarm
    from farm.ahead.program import Program
    from farm.ahead.sources import sources_of

    program = None if script is None and module is None else Program(script, module)
    given = [source] if isinstance(source, (str, tuple)) else source
    more = [] if module is None else [module.partition(".")[0] if module.endswith("__main__") else module]
    return prewarm(sources_of([*given, *more], program), program=program, **how)


def prewarm_library(
    *,
    flags: "Iterable[str | Mapping[str, Any]]" = (),
    source: Any = None,
    cpus: "Sequence[str]" = ("host",),
    workers: int | None = None,
    script: "Path | None" = None,
    module: str | None = None,
    dry_run: bool = False,
    check: bool = False,
    progress: "Tell | None" = None,
) -> "PrewarmReport":
    """Compile numba's own functions that real code uses most into the store, once for a machine or an image.

    Parameters
    ----------
    flags
        The pack is made for functions with default flags. Each of these is a set of others to make it for as well, as
        options of a decorator (`{"fastmath": True, "error_model": "numpy"}`) or as text
        (`"fastmath,error_model=numpy"`).
    source, script, module
        As for `prewarm`: they are compiled too, and the pack is made for the flags of their functions as well.

    The other parameters, and what is raised, are those of `farm.ahead.prewarm.prewarm`; FlagsError for wrong flags.
    """
    from farm.ahead.library import flags_of

    library = [flags_of(one) for one in ([flags] if isinstance(flags, (str, dict)) else flags)]
    how = {"cpus": cpus, "workers": workers, "dry_run": dry_run, "check": check, "progress": progress}
    return _prewarm([] if source is None else source, script, module, library=library, **how)


def explain(function: Any, *arguments: Any) -> str:
    """Why `function(*arguments)` would, or would not, run machine code now: see `farm.front.explain.explain`."""
    from farm.front.explain import explain

    return explain(function, *arguments)


def report(path: "str | PathLike[str]", *more_paths: "str | PathLike[str]", farm: Farm | None = None) -> "Timeline":
    """Record what a farm does from now on, the default one if none is given, and write it to these files at the end.

    A name that ends in .json gets a trace for chrome://tracing or Perfetto, any other a page of HTML. The end is that
    of a `with` block, `.stop()`, or that of the program, also by sys.exit or an exception.

    Raises FileNotFoundError if there is no such directory; at the end OSError, or a warning at the program's end.
    """
    from farm.front.report import Report

    return Report(farm or default_farm(), (path, *more_paths))


def start() -> None:
    """Start the default farm's pool in the background, so that the first compile finds it warm.

    With FARM_PRESTART=1 importing farm does it.
    """
    default_farm().start()


def wait(timeout: float | None = None) -> bool:
    """Block until everything pending in the default farm is compiled; False if `timeout` seconds passed first."""
    return default_farm().wait(timeout)


def stats() -> Stats:
    """The default farm's counters: prints as a small table."""
    return default_farm().stats()


def configure(**changes: Any) -> None:
    """Change settings of the default farm: see `farm.Config`. Raises ConfigError."""
    default_farm().configure(**changes)


def add_listener(listener: Listener) -> None:
    """Tell a listener of the default farm's events: it has a method `on_event(event)`."""
    default_farm().add_listener(listener)


def remove_listener(listener: Listener) -> None:
    """Tell the listener no more."""
    default_farm().remove_listener(listener)


if wants_prestart():
    start()
