"""Running a program's main module to see what it defines, as multiprocessing does in a child that it spawns.

The module has another `__name__` while it runs, so that `if __name__ == "__main__":` keeps the program from starting.
Afterwards it is `__main__`, for the block: then its functions and classes have the keys that they have in the program.
"""

import importlib.util
import os
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farm.errors import FarmError, told
from farm.port.failure import headline
from farm.port.naming import CHILD, PROGRAM, take_for_program


class ProgramError(FarmError):
    """The main module of a program cannot be run."""

    def __init__(self, program: str, problem: str) -> None:
        super().__init__(program, problem)
        self.program, self.problem = program, problem

    def __str__(self) -> str:
        return f"{self.program}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Program:
    """A script by its path, or a module as `python -m` runs it."""

    script: Path | None = None
    module: str | None = None

    @property
    def name(self) -> str:
        """As a manifest names it."""
        return f"-m {self.module}" if self.script is None else self.script.name

    def _found(self) -> tuple[str, Any, Any]:
        """(file, spec or None, code)."""
        if self.script is not None:
            path = self.script.absolute()
            return str(path), None, compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        assert self.module is not None
        spec = importlib.util.find_spec(self.module)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{self.module}.__main__")
        code = getattr(spec.loader, "get_code", lambda _: None)(spec.name) if spec is not None else None
        if spec is None or code is None:
            raise ProgramError(self.name, "there is no such module, or it cannot be run")
        return str(spec.origin), spec, code


@contextmanager
def as_main(program: Program) -> Iterator[None]:
    """Inside, `__main__` is the program's, as it is there. Raises ProgramError for what the module raises."""
    before = {name: sys.modules.get(name) for name in (PROGRAM, CHILD)}
    argv, path = sys.argv, list(sys.path)
    sys.path.insert(0, os.getcwd() if program.script is None else str(program.script.resolve().parent))
    try:
        _run(program)
        yield
    finally:
        sys.argv, sys.path[:] = argv, path
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module


def _run(program: Program) -> None:
    try:
        file, spec, code = program._found()
    except (OSError, SyntaxError, ValueError, ImportError) as error:
        raise ProgramError(program.name, f"it cannot be read: {told(error)}") from None
    main = types.ModuleType(CHILD)
    package = None if spec is None else spec.parent
    vars(main).update(__file__=file, __spec__=spec, __package__=package, __cached__=None)
    sys.modules[PROGRAM] = sys.modules[CHILD] = main
    sys.argv = [file]
    try:
        exec(code, vars(main))
    except SystemExit:  # a program without a guard, which has come to its end
        pass
    except Exception as error:
        raise ProgramError(program.name, f"running its main module ended in {headline(error)}") from error
    take_for_program(main)
