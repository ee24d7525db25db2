"""Small functions, each with what `restart_of` must say of it. Positions are those of parameters."""

import enum
import heapq
import math
import operator
import random
import time
import types
from collections import namedtuple
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numba
import numpy as np
from numba import cfunc, objmode, prange, stencil, vectorize
from numba.experimental import jitclass
from numba.typed import Dict, List

import farm

# ruff: noqa: B905, E722, RUF005, UP028
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


@dataclass(frozen=True)
class Case:
    """What is said of a function: `writes` always, `parts` if an argument has more dimensions than are indexed.

    `nested` only if an argument is a container of other objects.
    """

    function: Any
    reason: str | None
    writes: frozenset[int]
    parts: frozenset[tuple[int, int]]
    nested: frozenset[int]
    loops: bool


CASES: list[Case] = []
TABLE = np.arange(4.0)
NUMBERS = (1, 2, 3)
LIMIT = 3
NAMES = ["a", "b"]
RNG = np.random.default_rng(1)
Point = namedtuple("Point", "x y")
Odd = namedtuple("Odd", "real size")
counter = 0
settings = types.ModuleType("settings")
settings.table = TABLE  # type: ignore[attr-defined]


class Colour(enum.IntEnum):
    RED = 1


class Problem(Exception):
    pass


class Logged(Exception):
    def __init__(self, text):
        print(text)


def says(reason: str | None = None, writes: Any = (), parts: Any = (), nested: Any = (), loops: bool = False) -> Any:
    def note(function: Any) -> Any:
        CASES.append(Case(function, reason, frozenset(writes), frozenset(parts), frozenset(nested), loops))
        return function

    return note


# -- what others call ------------------------------------------------------------------------------


@says(writes=[0])
def fill_first(a, value):
    a[0] = value


@says()
def doubled(x):
    return 2 * x


@says()
def same(a):
    return a


@farm.njit
def hooked(a):
    a[1] = 2.0
    return a


@numba.njit
def stock(a):
    return a + 1


@farm.njit(fallback=lambda a: a)
def other_fallback(a):
    return a


@vectorize
def ufunc(x):
    return x + 1


@stencil
def kernel(a):
    return a[0] + a[1]


@cfunc("float64(float64)")
def callback(x):
    return x


@jitclass([("x", numba.types.int64)])
class Box:
    def __init__(self):
        self.x = 1


FUNCTIONS = (doubled, fill_first)

# -- nothing is written ------------------------------------------------------------------------------


@says()
def arithmetic(a, b):
    return (a + b) * 2 - a / 3 // b % 7 + (-a) ** 2


@says()
def reads(a, i):
    return a[i] + a[i, 0] + a[0:3].sum() + a.shape[0] + len(a)


@says(loops=True)
def sums(a):
    total = 0.0
    for i in range(a.size):
        total += a[i]
    return total


@says(writes=[0], loops=True)
def counts_down(n):
    while n > 0:
        n -= 1
    return n


@says(loops=True)
def makes_and_fills(a):
    out = np.empty_like(a)
    for i in prange(a.size):
        out[i] = a[i]
        out[i] += 1
    return out


@says(nested=[0])
def changes_a_copy(a):
    b = a.copy()
    b[0] += 1
    b[1:].sort()
    b[0] = 3
    return b


@says()
def fills_a_copy(a):
    b = a.copy()
    b[0] = 1
    b.sort()
    return b


@says()
def changes_an_array_of_items(a, b):
    c = np.array([a[0], b[0]])
    c[0] += 1
    d = np.array(a, dtype=np.float32)
    d[0] += 1
    np.clip(a, 0, 1)[0] = 1
    np.nan_to_num(a)[0] = 1
    return c, d


@says(writes=[0])
def changes_an_array_that_is_perhaps_no_copy(a):
    b = np.array(a, copy=False)
    b[0] += 1


@says(writes=[3])
def writes_what_is_clipped(a, low, high, b):
    np.clip(a, low, high, b)


@says()
def changes_what_a_ufunc_made(a, b):
    c = np.add(a, b)
    c[0] += 1
    d = np.sqrt(a)
    d.fill(0)
    return c, d


@says(nested=[0, 1])
def changes_a_sum(a, b):
    c = a + b
    c[0] = 1
    return c


