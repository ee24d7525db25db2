"""Recipes for numpy: sorting, searching, reductions, arrays that are made and changed, linear algebra.

`recipes` says what a recipe is.
"""

from typing import Any, Final

import numpy as np

from farm.ahead.recipes import Recipes

RECIPES: Final = Recipes()


def vectors(*dtypes: str) -> tuple[str, ...]:
    """Signatures of one vector, contiguous."""
    return tuple(f"({one}[::1],)" for one in dtypes)


def matrices(*dtypes: str) -> tuple[str, ...]:
    """Signatures of one matrix, in C order."""
    return tuple(f"({one}[:,::1],)" for one in dtypes)


F8: Final = "float64"
REAL: Final = ("float64", "float32")
NUMBERS: Final = ("float64", "float32", "int64", "int32")
ANY: Final = (*NUMBERS, "boolean")
VIEW: Final = "(float64[:],)"
"""A vector that need not be contiguous: a row, a column, every other item."""

# -- sorting and searching -------------------------------------------------------------------------------------


@RECIPES(*vectors(*NUMBERS), VIEW)
def sort(x: Any) -> Any:
    y = np.sort(x)
    y.sort()
    return y


@RECIPES(*vectors(*NUMBERS), VIEW)
def argsort(x: Any) -> Any:
    return np.argsort(x), x.argsort()


@RECIPES(*vectors("float64", "int64"))
def argsort_merging(x: Any) -> Any:
    return np.argsort(x, kind="mergesort")


@RECIPES(*vectors(*NUMBERS))
def partition(x: Any) -> Any:
    return np.partition(x, 1)


@RECIPES(*vectors("float64", "int64"))
def argpartition(x: Any) -> Any:
    return np.argpartition(x, 1)


@RECIPES("(float64[::1], float64)", "(float32[::1], float32)", "(int64[::1], int64)", "(int32[::1], int64)")
def searchsorted(x: Any, value: Any) -> Any:
    return np.searchsorted(x, value), np.searchsorted(x, value, side="right")


@RECIPES("(float64[::1], float64[::1])", "(int64[::1], int64[::1])")
def searchsorted_each(x: Any, values: Any) -> Any:
    return np.searchsorted(x, values), np.searchsorted(x, values, side="right"), np.digitize(values, x)


@RECIPES(*vectors(*NUMBERS))
def unique(x: Any) -> Any:
    return np.unique(x)


@RECIPES(*vectors(*ANY))
def nonzero(x: Any) -> Any:
    return np.flatnonzero(x), np.nonzero(x), np.where(x)


@RECIPES(*vectors(*ANY), *matrices("float64"))
def count_nonzero(x: Any) -> Any:
    return np.count_nonzero(x)


@RECIPES("(int64[::1],)", "(int32[::1],)")
def bincount(x: Any) -> Any:
    return np.bincount(x)


@RECIPES("(int64[::1], float64[::1])")
def bincount_weighted(x: Any, w: Any) -> Any:
    return np.bincount(x, weights=w), np.bincount(x, w, 3)


@RECIPES("(float64[::1],)")
def histogram(x: Any) -> Any:
    return np.histogram(x, 10), np.histogram(x)


@RECIPES("(float64[::1], float64[::1], float64[::1])", "(float64, float64[::1], float64[::1])")
def interp(x: Any, at: Any, values: Any) -> Any:
    return np.interp(x, at, values)


@RECIPES("(int64[::1], int64[::1])", "(float64[::1], float64[::1])")
def sets_of_arrays(x: Any, y: Any) -> Any:
    return np.intersect1d(x, y), np.union1d(x, y), np.setdiff1d(x, y)


@RECIPES("(int64[::1], int64[::1])", "(float64[::1], float64[::1])")
def isin(x: Any, y: Any) -> Any:
    return np.isin(x, y)


# -- reductions --------------------------------------------------------------------------------------------------


