"""Positions in the tracebacks of exceptions that machine code raises: an offset into a function, not a file and a line.

A key has no positions, or a blank line above a function would miss. numba freezes (function name, file, line) beside
each exception. The worker freezes a Place instead: which code object, found by its content, and which bytecode offset
in it. The process that raises turns it into the file and line that its own copy of the function has there: equal keys
mean equal bytecode. A function that is not known there keeps the position it was compiled at.

Both kinds of exception come through: numba unpickles a constant one once (`_numba_unpickle`), one with runtime
arguments at every raise (`runtime_build_excinfo_struct`).
"""

import hashlib
import types
import weakref
from dataclasses import dataclass
from typing import Any, Final

from numba.core.callconv import CPUCallConv

from farm.port.describe import nested_code, operations

Position = tuple[str, str, int]
"""(function name, file, line), as numba's C code wants it."""

# The latest code object of each content that this process has captured. Each operation is one step.
_here: "weakref.WeakValueDictionary[str, types.CodeType]" = weakref.WeakValueDictionary()
# In a worker: what lies at a (file, line) of the job's functions. Only the thread that does the job touches it.
_sites: "dict[tuple[str, int], Place]" = {}


@dataclass(frozen=True, slots=True)
class Place:
    """A position as it is frozen: code object by content, which of the codes nested in it, offset; and as compiled."""

    content: str
    part: int
    offset: int
    compiled_at: Position

    def __reduce__(self) -> tuple[Any, ...]:
        return locate, (self.content, self.part, self.offset, self.compiled_at)


def remember(code: types.CodeType) -> None:
    """In the front: positions in this function are from now on those of this code object."""
    _here[_content(code)] = code


def begin_job() -> None:
    """In the worker: forget the functions of the last job, and make sure that numba freezes places."""
    _sites.clear()
    if CPUCallConv.build_excinfo_struct is not _build_excinfo_struct:
        CPUCallConv.build_excinfo_struct = _build_excinfo_struct


def index(code: types.CodeType) -> None:
    """In the worker: positions in this function can be frozen as places."""
    content = _content(code)
    for part, one in enumerate(nested_code(code)):
        for offset, _, line in one.co_lines():
            if line is not None:
                compiled_at = (_name(code, one), one.co_filename, line)
                _sites.setdefault((one.co_filename, line), Place(content, part, offset, compiled_at))


def locate(content: str, part: int, offset: int, compiled_at: Position) -> Position:
    """Where a place is in this process: unpickling calls it."""
    code = _here.get(content)
    if code is None:
        return compiled_at
    nested = list(nested_code(code))[part]
    for start, end, line in nested.co_lines():
        if start <= offset < end and line is not None:
            return _name(code, nested), nested.co_filename, line
    return compiled_at


def _name(code: types.CodeType, nested: types.CodeType) -> str:
    """The function's name: that of a def, not of a comprehension in it."""
    return code.co_name if nested.co_name.startswith("<") else nested.co_name


def _content(code: types.CodeType) -> str:
    """A digest of a code object without positions and docstrings."""
    whole = hashlib.sha256()
    for one in nested_code(code):
        code_bytes, numbers, constants = operations(one)
        plain = [value for value in constants if isinstance(value, (int, float, str))]
        names = (one.co_names, one.co_varnames, one.co_freevars, one.co_cellvars)
        whole.update(repr((one.co_name, code_bytes, numbers, names, plain)).encode(errors="surrogatepass"))
    return whole.hexdigest()[:32]


_numbas_build: Final = CPUCallConv.build_excinfo_struct


def _build_excinfo_struct(self: Any, exc: Any, exc_args: Any, loc: Any, func_name: Any) -> tuple[Any, Any, Any]:
    exc, exc_args, position = _numbas_build(self, exc, exc_args, loc, func_name)
    if position is not None:
        position = _sites.get((loc.filename, loc.line), position)
    return exc, exc_args, position
