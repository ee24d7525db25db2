"""Functions that nobody wrote, full of views and aliases: hypothesis draws their statements.

What they do makes no sense. It reaches an argument's memory on many ways: through views, tuples, lists, dictionaries,
named tuples, loops, comprehensions, closures and callees. Many end in an exception; what was written until then counts.
"""

import contextlib
from collections import namedtuple
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from farm.job.restart import Restart, restart_of

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

TABLE = np.ones((2, 2, 2))
Point = namedtuple("Point", "x y")


def same(q):
    return q


def fill(q, value):
    q[0] = value


def pick(q, i):
    return q[i]


def put(found, q):
    found.append(q)
    return found


def wrap(*rest):
    return rest, [rest[0]]


def deep(q, n):
    if n > 0:
        return deep(q[0:1], n - 1)
    q[0] = 7
    return q


def table():
    return TABLE


def into(out, q):
    np.add(q, q, out)


def spread(d, q):
    d[9] = q
    return d


def row(q):
    return q[1]


def halve(q):
    q *= 0.5


def halve_first(*rest):
    x = rest[0][0]
    x *= 0.5


STATEMENTS: Final = (
    "{a} = {b}[0:1]",
    "{a} = {b}[0, 1]",
    "{a} = {b}[0, :, 1]",
    "{a} = {b}[n - 2, None]",
    "{a} = {b}[None, 0]",
    "{a} = {b}[..., 0]",
    "{a} = {b}[slice(0, 1)]",
    "{a} = {b}[n]",
    "{a} = {b}[int(0)][0]",
    "{a} = {b}.reshape(-1, 1)[0]",
    "{a} = np.ravel({b})[0:2][1]",
    "{a} = row({b})",
    "{a} = (lambda q: q[0])({b})",
    "for i in range(2): {a} = {b}[i]",
    "for i in range(2): {a}[i] -= 1",
    "for i in range(2):\n        {a} = {b}[i, 0]\n        {a} += 1",
    "for {a} in {b}: {a} += 1",
    "halve({a}[0])",
    "halve_first({a})",
    "halve_first(*{t})",
    "{a} = {b}.T",
    "{a} = {b}[0]",
    "{a} = {b}.copy()",
    "{a} = {b} + {c}",
    "{a} = {b} * 2",
    "{a} = 2 - {b}",
    "{a} = {b} if n else {c}",
    "{a} = np.ravel({b})",
    "{a} = np.asarray({b})",
    "{a} = np.where({b} > 0, {b}, {c})",
    "{a} = np.reshape({b}, (4, -1))",
    "{a} = same({b})",
    "{a} = pick({t}, 0)",
    "{a} = pick({l}, -1)",
    "{a} = {t}[0]",
    "{a} = {l}[-1]",
    "{a} = {l}.pop()",
    "{a} = d.get(1, {b})",
    "{a} = d.setdefault(2, {b})",
    "{a} = d[0]",
    "{a} = next(iter({l}))",
    "{a} = deep({b}, 2)",
    "{a} = Point({b}, {c}).x",
    "{a} = {b}.real",
    "{a} = table() + {b}",
    "{a} = (lambda q: q[1:])({b})",
    "{a}[0] = {b}[0]",
    "{a}[0] += {b}[0]",
    "{a} += 1",
    "{a} *= {b}",
    "{a}[..., 0] = 5",
    "{a}[0][0] = 6",
    "{a}.sort()",
    "{a}.fill(3)",
    "{a}.flat[0] = 2",
    "np.copyto({a}, {b})",
    "np.add({a}, {b}, {c})",
    "np.negative({a}, out={b})",
    "np.cumsum({a}, 0, None, {b})",
    "fill({a}, 4)",
    "fill(value=8, q={a})",
    "into({a}, {b})",
    "into(*({a}, {b}))",
    "deep({a}, 1)",
    "{t} = ({a}, {b})",
    "{t} = {t} + ({a},)",
    "{t} = {t} * 2",
    "{t} = {t}[::-1]",
    "{t} += ({a},)",
    "{t}, {l} = wrap({a}, {b})",
    "{t} = tuple({l})",
    "{t} = Point({a}, {b})",
    "{l} = [{a}, {b}]",
    "{l} = list({t})",
    "{l} = {l} + [{a}]",
    "{l} = {l}.copy()",
    "{l} = {l}[1:]",
    "{l} = put({l}, {a})",
    "{l} = [q[0:1] for q in {l}]",
    "{l} = [q for q in {t} if n]",
    "{l} = list(map(same, {l}))",
    "{l} = list(reversed({t}))",
    "{l} += [{a}]",
    "{l}.append({a})",
    "{l}.insert(0, {a})",
    "{l}.extend({t})",
    "{l}[0] = {a}",
    "d[0] = {a}",
    "d = {{0: {a}, 1: {b}}}",
    "d = spread(d, {a})",
    "{l} = list(d.values())",
    "{t}[0][0] = 1",
    "{l}[0][0] = 1",
    "{l}[0] += 1",
    "d[0] -= 1",
    "d[9][0] = 1",
    "for q in {t}: q[0] = 9",
    "for q in {a}: q *= 3",
    "for _, q in enumerate({l}): q += 1",
    "for q, r in zip({l}, {t}): q[0] = r[0]",
    "while n > 0: n, {a} = n - 1, {b}",
    "if n: {a} = {b}",
    "g = lambda q: fill(q, n)\n    g({a})",
    "def g(q, r={b}): r[0] = q[0]\n    g({a})",
    "def g(): {b}[0] = 1\n    g()",
    "def g(): return {b}\n    {a} = g()",
    "[fill(q, 2) for q in {l}]",
    "return {a}, {t}",
)
NAMES: Final = {"a": ("a", "b", "u", "v"), "t": ("t", "s"), "l": ("m", "k")}
START: Final = ("u = np.zeros_like(b)", "v = a.copy()", "s = (u, u)", "k = [u]", "d = {0: u}")
SIGNATURE: Final = ("a", "b", "t", "m", "d", "n")


