"""Pickles of the types by which numba's containers are gone through: `keys()`, `items()`, an iterator.

Such a type holds its iterator's type, which holds it again. numba reduces a type to its attributes, and what it makes
of this circle cannot be unpickled: the inner one has no name yet when it is looked up among the known types. Here it is
reduced to the container's type, of which it is made anew. An artifact with one could not be loaded, so it was
compiled again in each process, `dict.keys` of every kind of dictionary among them.
"""

import copyreg
from typing import Any, Final

from numba.core.types import containers

NAMES: Final = (
    "DictItemsIterableType",
    "DictKeysIterableType",
    "DictValuesIterableType",
    "ListTypeIterableType",
    "SetIterableType",
)


def picklable_iterables() -> None:
    """Have every pickler of this process reduce them so. Once is enough, and more often does no harm."""
    for name in NAMES:
        kind = getattr(containers, name, None)  # not every numba has all of them
        if kind is not None:
            copyreg.pickle(kind, _reduce)


def _reduce(kind: Any) -> tuple[Any, ...]:
    return type(kind), (kind.parent,)
