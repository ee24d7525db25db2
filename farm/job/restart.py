"""Whether a function's Python body may be given up half way and the call done again from its beginning.

It may if all that the body can change is the content of its own arguments: then a copy of those is enough to make it
undone. The answer is careful: what is not known to be pure is not restartable, and what may be written to counts as
written to. It holds for arguments that are numbers, texts, arrays, records, and tuples, lists, sets and dictionaries
(numba's typed ones too) of those. Objects with methods of their own (jitclasses) must not be passed.

A body is followed by `farm.job.follow`; here is what it calls: other functions are followed in turn, and recursive
ones until their summaries agree.
"""

import builtins
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

import numpy

from farm.job import pure
from farm.job.differs import member as member_of
from farm.job.follow import Body
from farm.job.objects import ANY, OTHER, PLAIN, SLICE, Inner, Known, Object, Outside, Parameters, Root, Summary
from farm.port import describe
from farm.port.dispatch import HookedDispatcher
from farm.port.flow import Kind, flow_of, is_vectorized

ROUNDS_MAX: Final = 20
"""A guess: recursive functions seen agree after two."""

HAS_STAR, HAS_DOUBLE_STAR = 4, 8
PLAIN_VALUES: Final = (
    *(type(None), bool, int, float, complex, str, bytes, range, slice, frozenset, type(Ellipsis)),
    *(numpy.bool_, numpy.number, numpy.str_, numpy.bytes_, numpy.datetime64, numpy.timedelta64, numpy.dtype, Enum),
)
NUMBERS: Final = (bool, int, float, complex, str, bytes, numpy.bool_, numpy.number)
INTEGERS: Final = (int, numpy.integer)
DIMENSIONS_MAX: Final = 64
"""numpy's limit."""


@dataclass(frozen=True, slots=True)
class Restart:
    """What may be done with a function's Python body.

    Parameters
    ----------
    reason
        None if a call may be given up and done again. Else a short text that says why not, for people.
    writes
        Positions in the signature (`*args` is one) of the parameters whose content the body may write to.
    unless
        Of those, (position, position of another, dimensions): written to only if the other's argument is neither a
        number nor an array of numbers of so many dimensions or fewer. After `x = a[0]` a step `x += 1` changes `a` if
        it has more than one; `b = a.copy()` and `b[0] += 1` changes what is in `a` if it is a list of arrays.
    loops
        False if there is no loop, comprehension or recursion in it or in what it calls: its time is bounded by its
        length, as operations on whole arrays run in C.
    codes
        Code objects that may run when the body runs: its own, nested ones, those of its callees.
    looping
        Of those, the code of functions that loop, or call what does.
    """

    reason: str | None
    writes: frozenset[int]
    loops: bool
    codes: frozenset[types.CodeType]
    unless: frozenset[tuple[int, int, int]] = frozenset()
    looping: frozenset[types.CodeType] = frozenset()

    def writes_to(self, arguments: tuple[object, ...]) -> frozenset[int]:
        """The positions that may be written to in a call with these arguments, one for each parameter."""
        always = self.writes - {position for position, _, _ in self.unless}
        return always | {one for one, other, most in self.unless if not _is_simple(arguments[other], most)}


def _is_simple(argument: object, dimensions: int) -> bool:
    if isinstance(argument, numpy.ndarray):
        return argument.ndim <= dimensions and argument.dtype.names is None
    return isinstance(argument, NUMBERS)


def restart_of(function: object) -> Restart:
    """The answer for a Python function or a dispatcher. Milliseconds, so ask once; never raises."""
    body = _python_function(function)
    if body is None:
        return Restart("it is no Python function", frozenset(), True, frozenset())
    try:
        program = _Program()
        summary = program.settled(body)
        always = frozenset(one for one, only_if, fewer in summary.writes if only_if is None and fewer < 1)
        some = frozenset(
            (one, one, fewer) if only_if is None else (one, only_if, DIMENSIONS_MAX)
            for one, only_if, fewer in summary.writes
            if one not in always
        )
        writes = always | {position for position, _, _ in some}
        reason = "yields" if summary.yields else summary.reason
        looping = frozenset(one.__code__ for one, found in program.done.items() if found.loops)
        return Restart(reason and f"it {reason}", writes, summary.loops, summary.codes, some, looping)
    except Exception as error:  # what globals hold answers as it likes, and whatever fails here is not restartable
        codes = frozenset(describe.nested_code(body.__code__))
        everything = frozenset(range(len(parameters_of(body.__code__).names)))
        return Restart(f"it cannot be followed ({type(error).__name__})", everything, True, codes)


