"""Runs one function three ways, the farm's fallback, the farm's machine code and numba, and compares."""

import copy
import itertools
import math
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numba
import numpy as np
from written import Written

import farm

NUMBERS: Final = itertools.count()
WAIT_S: Final = 120


@dataclass(frozen=True)
class Difference:
    """Two ways that gave different things."""

    function: Written
    arguments: tuple[Any, ...]
    gave: dict[str, Any]

    def __str__(self) -> str:
        given = "\n".join(f"    {way}: {what!r}" for way, what in self.gave.items())
        return f"{self.function.source}called with {self.arguments!r} gave\n{given}"


def run(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """What a call gives: its result, or its error, and its arguments afterwards."""
    own = copy.deepcopy(arguments)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # numpy's, of a fallback that meets infinities
            result = function(*own)
    except Exception as error:
        result = type(error), error.args
    return result, own


def equal(one: Any, other: Any, *, typed: bool) -> bool:
    """Equal to the last bit; NaN is NaN, and zeros have signs. Typed: also of the same type."""
    if typed and type(one) is not type(other):
        return False
    if isinstance(one, tuple):
        return (
            isinstance(other, tuple)
            and len(one) == len(other)
            and all(equal(a, b, typed=typed) for a, b in zip(one, other, strict=True))
        )
    if isinstance(one, np.ndarray):
        return (
            isinstance(other, np.ndarray)
            and one.dtype == other.dtype
            and one.shape == other.shape
            and all(equal(a, b, typed=True) for a, b in zip(one.flat, other.flat, strict=True))
        )
    if isinstance(one, float):
        if not isinstance(other, float):
            return False
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1.0, one) == math.copysign(1.0, other)
        )
    # Python's body gives numpy's integers where it reads arrays.
    whole = (int, np.integer)
    if isinstance(one, whole) and not isinstance(one, bool):
        return isinstance(other, whole) and not isinstance(other, bool) and bool(one == other)
    return type(one) is type(other) and bool(one == other)


class Bench:
    """A farm for machine code, and one that is switched off for fallbacks; a context manager."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._farm = farm.Farm(cache_dir=directory / "cache", workers=1, exit_grace_s=0)
        self._off = farm.Farm(cache_dir=directory / "cache", enabled=False)

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *exception: object) -> None:
        self._farm.close()
        self._off.close()

    def differences(self, written: Sequence[Written]) -> tuple[int, list[Difference]]:
        """How many calls were compared, and those that differ. The worker compiles while this process does."""
        before = self._farm.stats()
        bodies = [body(one, self._directory) for one in written]
        farmed = [farm.njit(one, farm=self._farm, fallback="python") for one in bodies]
        for function, one in zip(farmed, written, strict=True):
            run(function, one.calls[0])
        fallback = [run_all(farm.njit(one, farm=self._off), by) for one, by in zip(bodies, written, strict=True)]
        plain = [run_all(numba.njit(one), by) for one, by in zip(bodies, written, strict=True)]
        assert self._farm.wait(WAIT_S), self._farm
        for function in farmed:
            assert function.overloads, self._farm.stats()
        machine = [run_all(function, one) for function, one in zip(farmed, written, strict=True)]
        after = self._farm.stats()
        assert (after.failed, after.local) == (before.failed, before.local), after
        compared, found = 0, []
        for one, python, code, reference in zip(written, fallback, machine, plain, strict=True):
            for arguments, *gave in zip(one.calls, python, code, reference, strict=True):
                compared += 1
                if not equal(gave[1], gave[2], typed=True) or not equal(gave[0], gave[2], typed=False):
                    ways = ("fallback", "farm", "numba")
                    found.append(Difference(one, arguments, dict(zip(ways, gave, strict=True))))
        return compared, found


def run_all(function: Callable[..., Any], written: Written) -> list[Any]:
    """Every call, in order."""
    return [run(function, arguments) for arguments in written.calls]


def body(written: Written, directory: Path) -> Any:
    """The function, in a module of its own that has a file."""
    name = f"written_{next(NUMBERS)}"
    file = directory / f"{name}.py"
    file.write_text(f"import math\n\n\n{written.source}")
    module = types.ModuleType(name)
    module.__file__ = str(file)
    sys.modules[name] = module
    exec(compile(file.read_text(), str(file), "exec"), module.__dict__)
    return module.__dict__["f"]
