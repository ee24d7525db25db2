"""Programs that nobody wrote: edited at random between runs, and called in three ways."""

import sys
from pathlib import Path
from typing import Final

from attack import SEED, Attack
from children import Outcome, Subject
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))
sys.path.insert(0, str(Path(__file__).parents[1] / "differential"))

from play import Tally
from runner import Runner
from search import search
from three_ways import Bench
from written import Written, functions

EDITS: Final = 500
"""In a round; each kind of edit is among the first 554."""
EXAMPLES: Final = 20
FUNCTIONS: Final = 6
"""In an example."""


def random_edits(subject: Subject, directory: Path, rounds: int) -> Outcome:
    """Tries are calls after an edit; wrong is what is not as a fresh compile gives it, or another position."""
    tally = Tally()
    with Runner(directory / "templates", cached=subject is Subject.NUMBA) as runner:
        search(runner, directory, tally, seed=0, edits_min=rounds * EDITS)
    print(*tally.wrongs, sep="\n\n", end="", file=sys.stderr)
    rows = tally.rows.values()
    return Outcome(
        tries=sum(row.tried for row in rows),
        wrong=sum(row.stale for row in rows),
        repeated=sum(row.needless for row in rows),
    )


def three_ways(subject: Subject, directory: Path, rounds: int) -> Outcome:
    """Tries are calls; wrong is where fallback, farm and numba do not agree."""
    outcome = Outcome()
    with Bench(directory) as bench:

        @seeded(SEED)
        @settings(max_examples=rounds * EXAMPLES, database=None, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(functions(), min_size=FUNCTIONS, max_size=FUNCTIONS))
        def compare(written: list[Written]) -> None:
            nonlocal outcome
            compared, found = bench.differences(written)
            print(*found, sep="\n\n", end="", file=sys.stderr)
            outcome += Outcome(tries=compared, wrong=len(found))

        compare()
    return outcome


ATTACKS: Final = {
    "random edits between runs": Attack(random_edits, 1, 6),
    "generated functions: fallback, farm and numba agree": Attack(three_ways, 1, 50, (Subject.FARM,)),
}
"""By what is tried."""
