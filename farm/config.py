"""Config: every setting of the farm, as one frozen value.

A setting is given as a keyword or as the variable FARM_<NAME>; both take the same text and go through the
same parser, so a Config that exists is valid. A value that does not parse raises ConfigError with the
setting, the value and the legal values. An empty variable counts as unset: shells cannot always unset one.

This module is the only reader of the environment. It does not apply a setting anywhere.
"""

import contextlib
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeVar

from farm.errors import ConfigError, UnknownSettingWarning

PREFIX: Final = "FARM_"
MEMORY_SHARE: Final = 4  # A worker may use one part in this many of the machine's memory. A guess.


class CompileMode(Enum):
    """When a call compiles: now, once it was asked for often enough, or at once in the background."""

    STRICT = "strict"
    LAZY = "lazy"
    ASYNC = "async"


class Fallback(Enum):
    """What a call does whose machine code is not there yet."""

    AUTO = "auto"
    PYTHON = "python"
    WAIT = "wait"


class OnError(Enum):
    """What becomes of a function that numba cannot compile."""

    WARN = "warn"
    RAISE = "raise"


class OnDegraded(Enum):
    """Whether a degradation is counted or raised."""

    COUNT = "count"
    RAISE = "raise"


class StartMethod(Enum):
    """How workers start: forked by a foreman, or each on its own."""

    FORK = "fork"
    SPAWN = "spawn"


class LogLevel(Enum):
    """The level of the logger named `farm`."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


E = TypeVar("E", bound=Enum)
Parser = Callable[[str, object], Any]


def _choice(kind: type[E]) -> Parser:
    legal = ", ".join(repr(member.value) for member in kind)

    def parse(setting: str, value: object) -> E:
        if isinstance(value, kind):
            return value
        if isinstance(value, str):
            for member in kind:
                if member.value == value.strip().lower():
                    return member
        raise ConfigError(setting, value, legal)

    return parse


def _whole(low: int, high: int | None = None) -> Parser:
    legal = f"a whole number from {low} to {high}" if high is not None else f"a whole number of at least {low}"

    def parse(setting: str, value: object) -> int:
        number = value
        if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]+\s*", value):
            number = int(value)
        # True is an int to Python, and `workers=True` is a mistake.
        if not isinstance(number, int) or isinstance(number, bool) or number < low:
            raise ConfigError(setting, value, legal)
        if high is not None and number > high:
            raise ConfigError(setting, value, legal)
        return number

    return parse


def _seconds(*, zero: bool) -> Parser:
    legal = "a finite number of seconds, " + ("zero or more" if zero else "more than zero")

    def parse(setting: str, value: object) -> float:
        try:
            if isinstance(value, bool) or not isinstance(value, (int, float, str)):
                raise ValueError
            number = float(value)
        except (ValueError, OverflowError):
            raise ConfigError(setting, value, legal) from None
        if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
            raise ConfigError(setting, value, legal)
        return number

    return parse


_SWITCH: Final = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off"), False)


def _switch(setting: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    found = _SWITCH.get(str(value).strip().lower()) if isinstance(value, (str, int)) else None
    if found is None:
        raise ConfigError(setting, value, "1, true, yes, on, or 0, false, no, off")
    return found


_UNITS: Final = {"": 1, "b": 1} | {
    name: base**power
    for power, letter in enumerate("kmgt", start=1)
    for name, base in ((letter, 1024), (letter + "ib", 1024), (letter + "b", 1000))
}


def _bytes(setting: str, value: object) -> int:
    """`2GiB` and `2G` are 2 * 1024**3, `2GB` is 2 * 1000**3, a bare number is bytes."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", value.lower())
        if match and match[2] in _UNITS:
            number, unit = match[1], _UNITS[match[2]]
            size = int(number) * unit if "." not in number else int(float(number) * unit)
            if size > 0:
                return size
    raise ConfigError(setting, value, "a size above zero such as 2147483648, '2GiB' or '500MB'")


def _path(setting: str, value: object) -> Path:
    """Absolute, because workers run in the root directory."""
    if not isinstance(value, (str, os.PathLike)) or not str(value).strip() or "\0" in str(value):
        raise ConfigError(setting, value, "a path")
    try:
        return Path(str(value)).expanduser().absolute()
    except (RuntimeError, OSError):
        raise ConfigError(setting, value, "a path whose home directory exists") from None


