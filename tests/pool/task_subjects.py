"""Callers and callees for test_task. Imported in the front; a worker gets them by value and never imports this."""

import numba
import numpy as np
from numba import njit
from numba.experimental import jitclass
from numba.typed import List


@njit
def divide(a, b):
    return a / b


@njit
def as_text(a, b):
    return "a" if a > b else "b"


@njit
def divide_plus_one(a, b):
    return divide(a, b) + 1.0


@njit
def divide_plus_two(a, b):
    return divide(a, b) + 2.0


@njit(error_model="numpy")
def careless(a, b):
    return divide(a, b)


@njit(fastmath=True)
def fast(a, b):
    return divide(a, b)


@njit
def careful(a, b):
    return divide(a, b)


@njit
def careless_then_careful(a, b):
    return careless(a, b) + careful(a, b)


def make_adder(amount):
    table = np.full(3, amount)

    @njit
    def add(a):
        return a + table[a] + 0 * amount

    return add


add_1, add_100 = make_adder(1), make_adder(100)


@njit
def both_adders(a):
    return add_1(a), add_100(a)


@njit
def fact(n):
    return 1 if n < 2 else n * fact(n - 1)


@njit
def fact_plus_one(n):
    return fact(n) + 1


@njit
def fact_of_both(n):
    return fact(n) + fact(1.0 * n)


@njit
def ping(n):
    return 0 if n <= 0 else pong(n - 1) + 1


@njit
def pong(n):
    return 0 if n <= 0 else ping(n - 1) + 2


@njit
def calls_ping(n):
    return ping(n)


@njit
def attributeless(a):
    return a.no_such_attribute


@njit
def calls_attributeless(a):
    return divide(a, 2.0) + attributeless(a)


@njit
def counted(n):
    for i in range(n):
        yield i * i


@njit
def sum_counted(n):
    total = 0
    for i in counted(n):
        total += i
    return total


@njit
def list_counted(n):
    return [i for i in counted(n)]


@njit
def apply(function, a, b):
    return function(a, b)


@njit
def apply_divide(a, b):
    return apply(divide, a, b)


@njit
def apply_divide_again(a, b):
    return apply(divide, a, b) * 2.0


@njit
def small_numbers(n):
    return np.arange(n).astype(np.int32)


@njit
def more_small_numbers(n):
    return small_numbers(n + 1)


@njit
def refuses(a):
    if a < 0:
        raise ValueError("negative", a)
    return a


@njit
def calls_refuses(a):
    return refuses(a) * 2


MARK = "four"


@njit
def in_python(a):
    with numba.objmode(b="int64"):
        b = a + len(MARK)
    return b


@njit
def calls_in_python(a):
    return in_python(a) * 2


@njit
def calls_in_python_again(a):
    return in_python(a) * 3


@njit
def first_difference(x):
    return np.diff(x)[0]


@njit
def last_difference(x):
    return np.diff(x)[-1]


@njit
def sum_of_parts(n):
    found = {n: n + 1, n + 2: n + 3}
    total = 0
    keys = found.keys()
    for key in keys:
        total += key
    for value in found.values():
        total += value
    for key, value in found.items():
        total += key * value
    for one in List([total, n]):
        total += one
    return total


@njit
def sum_of_parts_again(n):
    total = 1
    found = {n: n + 1}
    keys = found.keys()
    for key in keys:
        total += key
    for value in found.values():
        total += value
    for key, value in found.items():
        total += key * value
    for one in List([total, n]):
        total += one
    return total


@jitclass([("x", numba.float64)])
class Point:
    def __init__(self, x):
        self.x = x

    def moved(self, by):
        return Point(self.x + by)


@njit
def make_point(x):
    return Point(x)


@njit
def x_of(point):
    return point.x


@njit
def x_of_moved(x):
    return x_of(make_point(x).moved(1.0))


@njit
def x_of_moved_twice(x):
    return x_of(make_point(x).moved(1.0).moved(1.0))
