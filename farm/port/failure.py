"""numba's errors and warnings on their way from a worker to the front."""

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from warnings import catch_warnings, simplefilter

from numba.core.errors import ForceLiteralArg, NumbaWarning

from farm.errors import words_of
from farm.port import describe


def pack(error: BaseException) -> bytes | None:
    """numba's exception as bytes that rebuild the same class and message, or None if it does not survive."""
    try:
        data = pickle.dumps(error)
        rebuilt = pickle.loads(data)
        same = type(rebuilt) is type(error) and str(rebuilt) == str(error)
    except Exception:  # an exception's own pickling, and its own words, are foreign code
        return None
    return data if same else None


def unpack(data: bytes) -> BaseException | None:
    """The packed exception, or None if it cannot be rebuilt here."""
    try:
        error = pickle.loads(data)
    except Exception:  # see pack
        return None
    return error if isinstance(error, BaseException) else None


def names_of(category: type[Warning]) -> tuple[tuple[str, str], ...]:
    """(module, qualified name) of a class of warnings and of those above it, the most special first."""
    return tuple((one.__module__, one.__qualname__) for one in category.__mro__ if issubclass(one, Warning))


def category_of(names: Sequence[tuple[str, str]]) -> type[Warning]:
    """The first of these classes that this process has. Nothing is imported: who filters by a class has it."""
    for module, name in names:
        home = describe.imported(module)
        found: object = None if home is None else describe.resolve(home, name)
        if isinstance(found, type) and issubclass(found, Warning):
            return found
    basic: type[Warning] = NumbaWarning
    return basic


def headline(error: BaseException) -> str:
    """Class and first telling line: numba's messages begin with the name of a pass, the same for every error."""
    lines = [line.strip() for line in words_of(error).splitlines() if line.strip()]
    telling = next((line for line in lines if not line.startswith("Failed in ")), lines[0] if lines else "")
    return f"{type(error).__name__}: {telling}"


def literal_positions(error: BaseException) -> tuple[int, ...] | None:
    """The argument positions that numba asks to have as literals (ForceLiteralArg), or None."""
    return tuple(sorted(error.requested_args)) if isinstance(error, ForceLiteralArg) else None


@contextmanager
def numba_warnings() -> Iterator[list[Any]]:
    """Collect the NumbaWarnings raised inside, every one of them, instead of showing them."""
    with catch_warnings(record=True) as caught:
        simplefilter("ignore")
        simplefilter("always", NumbaWarning)
        yield caught
