"""Compiler pipelines of the user that raise while a worker compiles: errors of the compile, and not numba's."""

from numba.core.compiler import Compiler

from farm.port.role import compiles_for_others


class PassFailed(Exception):
    pass


class Raising(Compiler):
    def define_pipelines(self):
        if compiles_for_others():
            raise PassFailed("a pass of the user failed", 7)
        return super().define_pipelines()


class RaisingLocally(Compiler):
    def define_pipelines(self):
        class Local(Exception):
            pass

        if compiles_for_others():
            raise Local("nobody can import my class")
        return super().define_pipelines()