def _paths(setting: str, value: object) -> tuple[Path, ...]:
    parts: object = value
    if isinstance(value, str):
        parts = [part for part in value.split(os.pathsep) if part.strip()]
    elif isinstance(value, os.PathLike):
        parts = [value]
    if not isinstance(parts, (list, tuple)):
        raise ConfigError(setting, value, f"paths separated by {os.pathsep!r}, or a list of paths")
    return tuple(_path(setting, part) for part in parts)


def _name(setting: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(setting, value, "a name")
    return value.strip()


def _or_none(parse: Parser, word: str) -> Parser:
    """None, or the word that stands for it in the environment."""

    def parse_or_none(setting: str, value: object) -> Any:
        if value is None or (isinstance(value, str) and value.strip().lower() == word):
            return None
        try:
            return parse(setting, value)
        except ConfigError as error:
            raise ConfigError(setting, value, f"{error.legal}, or {word!r}") from None

    return parse_or_none


def default_cache_dir() -> Path:
    """The user's cache directory; platformdirs is imported on first need, as importing farm must stay cheap."""
    import tempfile

    import platformdirs

    try:
        return Path(platformdirs.user_cache_dir("farm"))
    except RuntimeError:  # neither HOME nor a passwd entry: a container's bare user
        return Path(tempfile.gettempdir()) / f"farm-{os.getuid()}"


def runtime_dirs(environ: Mapping[str, str] | None = None) -> tuple[Path | None, Path]:
    """Where a process leaves what concerns nobody once it is gone: XDG_RUNTIME_DIR if it is set, the temporary one."""
    import tempfile

    known = os.environ if environ is None else environ
    own = known.get("XDG_RUNTIME_DIR", "")
    return (Path(own) if os.path.isabs(own) else None), Path(tempfile.gettempdir())


def default_start_method() -> StartMethod:
    """Fork where it is safe: Apple's frameworks break in a forked child, and Windows has no fork."""
    return StartMethod.FORK if hasattr(os, "fork") and sys.platform != "darwin" else StartMethod.SPAWN


def cgroup_memory_bytes(root: Path = Path("/")) -> int | None:
    """The smallest memory limit of this process's control groups and their ancestors; None without a limit."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    limits = []
    for line in lines:
        _, controllers, group = line.split(":", 2) if line.count(":") >= 2 else ("", "?", "")
        if controllers == "":
            mount, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            mount, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        place = mount / group.lstrip("/")
        # In a container the path may name a group of the host, so the mount's own root is looked at as well.
        for directory in (place, *place.parents):
            with contextlib.suppress(OSError, ValueError):  # No such group here, or "max".
                limits.append(int((directory / name).read_text()))
            if directory == mount:
                break
    return min(limits, default=None)


# What the launchers of parallel jobs tell each of a node's processes about how many they are.
SIBLING_VARIABLES: Final = (
    ("PYTEST_XDIST_WORKER_COUNT", "pytest-xdist"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "Open MPI"),
    ("MPI_LOCALNRANKS", "MPICH"),
    ("MV2_COMM_WORLD_LOCAL_SIZE", "MVAPICH"),
    ("PMI_LOCAL_SIZE", "PMI"),
    ("PALS_LOCAL_SIZE", "PALS"),
    ("SLURM_STEP_TASKS_PER_NODE", "Slurm"),
)


def siblings(environ: Mapping[str, str] | None = None) -> tuple[int, str]:
    """How many processes like this one share the machine, at least 1, and who says so ("" if nobody does).

    Several launchers can be at work at once, as when Slurm starts an MPI program: the largest number counts.
    What Slurm says of the whole allocation counts only where its step says nothing: a batch script, or a step
    of one task in a large allocation, is one process.
    """
    known = dict(os.environ if environ is None else environ)
    if "SLURM_STEP_ID" in known:
        known.setdefault("SLURM_STEP_TASKS_PER_NODE", known.get("SLURM_NTASKS_PER_NODE", ""))
    number, name = 1, ""
    for variable, launcher in SIBLING_VARIABLES:
        counted = _tasks_of_node(known.get(variable, ""), known.get("SLURM_NODEID", ""))
        if counted > number:
            number, name = counted, f"{launcher} ({variable})"
    return number, name


def _tasks_of_node(text: str, node: str) -> int:
    """`4` is 4; Slurm's `2(x3),1` is 2 on nodes 0 to 2 and 1 on node 3, the largest if the node is not known."""
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,6})(?:\(x([0-9]{1,6})\))?\s*", part)
        if match is None:
            return 1
        counts += [int(match[1])] * int(match[2] or 1)
    index = int(node) if node.isascii() and node.isdigit() else len(counts)
    return max(1, counts[index] if index < len(counts) else max(counts))


