"""What a function's bytecode does, as numba reads it: plain statements over named variables.

numba's interpreter turns bytecode of every supported Python into one small language. That language is handed out here
without any of numba's objects, so that `farm.job.restart` can follow values through it. A reading depends on the code
object alone: what globals and captured variables hold is looked up by whoever asks. It is kept for each code object,
as reading costs about 45 us an instruction (measured), all of it numba's.

Handlers are read from the bytecode itself, because numba's statements do not say which exceptions Python would stop.
"""

import dis
import functools
import types
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from numba.core import bytecode, interpreter, ir
from numba.np.ufunc.dufunc import DUFunc
from numba.np.ufunc.gufunc import GUFunc

MARKERS: Final = frozenset({"mark_try_block", "end_try_block", "exception_check", "exception_match"})
"""What numba puts in where a `try` begins and ends."""

NAMES_SET_OUTSIDE: Final = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_NAME", "DELETE_NAME"})
CLEANING: Final = frozenset(
    {"COPY", "SWAP", "POP_TOP", "POP_EXCEPT", "ROT_FOUR", "LOAD_CONST", "STORE_FAST", "STORE_DEREF", "DELETE_FAST"}
    | {"NOP", "CACHE", "END_FOR", "CALL_INTRINSIC_1", "RERAISE", "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST"}
    | {"POP_BLOCK"}
)
MATCH_JUMPS: Final = ("POP_JUMP_IF_FALSE", "POP_JUMP_FORWARD_IF_FALSE", "JUMP_IF_NOT_EXC_MATCH")
MATCHES_MAX: Final = 20


class Kind(Enum):
    """What a statement does. `inputs` are variables, `detail` is named where there is one."""

    PARAMETER = "target = the parameter number `detail`"
    CONSTANT = "target = `detail`"
    GLOBAL = "target = the global called `detail`"
    CAPTURED = "target = the captured variable called `detail`"
    FRESH = "target = a number, or something else that holds no other value"
    ALIAS = "target = the input itself, or an iterator over it"
    ELEMENT = "target = inputs[0][inputs[1:]]; with `detail`, the one number `detail` as index or the next element"
    ATTRIBUTE = "target = the attribute `detail` of the input"
    BUILD = "target = a new tuple, list, set or dictionary of the inputs"
    UNARY = "target = the operator `detail` of the input"
    BINARY = "target = the operator `detail` of both inputs"
    INPLACE = "target = inputs[0] `detail`= inputs[1]"
    SET_ITEM = "inputs[0][...] = inputs[1]"
    SET_ATTRIBUTE = "inputs[0].detail = inputs[1]"
    DELETE_ITEM = "del inputs[0][...]"
    CALL = "target = inputs[0](...), `detail` are the arguments"
    FUNCTION = "target = a function with the code `detail` that captures the inputs"
    RETURN = "return the input"
    RAISE = "raise the inputs"
    YIELD = "target = what comes back for the input"
    WITH = "a with block begins"


@dataclass(frozen=True, slots=True)
class Arguments:
    """How a call passes its arguments: names of variables."""

    positional: tuple[str, ...]
    keywords: tuple[tuple[str, str], ...] = ()
    stars: tuple[str, ...] = ()

    def all(self) -> tuple[str, ...]:
        return (*self.positional, *(name for _, name in self.keywords), *self.stars)


@dataclass(frozen=True, slots=True)
class Statement:
    """One step of a function: see Kind."""

    kind: Kind
    target: str | None
    inputs: tuple[str, ...]
    detail: Any = None


@dataclass(frozen=True, slots=True)
class Flow:
    """What one code object does.

    Parameters
    ----------
    refused
        Why numba cannot read it, in one line; None if it can. There are no statements then.
    handlers
        For each handler the names of the exceptions that it stops, dotted; None where it may stop any.
    sets_outside
        A variable of a module or of an enclosing function that the code sets, or None.
    """

    refused: str | None
    statements: tuple[Statement, ...] = ()
    loops: bool = False
    handlers: tuple[tuple[str, ...] | None, ...] = ()
    sets_outside: str | None = None


@functools.lru_cache(maxsize=1024)
def flow_of(code: types.CodeType) -> Flow:
    """numba's reading of a code object, made once. Never raises."""
    outside = _sets_outside(code)
    try:
        function = types.FunctionType(
            code, {}, code.co_name, None, tuple(types.CellType(None) for _ in code.co_freevars)
        )
        identity = bytecode.FunctionIdentity.from_function(function)
        blocks = interpreter.Interpreter(identity).interpret(bytecode.ByteCode(identity)).blocks
        statements = _Reading(blocks).statements
        return Flow(None, statements, _loops(blocks), tuple(_handlers(code)), outside)
    except Exception as error:  # numba refuses in many ways, and some are plain failures of its own
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        refused = (lines or [type(error).__name__])[0].split(" Raised from")[0].rstrip(". ")
        return Flow(refused, sets_outside=outside)


