"""Whether a function's Python body is the function: what it names that does not run, or means something else, there.

Tried, and no difference: prange, pndindex, literally, literal_unroll, objmode, typed containers, carray, stencils,
cfuncs, jitclasses, vectorised functions, register_jitable functions, and dispatchers, which run as themselves. So
functions of installed modules are not entered, and dispatchers only for what may be wrong although they run
compiled: one that reaches an intrinsic or an external function can return what holds inside machine code only. (An
array over its stack memory, from a function that is inlined in machine code: tried with numba-celltree, which gave
wrong cells.) A numba type that is called (`int32(x)`) converts, and out of range raises: machine arithmetic is
different there with or without a type.
"""

import dis
import functools
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy

from farm.port import describe
from farm.port.registry import Registration, registrations

LOADS_NAME: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"})
LOADS_ATTRIBUTE: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
PYTHON_CLASSES: Final = (int, float, complex, str, bytes, tuple, list, dict, set, range, numpy.ndarray, numpy.generic)

STATEMENT_ENDS: Final = ("STORE_", "POP_", "RETURN_")
Name = tuple[str, ...]
"""A global or a cell, and the attributes that are read from it one after the other."""


@dataclass(frozen=True, slots=True)
class Use:
    """A name in a body: whether it is called, and the call that was begun last before it."""

    name: Name
    called: bool
    within: Name | None


def differs_in_python(function: object, known: tuple[Registration, ...] | None = None) -> str | None:
    """A short text that names the object, or None if the body runs. Cheap, and never raises.

    `known` are the registrations of this process, if they were asked for already.
    """
    try:
        overloaded, attributes = _replacing(registrations() if known is None else known)
        for body in _bodies(getattr(function, "py_func", function)):
            for use in _uses(body.__code__):
                text = _difference(body, use, overloaded)
                if text is not None:
                    return text
            for code in describe.nested_code(body.__code__):
                for name in attributes & set(code.co_names):
                    return f"{name} is an attribute with an @overload"
        return _unsafe_callee(getattr(function, "py_func", function))
    except Exception:  # what globals hold answers as it likes; nothing known means that the body is run
        return None


def _replacing(known: tuple[Registration, ...]) -> tuple[dict[int, str], set[str]]:
    """The Python functions that an @overload replaces, by id, and the attributes that only machine code has."""
    functions = [one.python_function for one in known]
    overloaded = {id(one): f"{one.__module__}.{one.__qualname__}" for one in functions if one is not None}
    names = {one.attribute for one in known if one.attribute is not None}
    return overloaded, {name for name in names if not any(hasattr(cls, name) for cls in PYTHON_CLASSES)}


def _bodies(function: object) -> Iterator[types.FunctionType]:
    """The function and those that its body calls as Python, the user's own only."""
    waiting, seen = [function], set[int]()
    while waiting:
        body = waiting.pop()
        if not isinstance(body, types.FunctionType) or id(body) in seen:
            continue
        seen.add(id(body))
        yield body
        for use in _uses(body.__code__):
            waiting.extend(one for one in _members(_value(body, use.name)) if _is_users(one))


def _unsafe_callee(function: Any) -> str | None:
    """The intrinsic or external function that compiled callees of the function reach, if any."""
    waiting, seen = [(function, "")], set[int]()
    while waiting:
        body, callee = waiting.pop()
        if not isinstance(body, types.FunctionType) or id(body) in seen:
            continue
        seen.add(id(body))
        for use in _uses(body.__code__):
            for found in _members(_value(body, use.name)):
                name = ".".join(use.name)
                if describe.is_intrinsic(found) or describe.external_symbols(found):
                    return f"{name}, which {callee} reaches, makes sense in machine code only"
                inside = getattr(found, "py_func", None) if describe.dispatcher_parts(found) else found
                if inside is not found or _is_users(found) or (callee and _is_plain(found)):
                    waiting.append((inside, callee or (name if inside is not found else "")))
    return None


def _is_plain(found: object) -> bool:
    """A function that jitted code of a library calls and that is not of Python's, numpy's or numba's own."""
    top = describe.home(found).partition(".")[0]
    return isinstance(found, types.FunctionType) and top not in {"numba", "numpy", *sys.stdlib_module_names}


