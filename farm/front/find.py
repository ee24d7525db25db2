"""Find: a function by `module:name`, with its module imported, and what a script defines.

Whoever asks has enabled the farm for numba's decorators before, and has switched its compiling off if nothing is to
be compiled. (What waits for its machine code while it is imported compiles it here then, as it does in a program whose
farm is off.)

A script is run as `__main__`, so that its functions are those that it has when it is run itself; what it does under
`if __name__ == "__main__"` is left out.
"""

import ast
import importlib
import os
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from farm.errors import told
from farm.front.dispatcher import FarmDispatcher

MAIN: Final = "__main__"


class NotFound(LookupError):
    """There is no such function, or none that the farm compiles: the text says why."""


def find(name: str) -> FarmDispatcher:
    """The function that `module:qualname` names. Raises NotFound."""
    home, colon, qualname = name.partition(":")
    if not colon or not home or not qualname:
        raise NotFound(f"{name!r} names no function: write module:function, as in mypackage.kernels:score")
    found: Any = _module(home)
    for part in qualname.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise NotFound(f"module {home} has no {qualname}")
    if isinstance(found, FarmDispatcher):
        return found
    what = (
        "is numba's own: it was decorated before the farm was there" if hasattr(found, "py_func") else "is not jitted"
    )
    raise NotFound(f"{name} {what}")


def _module(name: str) -> types.ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:  # its body is the user's, and raises what it likes
        raise NotFound(f"module {name} cannot be imported: {told(error)}") from error
    except SystemExit as error:
        raise NotFound(f"module {name} ends the program while it is imported: sys.exit({error.code})") from error


@contextmanager
def as_main(script: Path) -> Iterator[None]:
    """For the block, `__main__` is what this script defines. Raises NotFound if it cannot be read, or fails."""
    module = types.ModuleType(MAIN)
    module.__file__ = str(script)
    before, path, arguments = sys.modules.get(MAIN), list(sys.path), list(sys.argv)
    sys.modules[MAIN] = module
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    sys.argv = [str(script)]
    try:
        try:
            tree = ast.parse(script.read_bytes(), str(script))
            tree.body = [one for one in tree.body if not _is_guard(one)]
            exec(compile(tree, str(script), "exec", dont_inherit=True), vars(module))
        except Exception as error:
            raise NotFound(f"{script} cannot be run: {told(error)}") from error
        except SystemExit as error:
            raise NotFound(f"{script} ends itself: sys.exit({error.code})") from error
        yield
    finally:
        sys.argv = arguments
        sys.path[:] = path
        if before is not None:
            sys.modules[MAIN] = before


def _is_guard(statement: ast.stmt) -> bool:
    """Whether this is an `if __name__ == "__main__":` without an else."""
    if not isinstance(statement, ast.If) or statement.orelse or not isinstance(statement.test, ast.Compare):
        return False
    sides = [statement.test.left, *statement.test.comparators]
    names = [side.id for side in sides if isinstance(side, ast.Name)]
    texts = [side.value for side in sides if isinstance(side, ast.Constant)]
    return names == ["__name__"] and texts == [MAIN] and isinstance(statement.test.ops[0], ast.Eq)
