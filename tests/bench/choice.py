"""What a run of the bench measures: chosen by words, each the name of a workload, a contestant, a section or a bench.

A word that is no name chooses all whose names hold it. Words of one kind leave the other kinds as they are needed: a
workload alone is measured by everybody, a contestant alone on everything, a section or a bench alone without either.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from contestant import CONTESTANTS
from results import REFERENCE
from sections import SECTIONS, benches
from wanted import WANTED
from workload import QUICK, WORKLOADS

TARGETS: Final = "targets"
"""A word for what the targets need."""
UP: Final = "farm-up"
"""A contestant that only its target's workload is measured with."""


class UnknownWord(Exception):
    """A word that chooses nothing, with the names there are."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is measured: pairs of workload and contestant, sections, benches."""

    pairs: tuple[tuple[str, str], ...]
    sections: tuple[str, ...]
    benches: tuple[str, ...]


def everything() -> Choice:
    """A whole run."""
    needed = for_targets().pairs
    pairs = [
        (workload, contestant)
        for workload in WORKLOADS
        for contestant in CONTESTANTS
        if workload not in QUICK and (contestant != UP or (workload, UP) in needed)
    ]
    # the load is a section already
    return Choice(tuple(pairs), tuple(SECTIONS), tuple(name for name in benches() if name not in SECTIONS))


def quick() -> Choice:
    """For trying the bench out."""
    pairs = [(workload, contestant) for workload in QUICK for contestant in CONTESTANTS]
    return Choice(tuple(pairs), ("load", "memory"), ("import",))


def for_targets() -> Choice:
    """What the rows of `wanted` need."""
    pairs = [(row.workload, name) for row in WANTED if row.workload is not None for name in row.contestants]
    ordered = [(one, name) for one in WORKLOADS for name in CONTESTANTS if (one, name) in pairs]
    sections = [name for name in SECTIONS if any(row.section == name for row in WANTED)]
    return Choice(tuple(ordered), tuple(sections), ())


def chosen(words: Sequence[str]) -> Choice:
    """What the words choose; everything without one. Raises UnknownWord."""
    if not words:
        return everything()
    if list(words) == [TARGETS]:
        return for_targets()
    all_names = [WORKLOADS, CONTESTANTS, SECTIONS, benches()]
    kinds: list[list[str]] = [[], [], [], []]
    for word in words:
        if not _take(word, all_names, kinds):
            names = ", ".join(dict.fromkeys(name for known in all_names for name in known))
            raise UnknownWord(f"nothing is called {word!r}; there are {names}, and {TARGETS}")
    workloads, contestants, sections, benches_ = kinds
    pairs: list[tuple[str, str]] = []
    if workloads or contestants:
        if contestants and REFERENCE not in contestants:
            contestants = [REFERENCE, *contestants]  # to compare results with
        for workload in workloads or [name for name in WORKLOADS if name not in QUICK]:
            pairs += [(workload, one) for one in CONTESTANTS if one in (contestants or CONTESTANTS)]
    return Choice(tuple(pairs), tuple(sections), tuple(benches_))


def _take(word: str, all_names: Sequence[Iterable[str]], kinds: list[list[str]]) -> bool:
    """Add what one word chooses to its kinds; whether it chose anything."""
    exact = any(word in known for known in all_names)
    taken = False
    for known, found in zip(all_names, kinds, strict=True):
        names = [name for name in known if (name == word if exact else word in name)]
        found += [name for name in names if name not in found]
        taken = taken or bool(names)
    return taken
