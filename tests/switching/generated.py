"""Restartable functions that nobody wrote: source text from a seed, arguments for it, and what a run of it left.

All that such a function can change is the content of its arguments: views of two buffers, which overlap. The text is
Python that numba compiles too; leave out "slice from slice" to compare with it, as `c[2:6] -= c[0:4]` is another thing
in machine code than in numpy. A run is short: loops go round a few times and are at most two deep.

    case = generate(seed)
    function = case.make()                  compiled from the text, each time anew
    arguments = case.arguments()            views of new buffers, the same content each time
    left = arguments.run(function)          what it returned or raised, and what the buffers hold then
"""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final

import numpy as np

FLOATS: Final = ("a", "b", "c")
"""Overlapping views of one buffer, each of eight or more."""
INTS: Final = ("k", "l")
PARAMETERS: Final = (*FLOATS, "m", *INTS, "n", "x")
"""`m` has two dimensions and lies in the floats' buffer. `n` and `x` are numbers."""
LENGTH: Final = 8
ROWS, COLUMNS = 3, 4
MODULUS: Final = 997

FEATURES: Final = frozenset(
    {
        *("accumulation", "branch", "break", "callee that returns", "callee that writes", "comprehension"),
        *("continue", "element", "handler", "loop over an array", "local array", "nested loop", "early return"),
        *("range loop", "raise", "raise in a callee", "reduction", "returned copy", "returned tuple", "returned view"),
        *("slice from slice", "slice in place", "two dimensions", "view by name", "while loop", "whole array"),
    }
)
"""What may occur in a function."""


@dataclass(frozen=True)
class Generated:
    """The text of a function `f` and of its callees `g` and `h`."""

    seed: int
    source: str
    features: frozenset[str]

    def make(self) -> Callable[..., Any]:
        """The function, new each time, as are its callees. Tracebacks show its lines."""
        name = f"<generated {self.seed}>"
        linecache.cache[name] = (len(self.source), None, self.source.splitlines(keepends=True), name)
        namespace: dict[str, Any] = {"np": np, "__name__": "generated"}
        exec(compile(self.source, name, "exec"), namespace)
        function: Callable[..., Any] = namespace["f"]
        return function

    def arguments(self) -> Arguments:
        return Arguments(self.seed)


@dataclass(frozen=True)
class Left:
    """What a run left. Two runs on buffers of their own did the same if these are equal."""

    returned: Any
    """Views by their place in the buffers, everything else by its content."""
    raised: tuple[str, str] | None
    floats: bytes
    ints: bytes


