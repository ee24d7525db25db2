"""What a CPU can do: parsing the name of one to compile for, and whether this one can run what was made for another.

A CPU is a name that LLVM knows and features beside it, as LLVM writes them (`+avx2,-fma`). numba hands both to LLVM as
they are, and LLVM prints to standard error and goes on where it does not know a word, or ends the process where a word
has no sign, where a name is of 32 bits, or where what the calling convention needs is taken away. So `parse` lets
nothing through that LLVM does not know. The names come from LLVM itself, in a process of their own.

What a name other than a level of x86-64 stands for LLVM does not tell: code for such a name runs only where numba would
compile for that same name.
"""

import functools
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import llvmlite
import llvmlite.binding as llvm
from numba.core import config

from farm.errors import CpuError

GENERIC: Final = "generic"
BASELINE: Final = frozenset({"64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2"})
"""What every x86-64 has, and what its calling convention needs: code is never made without it."""

_V2: Final = frozenset({"cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"})
_V3: Final = frozenset({"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"})
_V4: Final = frozenset({"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"})

LEVELS: Final = {
    "x86-64-v4": BASELINE | _V2 | _V3 | _V4,
    "x86-64-v3": BASELINE | _V2 | _V3,
    "x86-64-v2": BASELINE | _V2,
    "x86-64": BASELINE,
    GENERIC: BASELINE,
}
"""What each level has, the best first, under LLVM's names. System V ABI, AMD64 Architecture Processor Supplement,
version 1.0, section 3.1.1, table 3.1: LAHF-SAHF is `sahf`, BMI1 is `bmi`, OSXSAVE is `xsave`."""

NEAR: Final = 3
ASKED_S: Final = 60.0
"""A guess: asking takes 0.5 s."""

# LLVM prints its names to standard error, where it says so many other things that a process of its own is the only
# place to read them. Each name is tried by a child, which a name of 32 bits ends.
ASK: Final = """\
import os, sys
sys.path.insert(0, sys.argv[1])
import llvmlite.binding as llvm
from numba.core import config
llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
target = llvm.Target.from_triple(llvm.get_process_triple())
if len(sys.argv) == 2:
    target.create_target_machine(cpu="help")
    sys.exit()
text = 'define double @f(double %x) {\\n ret double %x\\n}'
def makes_code(name):
    child = os.fork()
    if child == 0:
        try:
            target.create_target_machine(cpu=name).emit_assembly(llvm.parse_assembly(text))
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0
print(*[name for name in sys.argv[2:] if not hasattr(os, "fork") or makes_code(name)])
"""


@dataclass(frozen=True, slots=True)
class Cpu:
    """What code is generated for: a name that LLVM knows, and features beside it.

    Parameters
    ----------
    name
        `x86-64-v3`, `generic`, `znver4`.
    features
        As LLVM writes them, `+avx512f,-fma`; empty: those of the name.
    """

    name: str
    features: str = ""

    def __str__(self) -> str:
        """For people: of all the features that this CPU has, or has not, only those in which it differs."""
        return _for_people(self, host())


@functools.lru_cache(maxsize=16)
def _for_people(cpu: Cpu, this: Cpu) -> str:
    words, usual = cpu.features.split(","), this.features.split(",")
    if {word[1:] for word in words} >= {word[1:] for word in usual}:
        words = [word for word in words if word not in usual]
        if cpu.name != this.name:
            words.append(f"with the features of {this.name}")
    return ",".join(word for word in (cpu.name, *words) if word)


def host(avx: bool = True) -> Cpu:
    """The CPU of this machine, as numba compiles for it; `avx` is numba's setting ENABLE_AVX."""
    return _host(avx, _what_this_has())


@functools.lru_cache(maxsize=4)
def _host(avx: bool, has: frozenset[tuple[str, bool]]) -> Cpu:
    """0.2 ms, most of it in LLVM (measured)."""
    words = (f"{'+' if there and (avx or not name.startswith('avx')) else '-'}{name}" for name, there in sorted(has))
    return Cpu(str(llvm.get_host_cpu_name()), ",".join(words))


@functools.lru_cache(maxsize=1)
def _what_this_has() -> frozenset[tuple[str, bool]]:
    """Every feature that LLVM can find out about, and whether this CPU has it: 0.1 ms. Empty where it cannot."""
    try:
        return frozenset(llvm.get_host_cpu_features().items())
    except RuntimeError:
        return frozenset()


@functools.lru_cache(maxsize=1)
def triple() -> str:
    """The triple that code is generated for."""
    return str(llvm.get_process_triple())