@says()
def changes_a_difference(a, b):
    c = a - b
    c[0] += 1
    c = a + 1
    c[0] += 1
    c = a / b + a
    c[0] += 1
    return c


@says()
def keeps_a_list(a):
    found = []
    found.append(a[0])
    found.extend((1, 2))
    found[0] = 3
    found.pop()
    del found[0]
    return found


@says()
def keeps_a_dictionary(a):
    d = {1: a[0]}
    d[2] = a[1]
    return d[1], 1 in d, d.get(2), len(d)


@says(loops=True)
def iterates(a):
    found = [x * 2 for x in a if x > 0]
    found[0] = 1
    return found


@says()
def uses_texts(s):
    return s.upper().replace("a", "b") + str(len(s)) + f"{s}" + s[1:]


@says()
def uses_mathematics(x):
    return math.sqrt(x) + abs(x) + max(x, 1) + round(x) + operator.add(x, x) + complex(x).imag


@says()
def uses_constants(a):
    return TABLE[0] + NUMBERS[1] + LIMIT + Colour.RED + len(NAMES[0]) + a


@says()
def converts(x):
    return np.int64(x) + np.float32(x) + numba.int32(x)


@says()
def uses_whole_arrays(a, b):
    c = np.dot(a, b) + np.linalg.solve(a, b) + np.where(a > b, a, b)
    c += 1
    np.sort(a)[0] = 1
    return np.concatenate((a, b)), np.argsort(a), c


@says()
def raises(n):
    if n < 0:
        raise ValueError("negative", n)
    assert n < 10, "large"
    if n == 3:
        raise Problem
    return n


@says()
def makes_points(a, b):
    p = Point(a, b)
    return p.x + p[1]


@says(loops=True)
def sorts(a):
    return sorted(a, key=lambda x: -x)


@says(loops=True)
def maps(a):
    return list(map(doubled, a)), list(filter(lambda x: x > 1, a)), reduce(lambda x, y: x + y, a)


@says(loops=True)
def recursive(n):
    if n < 2:
        return n
    return recursive(n - 1) + recursive(n - 2)


@says(loops=True)
def one_of_two(n):
    return 0 if n < 1 else other_of_two(n - 1)


@says(loops=True)
def other_of_two(n):
    return 1 if n < 1 else one_of_two(n - 1)


@says()
def calls_plainly(x):
    return doubled(doubled(x)) + doubled(x=x)


@says(loops=True)
def loops_in_a_callee(a):
    return sums(a)


@says()
def catches(a):
    try:
        return a[0]
    except Exception:
        return 0


@says()
def catches_one_kind(a):
    try:
        return a[0]
    except ValueError:
        return 0


@says()
def makes_a_closure(a, b):
    def inner(x):
        return x * a + b

    return inner(3) + inner(a)


@says(loops=True)
def keeps_a_heap(a):
    waiting = [(0.0, 1)]
    while len(waiting) > 0:
        far, node = heapq.heappop(waiting)
        heapq.heappush(waiting, (far + a[node], node))
    return 0


@says()
def changes_a_local_record(a):
    made = np.zeros(3, a.dtype)
    made[0].x = 1
    made[1]["y"] = 2
    return made


@says()
def reads_through_a_callee(a):
    b = same(a)
    return b[0]


@says()
def fills_through_a_callee(a):
    made = np.zeros(a.size)
    fill_first(made, a[0])
    return made


# -- written to --------------------------------------------------------------------------------------


@says(writes=[1])
def sets_an_item(n, a):
    a[n] = 1


@says(writes=[0])
def sets_a_slice(a, b):
    a[1:, 0] = b


@says(writes=[0])
def deletes(a):
    del a[0]


@says(writes=[0])
def adds_in_place(a, b):
    a += b


@says(writes=[0])
def adds_to_an_item(a, i):
    a[i] += 1


@says(writes=[0])
def adds_to_a_row(a, i):
    row = a[i]
    row += 1


@says(parts=[(0, 1)], nested=[0], loops=True)
def adds_to_each_row(a):
    for row in a:
        row *= 2


@says(writes=[0])
def sets_in_a_view(a):
    b = a.T.reshape(4, 4)[1:].ravel()
    b[0] = 1


