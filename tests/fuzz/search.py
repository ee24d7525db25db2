"""Searches for edits that go wrong, in histories that hypothesis draws from a seed."""

import itertools
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from edits import LAYOUTS, SETTINGS, meaning
from forms import FORMS
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from play import History, Step, Tally, narrowed, play
from programs import LINKS, Piece, Program
from runner import Runner

AT_ONCE: Final = 8
"""Entries in a program: so many functions share the cost of a process."""
LAYOUTS_AT_ONCE: Final = 2
WRONGS_MAX: Final = 12
"""Enough to look at, and each takes some seconds to narrow down."""
CALLEES: Final = [name for name, form in FORMS.items() if form.takes_number and form.weight < 3]

Wanted = tuple[str, int]
"""A form, and which of its edits."""


@st.composite
def pieces(draw: st.DrawFn, form: str, home_min: int = 0, depth: int = 1) -> Piece:
    """A piece of this form, in a module from `home_min` on, perhaps with callees."""
    home = max(home_min, draw(st.sampled_from((1, 2, 0))))
    child = None
    if depth and FORMS[form].calls and draw(st.booleans()):
        child = draw(pieces(draw(st.sampled_from(CALLEES)), home, depth - 1))
    choices = len(FORMS[form].choices)
    return Piece(
        form,
        draw(st.integers(1, 9)),
        draw(st.integers(0, max(0, choices - 1))),
        home,
        draw(st.integers(0, len(LINKS) - 1)),
        child,
    )


@st.composite
def histories(draw: st.DrawFn, wanted: tuple[Wanted, ...], layouts: tuple[str, ...], setting: str) -> History:
    """A program with an entry for each that is wanted, and its edits among others."""
    program = Program(tuple(draw(pieces(form)) for form, _ in wanted))
    by = st.integers(0, 7)
    steps = [Step(edits=tuple((which, draw(by)) for _, which in wanted)), Step(layouts=layouts)]
    if setting:
        steps.append(Step(setting=setting))
    if draw(st.booleans()):
        steps.append(Step(back=True))
    return History(program, tuple(draw(st.permutations(steps))))


Plan = tuple[tuple[Wanted, ...], str]
"""What the entries of a program are to be, and the setting of numba's that changes."""


def plans() -> list[tuple[Plan, ...]]:
    """Every edit that a form has, so many at once, the heavy ones apart from each other; then every setting.

    In twos, which are played at the same time. A setting means something to every entry, so those programs are small.
    """
    names = sorted(FORMS, key=lambda name: FORMS[name].weight)
    every = [(name, at) for name in names for at, _ in enumerate(meaning(Program((Piece(name),)), 0))]
    number = -(-len(every) // AT_ONCE)
    made: list[Plan] = [(tuple(every[at::number]), "") for at in range(number)]
    made += [((every[at], every[-at - 1]), name) for at, name in enumerate(SETTINGS)]
    return list(itertools.zip_longest(made[::2], made[1::2], fillvalue=((), "")))


def search(
    runner: Runner, directory: Path, tally: Tally, *, seed: int, edits_min: int, end_s: float | None = None
) -> None:
    """Play histories for every plan until so many edits were tried, or until `end_s` on the monotonic clock.

    What goes wrong is added to the tally; after WRONGS_MAX of it the search ends.
    """
    layouts = itertools.cycle(LAYOUTS)
    while sum(row.tried for row in tally.rows.values()) < edits_min:
        for both in plans():
            if len(tally.wrongs) >= WRONGS_MAX or (end_s is not None and time.monotonic() > end_s):
                return
            seed += 1
            drawn = [
                histories(wanted, tuple(next(layouts) for _ in range(LAYOUTS_AT_ONCE)), setting)
                for wanted, setting in both
                if wanted
            ]
            _check(runner, directory, tally, st.tuples(*drawn), seed)


def _check(
    runner: Runner, directory: Path, tally: Tally, drawn: st.SearchStrategy[tuple[History, ...]], seed: int
) -> None:
    rooms = itertools.count()

    @seeded(seed)
    @settings(max_examples=1, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(drawn)
    def check(histories: tuple[History, ...]) -> None:
        # Hypothesis begins with the simplest program, the same for every seed.
        assume(any(entry.child for one in histories for entry in one.program.entries))
        places = [directory / str(next(rooms)) for _ in histories]
        with ThreadPoolExecutor(len(places)) as threads:
            played = [threads.submit(play, *one, runner, tally) for one in zip(histories, places, strict=True)]
        for history, place, wrongs in zip(histories, places, [one.result() for one in played], strict=True):
            # Of numba's cache it is known, and only counted.
            for number, wrong in enumerate(() if runner.cached else wrongs):
                if len(tally.wrongs) < WRONGS_MAX:
                    tally.wrongs.append(narrowed(history, wrong, place / f"narrowed{number}", runner).text)
            shutil.rmtree(place, ignore_errors=True)

    check()