def parse(text: str) -> Cpu:
    """The CPU that a text names: `host`, a level such as `x86-64-v3`, `generic`, or another name of LLVM's.

    `host` is this machine, also where numba is told to compile for another. Features may follow: `x86-64-v3,+avx512f`.
    Raises CpuError, which names the nearest right word.
    """
    name, *words = (word.strip().lower() for word in text.split(","))
    if name == "host":
        this = host(bool(config.ENABLE_AVX))
        return Cpu(this.name, ",".join((this.features, *_features(text, words))))
    if not (name in LEVELS and _is_x86_64()):
        try:
            right = known_names()
        except OSError as error:
            raise CpuError(text, f"LLVM cannot be asked whether it knows {name!r} ({error})", ()) from error
        if name not in right:
            raise CpuError(text, f"this LLVM generates no code for {name!r}", _near(name, ("host", *right)))
    return Cpu(name, ",".join(_features(text, words)))


def _features(text: str, words: list[str]) -> list[str]:
    known = [name for name, _ in _what_this_has()]
    for word in words:
        sign, name = word[:1], word[1:]
        if sign not in ("+", "-"):
            raise CpuError(text, f"the feature {word!r} has no sign", (f"+{word}", f"-{word}"))
        if name not in known:
            near = tuple(sign + one for one in _near(name, known))
            raise CpuError(text, f"{name!r} is no feature that this LLVM can find in a CPU", near)
        if sign == "-" and name in BASELINE:
            raise CpuError(text, f"no code can do without {name!r}", ())
    return words


def _near(word: str, right: Iterable[str]) -> tuple[str, ...]:
    import difflib  # only for a message

    return tuple(difflib.get_close_matches(word, sorted(right), n=NEAR))


def _is_x86_64() -> bool:
    return triple().startswith("x86_64")


@functools.lru_cache(maxsize=1)
def known_names() -> tuple[str, ...]:
    """The names of CPUs that this LLVM generates code of this process's kind for. Raises OSError if it cannot be asked.

    0.6 s, once (measured).
    """
    listed = [line.split()[0] for line in _ask()[1].splitlines() if line.endswith("processor.")]
    return tuple(_ask(*listed)[0].split())


def _ask(*names: str) -> tuple[str, str]:
    """What a process that runs ASK writes to its standard output and error."""
    from multiprocessing import spawn

    python, place = os.fsdecode(spawn.get_executable() or sys.executable), Path(llvmlite.__file__).parent.parent
    try:
        asked = subprocess.run(
            [python, "-I", "-c", ASK, str(place), *names],
            check=True,
            capture_output=True,
            text=True,
            timeout=ASKED_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.SubprocessError as error:
        raise OSError(f"{python} failed: {getattr(error, 'stderr', '') or type(error).__name__}") from error
    return asked.stdout, asked.stderr


def level() -> str | None:
    """The highest level of x86-64 that this CPU has; None where there are no levels."""
    if not _is_x86_64():
        return None
    has = {name for name, there in _what_this_has() if there} | BASELINE
    return next(name for name, needed in LEVELS.items() if needed <= has)


def runnable_for(own: Cpu) -> tuple[Cpu, ...]:
    """The levels whose code may run where numba compiles for `own`, the best first; not `own` itself.

    This CPU must be able to run it, and `own` must have all of it too: who restricts numba, by NUMBA_CPU_NAME or by
    NUMBA_ENABLE_AVX=0, does not want to be given more.
    """
    return _runnable_for(own, _what_this_has()) if _is_x86_64() else ()


@functools.lru_cache(maxsize=64)
def _runnable_for(own: Cpu, has: frozenset[tuple[str, bool]]) -> tuple[Cpu, ...]:
    both = _turned_on(own) & ({name for name, there in has if there} | BASELINE)
    levels = (Cpu(name) for name, needed in LEVELS.items() if needed <= both)
    return tuple(cpu for cpu in levels if cpu != own)


def _turned_on(cpu: Cpu) -> set[str]:
    """What code for a CPU may use, as far as its text says: what only its name would say is left out."""
    found = set(LEVELS.get(cpu.name, BASELINE))
    for word in cpu.features.split(","):
        if word.startswith("+"):
            found.add(word[1:])
        else:
            found.discard(word[1:])
    return found


def lacking(made_for: Cpu, own: Cpu) -> tuple[str, ...]:
    """What code needs that was made for a CPU and that this one does not have: with any of it, it must not run here.

    `own` is what numba compiles for in this process.
    """
    return _lacking(made_for, own, _what_this_has())


@functools.lru_cache(maxsize=64)
def _lacking(made_for: Cpu, own: Cpu, has: frozenset[tuple[str, bool]]) -> tuple[str, ...]:
    there: dict[str, Any] = dict(has)
    # What LLVM cannot find out is taken as given where numba itself compiles with it.
    unknown = made_for == own
    needed = _turned_on(made_for) - BASELINE
    missing = tuple(sorted(name for name in needed if not there.get(name, unknown)))
    if missing or made_for.name in LEVELS or made_for.name in (own.name, host().name):
        return missing
    return (f"what {made_for.name} has",)
