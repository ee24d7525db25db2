"""A numba extension of the user that cannot be imported in a worker. Its lowering travels no other way."""

from numba.core import types
from numba.extending import lower_builtin, overload

from farm.port.role import compiles_for_others


def plus_one(a):
    return a + 1


@overload(plus_one)
def _plus_one(a):
    return lambda a: a + 1


@lower_builtin(plus_one, types.Boolean)
def _lower(context, builder, signature, arguments):
    return arguments[0]


if compiles_for_others():
    raise ImportError("a library is missing")
