"""The same search for longer: python many.py [--edits N] [--seconds S] [--seed N]. The exit code is 1 if it found any.

Prints how often each kind of edit was tried, and what came of it.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from play import Tally
from runner import Runner
from search import search


def main() -> int:
    """Search until so many edits were tried or so much time has passed; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--edits", type=int, default=3000)
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    tally, end_s = Tally(), time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory() as directory, Runner(Path(directory) / "templates") as runner:
        try:
            search(runner, Path(directory), tally, seed=options.seed, edits_min=options.edits, end_s=end_s)
        finally:
            print(*tally.wrongs, tally, sep="\n\n", flush=True)
    return 1 if tally.wrongs else 0


if __name__ == "__main__":
    sys.exit(main())
