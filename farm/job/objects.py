"""What a body is followed with: the objects that its variables may hold, and the summary that its callers get.

Objects of a caller are a `Root` for each parameter (with all that is in it), and `Outside` for mutable globals. What
the body makes itself is `Made`, one for each statement that makes a container, and `PLAIN` for all the rest.

Types are not known, so two things are kept apart that look alike: `a.copy()` and `a + b` hold what `a` held if that is
a list or a tuple, and nothing of it if it is an array. A Root has a condition for that.
"""

import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from farm.port.flow import Arguments, Statement

ANY: Final = -1
FEWER_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Root:
    """A parameter's object (fewer: 0), a part of it, or something inside it.

    `fewer` is how many integers it was indexed with, sliced or not: of an array with no more dimensions than that it
    is a number. ANY: it may be any part, in another shape. With `only_if` it is something inside, and there only if
    that parameter is a container of other objects.
    """

    position: int
    only_if: int | None = None
    fewer: int = 0

    @property
    def part(self) -> "Root":
        """Any part of it, in any shape."""
        return Root(self.position, self.only_if, ANY)

    def at(self, more: int) -> "Root":
        """What indexing it with so many integers gives."""
        if ANY in (more, self.fewer) or self.fewer + more > FEWER_MAX:
            return self.part
        return Root(self.position, self.only_if, self.fewer + more)


Write = tuple[int, int | None, int]
"""The fields of a Root that is written to."""


@dataclass(frozen=True, slots=True)
class Outside:
    """A mutable object that no argument holds: `where` says which, for people."""

    where: str


@dataclass(frozen=True, slots=True)
class Made:
    """A container that the statement of this number makes."""

    number: int


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A function, class, module, tuple or the like that a global holds; one for each object."""

    value: Any
    label: str


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of what a variable holds, or the method of that name."""

    variable: str
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Inner:
    """A function made inside a body."""

    owner: Any
    statement: Statement


Object = Root | Outside | Made | Known | Attribute | Inner
PLAIN: Final = Made(-1)
"""Numbers, and arrays that a body makes: no other object is inside them, and writing to them is free."""
SLICE: Final = Made(-2)
"""What keeps a dimension as an index. (Not `...`: with it an item is an array without dimensions, and a view.)"""
OTHER: Final = Made(-3)
"""Texts, None, and what else holds nothing and is no number."""
NOTHING: Final[frozenset[Any]] = frozenset()


@dataclass(frozen=True, slots=True)
class Summary:
    """What a caller must know of a function. Positions are those of parameters, captured variables come after them.

    Parameters
    ----------
    reason
        Why it cannot be done twice, as the rest of a sentence about it ("calls print"); or None.
    writes
        What its Roots are.
    returns
        Positions, and outside objects, of what it may return: that itself, or a part of it.
    makes
        Whether it may return a container of its own making.
    holds
        What may be in that.
    stored
        (position of a container, what may be put into it).
    loops
        Whether its time is not bounded by its length.
    codes
        Code objects that may run.
    yields
        Whether a call gives a generator. What it yields counts as held by what is returned.
    """

    reason: str | None = None
    writes: frozenset[Write] = NOTHING
    returns: frozenset[int | Outside] = NOTHING
    makes: bool = False
    holds: frozenset[int | Outside] = NOTHING
    stored: frozenset[tuple[int, int | Outside]] = NOTHING
    loops: bool = False
    codes: frozenset[types.CodeType] = NOTHING
    yields: bool = False


@dataclass(frozen=True, slots=True)
class Parameters:
    """Names of a function's parameters in order, and which of them takes the rest of the positional arguments."""

    names: tuple[str, ...]
    star: int | None


class Callees(Protocol):
    """What a body asks about objects from outside."""

    def object_of(self, value: object, label: str) -> Object:
        """The object that stands for a value."""

    def member(self, known: Known, name: str) -> Object | None:
        """What a module or class holds under a name; None for an attribute of anything else."""

    def called(self, known: Known) -> "tuple[Summary, Parameters] | str | None":
        """What calling a Python function or dispatcher does, or why it must not be called; None for other things."""

    def inner(self, inner: Inner, captured: Mapping[str, frozenset[Object]]) -> tuple[Summary, Parameters]:
        """The same for a function made inside a body."""


def given_to(arguments: Arguments, parameters: Parameters, values: Mapping[str, set[Object]]) -> dict[int, set[Object]]:
    """Which objects each parameter of a callee may get."""
    given: dict[int, set[Object]] = {}
    anywhere = [values[name] for name in arguments.stars]
    for place, name in enumerate(arguments.positional):
        star = parameters.star
        position = place if star is None or place < star else star
        if position < len(parameters.names):
            given.setdefault(position, set()).update(values[name])
    for keyword, name in arguments.keywords:
        if keyword in parameters.names:
            given.setdefault(parameters.names.index(keyword), set()).update(values[name])
        else:
            anywhere.append(values[name])
    for found in anywhere:
        for position in range(len(parameters.names)):
            given.setdefault(position, set()).update(found)
    return given


def may_hold(one: Object) -> bool:
    """Whether there may be other objects in this one: it may be a tuple or a list."""
    if isinstance(one, Known):
        return isinstance(one.value, tuple)
    return isinstance(one, (Root, Outside)) or (isinstance(one, Made) and one.number >= 0)