@says(writes=[0])
def sets_in_a_real_part(a):
    a.real[0] = 1
    np.imag(a)[0] = 1


@says(writes=[0])
def sets_in_what_may_be_a_view(a):
    np.asarray(a)[0] = 1


@says(writes=[0, 1])
def sets_one_of_two(a, b, n):
    c = a if n else b
    c[0] = 1


@says(writes=[0, 1])
def sets_through_a_tuple(a, b):
    pair = (a, b)
    pair[0][0] = 1 if pair else 0
    x, _ = pair, b
    return x


@says(writes=[0, 1])
def sets_through_joined_tuples(a, b):
    both = (a,) + (b,)
    both[0][0] = 1


@says(parts=[(1, 1)], nested=[0])
def sets_through_a_joined_parameter(t, x):
    joined = t + (x[0],)
    joined[0][0] = 1


@says(nested=[0], loops=True)
def sets_through_a_repeated_parameter(t):
    for one in t * 2:
        one[0] = 1


@says(writes=[0], loops=True)
def sets_through_a_list(a):
    found = []
    found.append(a)
    for one in found:
        one[0] = 1


@says(writes=[0])
def sets_through_a_dictionary(a):
    d = {1: a}
    d[1][0] = 2


@says(writes=[0])
def sets_through_a_point(a, b):
    p = Point(a, b[0] * 2.0 - 1)
    p.x[0] = 1


@says(writes=[0, 1], loops=True)
def sets_while_counting(a, b):
    for i, row in enumerate(zip(a, b)):
        row[0][i] = 1
    for i, row in enumerate(a):
        row[i] = 1


@says(writes=[0, 1], loops=True)
def sets_both_while_counting(a, b):
    for x, y in zip(a, b):
        x[0] = y[0] = 1


@says(writes=[0])
def sets_a_field(record):
    record.x = 1


@says(writes=[0])
def sets_a_field_of_one(records, i):
    records[i].x = 1
    records[i]["y"] += 1


@says(writes=[0])
def sorts_in_place(a):
    a.sort()


@says(writes=[0])
def fills(a):
    a[1:].fill(0)


@says(writes=[0])
def appends(found, x):
    found.append(x)


@says(writes=[0])
def updates(d, k):
    d.update({k: 1})
    d.setdefault(k, 2)


@says(writes=[0])
def copies_into(a, b):
    np.copyto(a, b)


@says(writes=[0])
def fills_a_diagonal(a):
    np.fill_diagonal(a, 1)


@says(writes=[2])
def writes_out(a, b, c):
    np.add(a, b, c)


@says(writes=[1])
def writes_out_by_name(a, b):
    np.sqrt(a, out=b)


@says(writes=[2])
def writes_a_product(a, b, c):
    np.dot(a, b, c)


@says(writes=[0])
def gives_to_a_callee(a, x):
    fill_first(a, x)


@says(writes=[1], nested=[0])
def gives_by_name(x, a):
    fill_first(value=x, a=a[1:])


@says(writes=[0])
def gives_the_rest(*rest):
    fill_first(*rest)


@says(writes=[1])
def writes_to_the_rest(n, *rest):
    rest[n][0] = 1


@says(writes=[1])
def gives_to_the_rest(a, b):
    writes_to_the_rest(0, b)
    return a


@says(writes=[0])
def gives_to_a_dispatcher(a):
    hooked(a)


@says(writes=[0])
def sets_what_a_callee_returns(a):
    same(a)[0] = 1


@says(writes=[0])
def sets_what_a_closure_captures(a):
    def inner(i):
        a[i] = 1

    inner(0)


@says(writes=[0])
def sets_what_a_closure_gets(a):
    def inner(x):
        x[0] = 1

    inner(a)


@says(writes=[0], loops=True)
def recursive_writer(a, n):
    if n > 0:
        a[n] = n
        recursive_writer(a, n - 1)


@says(writes=[0, 1], loops=True)
def swapping_writer(a, b, n):
    if n > 0:
        a[n] = n
        swapping_writer(b, a, n - 1)


@says(writes=[0], nested=[1])
def puts_one_into_another(found, a):
    found.append(a)
    found[0][0] = 1