@RECIPES(*vectors(*ANY), *matrices(*REAL), VIEW)
def sums(x: Any) -> Any:
    return np.sum(x), x.sum(), np.mean(x), x.mean()


@RECIPES(*vectors(*NUMBERS), *matrices("float64"), VIEW)
def spread(x: Any) -> Any:
    return np.std(x), x.std(), np.var(x), x.var()


@RECIPES(*vectors(*NUMBERS), *matrices(*REAL), VIEW)
def extremes(x: Any) -> Any:
    return np.min(x), np.max(x), x.min(), x.max()


@RECIPES(*vectors(*NUMBERS), *matrices("float64"), VIEW)
def where_extremes_are(x: Any) -> Any:
    return np.argmin(x), np.argmax(x), x.argmin(), x.argmax()


@RECIPES(*vectors(*NUMBERS), VIEW)
def running(x: Any) -> Any:
    return np.cumsum(x), x.cumsum(), np.cumprod(x), np.prod(x)


@RECIPES(*vectors(*ANY), *matrices("float64", "boolean"))
def any_and_all(x: Any) -> Any:
    return np.any(x), np.all(x), x.any(), x.all()


@RECIPES(*vectors(*NUMBERS), *matrices("float64"), VIEW)
def median(x: Any) -> Any:
    return np.median(x)


@RECIPES("(float64[::1], float64)", "(float32[::1], float64)", "(int64[::1], float64)", "(float64[:], float64)")
def percentile(x: Any, q: Any) -> Any:
    return np.percentile(x, q), np.quantile(x, q)


@RECIPES("(float64[::1], int64)", "(float64[::1], float64[::1])")
def percentiles(x: Any, q: Any) -> Any:
    return np.percentile(x, q)


@RECIPES(*matrices("float64", "float32", "int64"))
def along_an_axis(x: Any) -> Any:
    return np.sum(x, axis=0), np.sum(x, axis=1), x.sum(axis=0), x.sum(axis=1), x.sum(0), x.sum(1)


@RECIPES(*matrices("float64"))
def extremes_along_an_axis(x: Any) -> Any:
    return np.argmax(x, axis=0), np.argmax(x, axis=1), np.argmin(x, axis=0), np.argmin(x, axis=1)


@RECIPES(*vectors(*REAL), *matrices("float64"))
def without_nans(x: Any) -> Any:
    return np.nansum(x), np.nanmean(x), np.nanmin(x), np.nanmax(x), np.nanstd(x), np.nanvar(x)


@RECIPES(*vectors("float64"))
def medians_without_nans(x: Any) -> Any:
    return np.nanmedian(x), np.nanpercentile(x, 30.0)


@RECIPES(*vectors("float64", "int64"))
def peak_to_peak(x: Any) -> Any:
    return np.ptp(x)


@RECIPES("(float64[::1], float64[::1])")
def averages(x: Any, w: Any) -> Any:
    return np.average(x), np.average(x, weights=w)


@RECIPES("(float64[::1], float64[::1])")
def correlation(x: Any, y: Any) -> Any:
    return np.corrcoef(x, y), np.cov(x, y)


@RECIPES("(float64[::1], float64[::1])", "(float64[:,::1], float64[:,::1])")
def closeness(x: Any, y: Any) -> Any:
    return np.allclose(x, y), np.isclose(x, y), np.array_equal(x, y)


@RECIPES("(float64, float64)")
def closeness_of_numbers(x: Any, y: Any) -> Any:
    return np.isclose(x, y), np.allclose(x, y)


# -- making and changing arrays ----------------------------------------------------------------------------------


@RECIPES("(int64,)")
def made_of_one_value(n: Any) -> Any:
    return np.zeros(n), np.ones(n), np.empty(n), np.full(n, 1.5), np.full(n, 2), np.eye(n), np.identity(n)


