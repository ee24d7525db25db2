"""Functions that write to nothing of the caller's, and what `restart_of` must say of them."""

import heapq
import math
import operator
from functools import reduce

import numba
import numpy as np
from bodies import LIMIT, NAMES, NUMBERS, TABLE, Colour, Point, Problem, doubled, fill_first, same, says
from numba import prange

# mypy: disable-error-code="no-untyped-def, no-untyped-call"


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
