"""Functions that call numba's own, in ways that recipes of the library pack cover; for the tests of the pack."""

import numpy as np
from numba import njit


@njit
def ordered(x):
    y = np.sort(x)
    return y[0] + y[-1] + np.searchsorted(y, 0.5)


@njit(fastmath=True)
def ordered_fast(x):
    return np.sort(x)[0] * 2.0


@njit(error_model="numpy")
def ordered_otherwise(x):
    return np.sort(x)[0] * 3.0


@njit
def counted(x):
    found = {}
    for i in range(x.size):
        place = i % 3
        if place in found:
            found[place] += x[i]
        else:
            found[place] = x[i]
    return found.get(x.size, 0.0), len(found)