@RECIPES("(int64,)")
def made_of_one_value_typed(n: Any) -> Any:
    np.ones(n, np.float64), np.ones(n, np.float32), np.ones(n, np.int64), np.ones(n, np.int32), np.ones(n, np.bool_)
    np.zeros(n, np.int64), np.zeros(n, np.float32), np.zeros(n, dtype=np.bool_), np.ones(n, dtype=np.bool_)
    np.full(n, np.nan), np.full(n, -1, np.int64), np.full(n, 0.0, np.float32), np.full(n, False, np.bool_)


@RECIPES("(int64, int64)")
def made_of_one_value_in_rows(n: Any, m: Any) -> Any:
    np.zeros((n, m)), np.ones((n, m)), np.empty((n, m)), np.full((n, m), 1.5), np.full((n, m), np.nan)
    np.zeros((n, m), np.int64), np.ones((n, m), np.int64), np.ones((n, m), np.float32), np.full((n, m), -1)


@RECIPES(*vectors(*ANY), *matrices("float64", "int64"), VIEW)
def made_alike(x: Any) -> Any:
    return np.zeros_like(x), np.ones_like(x), np.empty_like(x), np.full_like(x, 1), x.copy(), np.copy(x)


@RECIPES("(int64,)", "(float64,)")
def ranges(n: Any) -> Any:
    return np.arange(n), np.arange(0, n), np.arange(0, n, 2), np.arange(1.0, n, 0.5)


@RECIPES("(float64, float64, int64)", "(int64, int64, int64)")
def evenly_spaced(low: Any, high: Any, n: Any) -> Any:
    return np.linspace(low, high, n)


@RECIPES("(float64, float64)", "(int64, int64)")
def evenly_spaced_by_default(low: Any, high: Any) -> Any:
    return np.linspace(low, high)


@RECIPES(
    *(f"({one}[::1], {one}[::1])" for one in ANY), *(f"({one}[:,::1], {one}[:,::1])" for one in ("float64", "int64"))
)
def concatenated(x: Any, y: Any) -> Any:
    return np.concatenate((x, y)), np.append(x, y)


@RECIPES("(float64[::1], float64[::1])", "(int64[::1], int64[::1])", "(float64[:,::1], float64[:,::1])")
def stacked(x: Any, y: Any) -> Any:
    return np.stack((x, y)), np.vstack((x, y)), np.hstack((x, y)), np.column_stack((x, y))


@RECIPES("(float64[::1], float64, float64)", "(int64[::1], int64, int64)", "(float64[:,::1], float64, float64)")
def clipped(x: Any, low: Any, high: Any) -> Any:
    return np.clip(x, low, high)


@RECIPES(*vectors(*NUMBERS), *matrices("float64"))
def differences(x: Any) -> Any:
    return np.diff(x), np.diff(x, 1)


@RECIPES(
    *(f"(boolean[::1], {one}[::1], {one}[::1])" for one in NUMBERS), "(boolean[:,::1], float64[:,::1], float64[:,::1])"
)
def chosen(condition: Any, x: Any, y: Any) -> Any:
    return np.where(condition, x, y)


@RECIPES("(boolean[::1], float64[::1], float64)", "(boolean[::1], int64[::1], int64)")
def chosen_or_one_value(condition: Any, x: Any, value: Any) -> Any:
    return np.where(condition, x, value), np.where(condition, value, x), np.where(condition, value, value)


@RECIPES(*vectors("float64", "int64"))
def turned(x: Any) -> Any:
    return np.flip(x), x[::-1].copy(), np.roll(x, 1), np.repeat(x, 2)


@RECIPES(*matrices("float64", "int64"))
def turned_rows(x: Any) -> Any:
    return np.transpose(x).copy(), x.T.copy(), np.ascontiguousarray(x.T), x.flatten(), x.ravel(), np.ravel(x)


@RECIPES(*vectors("float64", "int64"))
def taken(x: Any) -> Any:
    return np.take(x, np.array([0])), x[np.array([0])], x[x > 0], np.delete(x, 0), np.ascontiguousarray(x[::2])


