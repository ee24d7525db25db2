"""Functions of many kinds with the argument types to compile them for, shared by both processes."""

import numba
import numpy as np
from numba import float64, int64, njit, objmode, prange, types

ARRAY = float64[::1]


@njit
def add(a, b):
    return a + b


@njit
def weighted(x, w, out):
    for i in range(x.size):
        out[i] = x[i] * w[i]
    return out.sum()


@njit
def raises(a):
    if a < 0:
        raise ValueError("negative", a)
    return a


@njit
def count_to(n):
    for i in range(n):
        yield i * 2


@njit
def prints_in_python(a):
    with objmode(b="float64"):
        b = float(np.float64(a) + len(SUBJECTS_MARK))
    return b


SUBJECTS_MARK = "four"


@njit(parallel=True)
def parallel_sum(x):
    total = 0.0
    for i in prange(x.size):
        total += x[i]
    return total


@njit
def twice_the_sum(x):
    return parallel_sum(x) * 2


@njit
def text_length(s):
    return len(s.upper()) + hash(s) * 0


def make_scaled(factor):
    table = np.arange(3) * factor

    @njit
    def scaled(i):
        return table[i] + factor

    return scaled


@njit
def fact(n):
    return 1 if n < 2 else n * fact(n - 1)


@njit
def ping(n, acc):
    if n <= 0:
        return acc
    return pong(n - 1, acc + 1)


@njit
def pong(n, acc):
    if n <= 0:
        return acc
    return ping(n - 1, acc + 2)


@njit
def caller_of_add(a):
    return add(a, 1.5) * 2


@njit
def makes_dict(n):
    d = {}
    for i in range(n):
        d[i] = i * i
    return d[n - 1]


@numba.jit(forceobj=True, looplift=False)
def in_object_mode(a):
    return str(a)


HUGE = np.zeros(2_000_000)


@njit
def reads_huge(i):
    return HUGE[i]


SUBJECTS = {
    "add": (add, (float64, float64)),
    "weighted": (weighted, (ARRAY, ARRAY, ARRAY)),
    "raises": (raises, (int64,)),
    "count_to": (count_to, (int64,)),
    "prints_in_python": (prints_in_python, (float64,)),
    "parallel_sum": (parallel_sum, (ARRAY,)),
    "twice_the_sum": (twice_the_sum, (ARRAY,)),
    "text_length": (text_length, (types.unicode_type,)),
    "scaled_1": (make_scaled(1), (int64,)),
    "scaled_100": (make_scaled(100), (int64,)),
    "fact": (fact, (int64,)),
    "ping": (ping, (int64, int64)),
    "caller_of_add": (caller_of_add, (float64,)),
    "makes_dict": (makes_dict, (int64,)),
    "in_object_mode": (in_object_mode, (int64,)),
    "reads_huge": (reads_huge, (int64,)),
}
