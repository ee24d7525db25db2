"""How a small function says what `restart_of` must say of it, and what such functions call.

The functions are in `quiet_bodies`, `writing_bodies` and `refused_bodies`.
"""

import enum
import types
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numba import cfunc, stencil, vectorize
from numba.experimental import jitclass

import farm

# mypy: disable-error-code="no-untyped-def, no-untyped-call"


@dataclass(frozen=True)
class Case:
    """What is said of a function: `writes` always, `parts` if an argument has more dimensions than are indexed.

    `nested` only if an argument is a container of other objects.
    """

    function: Any
    reason: str | None
    writes: frozenset[int]
    parts: frozenset[tuple[int, int]]
    nested: frozenset[int]
    loops: bool


CASES: list[Case] = []
TABLE = np.arange(4.0)
NUMBERS = (1, 2, 3)
LIMIT = 3
NAMES = ["a", "b"]
RNG = np.random.default_rng(1)
Point = namedtuple("Point", "x y")
Odd = namedtuple("Odd", "real size")
settings = types.ModuleType("settings")
settings.table = TABLE  # type: ignore[attr-defined]


class Colour(enum.IntEnum):
    RED = 1


class Problem(Exception):
    pass


class Logged(Exception):
    def __init__(self, text):
        print(text)


def says(reason: str | None = None, writes: Any = (), parts: Any = (), nested: Any = (), loops: bool = False) -> Any:
    def note(function: Any) -> Any:
        CASES.append(Case(function, reason, frozenset(writes), frozenset(parts), frozenset(nested), loops))
        return function

    return note


# -- what others call ------------------------------------------------------------------------------


@says(writes=[0])
def fill_first(a, value):
    a[0] = value


@says()
def doubled(x):
    return 2 * x


@says()
def same(a):
    return a


@farm.njit
def hooked(a):
    a[1] = 2.0
    return a


@numba.njit
def stock(a):
    return a + 1


@farm.njit(fallback=lambda a: a)
def other_fallback(a):
    return a


@vectorize
def ufunc(x):
    return x + 1


@stencil
def kernel(a):
    return a[0] + a[1]


@cfunc("float64(float64)")
def callback(x):
    return x


@jitclass([("x", numba.types.int64)])
class Box:
    def __init__(self):
        self.x = 1


FUNCTIONS = (doubled, fill_first)