@RECIPES(*matrices("float64"))
def triangles(x: Any) -> Any:
    return np.tril(x), np.triu(x), np.diag(x), np.trace(x)


@RECIPES(*vectors("float64"))
def on_the_diagonal(x: Any) -> Any:
    return np.diag(x)


@RECIPES("(float64[::1], float64[::1])")
def outer_and_cross(x: Any, y: Any) -> Any:
    return np.outer(x, y), np.kron(x.reshape((1, x.size)), y.reshape((1, y.size)))


@RECIPES(*vectors("float64"))
def rounded(x: Any) -> Any:
    return np.round(x), np.round(x, 2), np.around(x, 1)


@RECIPES(*vectors("float64"))
def mended(x: Any) -> Any:
    return np.nan_to_num(x)


@RECIPES("(float64,)")
def rounded_number(x: Any) -> Any:
    return round(x), round(x, 2), np.round(x), int(x), x % 2.0, x // 2.0, x**2, divmod(x, 2.0)


@RECIPES("(int64, int64)")
def whole_numbers(n: Any, m: Any) -> Any:
    return n % m, n // m, n**m, divmod(n, m), abs(n), min(n, m), max(n, m), n / m


@RECIPES("(int64, int64)")
def common_divisors(n: Any, m: Any) -> Any:
    return np.gcd(n, m), np.lcm(n, m)


@RECIPES(*vectors("float64"))
def integrated(x: Any) -> Any:
    return np.trapezoid(x)


@RECIPES("(float64[::1], float64[::1])")
def convolved(x: Any, y: Any) -> Any:
    return np.convolve(x, y), np.correlate(x, y)


# -- linear algebra ----------------------------------------------------------------------------------------------


@RECIPES(*(f"({one}[::1], {one}[::1])" for one in REAL))
def dot(x: Any, y: Any) -> Any:
    return np.dot(x, y), x @ y


@RECIPES(*(f"({one}[:,::1], {two})" for one in REAL for two in (f"{one}[:,::1]", f"{one}[::1]")))
def matrix_products(a: Any, b: Any) -> Any:
    return np.dot(a, b), a @ b, a.T @ b


@RECIPES(*vectors(*REAL), *matrices("float64"))
def norm(x: Any) -> Any:
    return np.linalg.norm(x)


@RECIPES(*(f"({one}[:,::1], {two})" for one in REAL for two in (f"{one}[:,::1]", f"{one}[::1]")))
def solve(a: Any, b: Any) -> Any:
    return np.linalg.solve(a, b)


@RECIPES("(float64[:,::1], float64[::1])")
def least_squares(a: Any, b: Any) -> Any:
    return np.linalg.lstsq(a, b)


@RECIPES(*matrices(*REAL))
def inverse(a: Any) -> Any:
    return np.linalg.inv(a)


@RECIPES(*matrices("float64"))
def determinant(a: Any) -> Any:
    return np.linalg.det(a), np.linalg.slogdet(a)


@RECIPES(*matrices(*REAL))
def cholesky(a: Any) -> Any:
    return np.linalg.cholesky(a)


@RECIPES(*matrices(*REAL))
def eigen_of_symmetric(a: Any) -> Any:
    return np.linalg.eigh(a), np.linalg.eigvalsh(a)


@RECIPES(*matrices("float64"))
def eigen(a: Any) -> Any:
    return np.linalg.eig(a), np.linalg.eigvals(a)


@RECIPES(*matrices(*REAL))
def svd(a: Any) -> Any:
    return np.linalg.svd(a)


@RECIPES(*matrices("float64"))
def qr(a: Any) -> Any:
    return np.linalg.qr(a)


@RECIPES(*matrices("float64"))
def pseudo_inverse(a: Any) -> Any:
    return np.linalg.pinv(a), np.linalg.matrix_rank(a)
