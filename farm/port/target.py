"""What machine code is made for, and by what: target, settings, toolchain, flags and symbol names.

All of it is handed out as plain strings and numbers, ready for a key. Nothing here compiles.
"""

import functools
import itertools
import platform
import secrets
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, cast

import llvmlite
import llvmlite.binding as llvm
import numba
import numpy
from numba.core import compiler, config, registry
from numba.core.bytecode import FunctionIdentity
from numba.core.targetconfig import ConfigStack

from farm.port.cpu import Cpu, host, triple

Plain = str | int | float | bool | None
Foundation = tuple[tuple[str, Plain], ...]
"""Settings that a process is built with, by name in order: see FOUNDATION."""

SYMBOL_BASE_BITS: Final = 60

# Settings that cannot change code: they name places, colours, logs and devices. Every other upper-case
# attribute of numba.config counts, also one that a later numba adds: a needless miss is slow, a stale hit wrong.
WITHOUT_EFFECT_ON_CODE: Final = frozenset(
    {
        "CACHE_DIR",
        "CACHE_LOCATOR_CLASSES",
        "CHROME_TRACE",
        "COLOR_SCHEME",
        "DEBUG_CACHE",
        "DISABLE_PERFORMANCE_WARNINGS",
        "FULL_TRACEBACKS",
        "FUNCTION_CACHE_SIZE",
        "GDB_BINARY",
        "HIGHLIGHT_DUMPS",
        "NRT_STATS",
        "NUMBA_DEFAULT_NUM_THREADS",
        "SHOW_HELP",
        "THREADING_LAYER",
        "THREADING_LAYER_PRIORITY",
        "TRACE",
    }
)

# Settings that numba reads when its code generator and its runtime are made, once per process. One that changes later
# changes nothing there, so a process that compiles under other values of these is another process.
FOUNDATION: Final = (
    "CPU_FEATURES",
    "CPU_NAME",
    "DEBUG_NRT",
    "DEBUG_NRT_STACK_LIMIT",
    "ENABLE_AVX",
    "ENABLE_PROFILING",
    "OPT",
    "USE_LLVMLITE_MEMORY_MANAGER",
    "USING_SVML",  # found out while numba is imported
)

ACT_THROUGH_THE_TARGET: Final = ("CPU_FEATURES", "CPU_NAME", "ENABLE_AVX")
"""Settings that say what CPU code is generated for, and nothing else: only `CPUCodegen` reads them, for the name and
the features that it gives to LLVM. Two processes that come to one target in two ways make the same code."""


def own_cpu(values: Mapping[str, Plain] | None = None) -> Cpu:
    """What numba generates code for under these settings, by default under those of now.

    Without features of their own (NUMBA_CPU_FEATURES) those of this machine go with any name, also with the name of a
    lesser CPU: numba does that.
    """
    if values is None:
        values = {name: _plain(getattr(config, name)) for name in ACT_THROUGH_THE_TARGET}  # type: ignore[misc]
    this = host(bool(values["ENABLE_AVX"]))
    name, features = values["CPU_NAME"], values["CPU_FEATURES"]
    return Cpu(this.name if name is None else str(name), this.features if features is None else str(features))


def target(cpu: Cpu | None = None) -> dict[str, str]:
    """Triple, CPU name and CPU features that code is generated for; by default those of this process."""
    made_for = own_cpu() if cpu is None else cpu
    return {"triple": triple(), "cpu": made_for.name, "features": made_for.features}


def settings_for(values: Mapping[str, Plain], cpu: Cpu) -> dict[str, Plain]:
    """These settings, changed so that numba generates code for that CPU; as they are, if it does so already."""
    if own_cpu(values) == cpu:
        return dict(values)
    return {**values, "CPU_NAME": cpu.name, "CPU_FEATURES": cpu.features}


def toolchain() -> dict[str, str]:
    """Versions of everything that takes part in making code."""
    return {
        "python": f"{platform.python_implementation()} {sys.implementation.cache_tag} {sys.version_info[:3]}",
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "llvm": ".".join(map(str, llvm.llvm_version_info)),
        "numpy": numpy.__version__,
        "svml": str(bool(config.USING_SVML)),
    }