def is_vectorized(value: object) -> bool:
    """Whether the value is a ufunc that numba compiles when it is called with new types."""
    return isinstance(value, (DUFunc, GUFunc))


class _Reading:
    """Goes over numba's blocks once and writes down what they do."""

    def __init__(self, blocks: dict[int, Any]) -> None:
        self.found: list[Statement] = []
        self.built: dict[str, list[tuple[str, ...] | None]] = {}
        for block in blocks.values():
            for one in block.body:
                if isinstance(one, ir.Assign):
                    value = one.value
                    is_tuple = isinstance(value, ir.Expr) and value.op == "build_tuple"
                    items = tuple(item.name for item in value.items) if is_tuple else None
                    self.built.setdefault(one.target.name, []).append(items)
        for block in blocks.values():
            for one in block.body:
                self._statement(one)
        self.statements = tuple(self.found)

    def _add(self, kind: Kind, target: str | None, *inputs: Any, detail: Any = None) -> None:
        self.found.append(Statement(kind, target, tuple(one.name for one in inputs), detail))

    def _statement(self, one: Any) -> None:
        match one:
            case ir.Assign():
                self._assign(one.target.name, one.value)
            case ir.SetItem():
                self._add(Kind.SET_ITEM, None, one.target, one.value)
            case ir.StaticSetItem():
                self._add(Kind.SET_ITEM, None, one.target, one.value)
            case ir.StoreMap():
                self._add(Kind.SET_ITEM, None, one.dct, one.value)
                self._add(Kind.SET_ITEM, None, one.dct, one.key)
            case ir.SetAttr():
                self._add(Kind.SET_ATTRIBUTE, None, one.target, one.value, detail=one.attr)
            case ir.DelAttr():
                self._add(Kind.SET_ATTRIBUTE, None, one.target, one.target, detail=one.attr)
            case ir.DelItem():
                self._add(Kind.DELETE_ITEM, None, one.target)
            case ir.Return():
                self._add(Kind.RETURN, None, one.value)
            case ir.EnterWith():
                self._add(Kind.WITH, None)
            case ir.Raise() | ir.TryRaise():
                self._add(Kind.RAISE, None, *([] if one.exception is None else [one.exception]))
            case ir.Del() | ir.Jump() | ir.Branch() | ir.PopBlock() | ir.StaticRaise() | ir.StaticTryRaise():
                pass
            case _:
                raise NotImplementedError(f"a statement {type(one).__name__}")

    def _assign(self, target: str, value: Any) -> None:
        match value:
            case ir.Arg():
                self._add(Kind.PARAMETER, target, detail=value.index)
            case ir.Const():
                self._add(Kind.CONSTANT, target, detail=value.value)
            case ir.Global() if value.name in MARKERS and value.value is not ir.UNDEFINED:
                self._add(Kind.CONSTANT, target, detail=bool)  # calls of it do nothing either
            case ir.Global():
                self._add(Kind.GLOBAL, target, detail=value.name)
            case ir.FreeVar():
                self._add(Kind.CAPTURED, target, detail=value.name)
            case ir.Var():
                self._add(Kind.ALIAS, target, value)
            case ir.Yield():
                self._add(Kind.YIELD, target, value.value)
            case ir.Expr():
                self._expression(target, value)
            case _:
                raise NotImplementedError(f"a value {type(value).__name__}")

    def _expression(self, target: str, value: Any) -> None:
        match value.op:
            case "cast" | "getiter" | "pair_first" | "exhaust_iter":
                self._add(Kind.ALIAS, target, value.value)
            case "iternext":
                self._add(Kind.ELEMENT, target, value.value, detail=0)
            case "static_getitem" if isinstance(value.index, int):
                self._add(Kind.ELEMENT, target, value.value, detail=value.index)
            case "getitem" | "static_getitem" | "typed_getitem":
                index = value.index if isinstance(value.index, ir.Var) else value.index_var
                items = self.built.get(index.name, [])
                names = items[0] if len(items) == 1 and items[0] is not None else (index.name,)
                self.found.append(Statement(Kind.ELEMENT, target, (value.value.name, *names)))
            case "getattr":
                self._add(Kind.ATTRIBUTE, target, value.value, detail=value.attr)
            case "build_tuple" | "build_list" | "build_set":
                self._add(Kind.BUILD, target, *value.items)
            case "build_map":
                self._add(Kind.BUILD, target, *(one for pair in value.items for one in pair))
            case "binop":
                self._add(Kind.BINARY, target, value.lhs, value.rhs, detail=value.fn)
            case "inplace_binop":
                self._add(Kind.INPLACE, target, value.lhs, value.rhs, detail=value.fn)
            case "unary":
                self._add(Kind.UNARY, target, value.value, detail=value.fn)
            case "call":
                self._call(target, value)
            case "make_function":
                self._function(target, value)
            case "phi":
                self._add(Kind.BUILD, target, *value.incoming_values)  # numba's interpreter makes none
            case "pair_second" | "null" | "undef":
                self._add(Kind.FRESH, target)
            case _:
                raise NotImplementedError(f"an expression {value.op}")

    def _call(self, target: str, value: Any) -> None:
        stars = tuple(one.name for one in (value.vararg, value.varkwarg) if one is not None)
        keywords = tuple((name, one.name) for name, one in value.kws)
        arguments = Arguments(tuple(one.name for one in value.args), keywords, stars)
        self._add(Kind.CALL, target, value.func, detail=arguments)

    def _function(self, target: str, value: Any) -> None:
        captured: tuple[str, ...] = ()
        if value.code.co_freevars:
            cells = self.built.get(value.closure.name, [])
            if len(cells) != 1 or cells[0] is None or len(cells[0]) != len(value.code.co_freevars):
                raise NotImplementedError("a function whose captured variables cannot be told")
            captured = cells[0]
        defaults = value.defaults or ()
        names = tuple(one.name for one in (defaults if isinstance(defaults, (tuple, list)) else (defaults,)))
        if len(names) == 1 and len(items := self.built.get(names[0], [])) == 1 and items[0] is not None:
            names = items[0]
        self.found.append(Statement(Kind.FUNCTION, target, (*captured, *names), value.code))


