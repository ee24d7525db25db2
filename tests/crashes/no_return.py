"""A module of the user that ends the worker that imports it."""

import os

from numba.core.compiler import Compiler

from farm.port.role import compiles_for_others


class Pipeline(Compiler):
    """It travels by name."""


if compiles_for_others():
    os._exit(4)
