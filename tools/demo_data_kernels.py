"""The demo's kernels on data: statistics, clustering, texts, typed dictionaries, graphs and linear systems.

The dictionaries are made and filled inside the kernels, with `{}`: a plain dict while Python runs them, numba's
typed dictionary as machine code. A `numba.typed.Dict` as an argument would make every lookup from Python a call
of compiled code, which numba compiles in the calling process on first use.
"""

import heapq
import math
from typing import Final

import numpy as np
from demo_compiler import Kernel, njit
from demo_kernels import Batch, Floats, Integers, Random, walk

# -- statistics and clustering -------------------------------------------------------------------------


@njit
def histogram_2d(x: Floats, y: Floats, bins: int) -> Integers:
    """How many points fall into each cell of a square grid over the unit square."""
    counts = np.zeros((bins, bins), dtype=np.int64)
    for i in range(x.size):
        column, row = int(x[i] * bins), int(y[i] * bins)
        if 0 <= column < bins and 0 <= row < bins:
            counts[row, column] += 1
    return counts


@njit
def robust_scores(values: Floats, group: int) -> tuple[Floats, Integers]:
    """Distance from the group's median in median absolute deviations, and how many outliers each group has."""
    groups = values.size // group
    scores = np.empty(groups * group)
    outliers = np.zeros(groups, dtype=np.int64)
    for g in range(groups):
        part = values[g * group : (g + 1) * group]
        middle = np.median(part)
        deviation = np.median(np.abs(part - middle)) + 1e-12
        for i in range(group):
            score = (part[i] - middle) / deviation
            scores[g * group + i] = score
            outliers[g] += abs(score) > 4.0
    return scores, outliers


@njit
def ranks(values: Floats, group: int) -> tuple[Floats, Floats]:
    """Each value's rank within its group, and the groups' values in order."""
    placed = np.empty(values.size)
    ordered = np.empty(values.size)
    for start in range(0, values.size, group):
        part = values[start : start + group]
        order = np.argsort(part)
        ordered[start : start + group] = np.sort(part)
        for rank in range(part.size):
            placed[start + order[rank]] = rank
    return placed, ordered


@njit
def k_means(points: Floats, start: Floats, rounds: int) -> tuple[Integers, Floats]:
    """Cluster of each point and the clusters' centres, after some rounds of Lloyd's algorithm."""
    centres = start.copy()
    clusters, dimensions = centres.shape
    label = np.zeros(points.shape[0], dtype=np.int64)
    for _ in range(rounds):
        total = np.zeros_like(centres)
        size = np.zeros(clusters)
        for p in range(points.shape[0]):
            nearest = math.inf
            for c in range(clusters):
                distance = 0.0
                for d in range(dimensions):
                    distance += (points[p, d] - centres[c, d]) ** 2
                if distance < nearest:
                    nearest = distance
                    label[p] = c
            total[label[p]] += points[p]
            size[label[p]] += 1.0
        for c in range(clusters):
            if size[c] > 0.0:
                centres[c] = total[c] / size[c]
    return label, centres


# -- texts ---------------------------------------------------------------------------------------------


@njit
def edit_distance(one: str, other: str) -> int:
    """How many insertions, deletions and replacements turn one text into the other."""
    above = np.arange(len(other) + 1)
    row = np.empty_like(above)
    for i in range(len(one)):
        row[0] = i + 1
        for j in range(len(other)):
            replaced = above[j] + (one[i] != other[j])
            row[j + 1] = min(replaced, above[j + 1] + 1, row[j] + 1)
        above, row = row, above
    return int(above[len(other)])


@njit
def word_counts(text: str) -> tuple[str, int, int]:
    """The most frequent word (the first in the alphabet among equals), its count, and the number of words."""
    counts: dict[str, int] = {}
    for word in text.split():
        if word in counts:
            counts[word] += 1
        else:
            counts[word] = 1
    most = ""
    times = 0
    for word, count in counts.items():
        if count > times or (count == times and word < most):
            most, times = word, count
    return most, times, len(counts)


# -- typed dictionaries --------------------------------------------------------------------------------


@njit
def revenue_by_customer(customer: Integers, amount: Floats) -> tuple[Integers, Floats]:
    """The customers that bought something, in order, and what each spent."""
    spent: dict[int, float] = {}
    for i in range(customer.size):
        who = int(customer[i])
        if who in spent:
            spent[who] += amount[i]
        else:
            spent[who] = amount[i]
    customers = np.array(sorted(spent))
    totals = np.empty(customers.size)
    for i in range(customers.size):
        totals[i] = spent[int(customers[i])]
    return customers, totals