@says(writes=[0], nested=[1])
def sets_items_and_adds(out, a):
    out[0] = a[0]
    out[0] += 1


@says(writes=[0], nested=[1])
def puts_through_a_callee(found, a):
    appends(found, a)
    found.pop()[0] = 1


@says(writes=[0])
def calls_one_of_several(a):
    FUNCTIONS[1](a, 1)
    return FUNCTIONS[0](3)


@says(writes=[0], loops=True)
def changes_by_functions(a, b):
    np.nan_to_num(a, False)
    heapq.heapify(a)


@says(writes=[0])
def catches_and_writes(a):
    try:
        a[0] = 1
    except Exception:
        a[1] = 2


@says(parts=[(0, 1)])
def begins_with_an_item(a):
    total = a[0]
    total += 1
    return total


@says(parts=[(0, 2)], loops=True)
def begins_with_an_item_of_a_matrix(a):
    for i in range(3):
        rest = a[i, i + 1]
        rest -= 1


@says(parts=[(0, 2)])
def takes_two_steps(a):
    row = a[1:][0]
    x = row[:-1][2]
    x += 1


@says(parts=[(0, 1)])
def takes_a_column(a):
    x = a[:, 0]
    x += 1


@says(writes=[0])
def takes_a_part_of_another_shape(a):
    x = a.reshape(-1, 1)[0]
    x += 1


@says(writes=[0])
def takes_a_part_with_a_new_dimension(a):
    x = a[0, None]
    x += 1


@says(writes=[0])
def takes_what_an_unknown_index_gives(a, i):
    x = a[i]
    x += 1


@says(writes=[0])
def takes_an_item_as_an_array_without_dimensions(a):
    x = a[..., 0]
    x += 1


@says(writes=[0])
def takes_two_steps_in_another_shape(a):
    x = a.reshape(-1, 1, 1)[0][0]
    x += 1


@says(writes=[0])
def takes_a_part_of_what_an_attribute_gives(a):
    x = a.flat[0]
    x += 1


@says(writes=[0])
def sets_through_a_field_with_the_name_of_an_attribute(a, b):
    p = Odd(a, 1)
    p.real[0] = 1
    return b


@says(parts=[(0, 1)])
def takes_a_part_of_a_transposed_view(a):
    x = a.T[0]
    x += 1


@says(parts=[(0, 2)])
def gives_a_row(a):
    begins_with_an_item(a[0])


@says(parts=[(0, 1)])
def gives_an_item(a):
    adds_in_place(a[0], 1)


@says(writes=[0])
def gives_a_list_of_arguments(a, b):
    adds_in_place(*(a, 1))
    return b


@says(writes=[0], loops=True)
def goes_down(a, n):
    while n:
        a = a[0]
    a[0] = 1


@says(parts=[(0, 1)])
def sorts_a_row(a):
    a[0].sort()


# -- not restartable ---------------------------------------------------------------------------------


@says("it calls print")
def prints(a):
    print(a)


@says("it calls helps_by_printing, which calls print")
def prints_below(a):
    helps_by_printing(a)


@says("it calls print")
def helps_by_printing(a):
    print(a)


@says("it draws random numbers (np.random.normal)")
def draws(a):
    return a + np.random.normal()


@says("it draws random numbers (np.random.seed)")
def seeds(n):
    np.random.seed(n)


@says("it draws random numbers (random.random)")
def draws_in_python(a):
    return a + random.random()


@says("it draws random numbers (RNG.normal)")
def draws_from_a_global(a):
    return a + RNG.normal()


@says("it calls the method standard_normal, which is not known to be pure")
def draws_from_a_parameter(rng):
    return rng.standard_normal()


@says("it yields", loops=True)
def generates(n):
    for i in range(n):
        yield i


@says("it has a handler or a finally that may stop any exception")
def leaves_for_objects(a):
    with objmode(b="int64"):
        b = a
    return b


@says("it writes to the global TABLE")
def writes_to_a_global(a):
    TABLE[0] = a


@says("it writes to the global NAMES")
def appends_to_a_global(a):
    NAMES.append(a)


@says("it writes to the global settings.table")
def writes_to_a_global_of_a_module(a):
    settings.table[0] = a


@says("it calls keeps_what_it_got, which writes to the default value of found")
def calls_one_with_a_default(a):
    keeps_what_it_got(a)


