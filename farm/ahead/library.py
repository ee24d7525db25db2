"""The library pack: numba's own functions, compiled before a program needs them.

    recipes x their signatures x sets of flags -> requests, as of any other function

A function of numba's library is compiled under the flags that its caller hands down (fastmath, error_model), and its
artifact serves callers with those alone. So the pack is made once for each set of flags: always for the default ones,
for those that were named, and for those of the functions that are prewarmed with it.

A recipe that this numba cannot compile is skipped and named, as is one that lacks something here: linear algebra wants
scipy.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from farm.ahead import recipes_numpy, recipes_python
from farm.ahead.recipes import Recipe
from farm.ahead.sources import Request
from farm.errors import FarmError
from farm.jit import njit
from farm.port import flagtext
from farm.port.dispatch import parse_signature

RECIPES: tuple[Recipe, ...] = (*recipes_numpy.RECIPES, *recipes_python.RECIPES)
PREFIX: Final = "library:"
"""How the rows of recipes are told from those of functions."""
FORM: Final = "write fastmath, fastmath=nnan+nsz, error_model=numpy, or several of these with commas between them"


class FlagsError(FarmError, ValueError):
    """What was given is no set of flags."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(text, problem)
        self.text, self.problem = text, problem

    def __str__(self) -> str:
        return f"{self.text!r} is no set of flags ({self.problem}): {FORM}"


def read_flags(text: str) -> flagtext.HandedDown:
    """A set of flags as people write it. Raises FlagsError."""
    options: dict[str, Any] = {}
    for part in text.replace(" ", "").split(","):
        name, _, value = part.partition("=")
        if name in options:
            raise FlagsError(text, f"{name} is there twice")
        if name == "fastmath":
            options[name] = set(value.split("+")) if value else True
        else:
            options[name] = value
    return _checked(options, text)


def flags_of(given: "str | Mapping[str, Any]") -> flagtext.HandedDown:
    """A set of flags, as text or as the options that a decorator takes. Raises FlagsError."""
    return read_flags(given) if isinstance(given, str) else _checked(given, str(dict(given)))


def _checked(options: Mapping[str, Any], text: str) -> flagtext.HandedDown:
    try:
        return flagtext.HandedDown.of_options(options)
    except ValueError as error:
        raise FlagsError(text, str(error)) from None


def requests(flags: Iterable[flagtext.HandedDown]) -> Iterator[Request]:
    """The pack, under each of these sets of flags.

    First signatures come first: workers that compile side by side then begin with recipes that share little.
    """
    for one in flags:
        named = str(one)
        made = [(recipe, njit(recipe.body, **one.options())) for recipe in RECIPES]
        for number in range(max((len(recipe.signatures) for recipe in RECIPES), default=0)):
            for recipe, dispatcher in made:
                if number < len(recipe.signatures):
                    text = recipe.signatures[number]
                    yield Request(
                        function=f"{PREFIX}{recipe.name}{f'[{named}]' if named else ''}",
                        signature=text,
                        dispatcher=dispatcher,
                        arguments=parse_signature(text)[0],
                        optional=True,
                    )