def machine_memory_bytes() -> int:
    """Bytes of memory this process could ever have: the machine's, or its control group's if smaller."""
    import psutil

    total = int(psutil.virtual_memory().total)
    limit = cgroup_memory_bytes()
    # Version 1 says "no limit" by a number near 2**63.
    return total if limit is None else min(total, limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Every setting. Text is accepted for each field, as from the environment, and parsed on construction.

    Parameters
    ----------
    workers
        How many worker processes at most; auto: as many as CPUs, control groups and free memory allow.
    max_ongoing
        While so many compiles that calls asked for are under way, calls ask for no more. It is never less than the
        number of workers.
    mode
        When a call compiles. A decorator's `mode` comes before it.
    fallback
        What a call runs while its machine code is not there. A decorator's `fallback` comes before it.
    on_error
        What becomes of a function that numba cannot compile: one warning and the fallback, or numba's error.
    lazy_threshold
        In lazy mode, the call of a signature that compiles it. A function's first signature is compiled at once.
    megamorphic_compiles
        A function with more compiles than this, and too few calls for them, gets no machine code for new argument types
        any more.
    megamorphic_executions_per_compile
        Fewer calls than this for each compile are too few.
    cache_dir
        Where artifacts are kept. Made on first use, for this user alone.
    lower_cache_dirs
        Directories that are looked into when `cache_dir` does not have an artifact. They are only read.
    cache_size_max_bytes
        Above it the least recently used artifacts are removed, down to 90 %.
    readonly
        Nothing is written to `cache_dir`.
    job_timeout_s
        A compile that takes longer is ended, with its worker.
    worker_memory_max_bytes
        A worker that uses more is ended; auto: a quarter of what the machine or its control group has.
    worker_jobs_max
        After so many jobs a worker is replaced by a fresh one.
    nice
        How far workers step back for other processes. Those that somebody waits for do not.
    start_method
        How worker processes come to be.
    exit_grace_s
        At exit, running compiles have so long to store what they make.
    verify
        What the store has is compiled again and compared before it is loaded.
    on_degraded
        Whether what keeps the farm from working at its best is counted, or raised as an error.
    enabled
        Switched off, there are no workers and no store: functions run in Python, and those that cannot are compiled in
        the program.
    shared_group
        Name of a group whose members share `cache_dir`.
    signing_key_file
        A file with a secret: artifacts are signed with it, and none is loaded that is not.
    log_level
        Level of the logger named farm. At debug it shows every event.
    publish_status
        Whether `farm top` can see what the program does.
    shadow_max_bytes
        A call under fallback="auto" that would have to copy more is not restartable, nor a tenth of the free memory.
    prestart
        Importing farm starts the default farm's pool, in the background. Only the variable comes early enough.
    """

    # None: as many as CPUs and memory allow, which the pool finds out.
    workers: int | None = None
    # 10: the protocol's number, a guess there; raised to the number of workers by `ongoing_limit`.
    max_ongoing: int = 10
    mode: CompileMode = CompileMode.ASYNC
    fallback: Fallback = Fallback.AUTO
    on_error: OnError = OnError.WARN
    # 2, 10 and 50: the protocol's numbers, guesses there.
    lazy_threshold: int = 2
    megamorphic_compiles: int = 10
    megamorphic_executions_per_compile: int = 50
    cache_dir: Path = field(default_factory=default_cache_dir)
    lower_cache_dirs: tuple[Path, ...] = ()
    cache_size_max_bytes: int = 2 << 30  # A guess.
    readonly: bool = False
    job_timeout_s: float = 600.0  # A guess: thirty times the longest compile that users report, 20 s.
    # None: `worker_memory_limit_bytes()` works it out when a pool needs it.
    worker_memory_max_bytes: int | None = None
    worker_jobs_max: int = 500  # A guess.
    nice: int = 10  # A guess. Measured: 3.9 s of waiting became 32 s at 10, so waited-for jobs run at 0.
    start_method: StartMethod = field(default_factory=default_start_method)
    exit_grace_s: float = 2.0  # A guess: most compiles end within it, and nobody minds two seconds at exit.
    verify: bool = False
    on_degraded: OnDegraded = OnDegraded.COUNT
    enabled: bool = True
    shared_group: str | None = None
    signing_key_file: Path | None = None
    log_level: LogLevel = LogLevel.WARNING
    publish_status: bool = True
    shadow_max_bytes: int = 256 << 20  # A guess. Measured: copying takes 1 to 10 ms for each MB.
    prestart: bool = False

    def __post_init__(self) -> None:
        for name, parse in PARSERS.items():
            object.__setattr__(self, name, parse(name, getattr(self, name)))

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> "Config":
        """The defaults, changed by FARM_* variables of `environ` (the process's own if None).

        Raises ConfigError for a value that does not parse; warns of variables that are no setting.
        """
        found: dict[str, object] = {}
        for variable, text in (os.environ if environ is None else environ).items():
            if not variable.startswith(PREFIX):
                continue
            name = variable[len(PREFIX) :].lower()
            if name not in PARSERS or variable != variable.upper():
                message = f"{variable} is no setting of the farm{_nearest(name, PREFIX, upper=True)}"
                warnings.warn(message, UnknownSettingWarning, stacklevel=2)
            elif text.strip():
                found[name] = text
        return cls().with_changes(**found)

    def with_changes(self, **changes: object) -> "Config":
        """This config with some settings replaced; ConfigError for an unknown name or a wrong value."""
        for name, value in changes.items():
            if name not in PARSERS:
                raise ConfigError(name, value, f"a known setting{_nearest(name)}")
        values: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        return Config(**(values | changes))

    def ongoing_limit(self, workers: int) -> int:
        """How many on-demand compiles may run before an ASYNC call is refused: never fewer than workers."""
        return max(self.max_ongoing, workers)

    def worker_memory_limit_bytes(self) -> int:
        """The setting, or a quarter of the memory that the machine or the control group has."""
        if self.worker_memory_max_bytes is not None:
            return self.worker_memory_max_bytes
        return machine_memory_bytes() // MEMORY_SHARE


def _nearest(name: str, prefix: str = "", *, upper: bool = False) -> str:
    import difflib  # only for a message

    near = difflib.get_close_matches(name.lower(), PARSERS, n=1)
    if not near:
        return ""
    return f": did you mean {prefix}{near[0].upper() if upper else near[0]}?"


PARSERS: Final[Mapping[str, Parser]] = {
    "workers": _or_none(_whole(1), "auto"),
    "max_ongoing": _whole(1),
    "mode": _choice(CompileMode),
    "fallback": _choice(Fallback),
    "on_error": _choice(OnError),
    "lazy_threshold": _whole(0),
    "megamorphic_compiles": _whole(0),
    "megamorphic_executions_per_compile": _whole(0),
    "cache_dir": _path,
    "lower_cache_dirs": _paths,
    "cache_size_max_bytes": _bytes,
    "readonly": _switch,
    "job_timeout_s": _seconds(zero=False),
    "worker_memory_max_bytes": _or_none(_bytes, "auto"),
    "worker_jobs_max": _whole(1),
    "nice": _whole(0, 19),
    "start_method": _choice(StartMethod),
    "exit_grace_s": _seconds(zero=True),
    "verify": _switch,
    "on_degraded": _choice(OnDegraded),
    "enabled": _switch,
    "shared_group": _or_none(_name, "none"),
    "signing_key_file": _or_none(_path, "none"),
    "log_level": _choice(LogLevel),
    "publish_status": _switch,
    "shadow_max_bytes": _bytes,
    "prestart": _switch,
}


def wants_prestart() -> bool:
    """Whether the environment asks for a pool at import. What does not parse is told when the first farm is made."""
    with contextlib.suppress(ConfigError):
        return bool(_switch("prestart", os.environ.get(PREFIX + "PRESTART", "").strip() or False))
    return False


def worker_environment(more: Mapping[str, str]) -> dict[str, str]:
    """This process's environment for the foreman, with these variables set.

    Single-threaded libraries, so that forking is safe there, and the farm off: a module of the user that a worker
    imports must not start a farm of its own. One hash seed for all: what is compiled twice comes out the
    same. A seed that the user has fixed stays. Machine code reads the seed of the process that it runs in.
    """
    seed = os.environ.get("PYTHONHASHSEED", "")
    fixed = seed if seed.isascii() and seed.isdigit() else "0"
    single = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    return {**os.environ, **more, **single, "FARM_ENABLED": "0", "FARM_PRESTART": "0", "PYTHONHASHSEED": fixed}
