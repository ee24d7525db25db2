"""Functions that nobody wrote: hypothesis draws their source, and arguments for it.

What is drawn stays where Python and machine arithmetic agree: integers below 2**53, no division by zero, indices within
bounds, one type for each variable, no sums whose order is left to a library. The README lists what lies outside.
"""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

NAMES: Final = {
    "int": ("i", "k"),
    "float": ("x", "y"),
    "ints": ("a",),
    "floats": ("b",),
    "str": ("s",),
    "pair": ("p",),
    "dict": ("d",),
}
"""Variables by type. All but the dictionary are arguments."""
ARGUMENTS: Final = ("i", "k", "x", "y", "a", "b", "s", "p")
MODULUS: Final = 9973


@dataclass(frozen=True)
class Written:
    """A function called `f`, and arguments for some calls."""

    source: str
    calls: tuple[tuple[Any, ...], ...]

    def __repr__(self) -> str:
        return f"{self.source}\n# called with {self.calls!r}"


class Scope:
    """Which variables may be read, by type; loops bring more."""

    def __init__(self, wanted: frozenset[str]) -> None:
        self.names = {kind: tuple(n for n in names if n in wanted or n == "d") for kind, names in NAMES.items()}
        self.loops: tuple[str, ...] = ()
        self.has_dict = False

    def of(self, kind: str) -> tuple[str, ...]:
        return self.names[kind] + (self.loops if kind == "int" else ())


Draw = Any


def integer(draw: Draw, scope: Scope, depth: int) -> str:
    """An expression of an integer."""
    leaves = [str(draw(st.integers(-9, 99))), *scope.of("int")]
    if depth == 0:
        return str(draw(st.sampled_from(leaves)))
    one = integer(draw, scope, depth - 1)
    other = integer(draw, scope, depth - 1)
    ways = [
        f"({one} + {other})",
        f"({one} - {other})",
        f"(({one} * {other}) % {MODULUS})",
        f"({one} // (abs({other}) % 7 + 1))",
        f"({one} % -(abs({other}) % 5 + 2))",
        f"min({one}, {other})",
        f"max({one}, {other})",
        f"abs({one})",
        f"({one} & {other})",
        f"({one} | {other})",
        f"({one} ^ {other})",
        f"({one} >> (abs({other}) % 5))",
        f"(({one} % 1000) << (abs({other}) % 5))",
        f"-{one}",
        f"~{one}",
        f"({one} if {condition(draw, scope, depth - 1)} else {other})",
    ]
    if scope.of("float"):
        number = floating(draw, scope, depth - 1)
        ways += [f"int({bounded(number)})", f"math.floor({bounded(number)})", f"round({bounded(number)})"]
    for array in scope.of("ints"):
        ways += [f"{array}[{one} % len({array})]", f"len({array})", f"len({array}[{one} % 3:])"]
    for pair in scope.of("pair"):
        ways.append(f"{pair}[0]")
    for text in scope.of("str"):
        ways += [f"len({text})", f'{text}.find("b")', f"ord({text}[{one} % len({text})])"]
    if scope.has_dict:
        ways += [f"d.get({one}, {other})", f"({one} if {other} in d else {other})", "len(d)"]
    return str(draw(st.sampled_from(ways)))


def bounded(number: str) -> str:
    """A float that an integer can hold."""
    return f"max(-1e6, min(1e6, {number}))"


def floating(draw: Draw, scope: Scope, depth: int) -> str:
    """An expression of a float."""
    leaves = [repr(draw(st.sampled_from((0.0, -0.0, 0.1, 1.5, -2.25, 1e-3, 3.0)))), *scope.of("float")]
    if depth == 0:
        return str(draw(st.sampled_from(leaves)))
    one = floating(draw, scope, depth - 1)
    other = floating(draw, scope, depth - 1)
    whole = integer(draw, scope, 0)
    ways = [
        f"({one} + {other})",
        f"({one} - {other})",
        f"({one} * {other})",
        f"({one} / (abs({other}) + 1.0))",
        f"({bounded(one)} // (abs({other}) + 0.5))",
        f"({bounded(one)} % (abs({other}) + 0.5))",
        f"math.sqrt(abs({one}))",
        f"math.copysign({one}, {other})",
        f"math.atan2({one}, {other})",
        f"abs({one})",
        f"-{one}",
        f"float({whole})",
        f"({whole} * {one})",
        f"({whole} / 7)",
        f"({one} if {condition(draw, scope, depth - 1)} else {other})",
    ]
    for array in scope.of("floats"):
        ways += [f"{array}[{whole} % len({array})]", f"{array}[-1 - {whole} % len({array})]"]
    for pair in scope.of("pair"):
        ways.append(f"{pair}[1]")
    return str(draw(st.sampled_from(ways)))


def text(draw: Draw, scope: Scope, depth: int) -> str:
    """An expression of a string that is not empty."""
    leaves = [repr(draw(st.sampled_from(("ab", "b", "xyz", "\N{GREEK SMALL LETTER ALPHA}b")))), *scope.of("str")]
    if depth == 0:
        return str(draw(st.sampled_from(leaves)))
    one = text(draw, scope, depth - 1)
    whole = integer(draw, scope, 0)
    ways = [
        f"({one} + {text(draw, scope, depth - 1)})",
        f"({one} * (1 + {whole} % 3))",
        f'({one}[{whole} % 4 - 2:] + "q")',
        f"{one}[::-1]",
        f"{one}.upper()",
        f'{one}.replace("b", "cd")',
        f"({one} + str({whole}))",
    ]
    return str(draw(st.sampled_from(ways)))