class Arguments:
    """Two buffers and the views of them that are passed."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.floats: Final = np.array([chance.randint(-40, 40) / 4 for _ in range(24)])
        self.ints: Final = np.array([chance.randint(-9, 99) for _ in range(16)])
        step = chance.choice([1, 1, 2, -1])
        self.values: Final[tuple[Any, ...]] = (
            self.floats[: LENGTH + chance.randint(0, 4)],
            self.floats[chance.randint(2, 6) :][:LENGTH],
            self.floats[::step][: LENGTH + 2],
            self.floats[chance.randint(0, 8) :][: ROWS * COLUMNS].reshape(ROWS, COLUMNS),
            self.ints[: LENGTH + 2],
            self.ints[chance.randint(1, 8) :][:LENGTH],
            chance.randint(0, 9),
            chance.randint(-20, 20) / 4,
        )

    def run(self, function: Callable[..., Any]) -> Left:
        """Calls it. An exception of its own is part of what it left, any other comes out."""
        returned, raised = None, None
        try:
            returned = self.described(function(*self.values))
        except ValueError as error:
            raised = (type(error).__name__, str(error))
        return self.left(returned, raised)

    def left(self, returned: Any, raised: tuple[str, str] | None) -> Left:
        return Left(returned, raised, self.floats.tobytes(), self.ints.tobytes())

    def described(self, value: Any) -> Any:
        """A return value in terms that do not depend on addresses."""
        if isinstance(value, (tuple, list)):
            return (type(value).__name__, *(self.described(item) for item in value))
        if not isinstance(value, np.ndarray):
            return (type(value).__name__, repr(value))
        shape = (value.shape, value.strides, value.dtype.str)
        for name, buffer in (("floats", self.floats), ("ints", self.ints)):
            offset = address(value) - address(buffer)
            if 0 <= offset < buffer.nbytes:
                return (name, offset, *shape)
        return ("own", value.tobytes(), *shape)


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def codes_of(function: Callable[..., Any]) -> frozenset[CodeType]:
    """The code of a made function and of all that came from the same text."""
    found: set[CodeType] = set()
    waiting = [value.__code__ for value in function.__globals__.values() if hasattr(value, "__code__")]
    while waiting:
        code = waiting.pop()
        found.add(code)
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return frozenset(found)


def generate(seed: int, without: Iterable[str] = ()) -> Generated:
    """The function of a seed. Features of `without` do not occur: FEATURES names them."""
    writer = _Writer(seed, frozenset(without))
    source = writer.text()
    return Generated(seed, source, frozenset(writer.used))


class _Writer:
    """Writes one function, choosing by the seed."""

    def __init__(self, seed: int, without: frozenset[str]) -> None:
        unknown = without - FEATURES
        if unknown:
            raise KeyError(f"no such features: {sorted(unknown)}")
        self.chance: Final = random.Random(seed)
        self.without: Final = without
        self.used: set[str] = set()
        self.loops: list[str] = []
        self.names = 0
        self.views: tuple[str, ...] = ()
        """Names for views and arrays that are sure to be bound, of `LENGTH` or less but not empty."""

    # Expressions.

    def index(self) -> str:
        return self.chance.choice([*self.loops, "n", str(self.chance.randint(0, 6))])

    def integer(self, depth: int = 1) -> str:
        leaves = ["n", *self.loops, str(self.chance.randint(-5, 30)), f"{self.chance.choice(INTS)}[{self.index()} % 8]"]
        if not depth:
            return self.chance.choice(leaves)
        one, other = self.integer(depth - 1), self.integer(depth - 1)
        return self.chance.choice(
            [one, f"({one} + {other})", f"({one} * {other}) % {MODULUS}", f"({one} - {other})", f"max({one}, {other})"]
        )

    def number(self, depth: int = 1) -> str:
        leaves = ["x", "total", str(self.chance.randint(-20, 20) / 4), self.element()]
        if not depth:
            return self.chance.choice(leaves)
        one, other = self.number(depth - 1), self.number(depth - 1)
        ways = [one, f"({one} + {other})", f"({one} - {other})", f"({one} * {other}) % {MODULUS}.0"]
        ways += [f"{one} / (abs({other}) + 1.0)", f"min({one}, {other})", f"({one} + {self.integer(0)})"]
        if self.may("reduction"):
            ways.append(self.uses("reduction", f"{self.floats()}.sum() % {MODULUS}.0"))
        if self.may("callee that returns"):
            ways.append(self.uses("callee that returns", f"h({one}, {self.integer(0)})"))
        return self.pick(ways)

    def element(self) -> str:
        if self.may("two dimensions") and self.chance.random() < 0.3:
            return self.uses("two dimensions", f"m[{self.index()} % {ROWS}, {self.index()} % {COLUMNS}]")
        if not self.may("element"):
            return "x"
        name = self.floats()
        return self.uses("element", f"{name}[{self.index()} % len({name})]")

    def floats(self) -> str:
        return self.chance.choice([*FLOATS, *self.views])

    def condition(self) -> str:
        sign = self.chance.choice(["<", ">", "<=", ">=", "==", "!="])
        if self.chance.random() < 0.5:
            return f"{self.integer()} % {self.chance.randint(2, 4)} {sign} {self.chance.randint(0, 2)}"
        return f"{self.number()} {sign} {self.number(0)}"

    def may(self, feature: str) -> bool:
        return feature not in self.without

    def uses(self, feature: str, text: str) -> str:
        """Marks a piece of text, which may still not be chosen."""
        return f"\0{feature}\0{text}"

    def pick(self, ways: list[str]) -> str:
        return self.chance.choice(ways)

    # Statements: each returns lines without indentation of the block that they are in.

    def block(self, size: int, depth: int) -> list[str]:
        lines: list[str] = []
        before = self.views
        for _ in range(size):
            lines += self.statement(depth)
        self.views = before
        return lines or ["pass"]

    def statement(self, depth: int) -> list[str]:
        simple = [self.scalar, self.write, self.write, self.slice_write, self.slice_write]
        simple += [way for name, way in self.simple_ways().items() if self.may(name)]
        nested = [way for name, way in self.nested_ways().items() if self.may(name)]
        ways = simple + (nested if depth else [])
        chosen = self.chance.choice(ways)
        return chosen(depth - 1) if chosen in nested else chosen(0)

    def simple_ways(self) -> dict[str, Callable[[int], list[str]]]:
        return {
            "accumulation": lambda _: [self.uses("accumulation", f"total = (total + {self.number()}) % {MODULUS}.0")],
            "whole array": self.whole_array,
            "view by name": self.view_by_name,
            "local array": self.local_array,
            "callee that writes": self.call,
            "raise": lambda _: [
                f"if {self.condition()} and {self.condition()}:",
                "    " + self.uses("raise", f'raise ValueError("{self.chance.randint(1, 9)}")'),
            ],
            "early return": lambda _: [
                f"if {self.condition()} and {self.condition()}:",
                "    " + self.uses("early return", f"return {self.result()}"),
            ],
            "comprehension": lambda _: [
                self.uses("comprehension", f"total = sum([v * 0.5 for v in {self.floats()}[:4]]) % {MODULUS}.0")
            ],
        }

    def nested_ways(self) -> dict[str, Callable[[int], list[str]]]:
        ways: dict[str, Callable[[int], list[str]]] = {"branch": self.branch, "handler": self.handler}
        if len(self.loops) < 2:
            ways |= {"range loop": self.loop, "while loop": self.while_loop, "loop over an array": self.loop_over}
        if self.loops and not self.may("nested loop"):
            ways = {"branch": self.branch, "handler": self.handler}
        return ways

    def scalar(self, _: int) -> list[str]:
        return self.chance.choice([[f"n = abs({self.integer()}) % 10"], [f"x = {self.number()}"]])

    def write(self, _: int) -> list[str]:
        if self.chance.random() < 0.25:
            place = f"{self.chance.choice(INTS)}[{self.index()} % {LENGTH}]"
            return [f"{place} = ({place} + {self.integer()}) % {MODULUS}"]
        return [f"{self.element()} {self.chance.choice(['=', '+=', '-='])} {self.number()}"]

    def slice_write(self, _: int) -> list[str]:
        target, first, step = self.floats(), self.chance.randint(0, 3), self.chance.choice(["", ":2"])
        if self.may("slice from slice") and self.chance.random() < 0.5:
            source, target, other = self.chance.choice(FLOATS), self.chance.choice(FLOATS), self.chance.randint(0, 3)
            sign = self.chance.choice(["=", "+=", "-="])
            return [
                self.uses("slice from slice", f"{target}[{first}:{first + 4}] {sign} {source}[{other}:{other + 4}]")
            ]
        if not self.may("slice in place"):
            return self.write(0)
        line = f"{target}[{first}:{first + 3}{step}] {self.chance.choice(['=', '+=', '-='])} {self.number()}"
        return [self.uses("slice in place", line)]

    def whole_array(self, _: int) -> list[str]:
        target = self.chance.choice(["m", *FLOATS])
        change = self.chance.choice([f"+= {self.number(0)}", "*= 0.5", f"%= {self.chance.randint(20, 90)}.0"])
        return [self.uses("whole array", f"{target} {change}")]

    def view_by_name(self, _: int) -> list[str]:
        first, view = self.chance.randint(0, 3), self.new_name("v")
        cut = self.chance.choice([f"[{first}:{first + 5}]", "[::-1]", "[::2]"])
        line = f"{view} = {self.chance.choice(FLOATS)}{cut}"
        if self.may("two dimensions") and self.chance.random() < 0.3:
            line = self.uses("two dimensions", f"{view} = m[:, {self.chance.randint(0, COLUMNS - 1)}]")
        self.views += (view,)
        return [self.uses("view by name", line)]

    def local_array(self, _: int) -> list[str]:
        local = self.new_name("t")
        made = self.chance.choice([f"np.zeros({self.chance.randint(2, 6)})", f"{self.floats()}.copy()"])
        self.views += (local,)
        return [self.uses("local array", f"{local} = {made}")]

    def call(self, _: int) -> list[str]:
        return [f"total = {self.uses('callee that writes', f'g({self.floats()}, {self.floats()}, {self.number(0)})')}"]

    def branch(self, depth: int) -> list[str]:
        lines = [self.uses("branch", f"if {self.condition()}:"), *indented(self.block(2, depth))]
        return lines + (["else:", *indented(self.block(2, depth))] if self.chance.random() < 0.5 else [])

    def handler(self, depth: int) -> list[str]:
        body = [*self.block(2, depth), f"if {self.condition()}:", '    raise ValueError("caught")']
        return [self.uses("handler", "try:"), *indented(body), "except Exception:", *indented(self.block(1, 0))]

    def looped(self, head: list[str], first: list[str], name: str | None, depth: int) -> list[str]:
        self.loops.append(name or "n")
        mark = self.uses("nested loop", "") if len(self.loops) == 2 else ""
        body = first + self.block(2, depth)
        leave = [way for way in ("break", "continue") if self.may(way)]
        if leave and self.chance.random() < 0.4:
            way = self.chance.choice(leave)
            body += [f"if {self.condition()}:", f"    {self.uses(way, way)}", *self.block(1, 0)]
        self.loops.pop()
        return [*head[:-1], mark + head[-1], *indented(body)]

    def loop(self, depth: int) -> list[str]:
        name = self.new_name("i")
        head = self.uses("range loop", f"for {name} in range({self.chance.randint(2, 4)}):")
        return self.looped([head], [], name, depth)

    def while_loop(self, depth: int) -> list[str]:
        name = self.new_name("j")
        head = self.uses("while loop", f"while {name} < {self.chance.randint(2, 3)}:")
        return self.looped([f"{name} = 0", head], [f"{name} += 1"], name, depth)

    def loop_over(self, depth: int) -> list[str]:
        name = self.new_name("e")
        head = self.uses("loop over an array", f"for {name} in {self.chance.choice(FLOATS)}[:4]:")
        return self.looped([head], [f"total += {name}"], None, depth)

    def new_name(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    # The whole.

    def result(self) -> str:
        """Of one form for each function: numba wants one return type."""
        return self.form.replace("VIEW", self.chance.choice(FLOATS))

    def text(self) -> str:
        number = ["total", "x + n", "(total, n)"]
        forms = {
            "returned tuple": "(total, n, x)",
            "returned view": "(VIEW[1:5], total)",
            "returned copy": "VIEW.copy()",
        }
        marked = [self.uses(name, form) for name, form in forms.items() if self.may(name)]
        self.form = self.chance.choice([*number[:2], *marked, *marked])
        body = ["total = 0.0", *self.block(self.chance.randint(3, 6), 2), f"return {self.result()}"]
        stop = ["if len(p) > 5 and p[1] > y * 3.0:", "    " + self.uses("raise in a callee", 'raise ValueError("g")')]
        callees = {
            "callee that returns": ["def h(y, i):", "    if i > 5:", "        return y * 0.5", "    return y - i"],
            "callee that writes": [
                "def g(p, q, y):",
                *indented(stop if self.may("raise in a callee") and self.chance.random() < 0.5 else []),
                "    for i in range(3):",
                "        p[i % len(p)] += q[-1] * 0.5 + y",
                "    return y + p[0]",
            ],
        }
        lines = [f"def f({', '.join(PARAMETERS)}):", *indented(body)]
        for name, callee in callees.items():
            if any(f"\0{name}\0" in line for line in lines):
                lines = [*callee, "", "", *lines]
        pieces = "\n".join(lines).split("\0")
        self.used = {piece for piece in pieces[1::2]}
        return "".join(pieces[0::2]) + "\n"


def indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]