@st.composite
def sources(draw: Any) -> str:
    """The source of a function `f` with the parameters SIGNATURE."""
    lines = list(START)
    for one in draw(st.lists(st.sampled_from(STATEMENTS), min_size=2, max_size=9)):
        names = {key: draw(st.sampled_from(NAMES[key[0]])) for key in ("a", "t", "l")}
        names |= {key: draw(st.sampled_from(NAMES["a"])) for key in ("b", "c")}
        lines.append(one.format(**names))
    return f"def f({', '.join(SIGNATURE)}):\n    " + "\n    ".join(lines) + "\n"


def arguments(dimensions: int) -> tuple[Any, ...]:
    """Fresh arguments: two arrays, a tuple, a list and a dictionary of arrays of so many dimensions, a number."""
    arrays = np.arange(64.0).reshape(8, 2, 2, 2) + 1
    a, b, c, d, e, f, g, h = (one[(0,) * (3 - dimensions)].copy() for one in arrays)
    return a, b, (c, d), [e, f], {0: g, 1: h}, 2


def content(value: Any) -> object:
    """All that can be changed in an argument."""
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, (tuple, list)):
        return [content(one) for one in value]
    if isinstance(value, dict):
        return [(key, content(one)) for key, one in value.items()]
    return value


@dataclass(frozen=True)
class Judged:
    """What was said of a drawn function, and what a call did: places of arguments that it changed."""

    source: str
    said: Restart
    values: tuple[Any, ...]
    changed: frozenset[int]
    left_globals_alone: bool


def judge(source: str, dimensions: int) -> Judged:
    """Ask, then call."""
    scope = dict(globals())
    exec(compile(source, "<drawn>", "exec"), scope)
    said = restart_of(scope["f"])
    values = arguments(dimensions)
    before = [content(one) for one in values]
    with contextlib.suppress(Exception):
        scope["f"](*values)
    alone = bool((TABLE == 1).all())
    TABLE[...] = 1
    changed = frozenset(place for place, one in enumerate(values) if content(one) != before[place])
    return Judged(source, said, values, changed, alone)