def _is_users(found: object) -> bool:
    return isinstance(found, types.FunctionType) and describe.distribution(found.__module__ or "") is None


def _members(found: object) -> tuple[object, ...]:
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)


def _difference(body: types.FunctionType, use: Use, overloaded: dict[int, str]) -> str | None:
    for found in _members(_value(body, use.name)):
        text = ".".join(use.name)
        if id(found) in overloaded:
            return f"{overloaded[id(found)]} has an @overload"
        if describe.is_intrinsic(found):
            return f"{text} is an intrinsic"
        if describe.external_symbols(found):
            return f"{text} is an ExternalFunction"
        if describe.type_classes(found) and not use.called and not _takes_types(body, use.within):
            return f"{text} is a numba type"
    return None


def _takes_types(body: types.FunctionType, name: Name | None) -> bool:
    """Whether a call is one of numba's own functions, as in `Dict.empty(types.int64, types.float64)`."""
    found = None if name is None else _value(body, name)
    return describe.home(getattr(found, "__func__", found)).partition(".")[0] == "numba"


def _value(body: types.FunctionType, name: Name) -> object:
    """What a name stands for, as far as it goes through modules and classes: other objects may answer with effects."""
    first, *attributes = name
    found: Any = body.__globals__.get(first)
    if first in body.__code__.co_freevars:
        cell = (body.__closure__ or ())[body.__code__.co_freevars.index(first)]
        try:
            found = cell.cell_contents
        except ValueError:  # an empty cell
            return None
    for attribute in attributes:
        if not isinstance(found, (types.ModuleType, type)):
            return None
        found = member(found, attribute)
    return found


def member(found: types.ModuleType | type, attribute: str) -> object:
    """What a module or a class holds under a name, or None. Only an installed module's own code may run for that."""
    lazy = attribute not in vars(found) and isinstance(found, types.ModuleType) and describe.installed(found)
    return getattr(found, attribute, None) if lazy else vars(found).get(attribute)


@functools.lru_cache(maxsize=4096)
def _uses(code: types.CodeType) -> tuple[Use, ...]:
    """The names that the code, and code nested in it, reads from globals and cells."""
    found: dict[Use, None] = {}
    for one in describe.nested_code(code):
        name: Name | None = None
        called, within = False, None
        instructions = describe.instructions(one)
        for place, instruction in enumerate(instructions):
            operation = instruction.opname
            # Later Pythons say at most loads that a call follows, and where they do not, the stack does.
            calls = operation == "LOAD_METHOD" or "NULL" in instruction.argrepr
            if operation in LOADS_ATTRIBUTE and name is not None:
                name, called = (*name, instruction.argval), called or calls
                continue
            if name is not None:
                called = called or _is_called(instructions[place:])
                found[Use(name, called, within)] = None
                within = name if called else within
                name = None
            if operation in LOADS_NAME:
                name, called = (instruction.argval,), calls
            elif operation in LOADS_ATTRIBUTE or operation.startswith(STATEMENT_ENDS):
                within = None  # the method of something else, or another statement
    return tuple(found)


def _is_called(following: tuple[dis.Instruction, ...]) -> bool:
    """Whether the value that was loaded just before these instructions is the one that the next call of it calls."""
    depth = 1  # of the value, counted from the top of the stack
    for instruction in following:
        if depth == _depth_of_callable(instruction):
            return True
        depth += dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
        if depth < 1 or instruction.opname.startswith("RETURN_"):
            return False
    return False


def _depth_of_callable(instruction: dis.Instruction) -> int | None:
    """Where a call instruction finds what it calls, counted from the top of the stack; None for other instructions.

    From Python's documentation of `dis`, per version: 3.13 has an empty slot above the callable, 3.11 two instructions.
    """
    count, slot = instruction.arg or 0, sys.version_info >= (3, 13)
    match instruction.opname:
        case "CALL_FUNCTION" | "PRECALL":
            return count + 1
        case "CALL_FUNCTION_KW":
            return count + 2
        case "CALL" if sys.version_info >= (3, 12):
            return count + 1 + slot
        case "CALL_KW":
            return count + 3
        case "CALL_FUNCTION_EX":
            return (count & 1) + 2 + slot
    return None
