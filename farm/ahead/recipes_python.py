# ruff: noqa: B018, SIM118 - what is called here is compiled, whatever becomes of the result
"""Recipes for what is Python's own: lists, sets, dictionaries, text, hashes, random numbers.

`recipes` says what a recipe is.
"""

import math
import random
from typing import Any, Final

import numba
import numpy as np

from farm.ahead.recipes import Recipes

RECIPES: Final = Recipes()
ITEMS = ("(int64,)", "(float64,)", "(unicode_type,)")

# -- lists -------------------------------------------------------------------------------------------------------


@RECIPES(*ITEMS, "(int32,)", "(boolean,)")
def reflected_list(item: Any) -> Any:
    kept = [item]
    kept.append(item)
    kept.extend(kept)
    kept.insert(0, item)
    kept.pop(), kept.pop(0)
    kept.reverse()
    kept[0] = item
    kept[0:1]
    copied = kept.copy()
    copied.clear()
    return kept + kept, kept * 2, [one for one in kept], len(kept), kept == copied, item in kept


@RECIPES("(int64,)", "(float64,)")
def reflected_list_in_order(item: Any) -> Any:
    kept = [item]
    kept.sort()
    return sorted(kept), sum(kept), min(kept), max(kept)


@RECIPES("(int64,)", "(float64,)")
def reflected_list_searched(item: Any) -> Any:
    kept = [item]
    kept.remove(item)
    return kept.index(item), kept.count(item), np.array(kept)


@RECIPES("(float64,)", "(int64,)")
def list_of_arrays(item: Any) -> Any:
    kept = [np.full(2, item)]
    kept.append(kept[0])
    return kept, len(kept), kept.pop()


@RECIPES("(int64, float64)")
def list_of_pairs(key: Any, value: Any) -> Any:
    kept = [(key, value)]
    kept.append((key, value))
    kept.sort()
    return kept, kept.pop()


@RECIPES(*ITEMS)
def typed_list(item: Any) -> Any:
    kept = numba.typed.List()
    kept.append(item)
    kept.extend(kept)
    kept.insert(0, item)
    kept.pop(), kept.pop(0)
    kept.reverse()
    kept[0] = item
    total = 0
    for one in kept:
        total += one == item
    return kept[0:1], kept.copy(), len(kept), item in kept, total


@RECIPES("(int64,)", "(float64,)")
def typed_list_in_order(item: Any) -> Any:
    kept = numba.typed.List()
    kept.append(item)
    kept.sort()
    kept.clear()
    return sorted(kept), kept.index(item), kept.count(item)


@RECIPES("(float64,)", "(int64,)")
def typed_list_of_arrays(item: Any) -> Any:
    kept = numba.typed.List()
    kept.append(np.full(2, item))
    for one in kept:
        one.size
    return kept[0], len(kept), kept.pop()


@RECIPES("(ListType(int64), int64)", "(ListType(float64), int64)", "(ListType(unicode_type), int64)")
def given_list(kept: Any, place: Any) -> Any:
    kept.append(kept[place])
    kept[place] = kept[0]
    for one in kept:
        one
    return len(kept), kept.pop()


# -- sets and dictionaries ---------------------------------------------------------------------------------------


@RECIPES(*ITEMS)
def set_of_items(item: Any) -> Any:
    kept = {item}
    kept.add(item)
    kept.discard(item)
    other = kept.copy()
    kept.update(other)
    both, either, but = kept & other, kept | other, kept - other
    for one in kept:
        one
    return item in kept, len(kept), kept == other, kept <= other, both, either, but


@RECIPES("(int64,)", "(float64,)")
def set_emptied(item: Any) -> Any:
    kept = set([item])
    kept.remove(item)
    kept.pop()
    kept.clear()
    return kept


PAIRS = (
    "(int64, int64)",
    "(int64, float64)",
    "(int64, boolean)",
    "(float64, float64)",
    "(float64, int64)",
    "(unicode_type, int64)",
    "(unicode_type, float64)",
    "(unicode_type, unicode_type)",
    "(int32, int64)",
)


@RECIPES(*PAIRS, "(UniTuple(int64, 2), int64)", "(UniTuple(int64, 2), float64)", "(int64, float64[::1])")
def dictionary(key: Any, value: Any) -> Any:
    found = {}
    found[key] = value
    if key in found:
        found[key] = found[key]
    for one in found:
        one
    return found.get(key, value), len(found)


@RECIPES("(int64, int64)", "(unicode_type, int64)")
def dictionary_with_defaults(key: Any, value: Any) -> Any:
    found = {key: value}
    return found.get(key, 0), found.get(key, 1), found.get(key, -1)


@RECIPES(*PAIRS)
def dictionary_walked(key: Any, value: Any) -> Any:
    found = {key: value}
    for one in found.keys():
        one
    for each in found.values():
        each
    for one, each in found.items():
        one, each
    return list(found.keys()), list(found.values())


@RECIPES(*PAIRS[:4], "(unicode_type, int64)", "(unicode_type, float64)")
def dictionary_changed(key: Any, value: Any) -> Any:
    found = {key: value}
    found.setdefault(key, value)
    found.update(found.copy())
    found.pop(key), found.pop(key, value)
    del found[key]
    found.clear()
    return found.get(key) is None