def condition(draw: Draw, scope: Scope, depth: int) -> str:
    """An expression of a boolean."""
    depth = max(0, depth)
    sign = draw(st.sampled_from(("<", "<=", "==", "!=", ">", ">=")))
    ways = [f"{integer(draw, scope, depth)} {sign} {integer(draw, scope, depth)}"]
    if scope.of("float"):
        ways.append(f"{floating(draw, scope, depth)} {sign} {floating(draw, scope, depth)}")
        ways.append(f"math.isnan({floating(draw, scope, depth)})")
    for name in scope.of("str"):
        ways += [f'"b" in {name}', f'{name} < "m"']
    if depth:
        one, other = condition(draw, scope, depth - 1), condition(draw, scope, depth - 1)
        ways += [f"({one} and {other})", f"({one} or {other})", f"not ({one})"]
    return f"({draw(st.sampled_from(ways))})"


def statements(draw: Draw, scope: Scope, indent: str, depth: int) -> list[str]:
    """A block. It changes variables and arrays, and never makes an integer grow without end."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        ways = ["int", "if", "for", "while"]
        ways += ["raise"] if depth else []
        ways += [kind for kind in ("float", "ints", "floats", "str") if scope.of(kind)]
        ways += ["dict"] if scope.has_dict else []
        way = draw(st.sampled_from(ways if depth else [w for w in ways if w not in ("if", "for", "while")]))
        if way == "int":
            lines.append(f"{indent}n = ({integer(draw, scope, 2)}) % {MODULUS}")
        elif way == "float":
            lines.append(f"{indent}z = {bounded(floating(draw, scope, 2))}")
        elif way == "ints":
            lines.append(f"{indent}a[{integer(draw, scope, 1)} % len(a)] = ({integer(draw, scope, 2)}) % {MODULUS}")
        elif way == "floats":
            lines.append(f"{indent}b[{integer(draw, scope, 1)} % len(b)] = {floating(draw, scope, 2)}")
        elif way == "str":
            lines.append(f"{indent}t = ({text(draw, scope, 1)})[:12]")
        elif way == "dict":
            lines.append(f"{indent}d[{integer(draw, scope, 1)}] = ({integer(draw, scope, 1)}) % {MODULUS}")
        elif way == "raise":
            lines.append(f"{indent}if {condition(draw, scope, 1)} and n > {draw(st.integers(0, MODULUS))}:")
            lines.append(f'{indent}    raise ValueError("n", 3)')
        elif way == "if":
            lines.append(f"{indent}if {condition(draw, scope, 1)}:")
            lines += statements(draw, scope, indent + "    ", depth - 1)
            lines.append(f"{indent}else:")
            lines += statements(draw, scope, indent + "    ", depth - 1)
        elif way == "for":
            name = f"j{len(indent) // 4}"
            lines.append(f"{indent}for {name} in range({draw(st.integers(0, 5))}):")
            before, scope.loops = scope.loops, (*scope.loops, name)
            lines += statements(draw, scope, indent + "    ", depth - 1)
            scope.loops = before
        else:
            # One for each depth: an inner loop that set the outer one's would have it go on for ever.
            left = f"m{len(indent) // 4}"
            lines.append(f"{indent}{left} = abs({integer(draw, scope, 1)}) % 6")
            lines.append(f"{indent}while {left} > 0:")
            lines.append(f"{indent}    {left} -= 1")
            lines += statements(draw, scope, indent + "    ", depth - 1)
            lines.append(f"{indent}    if {condition(draw, scope, 0)}:")
            lines.append(f"{indent}        {draw(st.sampled_from(('break', 'continue')))}")
    return lines


@st.composite
def functions(draw: Draw) -> Written:
    """A function, with the arguments of three calls."""
    # Strings and dictionaries take seconds to compile, the rest a fifth of one.
    kinds = draw(st.sampled_from((("float",), ("floats", "float"), ("ints",), ("ints", "floats", "float", "pair"))))
    rare = draw(st.sampled_from(((), (), (), (), ("str",), ("dict",))))
    wanted = frozenset(name for kind in ("int", *kinds, *rare) for name in NAMES[kind])
    scope = Scope(wanted)
    names = [name for name in ARGUMENTS if name in wanted]
    lines = [f"def f({', '.join(names)}):", "    n = 1", "    z = 0.5"]
    scope.names["int"] += ("n",)
    if scope.of("float"):
        scope.names["float"] += ("z",)
    if "s" in wanted:
        lines.append('    t = "t"')
        scope.names["str"] += ("t",)
    if "d" in wanted:
        lines.append("    d = {1: 2}")
        scope.has_dict = True
    lines += statements(draw, scope, "    ", 2)
    results = ["n", "z", integer(draw, scope, 2)]
    results += ["t"] if "s" in wanted else []
    results += ["len(d)", "d[1]"] if "d" in wanted else []
    lines.append(f"    return {', '.join(results)}")
    calls = tuple(tuple(draw(VALUES[name]) for name in names) for _ in range(3))
    return Written("\n".join(lines) + "\n", calls)


REALS: Final = st.one_of(
    st.sampled_from((0.0, -0.0, 1.0, math.inf, -math.inf, math.nan)), st.floats(-1e6, 1e6, allow_nan=False)
)
WHOLES: Final = st.integers(-1000, 1000)
VALUES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "i": WHOLES,
    "k": WHOLES,
    "x": REALS,
    "y": REALS,
    "a": st.lists(WHOLES, min_size=1, max_size=6).map(lambda values: np.array(values, np.int64)),
    "b": st.lists(REALS, min_size=1, max_size=6).map(np.array),
    "s": st.text("abq\N{GREEK SMALL LETTER ALPHA}", min_size=1, max_size=5),
    "p": st.tuples(WHOLES, REALS),
}
