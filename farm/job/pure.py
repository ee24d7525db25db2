"""Which functions and methods are known to change nothing, and what comes out of them.

What is not listed is not known to be pure. The lists hold what numba compiles and what gives the same result each
time; ufuncs count where numpy or scipy hold them under their own name, as one made by `numpy.frompyfunc` calls Python.
Methods are known by name alone, since nobody knows the type of what they are called on: a name is listed if it does
the same to every type of Python, numpy and numba that has it. Objects with methods of the user's own (jitclasses) must
not be passed to a body that this was asked for.
"""

import builtins
import cmath
import functools
import heapq
import math
import operator
import sys
import types
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

import numba
import numpy

from farm.port import describe


class Effect(Enum):
    """What a call does with its arguments, as far as a caller can tell."""

    FRESH = "it returns numbers, or an array of its own"
    SAME = "it returns its arguments, views of them, or something that holds them"
    WRITES_FIRST = "it changes its first argument, and may put the others into it"


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FRESH_BUILTINS: Final = _names(
    "abs all any bin bool bytes callable chr complex divmod float hasattr hash hex id int isinstance issubclass len "
    "oct ord pow range repr round slice str type"
)
SAME_BUILTINS: Final = _names(
    "dict enumerate filter frozenset getattr iter list map max min next reversed set sorted sum tuple zip"
)
ITERATING: Final = frozenset(
    getattr(builtins, one)
    for one in _names("all any bytes dict filter frozenset list map max min set sorted sum tuple")
) | {functools.reduce, heapq.heapify, heapq.nlargest, heapq.nsmallest}
"""Given one thing to go through, these take a time that grows with it, far from machine speed."""

MANY: Final = 1 << 30
CALLING: Final = frozenset({map, filter, functools.reduce})
"""Their first argument is called."""

NO_NUMBERS: Final = frozenset({str, chr, repr, hex, oct, bin, bytes, type})
"""Known functions that return neither a number nor an array."""

FRESH_NUMPY: Final = _names(
    "all allclose amax amin any append arange argmax argmin argpartition argsort argwhere array_equal around average "
    "bartlett bincount blackman broadcast_shapes can_cast column_stack common_type concatenate convolve copy corrcoef "
    "correlate count_nonzero cov cross cumprod cumsum delete diagflat diff digitize dot dstack dtype ediff1d empty "
    "empty_like extract eye finfo flatnonzero full full_like geomspace hamming hanning histogram hstack identity "
    "iinfo indices inner interp intersect1d isclose iscomplex iscomplexobj isin isneginf isposinf isreal "
    "isrealobj isscalar kaiser kron lexsort linspace logspace max mean median min nanargmax nanargmin nancumprod "
    "nancumsum nanmax nanmean nanmedian nanmin nanpercentile nanprod nanquantile nanstd nansum nanvar ndim ndindex "
    "nonzero ones ones_like outer partition percentile polyadd polyint polymul polysub prod ptp quantile "
    "repeat resize result_type roll roots round round_ row_stack in1d product searchsorted select setdiff1d "
    "setxor1d shape sinc size sort std sum take take_along_axis tensordot tile trace trapezoid trapz tri tril "
    "tril_indices tril_indices_from triu triu_indices triu_indices_from union1d unique unwrap vander var vdot vstack "
    "where zeros zeros_like angle clip"
)
SAME_NUMPY: Final = _names(
    "array array_split asarray asarray_chkfinite ascontiguousarray asfortranarray atleast_1d atleast_2d atleast_3d "
    "broadcast_arrays broadcast_to diag diagonal dsplit expand_dims flip fliplr flipud frombuffer hsplit imag "
    "meshgrid moveaxis ndenumerate nditer ravel real real_if_close reshape rollaxis rot90 split squeeze swapaxes "
    "transpose trim_zeros vsplit"
)
WRITING_NUMPY: Final = _names("copyto fill_diagonal place put put_along_axis putmask nan_to_num")
OUT_PLACES: Final = {
    **dict.fromkeys(_names("dot round around round_ concatenate"), 2),
    **dict.fromkeys(_names("all any amax amin max min argmax argmin outer ptp median choose"), 2),
    **dict.fromkeys(_names("clip take sum prod mean std var cumsum cumprod nansum nanprod percentile quantile"), 3),
    **dict.fromkeys(_names("nancumsum nancumprod nanmean nanstd nanvar nanpercentile nanquantile nanmedian"), 2),
}
"""From which number of arguments on one of them may be `out`."""

FRESH_METHODS: Final = frozenset(
    _names("all any argmax argmin argpartition argsort cumprod cumsum dot flatten item max mean min nonzero prod ptp")
    + _names("repeat round searchsorted std sum take tobytes trace var clip")
    + tuple(name for name in vars(str) if not name.startswith("_"))
    + tuple(name for name in (*vars(bytes), *vars(int), *vars(float)) if not name.startswith("_"))
    + _names("isdisjoint issubset issuperset _get_state as_integer_ratio")
)
SAME_METHODS: Final = frozenset(
    _names("conj conjugate diagonal difference get getfield intersection items keys ravel reshape squeeze swapaxes")
    + _names("symmetric_difference transpose union values view")
) - {"real", "imag"}
WRITING_METHODS: Final = frozenset(
    _names("__delitem__ __setitem__ add append byteswap clear difference_update discard extend fill insert")
    + _names("intersection_update itemset partition pop popitem put remove resize reverse setdefault setfield setflags")
    + _names("sort symmetric_difference_update update")
)
PLAIN_ATTRIBUTES: Final = frozenset(_names("shape size ndim dtype itemsize nbytes strides flags start stop step name"))
SHAPE_KEPT: Final = frozenset({"T", "real", "imag"})
"""Attributes of an array that have as many dimensions."""