@RECIPES("(int64, int64)", "(int64, float64)", "(unicode_type, int64)", "(unicode_type, float64)")
def empty_dictionary(key: Any, value: Any) -> Any:
    found = numba.typed.Dict()
    found[key] = value
    return found


@RECIPES("(int64, int64)")
def dictionary_of_lists(key: Any, value: Any) -> Any:
    found = {}
    inner = numba.typed.List()
    inner.append(value)
    found[key] = inner
    found[key].append(value)
    return found, key in found


@RECIPES(*(f"(DictType({pair[1:-1]}), {pair[1:-1]})" for pair in PAIRS[:2] + PAIRS[5:7]))
def given_dictionary(found: Any, key: Any, value: Any) -> Any:
    if key in found:
        found[key] = found[key]
    found[key] = value
    for one, each in found.items():
        one, each
    return len(found), found.get(key, value)


# -- text --------------------------------------------------------------------------------------------------------


@RECIPES("(unicode_type, unicode_type)")
def text_compared(one: Any, other: Any) -> Any:
    return one == other, one != other, one < other, one in other, one + other, one * 2, len(one), hash(one)


@RECIPES("(unicode_type, int64)")
def text_sliced(one: Any, place: Any) -> Any:
    result = ""
    for each in one:
        result += each
    return one[place], one[place:], one[:place], one[::-1], one[1:place], result


@RECIPES("(unicode_type, unicode_type)")
def text_searched(one: Any, other: Any) -> Any:
    return one.find(other), one.rfind(other), one.startswith(other), one.endswith(other), one.count(other)


@RECIPES("(unicode_type, unicode_type)")
def text_split(one: Any, other: Any) -> Any:
    return one.split(), one.split(other), other.join([one, other]), one.replace(one, other), one.split(",")


@RECIPES("(unicode_type,)")
def text_stripped(one: Any) -> Any:
    return one.strip(), one.lstrip(), one.rstrip(), one.splitlines()


@RECIPES("(unicode_type,)")
def text_cased(one: Any) -> Any:
    return one.upper(), one.lower()


@RECIPES("(unicode_type,)")
def text_looked_at(one: Any) -> Any:
    return one.isdigit(), one.isalpha(), one.isspace(), one.isupper(), one.islower(), one.isalnum()


@RECIPES("(unicode_type, int64)")
def text_padded(one: Any, width: Any) -> Any:
    return one.zfill(width), one.ljust(width), one.rjust(width), one.center(width)


@RECIPES("(int64,)")
def text_of_numbers(n: Any) -> Any:
    return str(n), f"{n}", chr(n), ord("a")


@RECIPES(*ITEMS, "(int32,)", "(float32,)", "(boolean,)", "(UniTuple(int64, 2),)", "(Tuple((int64, float64)),)")
def hashes(item: Any) -> Any:
    return hash(item)


@RECIPES("(UniTuple(int64, 2), UniTuple(int64, 2))", "(UniTuple(float64, 2), UniTuple(float64, 2))")
def tuples_compared(one: Any, other: Any) -> Any:
    return one == other, one != other, one < other, one[0] in other, sum(one), min(one), max(one)


# -- random numbers and mathematics ------------------------------------------------------------------------------


@RECIPES("(int64,)")
def random_numbers(n: Any) -> Any:
    np.random.seed(n)
    np.random.rand(), np.random.random(), np.random.randn(), np.random.uniform(0.0, 1.0), np.random.normal(0.0, 1.0)
    return np.random.randint(n), np.random.randint(0, n), np.random.standard_normal(), np.random.exponential(1.0)


@RECIPES("(int64,)")
def random_arrays(n: Any) -> Any:
    np.random.rand(n), np.random.random(n), np.random.randn(n), np.random.uniform(0.0, 1.0, n)
    np.random.normal(0.0, 1.0, n), np.random.standard_normal(n)
    return np.random.randint(0, n, n), np.random.randint(0, 10, size=n)


@RECIPES("(int64,)")
def random_matrices(n: Any) -> Any:
    np.random.rand(n, n), np.random.random((n, n)), np.random.randn(n, n)
    return np.random.uniform(0.0, 1.0, (n, n)), np.random.normal(0.0, 1.0, (n, n))


@RECIPES("(int64, float64)")
def random_distributions(n: Any, p: Any) -> Any:
    np.random.poisson(p), np.random.binomial(n, p), np.random.gamma(p, p), np.random.beta(p, p)
    return np.random.lognormal(0.0, p), np.random.chisquare(p), np.random.geometric(p)


@RECIPES(*(f"({one}[::1],)" for one in ("float64", "int64")))
def shuffled(x: Any) -> Any:
    np.random.shuffle(x)
    return np.random.permutation(x), np.random.choice(x), np.random.choice(x, 3)


@RECIPES("(int64,)")
def permutation(n: Any) -> Any:
    return np.random.permutation(n), np.random.choice(n), np.random.choice(n, 3)


@RECIPES("(int64,)")
def random_of_python(n: Any) -> Any:
    random.seed(n)
    return random.random(), random.uniform(0.0, 1.0), random.randint(0, n), random.randrange(n)


@RECIPES("(int64, int64)")
def greatest_common_divisor(n: Any, m: Any) -> Any:
    return math.gcd(n, m)


@RECIPES("(int64,)", "(float64,)")
def extremes_of_numbers(x: Any) -> Any:
    return min(x, 1), max(x, 1), abs(x), pow(x, 2)
