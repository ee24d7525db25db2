"""Programs as frozen values, and the files that they are.

A program is a few pieces, each with a form (`forms`), each perhaps calling another piece. A piece lies in a module:
`main.py`, `tree/one.py` or `tree/two.py`, and beside each lies a module with what some forms keep elsewhere. A callee
lies in its caller's module or in a later one, so that no two modules import each other.

The layout is what has no meaning: comments, blank lines, docstrings, the order of definitions.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from string import Template
from typing import Final

from forms import FORMS

HOMES: Final = ("main", "tree.one", "tree.two")
BESIDE: Final = ("tree.beside_main", "tree.beside_one", "tree.beside_two")
LINKS: Final = ("from", "module", "chain", "other name")
"""How a caller names a callee of another module. Not by getattr: numba does not compile that call."""

HEADER: Final = """\
import collections, enum, functools, math, typing
import numba, numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.experimental import jitclass
from numba.extending import (
    NativeValue, intrinsic, models, overload, overload_attribute, overload_method, register_jitable, register_model,
    typeof_impl, unbox,
)
"""


@dataclass(frozen=True, slots=True)
class Piece:
    """A function, with all that belongs to it: see `forms` for its value and choice."""

    form: str
    value: int = 1
    choice: int = 0
    home: int = 1
    link: int = 0
    """How its caller names it."""
    child: "Piece | None" = None


@dataclass(frozen=True, slots=True)
class Layout:
    """What has no meaning; each a number of lines, or whether."""

    comments: int = 0
    blanks: int = 0
    docstrings: int = 0
    unused: int = 0
    broken: bool = False
    annotated: bool = False
    turned: bool = False
    """Whether definitions come in the other order."""
    imports_turned: bool = False
    root: int = 0
    """Which directory the tree lies in."""


@dataclass(frozen=True, slots=True)
class Program:
    """Pieces that main.py calls, their layout, and the environment."""

    entries: tuple[Piece, ...]
    layout: Layout = field(default_factory=Layout)
    settings: tuple[tuple[str, str], ...] = ()


def pieces(piece: Piece, number: str) -> Iterator[tuple[str, Piece]]:
    """(number, piece) of all, callees first."""
    if piece.child is not None:
        yield from pieces(piece.child, number + "c")
    yield number, piece


def numbered(program: Program) -> Iterator[tuple[int, str, Piece]]:
    """(entry, number, piece) of all pieces."""
    for index, entry in enumerate(program.entries):
        for number, piece in pieces(entry, f"_{index}"):
            yield index, number, piece


def files(program: Program) -> dict[str, str]:
    """Path -> text, relative to the root."""
    blocks: dict[str, list[str]] = {name: [] for name in (*HOMES, *BESIDE)}
    groups: dict[int, dict[str, str]] = {}
    for index, number, piece in numbered(program):
        there, here = _written(piece, number, program.layout)
        group = groups.setdefault(index, {})
        group[BESIDE[piece.home]] = group.get(BESIDE[piece.home], "") + there
        group[HOMES[piece.home]] = group.get(HOMES[piece.home], "") + here
    order = sorted(groups, reverse=program.layout.turned)
    for index in order:
        for module, text in groups[index].items():
            blocks[module].append(text)
    written = {"tree/__init__.py": "", "tree/outer.py": ""}
    imports = [f"import {name}" for name in (*BESIDE, *HOMES[1:])]
    if program.layout.imports_turned:
        imports.reverse()
    for home, beside in zip(HOMES, BESIDE, strict=True):
        first = f"{HEADER}import tree.outer, {beside}\nimport {beside} as there\n"
        if home == "main":
            first = "\n".join([*imports, first])
        written[_path(home)] = _module([first, *blocks[home]], program.layout)
        written[_path(beside)] = _module([HEADER, *blocks[beside]], program.layout)
    written["tree/outer.py"] = f"import {BESIDE[1]} as there\n"
    written["main.py"] += _calls(program)
    return written


def _path(module: str) -> str:
    return module.replace(".", "/") + ".py"


def _module(blocks: list[str], layout: Layout) -> str:
    unused = [f"UNUSED_{i} = {i}\ndef unused_{i}(x):\n    return x - {i}\n" for i in range(layout.unused)]
    return "\n".join([blocks[0], *unused, *blocks[1:]])


def _calls(program: Program) -> str:
    lines = []
    for index, entry in enumerate(program.entries):
        number = f"_{index}"
        module = "" if entry.home == 0 else f"{HOMES[entry.home]}."
        form = FORMS[entry.form]
        calls = {f"{number} before": form.before, number: f"f$n({form.argument.strip()})"}
        for name, call in calls.items():
            if call:
                lines.append(
                    f"    {name!r}: lambda: " + re.sub(r"\b([A-Za-z]\w*)\$n", rf"{module}\1{number}", call) + ","
                )
    return "\n".join(["", "CALLS = {", *lines, "}", ""])


def _written(piece: Piece, number: str, layout: Layout) -> tuple[str, str]:
    """What the piece writes beside its module, and to its module."""
    form = FORMS[piece.form]
    before, child = "", ""
    if piece.child is not None:
        before, child = _link(piece, piece.child, number + "c")
    choice = Template(form.choices[piece.choice % len(form.choices)]).substitute(n=number) if form.choices else ""
    names = {"n": number, "v": str(piece.value), "c": choice, "child": child, "there": BESIDE[piece.home]}
    there, here = (Template(text).substitute(names) for text in (form.there, form.here))
    if piece.home != 1:
        here = here.replace("tree.outer.there.", f"{BESIDE[piece.home]}.")
    return _laid_out(there, layout), _laid_out(before + here, layout)


def _link(caller: Piece, callee: Piece, number: str) -> tuple[str, str]:
    """A line for the caller's module, and the call."""
    name = f"f{number}"
    home = HOMES[callee.home]
    if callee.home == caller.home:
        return "", f" + {name}(x)"
    match LINKS[callee.link % len(LINKS)]:
        case "from":
            return f"from {home} import {name}\n", f" + {name}(x)"
        case "module":
            return f"import {home} as m{number}\n", f" + m{number}.{name}(x)"
        case "other name":
            return f"from {home} import {name} as other{number}\n", f" + other{number}(x)"
        case _:
            return f"import {home}\n", f" + {home}.{name}(x)"


def _laid_out(text: str, layout: Layout) -> str:
    lines: list[str] = []
    for line in text.splitlines():
        returned = re.fullmatch(r"( +)return (.+)", line)
        defined = re.fullmatch(r"( *)(def|class) (\w+)\W.*:", line)
        if returned and layout.broken and "lambda" not in line:
            # The expression begins in the line of the return: else Python puts a NOP before a constant.
            lines += [f"{returned[1]}return ({returned[2]}", f"{returned[1]})"]
            continue
        # numba compares an overload's parameters with its implementation's, annotations too.
        if defined and layout.annotated and re.match("[fgh]_", defined[3]):
            line = re.sub(r"\(x\b", "(x: 'int'", line)
        lines.append(line)
        if defined:
            inner = defined[1] + "    "
            if layout.docstrings:
                lines.append(f'{inner}"""Said {layout.docstrings} times."""')
            lines += [f"{inner}# Said {i} times." for i in range(layout.comments)]
            lines += [""] * layout.blanks
    above = ["# Said above."] * layout.comments + [""] * layout.blanks
    return "\n".join([*above, *lines, ""]) if lines else ""