OPERATORS: Final = frozenset(
    getattr(operator, name)
    for name in _names(
        "abs add and_ concat contains eq floordiv ge gt index inv invert is_ is_not le lshift lt matmul mod mul ne neg "
        "not_ or_ pos pow rshift sub truediv truth xor countOf indexOf"
    )
)
JOINING: Final = frozenset(
    {operator.add, operator.concat, operator.mul, operator.iadd, operator.iconcat, operator.imul}
)
"""What may join tuples and lists, so that the result holds what they held."""
EXTENDING: Final = frozenset({operator.iadd, operator.iconcat, operator.ior})
"""What may put the elements of its second operand into the first."""


def _listed() -> Iterator[tuple[object, Effect]]:
    for name in FRESH_BUILTINS:
        yield getattr(builtins, name), Effect.FRESH
    for name in SAME_BUILTINS:
        yield getattr(builtins, name), Effect.SAME
    for module in (math, cmath):
        yield from ((value, Effect.FRESH) for value in vars(module).values() if callable(value))
    for effect, names in (
        (Effect.FRESH, FRESH_NUMPY),
        (Effect.SAME, SAME_NUMPY),
        (Effect.WRITES_FIRST, WRITING_NUMPY),
    ):
        yield from ((vars(numpy)[name], effect) for name in names if name in vars(numpy))
    for package in (numpy.linalg, numpy.fft):
        public = (vars(package)[name] for name in getattr(package, "__all__", ()) if name in vars(package))
        yield from ((value, Effect.FRESH) for value in public if callable(value) and not isinstance(value, type))
    yield from ((one, Effect.SAME) for one in (numba.literally, numba.literal_unroll, functools.reduce))
    yield from ((one, Effect.FRESH) for one in (numba.prange, numba.pndindex))
    yield from ((one, Effect.WRITES_FIRST) for one in (heapq.heapify, heapq.heappop, heapq.heappush, heapq.heapreplace))
    yield from ((one, Effect.WRITES_FIRST) for one in (heapq.heappushpop, setattr))
    yield from ((one, Effect.SAME) for one in (heapq.nlargest, heapq.nsmallest))
    for name in ("sliding_window_view", "as_strided"):
        found = vars(numpy.lib.stride_tricks).get(name)
        yield from () if found is None else ((found, Effect.SAME),)


_KNOWN: Final = {id(value): (value, effect) for value, effect in _listed()}
_OUT_PLACES: Final = {id(vars(numpy)[name]): place for name, place in OUT_PLACES.items() if name in vars(numpy)}


def effect_of_call(value: Any, count: int, keywords: frozenset[str]) -> Effect | None:
    """What a call with so many positional arguments and these keywords does: some copy if they are not told not to."""
    copies = value is numpy.array or value is numpy.nan_to_num
    if copies and count <= (2 if value is numpy.array else 1) and keywords <= {"dtype"}:
        return Effect.FRESH
    return effect_of(value)


def effect_of(value: Any) -> Effect | None:
    """What a call of this object can do; None if it is not known to be pure."""
    found = _KNOWN.get(id(value))
    if found is not None:
        return found[1]
    if _is_ufunc(value) or describe.type_classes(value) or isinstance(value, numpy.dtype):
        return Effect.FRESH
    if isinstance(value, type):
        return _effect_of_class(value)
    return None


def _effect_of_class(cls: type) -> Effect | None:
    if issubclass(cls, numpy.generic):
        return Effect.FRESH
    if issubclass(cls, BaseException):
        made = (cls.__init__, cls.__new__)
        return None if any(isinstance(one, types.FunctionType) for one in made) else Effect.SAME
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        plain = describe.home(cls.__new__).startswith("namedtuple_") and not isinstance(
            cls.__init__, types.FunctionType
        )
        return Effect.SAME if plain else None
    return None


def codes_of(value: Any) -> frozenset[types.CodeType]:
    """What runs in Python when something pure is called, where that is known: a named tuple is made so."""
    made = value.__new__ if isinstance(value, type) and issubclass(value, tuple) else None
    return frozenset({made.__code__} if isinstance(made, types.FunctionType) else ())


def _is_ufunc(value: object) -> bool:
    """A ufunc that runs C code: numpy's and scipy's are found under their own names."""
    if not isinstance(value, numpy.ufunc):
        return False
    homes = (numpy, sys.modules.get("scipy.special"))
    return any(home is not None and vars(home).get(value.__name__) is value for home in homes)


def first_out(value: Any) -> int:
    """The number of the first positional argument that may be an array to write the result to."""
    if isinstance(value, numpy.ufunc):
        return value.nin
    return _OUT_PLACES.get(id(value), MANY)


def effect_of_method(name: str) -> Effect | None:
    """What calling a method of this name does to the object that it is called on; None if that is not known."""
    if name in WRITING_METHODS:
        return Effect.WRITES_FIRST
    if name in SAME_METHODS:
        return Effect.SAME
    return Effect.FRESH if name in FRESH_METHODS else None


def draws_random_numbers(value: Any) -> bool:
    """Whether the object is a function of numpy's or Python's random numbers, or a method of a generator."""
    of = getattr(value, "__self__", None)
    home = describe.home(type(of)) if of is not None and not isinstance(of, types.ModuleType) else describe.home(value)
    return home == "random" or (home.partition(".")[0] == "numpy" and ".random" in home)
