"""Switches after each step of thousands of generated bodies, and many threads that are switched; for `make stress`."""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from every_step import try_all_steps
from generated import generate
from many_threads import play


def main() -> int:
    """Try them; the exit code. A wrong one is an AssertionError with the step and the text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--switches", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the threads go on")
    parser.add_argument("--first", type=int, default=int(time.time()), help="the first seed")
    options = parser.parse_args()
    tried, seed = 0, options.first
    while tried < options.switches:
        tried += try_all_steps(generate(seed), nested=bool(seed % 2))
        seed += 1
    print(
        f"{tried} switches tried, in {seed - options.first} functions from seed {options.first} on: all as undisturbed"
    )
    print(play(options.seconds, threads=8, functions=50))
    return 0


if __name__ == "__main__":
    sys.exit(main())