@njit
def match_trades(account: Integers, symbol: Integers, quantity: Integers) -> Integers:
    """Open position of each (account, symbol) pair after all trades: rows of account, symbol, position, in order."""
    position: dict[tuple[int, int], int] = {}
    for i in range(account.size):
        key = (int(account[i]), int(symbol[i]))
        if key in position:
            position[key] += int(quantity[i])
        else:
            position[key] = int(quantity[i])
    rows = np.empty((len(position), 3), dtype=np.int64)
    for i, key in enumerate(sorted(position)):
        rows[i, 0], rows[i, 1], rows[i, 2] = key[0], key[1], position[key]
    return rows


# -- graphs --------------------------------------------------------------------------------------------


@njit
def shortest_paths(first: Integers, target: Integers, length: Floats, source: int) -> Floats:
    """Distance of every node from one source; edges of node n are first[n] to first[n + 1] (Dijkstra)."""
    distance = np.full(first.size - 1, np.inf)
    distance[source] = 0.0
    waiting = [(0.0, source)]
    while len(waiting) > 0:
        so_far, node = heapq.heappop(waiting)
        if so_far > distance[node]:
            continue
        for edge in range(first[node], first[node + 1]):
            further = so_far + length[edge]
            neighbour = int(target[edge])
            if further < distance[neighbour]:
                distance[neighbour] = further
                heapq.heappush(waiting, (further, neighbour))
    return distance


# -- linear systems ------------------------------------------------------------------------------------


@njit
def cholesky_solve(matrix: Floats, right: Floats) -> tuple[Floats, float]:
    """Solution of a symmetric positive definite system and the logarithm of the determinant."""
    n = right.size
    factor = np.zeros((n, n))
    log_determinant = 0.0
    for i in range(n):
        for j in range(i + 1):
            rest = matrix[i, j]
            for k in range(j):
                rest -= factor[i, k] * factor[j, k]
            if i == j:
                factor[i, i] = math.sqrt(rest)
                log_determinant += 2.0 * math.log(factor[i, i])
            else:
                factor[i, j] = rest / factor[j, j]
    solution = right.copy()
    for i in range(n):
        for k in range(i):
            solution[i] -= factor[i, k] * solution[k]
        solution[i] /= factor[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            solution[i] -= factor[k, i] * solution[k]
        solution[i] /= factor[i, i]
    return solution, log_determinant


# -- what the kernels are called with ------------------------------------------------------------------

TEXT: Final = (
    "the of and to in is that it was for on are with as his they be at one have this from or had by hot but some what "
    "there we can out other were all your when up use word how said an each she which do their time if will way about"
)


def scattered(random: Random) -> Batch:
    """Points in clusters, and where the search for the centres begins."""
    centres = random.uniform(-10, 10, (6, 3))
    points = centres[random.integers(0, 6, 800)] + random.normal(size=(800, 3))
    return points, points[:6].copy(), 3


def misspelt(random: Random) -> Batch:
    """A text and a copy with every tenth letter wrong."""
    letters = random.choice(list("abcdefghij "), 180)
    wrong = np.where(random.random(180) < 0.1, "x", letters)
    return "".join(letters), "".join(wrong)


def sentence(random: Random) -> Batch:
    """A text with frequent and rare words."""
    words = TEXT.split()
    frequency = 1 / np.arange(1, len(words) + 1)
    return (" ".join(random.choice(words, 90_000, p=frequency / frequency.sum())),)


def trades(random: Random) -> Batch:
    """Account, symbol and signed quantity of trades."""
    return random.integers(0, 40, 30_000), random.integers(0, 25, 30_000), random.integers(-100, 101, 30_000)


def roads(random: Random) -> Batch:
    """A network with three roads from every place, one of them to the next place."""
    places = 6_000
    target = random.integers(0, places, (places, 3))
    target[:, 0] = (np.arange(places) + 1) % places
    return np.arange(places + 1) * 3, target.ravel(), random.uniform(1, 10, places * 3), 0


def system(random: Random) -> Batch:
    """A symmetric positive definite system."""
    factor = random.normal(size=(75, 75))
    return factor @ factor.T + 75 * np.eye(75), random.normal(size=75)


KERNELS: Final = (
    Kernel(histogram_2d, lambda random: (random.beta(2, 5, 25_000), random.beta(3, 3, 25_000), 32)),
    Kernel(robust_scores, lambda random: (walk(random, 30_000), 500)),
    Kernel(ranks, lambda random: (random.lognormal(size=80_000), 1_000)),
    Kernel(k_means, scattered),
    Kernel(edit_distance, misspelt),
    Kernel(word_counts, sentence),
    Kernel(revenue_by_customer, lambda random: (random.zipf(1.3, 40_000) % 5_000, random.uniform(5, 500, 40_000))),
    Kernel(match_trades, trades),
    Kernel(shortest_paths, roads),
    Kernel(cholesky_solve, system),
)
