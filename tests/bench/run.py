"""Runs every bench_*.py of this directory in turn, each in a Python of its own, and ends with one line for each.

Two at once would measure each other. A bench that fails does not keep the others from running; the exit
code is then 1. Words on the command line choose the benches that have one of them in their names.
"""

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent


def chosen(words: list[str]) -> list[Path]:
    """The benches in the order of their names; all of them without a word."""
    found = sorted(HERE.glob("bench_*.py"))
    return [path for path in found if not words or any(word in path.stem for word in words)]


def main(words: list[str]) -> int:
    """Run them; the exit code."""
    benches = chosen(words)
    if not benches:
        print(f"no bench in {HERE} matches {words}" if words else f"no bench in {HERE}")
        return 1
    lines = []
    failed = 0
    for path in benches:
        print(f"== {path.name}", flush=True)
        started = time.monotonic()
        code = subprocess.run([sys.executable, str(path)]).returncode
        failed += code != 0
        said = "ok" if code == 0 else f"FAILED with exit code {code}"
        lines.append(f"{path.name}: {said}, {time.monotonic() - started:.1f} s")
    print("==", *lines, sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
