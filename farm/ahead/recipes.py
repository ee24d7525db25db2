"""What a recipe of the library pack is: a small function that uses what real code uses of numba's own library.

Each is compiled like any function, for each signature that stands before it. What counts is not its own code but its
callees: every function of numba's that it calls is stored on the way, under the key that other callers ask for.

To extend the pack, write another in `recipes_numpy` or `recipes_python`. One recipe is one job of a worker, so things
that share callees belong together, and things that an older numba does not know belong apart: what does not compile is
skipped as a whole, and named. How a call is spelt matters: a default that is left out is another type than the same
value given, and so is a whole number or a text that stands in the code. Results need not be returned; numba compiles
what is called.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Recipe:
    """A function and the signatures that it is compiled for, as numba reads them."""

    body: Callable[..., Any]
    signatures: tuple[str, ...]

    @property
    def name(self) -> str:
        """What its rows are called."""
        return self.body.__name__


class Recipes(list[Recipe]):
    """The recipes of a module, as they stand there. Decorates functions, which stay what they are."""

    def __call__(self, *signatures: str) -> Callable[[F], F]:
        """Make a recipe of a function, for these signatures."""

        def add(body: F) -> F:
            self.append(Recipe(body, signatures))
            return body

        return add
