"""A module of the user that comes through in the process that calls, and not in a worker."""

from numba.core.compiler import Compiler

from farm.port.role import compiles_for_others


class Pipeline(Compiler):
    """It travels by name."""


if compiles_for_others():
    raise OSError("a licence server is not reached")