def _python_function(function: Any) -> types.FunctionType | None:
    try:
        body = getattr(function, "py_func", function)
    except Exception:  # some objects answer no question
        return None
    return body if type(body) is types.FunctionType else None


def parameters_of(code: types.CodeType) -> Parameters:
    """Names in the order of the signature."""
    names, plain, keyword = code.co_varnames, code.co_argcount, code.co_kwonlyargcount
    has_star = bool(code.co_flags & HAS_STAR)
    star = names[plain + keyword : plain + keyword + has_star]
    double = names[plain + keyword + has_star :][:1] if code.co_flags & HAS_DOUBLE_STAR else ()
    ordered = (*names[:plain], *star, *names[plain : plain + keyword], *double)
    return Parameters(ordered, plain if has_star else None)


class _Program:
    """The functions that are followed together, and the objects that stand for what their globals hold."""

    def __init__(self) -> None:
        self.known: dict[int, Known] = {}
        self.done: dict[types.FunctionType, Summary] = {}
        self.before: dict[types.FunctionType, Summary] = {}
        self.active: set[types.FunctionType] = set()
        self.inners: dict[object, Summary] = {}
        self.is_recursive = False

    def settled(self, function: types.FunctionType) -> Summary:
        """The function's summary, and those of what it calls, until they agree with what was assumed of them."""
        for _ in range(ROUNDS_MAX):
            self.done, self.inners = {}, {}
            found = self._summary(function)
            if not self.is_recursive or self.done == self.before:
                return found
            self.before = self.done
        raise RecursionError("its recursion does not settle")

    def _summary(self, function: types.FunctionType) -> Summary:
        if function in self.active:
            self.is_recursive = True
            assumed = self.before.get(function, Summary())
            return replace(assumed, reason=None, loops=True)
        if function not in self.done:
            self.active.add(function)
            try:
                self.done[function] = self._followed(function)
            finally:
                self.active.discard(function)
        return self.done[function]

    def _followed(self, function: types.FunctionType) -> Summary:
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

        def names(kind: Kind, name: str) -> Iterable[Object]:
            if kind is Kind.GLOBAL:
                return (self._global(function, name),)
            try:
                return (self.object_of(cells[name].cell_contents, name),)
            except ValueError:  # an empty cell
                return ()

        return self._body(function.__code__, function.__globals__, names, self._defaults(function))

    def _defaults(self, function: types.FunctionType) -> dict[int, tuple[Object, ...]]:
        """Default values that can be written to: they are there for all calls."""
        names = parameters_of(function.__code__).names
        values = function.__defaults__ or ()
        given = dict(
            zip(function.__code__.co_varnames[function.__code__.co_argcount - len(values) :], values, strict=False)
        )
        given |= function.__kwdefaults__ or {}
        found = {names.index(name): self.object_of(value, name) for name, value in given.items()}
        where = {place: Outside(f"the default value of {names[place]}") for place in found}
        return {place: (where[place],) for place, one in found.items() if isinstance(one, Outside)}

    def _body(
        self,
        code: types.CodeType,
        scope: Mapping[str, object],
        names: Callable[[Kind, str], Iterable[Object]],
        defaults: Mapping[int, Iterable[Object]],
    ) -> Summary:
        codes = frozenset(describe.nested_code(code))
        flow, parameters = flow_of(code), parameters_of(code)
        reason = None if flow.sets_outside is None else f"sets the variable {flow.sets_outside} of an outer scope"
        if flow.refused is not None:
            writes = frozenset((position, None, ANY) for position in range(len(parameters.names)))
            return Summary(reason or f"cannot be read by numba ({flow.refused})", writes, loops=True, codes=codes)
        for handler in flow.handlers:
            reason = reason or _stops_too_much(handler, scope)
        found = Body(flow, parameters, scope, names, defaults, self).solve()
        reason = reason or found.reason
        return replace(found, reason=reason, codes=found.codes | codes)

    # -- what bodies ask ------------------------------------------------------------------------------

    def object_of(self, value: object, label: str) -> Object:
        """Numbers and the like are all one; functions, classes, modules and tuples are known; the rest can change."""
        if isinstance(value, PLAIN_VALUES):
            if isinstance(value, slice):
                return SLICE
            return PLAIN if isinstance(value, INTEGERS) else OTHER
        followed = (types.ModuleType, type, tuple, staticmethod, classmethod)
        if callable(value) or isinstance(value, followed) or ".random" in describe.home(type(value)):
            if id(value) not in self.known:
                self.known[id(value)] = Known(value, label)
            return self.known[id(value)]
        return Outside(f"the global {label}")

    def _global(self, function: types.FunctionType, name: str) -> Object:
        scope = function.__globals__
        if name in scope:
            return self.object_of(scope[name], name)
        found = vars(builtins).get(name, self)
        return Outside(f"the missing global {name}") if found is self else self.object_of(found, name)

    def member(self, known: Known, name: str) -> Object | None:
        """What a module or class holds; of an enumeration its members."""
        if not isinstance(known.value, (types.ModuleType, type)):
            return None
        if isinstance(known.value, type) and issubclass(known.value, Enum):
            return PLAIN if name in known.value.__members__ else None
        found = member_of(known.value, name)
        if isinstance(found, staticmethod):
            found = found.__func__
        return None if found is None else self.object_of(found, f"{known.label}.{name}")

    def called(self, known: Known) -> tuple[Summary, Parameters] | str | None:
        """See Callees."""
        value, label = known.value, known.label
        if pure.draws_random_numbers(value):
            return f"draws random numbers ({label})"
        if describe.home(getattr(value, "__func__", value)).startswith("numba.typed"):
            return f"makes a typed container ({label}), whose operations numba compiles in the calling thread"
        if isinstance(value, HookedDispatcher):
            if callable(getattr(value, "fallback", None)):
                return f"calls {label}, which has a fallback of its own"
            return self._of_function(value.py_func)
        if isinstance(value, describe.BY_NAME_ONLY) or is_vectorized(value) or describe.dispatcher_parts(value):
            return f"calls {label}, which numba compiles in the calling thread"
        if value is print:
            return "calls print"
        if not isinstance(value, types.FunctionType) or _is_librarys(value):
            return None
        return self._of_function(value)

    def _of_function(self, function: Any) -> tuple[Summary, Parameters] | str | None:
        if not isinstance(function, types.FunctionType):
            return None
        return self._summary(function), parameters_of(function.__code__)

    def inner(self, inner: Inner, captured: Mapping[str, frozenset[Object]]) -> tuple[Summary, Parameters]:
        """See Callees. What is captured counts as further parameters, but for functions and numbers."""
        code = inner.statement.detail
        parameters = parameters_of(code)
        key = (inner, tuple(captured.items()))
        if key in self.inners:
            return self.inners[key], parameters

        def names(kind: Kind, name: str) -> Iterable[Object]:
            if kind is Kind.GLOBAL:
                outer: Iterable[Object] = inner.owner.names(kind, name)
                return outer
            place = Root(len(parameters.names) + code.co_freevars.index(name))
            return {
                one if one in (PLAIN, SLICE, OTHER) or isinstance(one, (Known, Inner, Outside)) else place
                for one in captured[name]
            }

        self.inners[key] = Summary()  # if it captures itself
        self.inners[key] = self._body(code, inner.owner.scope, names, {})
        return self.inners[key], parameters


def _is_librarys(function: types.FunctionType) -> bool:
    """Whether it belongs to Python, numpy or numba: what they hold for us to call is listed."""
    return describe.home(function).partition(".")[0] in {"numba", "numpy", *sys.stdlib_module_names} - {"__main__"}


def _stops_too_much(handler: tuple[str, ...] | None, scope: Mapping[str, object]) -> str | None:
    """A switch is an exception of a class that derives from BaseException alone."""
    if handler is None:
        return "has a handler or a finally that may stop any exception"
    for name in handler:
        first, *attributes = name.split(".")
        found: Any = scope.get(first, vars(builtins).get(first))
        for attribute in attributes:
            found = member_of(found, attribute) if isinstance(found, (types.ModuleType, type)) else None
        if not (isinstance(found, type) and issubclass(found, Exception)):
            return f"has a handler for {name}"
    return None
