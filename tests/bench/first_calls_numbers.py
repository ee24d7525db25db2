"""Functions over numbers and arrays all measured once: see first_calls."""

import math
from collections import namedtuple
from typing import Any, Final

import numpy as np
from demo_compiler import njit
from first_calls_case import Random, case

Point = namedtuple("Point", "x y")
RECORD: Final = np.dtype([("price", np.float64), ("number", np.int64)])
TABLE: Final = np.arange(1000, dtype=np.int64) * 7 % 1000


# -- scalars -------------------------------------------------------------------------------------------


@case("tiny body", lambda random: (41,))
@njit
def add_one(a):
    return a + 1


@case("tiny body", lambda random: (random.random(1000), random.random(1000), random.random(1000)))
@njit
def three_sizes(a, b, c):
    return a.size + b.size + c.size


@case("tiny body", lambda random: (TABLE.copy(), 17, 5))
@njit
def set_element(a, i, value):
    a[i] = value
    return TABLE[i]


@case("scalar loop", lambda random: (200_000,))
@njit
def light_sum(n):
    total = 0
    for i in range(n):
        total += i * i % 7
    return total


@case("scalar loop", lambda random: (5_000_000,))
@njit
def seconds_in_python(n):
    total = 0
    for i in range(n):
        total += i * i % 7
    return total


@case("scalar loop, heavy", lambda random: (150_000_000,))
@njit
def logistic_map(steps):
    x = 0.3
    for _ in range(steps):
        x = 3.7 * x * (1.0 - x)
    return x


@case("scalar loop, heavy", lambda random: (300_000,))
@njit
def longest_collatz(n):
    best, at = 0, 0
    for start in range(1, n):
        value, steps = start, 0
        while value != 1:
            value = value // 2 if value % 2 == 0 else 3 * value + 1
            steps += 1
        if steps > best:
            best, at = steps, start
    return best, at


@case("scalar loop, heavy", lambda random: (1_500_000,))
@njit
def count_primes(n):
    count = 0
    for number in range(2, n):
        divisor, prime = 2, True
        while divisor * divisor <= number:
            if number % divisor == 0:
                prime = False
                break
            divisor += 1
        count += prime
    return count


# -- writers in place ----------------------------------------------------------------------------------


@case("writes in place", lambda random: (random.random(1_500_000), 1.5))
@njit
def scale(a, factor):
    for i in range(a.size):
        a[i] *= factor


@case("writes in place", lambda random: (random.integers(0, 100, 400_000),))
@njit
def prefix_sums(a):
    for i in range(1, a.size):
        a[i] += a[i - 1]
    return a


@case("writes in place", lambda random: (np.zeros(12_500_000), 12_345, 1.0))
@njit
def set_in_100_megabytes(a, i, value):
    a[i] = value


@case("writes in place", lambda random: (random.integers(0, 10_000, 4_000),))
@njit
def insertion_sort(a):
    for i in range(1, a.size):
        value, j = a[i], i - 1
        while j >= 0 and a[j] > value:
            a[j + 1] = a[j]
            j -= 1
        a[j + 1] = value


@case("writes in place, heavy", lambda random: (random.random((400, 400)), 40))
@njit
def relax(plate, sweeps):
    for _ in range(sweeps):
        for i in range(1, plate.shape[0] - 1):
            for j in range(1, plate.shape[1] - 1):
                plate[i, j] = 0.25 * (plate[i - 1, j] + plate[i + 1, j] + plate[i, j - 1] + plate[i, j + 1])


def _overlapping(random: Random) -> tuple[Any, ...]:
    whole = random.integers(0, 1000, 300_000)
    return whole[:-1], whole[1:]


@case("writes overlapping views", _overlapping)
@njit
def add_to_neighbours(left, right):
    for i in range(left.size):
        right[i] += left[i] % 3
    return left


def _orders(random: Random) -> tuple[Any, ...]:
    orders = np.zeros(100_000, dtype=RECORD)
    orders["price"], orders["number"] = random.random(100_000), random.integers(1, 9, 100_000)
    return (orders,)