@says("it writes to the default value of found", writes=[1])
def keeps_what_it_got(a, found=[]):  # noqa: B006
    found.append(a)


@says("it sets the variable counter of an outer scope", writes=[0], loops=True)
def sets_a_global(a):
    global counter
    counter = a


@says("it writes to the global np")
def sets_in_a_module(a):
    np.thing = a


@says("it calls what f holds")
def calls_a_parameter(f, x):
    return f(x)


@says("it calls map with a function that cannot be followed", loops=True)
def maps_a_parameter(f, x):
    return list(map(f, x))


@says("it calls the method run, which is not known to be pure")
def calls_an_unknown_method(a):
    return a.run()


@says("it calls time.time, which is not known to be pure")
def reads_a_clock(a):
    return a + time.time()


@says("it calls open, which is not known to be pure")
def opens(a):
    return open(a)


@says("it calls stock, which numba compiles in the calling thread")
def calls_stock(a):
    return stock(a)


@says("it calls other_fallback, which has a fallback of its own")
def calls_one_with_a_fallback(a):
    return other_fallback(a)


@says("it calls ufunc, which numba compiles in the calling thread")
def calls_a_ufunc(a):
    return ufunc(a)


@says("it calls kernel, which numba compiles in the calling thread")
def calls_a_stencil(a):
    return kernel(a)


@says("it calls callback, which numba compiles in the calling thread")
def calls_a_callback(a):
    return callback(a)


@says("it calls Box, which numba compiles in the calling thread")
def makes_a_box(a):
    return Box().x + a


@says("it makes a typed container (List), whose operations numba compiles in the calling thread")
def makes_a_typed_list(a):
    found = List()
    found.append(a)
    return found


@says("it makes a typed container (Dict.empty), whose operations numba compiles in the calling thread")
def makes_a_typed_dictionary(a):
    return Dict.empty(numba.types.int64, numba.types.int64)


@says("it has a handler or a finally that may stop any exception", writes=[0])
def catches_everything(a):
    try:
        a[0] = 1
    except:
        a[0] = 2


@says("it has a handler for BaseException", writes=[0])
def catches_base_exceptions(a):
    try:
        a[0] = 1
    except BaseException:
        a[0] = 2


@says("it has a handler or a finally that may stop any exception", writes=[0])
def tidies_up(a):
    try:
        a[0] = 1
    finally:
        a[0] = 2


@says("it calls Logged, which is not known to be pure")
def raises_with_effects(a):
    raise Logged(a)


@says("it raises Logged, and nothing is known of what making that does")
def raises_a_class_with_effects(a):
    raise Logged


@says("it cannot be read by numba", writes=[0], loops=True)
def deletes_a_variable_while_importing(a):
    import os

    return os, a


@says("it cannot be read by numba", writes=[0, 1], loops=True)
def takes_apart(a, b):
    first, *others = a
    return first, others


@says("it writes to the default value of a", writes=[0])
def writes_to_a_default(a=TABLE):
    a[0] = 1


@says("it writes to the global TABLE")
def writes_to_what_a_callee_returns(n):
    gives_a_global()[n] = 1


@says()
def gives_a_global():
    return TABLE


@says("it calls inner, which sets the variable n of an outer scope")
def sets_from_inside(n):
    def inner():
        nonlocal n
        n = 4

    inner()
    return n


@says("it calls the missing global missing_function, which is not known to be pure")
def calls_what_is_not_there(a):
    return missing_function(a)  # noqa: F821


@says(writes=[0], loops=True)
def goes_through_a_generator(a):
    total = 0.0
    for row in rows(a):
        row[0] = 1
        total += 1
    return total


@says("it yields", loops=True)
def rows(a):
    for i in range(3):
        yield a[i]


@says("it calls prints_and_yields, which calls print", loops=True)
def goes_through_a_loud_generator(a):
    return list(prints_and_yields(a))


@says("it yields")
def prints_and_yields(a):
    print(a)
    yield 1


@says(writes=[0], nested=[], loops=False)
def writes_in_a_generator(a):
    for _ in marks(a[1:]):
        break


@says("it yields", writes=[0])
def marks(a):
    a[0] = 1
    yield 1
    a[1] = 1
