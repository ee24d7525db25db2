"""Looking in the store, for the own CPU alone and for the levels that it can run as well, in one process.

    python tests/bench/bench_lookup.py [ROUNDS]

Prints medians of alternating rounds, of this thread's CPU time: a hit, a miss for the own key alone, and a miss after
which the other keys are made and looked for; what making the keys takes of that; and the walk over the function, which
every hand-over pays. No bar: what a miss leads to is a compile.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from numba import float64, njit

from farm.config import Config
from farm.front.policy import Limits
from farm.front.record import Record
from farm.front.supply import Supply
from farm.job.functor import make_functor, other_keys
from farm.store.artifact import Artifact
from farm.store.disk import DiskStore

ROUNDS: Final = 500
WARM_UP: Final = 20
ARTIFACTS: Final = 300
"""So that the directories of the store are there, as they are in one that is used."""


@njit
def subject(x, w):
    total = 0.0
    for i in range(x.size):
        total += x[i] * w
    return total


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        config = Config(cache_dir=Path(directory) / "cache")
        supply = Supply(Record(lambda: config, Limits.from_config(config, 1)))
        arguments = (float64[::1], float64)
        functor = make_functor(subject, arguments, None)
        store = DiskStore(config.cache_dir)
        for number in range(ARTIFACTS):
            key = type(functor.key).from_parts({"number": str(number).encode()})
            store.put(Artifact(key, {}, bytes(20_000), bytes(60_000), bytes(5_000)))
        there = key
        kinds: dict[str, Callable[[], object]] = {
            "walk and key": lambda: make_functor(subject, arguments, None),
            "hit": lambda: supply.look_up(config, there),
            "miss, own key": lambda: supply.look_up(config, functor.key),
            "miss, all keys": lambda: (
                supply.look_up(config, functor.key),
                supply.look_further(config, other_keys(functor)),
            ),
            "keys alone": lambda: list(other_keys(functor)),
        }
        taken: dict[str, list[float]] = {name: [] for name in kinds}
        for round_number in range(WARM_UP + rounds):
            for name, act in kinds.items():
                started = time.thread_time()
                act()
                if round_number >= WARM_UP:
                    taken[name].append(time.thread_time() - started)
    medians = {name: statistics.median(times) for name, times in taken.items()}
    for name, seconds in medians.items():
        print(f"{name + ':':<16} {seconds * 1e6:7.1f} us")
    more, ratio = len(list(other_keys(functor))), medians["miss, all keys"] / medians["miss, own key"]
    print(f"a miss that looks for {more} keys more takes {ratio:.1f} times one that does not")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