@case("writes records", _orders)
@njit
def discount(orders):
    total = 0.0
    for i in range(orders.size):
        if orders[i]["number"] > 4:
            orders[i]["price"] *= 0.9
        total += orders[i]["price"]
    return total


@case("whole arrays", lambda random: (random.random(3_000_000), random.random(3_000_000)))
@njit
def add_products(a, b):
    a += a * b - b * 0.5
    a[::2] = b[::2]


# -- several results -----------------------------------------------------------------------------------


@case("several results", lambda random: (random.random(1_000_000),))
@njit
def extremes(a):
    low, high, where = a[0], a[0], 0
    for i in range(a.size):
        low = min(low, a[i])
        if a[i] > high:
            high, where = a[i], i
    return low, high, where


@case("several results", lambda random: (random.integers(-100, 100, 600_000),))
@njit
def split_by_sign(a):
    negative, positive = np.empty_like(a), np.empty_like(a)
    m, n = 0, 0
    for value in a:
        if value < 0:
            negative[m] = value
            m += 1
        else:
            positive[n] = value
            n += 1
    return negative[:m], positive[:n], (m, n)


@case("several results", lambda random: (Point(1.0, 2.0), 700_000))
@njit
def rotate(point, times):
    for _ in range(times):
        point = Point(0.6 * point.x - 0.8 * point.y, 0.8 * point.x + 0.6 * point.y)
    return point


# -- calls of other functions --------------------------------------------------------------------------


@njit
def divisor_of(a, b):
    while b:
        a, b = b, a % b
    return a


@case("nested calls", lambda random: (1_500,))
@njit
def coprime_pairs(n):
    count = 0
    for a in range(1, n):
        for b in range(1, a):
            count += divisor_of(a, b) == 1
    return count


@njit
def next_state(state):
    return state * 16807 % 2147483647


@njit
def fill_row(row, state):
    for i in range(row.size):
        state = next_state(state)
        row[i] = state % 1000
    return state


@case("nested calls", lambda random: (np.zeros((300, 300), dtype=np.int64),))
@njit
def fill_matrix(matrix):
    state = 1
    for i in range(matrix.shape[0]):
        state = fill_row(matrix[i], state)
    return state


@njit
def row_norm(row):
    total = 0.0
    for value in row:
        total += value * value
    return math.sqrt(total)


@njit
def normalise_row(row):
    norm = row_norm(row)
    for i in range(row.size):
        row[i] /= norm


@njit
def normalise(matrix):
    for i in range(matrix.shape[0]):
        normalise_row(matrix[i])


@njit
def gram(matrix, product):
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[0]):
            total = 0.0
            for k in range(matrix.shape[1]):
                total += matrix[i, k] * matrix[j, k]
            product[i, j] = total


@case("nested calls, heavy", lambda random: (random.random((300, 300)), np.zeros((300, 300))))
@njit
def normalised_gram(matrix, product):
    normalise(matrix)
    gram(matrix, product)
    return row_norm(product[0])


# -- recursion -----------------------------------------------------------------------------------------


@case("recursion", lambda random: (29,))
@njit
def fibonacci(n):
    if n < 2:
        return n
    return fibonacci(n - 1) + fibonacci(n - 2)


@case("recursion", lambda random: (random.integers(0, 1_000_000, 60_000), 0, 59_999))
@njit
def quick_sort(a, low, high):
    if low >= high:
        return
    pivot, i, j = a[(low + high) // 2], low, high
    while i <= j:
        while a[i] < pivot:
            i += 1
        while a[j] > pivot:
            j -= 1
        if i <= j:
            a[i], a[j] = a[j], a[i]
            i += 1
            j -= 1
    quick_sort(a, low, j)
    quick_sort(a, i, high)


@case("recursion, heavy", lambda random: (10, 0, 0, 0))
@njit
def queens(n, columns, left, right):
    free = ((1 << n) - 1) & ~(columns | left | right)
    if columns == (1 << n) - 1:
        return 1
    count = 0
    while free:
        bit = free & -free
        free ^= bit
        count += queens(n, columns | bit, (left | bit) << 1, (right | bit) >> 1)
    return count
