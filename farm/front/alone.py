"""Bodies that run alone: the farm functions that they call run in Python too, without the farm in between.

A body that its own machine code may replace calls other farm functions, and itself. Each such call costs 1 to 2 us
through the farm, and asks for a compile that takes its processor from the one that all of it waits for and that
contains the callee anyway. So for a second the callees are parts of the body: it runs with globals and captured
variables in which they are plain Python functions. After that a callee in which something loops is a farm function
again, which is compiled and switched by itself; one in which nothing loops has nothing to win by that.

Only what would run in Python now and is pending nowhere is put in: what has machine code runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from types import CellType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final

from farm.config import CompileMode, Fallback
from farm.front.pending import Pending
from farm.front.switch import enters, passes
from farm.port.describe import nested_code

if TYPE_CHECKING:
    from farm.front.dispatcher import FarmDispatcher

ALONE_S: Final = 1.0
"""A guess. What takes longer to compile is worth a compile of its parts."""


def alone(dispatcher: FarmDispatcher, pending: Pending) -> FunctionType:
    """The dispatcher's Python function as it runs until this compile of it is there, or has failed.

    It is as good as the function itself only for a body that may be stopped: all that it calls is known then.
    """
    return _Bodies(dispatcher, pending.began + ALONE_S).function_of(dispatcher)


class _Bodies:
    """The functions that are put in, for one outermost body."""

    def __init__(self, outermost: FarmDispatcher, until: float) -> None:
        self._kind = type(outermost)
        self._outermost = outermost
        self._until = until
        self._functions: dict[FarmDispatcher, FunctionType] = {}

    def function_of(self, dispatcher: FarmDispatcher) -> FunctionType:
        known = self._functions.get(dispatcher)
        return self._made(dispatcher) if known is None else known

    def _made(self, dispatcher: FarmDispatcher) -> FunctionType:
        body: FunctionType = dispatcher.py_func
        names = {name for code in nested_code(body.__code__) for name in code.co_names}
        scope = {name: value for name in names if self._is_concerned(value := body.__globals__.get(name), names)}
        captured = body.__closure__ or ()
        taken = {place: one for place, one in enumerate(captured) if self._is_farms(_content(one))}
        if not scope and not taken:
            self._functions[dispatcher] = body
            return body
        cells = tuple(CellType() if place in taken else one for place, one in enumerate(captured))
        made = FunctionType(body.__code__, dict(body.__globals__), body.__name__, body.__defaults__, cells)
        made.__kwdefaults__, made.__qualname__ = body.__kwdefaults__, body.__qualname__
        self._functions[dispatcher] = made  # before what it calls, which may call it
        made.__globals__.update((name, self._put_in(value, names)) for name, value in scope.items())
        for place, one in taken.items():
            cells[place].cell_contents = self._put_in(one.cell_contents, names)
        return made

    def _is_concerned(self, value: object, names: set[str]) -> bool:
        """Whether it is a farm function, or a module that holds one under a name which the body reads."""
        if self._is_farms(value):
            return True
        return type(value) is ModuleType and any(self._is_farms(vars(value).get(name)) for name in names)

    def _put_in(self, value: Any, names: set[str]) -> Any:
        """What the body finds in the place of a farm function, or of a module with some."""
        if isinstance(value, ModuleType):
            stand_in = ModuleType(value.__name__)
            vars(stand_in).update(vars(value))
            held = {name: one for name in names if self._is_farms(one := vars(value).get(name))}
            vars(stand_in).update((name, self._put_in(one, names)) for name, one in held.items())
            return stand_in
        restart = self._outermost.restart
        if not self._runs_in_python(value, restart.codes):
            return value
        function = self.function_of(value)
        if value is self._outermost or value.py_func.__code__ not in restart.looping:
            return function
        return _for_a_while(function, value, self._until)

    def _is_farms(self, value: object) -> bool:
        return isinstance(value, self._kind)

    def _runs_in_python(self, dispatcher: FarmDispatcher, codes: frozenset[CodeType]) -> bool:
        """Whether calls would do nothing but run the body."""
        if dispatcher.declared or dispatcher.py_func.__code__ not in codes:  # declared types convert arguments
            return False
        if dispatcher is self._outermost:
            return True
        is_new = not dispatcher.overloads and not dispatcher.table.entries()
        kinds = (Fallback.AUTO, Fallback.PYTHON)
        return is_new and dispatcher.fallback_kind in kinds and dispatcher.mode_now is CompileMode.ASYNC


def _for_a_while(function: FunctionType, dispatcher: Callable[..., Any], until: float) -> Callable[..., Any]:
    """The function, and from `until` on the dispatcher."""

    def part(*arguments: Any, **named: Any) -> Any:
        return (function if monotonic() < until else dispatcher)(*arguments, **named)

    return part


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # nothing is in it yet
        return None


_PARTS: Final = (_for_a_while(_content, print, 0.0),)  # type: ignore[arg-type]
passes(_PARTS)
enters(_PARTS)