def _loops(blocks: dict[int, Any]) -> bool:
    """Whether a block can be reached from itself."""
    state: dict[int, bool] = {}
    for first in blocks:
        stack = [(first, iter(_targets(blocks[first])))] if first not in state else []
        state.setdefault(first, True)
        while stack:
            label, following = stack[-1]
            successor = next(following, None)
            if successor is None:
                state[label] = False
                stack.pop()
            elif state.get(successor):
                return True
            elif successor not in state:
                state[successor] = True
                stack.append((successor, iter(_targets(blocks[successor]))))
    return False


def _targets(block: Any) -> list[int]:
    return list(block.terminator.get_targets())


def _sets_outside(code: types.CodeType) -> str | None:
    for one in dis.get_instructions(code):
        captured = one.opname in {"STORE_DEREF", "DELETE_DEREF"} and one.argval in code.co_freevars
        if captured or one.opname in NAMES_SET_OUTSIDE:
            return str(one.argval)
    return None


def _handlers(code: types.CodeType) -> Iterator[tuple[str, ...] | None]:
    """What each handler stops: dotted names, nothing where it only tidies up, None where it may be anything."""
    instructions = [one for one in dis.get_instructions(code) if one.opname not in {"EXTENDED_ARG", "CACHE"}]
    places = {one.offset: place for place, one in enumerate(instructions)}
    for target in sorted(_handler_targets(code, instructions)):
        place = places.get(target)
        yield None if place is None else _stopped(instructions, places, place)


def _handler_targets(code: types.CodeType, instructions: list[dis.Instruction]) -> set[int]:
    if hasattr(code, "co_exceptiontable"):
        return {entry.target for entry in getattr(dis.Bytecode(code), "exception_entries", ())}
    begins = {"SETUP_FINALLY", "SETUP_WITH", "SETUP_ASYNC_WITH"}
    return {one.argval for one in instructions if one.opname in begins}


def _stopped(instructions: list[dis.Instruction], places: dict[int, int], place: int) -> tuple[str, ...] | None:
    """Follows a handler from one comparison to the next, until the exception goes on."""
    names: list[str] = []
    for _ in range(MATCHES_MAX):
        while instructions[place].opname in {"PUSH_EXC_INFO", "DUP_TOP", "NOP", "NOT_TAKEN"}:
            place += 1
        if _goes_on(instructions, place):
            return tuple(names)
        if instructions[place].opname != "LOAD_GLOBAL":
            return None
        name = str(instructions[place].argval)
        place += 1
        while instructions[place].opname == "LOAD_ATTR":
            name, place = f"{name}.{instructions[place].argval}", place + 1
        if instructions[place].opname == "CHECK_EXC_MATCH":
            place += 1
        if instructions[place].opname not in MATCH_JUMPS:
            return None
        names.append(name)
        place = places.get(int(instructions[place].argval), len(instructions) - 1)
    return None


def _goes_on(instructions: list[dis.Instruction], place: int) -> bool:
    """Whether the exception is raised again without a decision and without a call: tidying up, or no match."""
    for one in instructions[place:]:
        if one.opname == "RERAISE":
            return True
        if one.opname not in CLEANING:
            return False
    return False