def settings() -> dict[str, Plain]:
    """Every numba setting that may change code, as it stands now in `numba.config`, "unset" (None) included.

    As before each compile of numba's, a changed environment counts first.
    """
    config.reload_config()
    found: dict[str, Plain] = {}
    held = vars(config)
    for name in sorted(filter(_counts, held)):
        value = _plain(held[name])
        if value is None or isinstance(value, (str, float, int)):
            found[name] = value
    return found


@functools.lru_cache(maxsize=1024)
def _counts(name: str) -> bool:
    """Whether a name of numba's configuration is a setting that may change code."""
    if name.startswith(("CUDA_", "FORCE_CUDA", "DUMP_")):
        return False
    return name.isupper() and name not in WITHOUT_EFFECT_ON_CODE


def _plain(value: object) -> object:
    if isinstance(value, config._OptLevel):  # an int, of which "max" is 3
        value = value._raw_value
    return int(value) if isinstance(value, int) else value


def apply_settings(values: Mapping[str, Plain]) -> None:
    """Set `numba.config` attributes to what another process had (numba's own code reads them there)."""
    for name, value in values.items():
        if _plain(getattr(config, name, None)) != value:
            setattr(config, name, config._OptLevel(value) if name == "OPT" else value)


def foundation(values: Mapping[str, Plain]) -> Foundation:
    """Those of the settings that a process must have been built with to compile under them."""
    return tuple((name, values.get(name)) for name in FOUNDATION)


def import_environment(built_with: Foundation) -> dict[str, str]:
    """Environment variables for a process that is to be built with these: what the import of numba itself decides."""
    return {"NUMBA_DISABLE_INTEL_SVML": "0" if dict(built_with)["USING_SVML"] else "1"}


def build_with(values: Foundation) -> None:
    """Fix the settings of this process before numba makes anything with them; the environment has no say any more.

    numba reads it, and a `.numba_config.yaml` in the current directory, again before each compile.
    """
    global _built_with
    config.reload_config = lambda: None
    apply_settings(dict(values))
    _built_with = values


_built_with: Foundation | None = None


def is_built_for(values: Mapping[str, Plain]) -> bool:
    """Whether this process compiles under these settings as it says; always, where nobody fixed any."""
    return _built_with is None or foundation(values) == _built_with


def effective_flags(options: Mapping[str, Any], flags_of_caller: Any | None) -> str:
    """The flags that a compile asked for by a caller with these flags would have, as a stable text.

    A function compiled inside another inherits fastmath, error_model, nrt and forceinline
    (`inherit_if_not_set` in numba's CPU target options), so what was declared is not what counts.
    """
    flags = compiler.Flags()
    with inherited_flags(flags_of_caller):
        registry.cpu_target.options.parse_as_flags(flags, dict(options))
    return ";".join(f"{name}={_flag_text(value)}" for name, value in sorted(flags.values().items()))


def inherited_flags(flags_of_caller: Any | None) -> AbstractContextManager[Any]:
    """Inside, a compile inherits from this caller; with None from nobody, whatever this thread is compiling."""
    return cast(AbstractContextManager[Any], ConfigStack().enter(flags_of_caller or compiler.DEFAULT_FLAGS))


def _flag_text(value: object) -> str:
    chosen = getattr(value, "flags", None)
    if isinstance(chosen, (set, frozenset)):  # fastmath: a set, which prints in hash order
        return "{" + ",".join(sorted(map(str, chosen))) + "}"
    members = getattr(value, "__dict__", None)
    if members and not isinstance(value, type):
        return "{" + ",".join(f"{k}:{members[k]!r}" for k in sorted(members)) + "}"
    return repr(value)


def caller_flags() -> Any | None:
    """The flags of the compile that is running in this thread, or None outside of one. Picklable."""
    return ConfigStack.top_or_none()


def renew_symbol_names(base: int | None = None) -> int:
    """Start numba's symbol counter at a fresh random base, or at a given one, and return the base.

    Mangled names end in a per-process counter. Two workers that compile two closures of one factory
    would otherwise produce identical symbols, and a process that loads both runs the wrong one
    (numba issues 10486 and 10128). 60 random bits also keep apart what was made from equal code with
    other globals, which names derived from content do not.
    """
    if base is None:
        base = secrets.randbits(SYMBOL_BASE_BITS)
    FunctionIdentity._unique_ids = itertools.count(base)
    return base
