"""Functions over containers and texts, with exceptions, and heavy ones, all measured once: see first_calls."""

import math
from typing import Any

import numpy as np
from demo_compiler import njit
from first_calls_case import Random, case
from numba import prange, typed

# -- containers ----------------------------------------------------------------------------------------


def _typed_numbers(random: Random, count: int) -> Any:
    numbers = typed.List()
    for number in random.integers(0, 1000, count):
        numbers.append(int(number))
    return numbers


@case("typed list", lambda random: (_typed_numbers(random, 5_000),))
@njit
def running_maximum(numbers):
    for i in range(1, len(numbers)):
        numbers[i] = max(numbers[i], numbers[i - 1])
    numbers.append(len(numbers))
    return numbers


@case("typed list", lambda random: (20_000,))
@njit
def squares_listed(n):
    found = typed.List()
    for i in range(n):
        found.append(i * i)
    return found


def _typed_prices(random: Random) -> Any:
    prices = typed.Dict()
    for number in range(200):
        prices[number] = float(random.integers(1, 100))
    return prices


@case("typed dictionary", lambda random: (_typed_prices(random), random.integers(0, 300, 3_000)))
@njit
def raise_prices(prices, numbers):
    for number in numbers:
        if number in prices:
            prices[number] += 1.0
        else:
            prices[number] = 1.0
    return len(prices)


@case("dictionary", lambda random: (random.integers(0, 5_000, 500_000),))
@njit
def most_frequent(numbers):
    counts = {}
    for number in numbers:
        if number in counts:
            counts[number] += 1
        else:
            counts[number] = 1
    best, times = 0, 0
    for number, count in counts.items():
        if count > times or (count == times and number < best):
            best, times = number, count
    return best, times


@case("reflected list", lambda random: ([int(number) for number in random.integers(0, 1000, 5_000)],))
@njit
def keep_even(numbers):
    kept = 0
    for i in range(len(numbers)):
        if numbers[i] % 2 == 0:
            numbers[kept] = numbers[i]
            kept += 1
    return kept


@case("list", lambda random: (2_000_000,))
@njit
def sieve(n):
    crossed = np.zeros(n, dtype=np.bool_)
    primes = []
    for number in range(2, n):
        if not crossed[number]:
            primes.append(number)
            for multiple in range(number * number, n, number):
                crossed[multiple] = True
    return len(primes), primes[-1]


# -- texts ---------------------------------------------------------------------------------------------


def _letters(random: Random, count: int) -> str:
    return "".join(random.choice(list("abcdefghijklmnopqrstuvwxyz "), count))


@case("text", lambda random: (_letters(random, 200_000),))
@njit
def count_vowels(text):
    count = 0
    for letter in text:
        if letter in "aeiou":
            count += 1
    return count


@case("text", lambda random: (_letters(random, 3_000), 3))
@njit
def shift_letters(text, by):
    shifted = ""
    for letter in text:
        if letter == " ":
            shifted += letter
        else:
            shifted += chr((ord(letter) - 97 + by) % 26 + 97)
    return shifted


@case("text", lambda random: (_letters(random, 1_200), _letters(random, 1_200)))
@njit
def common_letters(one, other):
    row = np.zeros(len(other) + 1, dtype=np.int64)
    for i in range(len(one)):
        diagonal = 0
        for j in range(len(other)):
            above = row[j + 1]
            row[j + 1] = diagonal + 1 if one[i] == other[j] else max(above, row[j])
            diagonal = above
    return row[len(other)]


# -- exceptions ----------------------------------------------------------------------------------------


def _one_negative(random: Random) -> tuple[Any, ...]:
    values = random.random(1_000_000)
    values[900_000] = -1.0
    return (values,)


@case("raises", _one_negative)
@njit
def square_roots(values):
    for i in range(values.size):
        if values[i] < 0:
            raise ValueError("negative")
        values[i] = math.sqrt(values[i])
    return values


@case("raises at once", lambda random: (0,))
@njit
def refuse(a):
    if a == 0:
        raise IndexError("nothing there", 17)
    return 10 // a


@case("catches", lambda random: (random.integers(0, 5, 200_000),))
@njit
def count_refused(a):
    count = 0
    for value in a:
        try:
            if value == 0:
                raise ValueError("zero")
        except Exception:
            count += 1
    return count


# -- one long C call -----------------------------------------------------------------------------------


@case("C call", lambda random: (random.random(6_000_000),))
@njit
def sorted_copy(a):
    return np.sort(a)


@case("C call", lambda random: (random.random(2_000_000), random.random(500_000)))
@njit
def places_of(a, wanted):
    a.sort()
    return np.searchsorted(a, wanted)


@case("C call in a loop", lambda random: (random.integers(0, 1000, (60, 100_000)),))
@njit
def medians(a):
    middle = np.empty(a.shape[0])
    for i in range(a.shape[0]):
        middle[i] = np.median(a[i])
    return middle


# -- heavy ---------------------------------------------------------------------------------------------


@case("heavy", lambda random: (random.random((250, 250)), random.random((250, 250))))
@njit
def matrix_product(a, b):
    product = np.zeros((a.shape[0], b.shape[1]))
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            for k in range(a.shape[1]):
                product[i, j] += a[i, k] * b[k, j]
    return product


@case("heavy", lambda random: (random.integers(1, 100, (220, 220)),))
@njit
def all_paths(distance):
    n = distance.shape[0]
    for k in range(n):
        for i in range(n):
            for j in range(n):
                through = distance[i, k] + distance[k, j]
                if through < distance[i, j]:
                    distance[i, j] = through


@case("heavy, parallel", lambda random: (random.random((500, 16)),))
@njit(parallel=True)
def pair_distances(points):
    n = points.shape[0]
    distance = np.zeros((n, n))
    for i in prange(n):
        for j in range(n):
            total = 0.0
            for k in range(points.shape[1]):
                difference = points[i, k] - points[j, k]
                total += difference * difference
            distance[i, j] = math.sqrt(total)
    return distance


@case("heavy", lambda random: (random.integers(0, 2, (150, 150)).astype(np.int8), 30))
@njit
def life(board, generations):
    rows, columns = board.shape
    for _ in range(generations):
        after = np.zeros_like(board)
        for i in range(rows):
            for j in range(columns):
                alive = 0
                for di in range(-1, 2):
                    for dj in range(-1, 2):
                        if di != 0 or dj != 0:
                            alive += board[(i + di) % rows, (j + dj) % columns]
                after[i, j] = alive == 3 or (alive == 2 and board[i, j] == 1)
        board[:, :] = after


@case("draws random numbers", lambda random: (3_000_000,))
@njit
def inside_circle(n):
    np.random.seed(7)
    inside = 0
    for _ in range(n):
        x, y = np.random.random(), np.random.random()
        inside += x * x + y * y < 1.0
    return inside


@case("draws random numbers", lambda random: (1_000,))
@njit
def few_drawn(n):
    np.random.seed(7)
    total = 0
    for _ in range(n):
        total += np.random.random() < 0.5
    return total
