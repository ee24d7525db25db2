"""What types refer to by name: found as `named_things:X` by every process with this directory on its path."""

import enum
from collections import namedtuple

import numba
from numba import types
from numba.experimental import jitclass

Point = namedtuple("Point", "x y")


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@numba.njit
def double(x):
    return 2 * x


@jitclass([("x", types.int64)])
class Counter:
    def __init__(self):
        self.x = 0

    def step(self):
        self.x += 1


class Money(types.Type):
    """A type of the user's own."""

    def __init__(self, currency):
        self.currency = currency
        super().__init__(name=f"Money({currency})")
