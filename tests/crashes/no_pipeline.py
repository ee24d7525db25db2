"""A module of the user that holds other names in a worker."""

from numba.core.compiler import Compiler

from farm.port.role import compiles_for_others


class Pipeline(Compiler):
    """It travels by name."""


if compiles_for_others():
    del Pipeline
