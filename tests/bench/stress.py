"""Runs the tests marked `concurrency` many times over beside busy processes, and counts the rounds that fail.

An order of events that occurs once in a thousand is met by running often, and more often where the
scheduler takes the CPU away in the middle of things: hence the busy processes. Every round is a pytest of
its own, since a race at first use (imports, the first worker, a new directory) has one chance in a process.
A failed round prints what pytest said, and the others still run. After the rounds come thousands of random edits
(`tests/fuzz/many.py`), ten thousand switches (`tests/switching/many.py`) and the attacks with many rounds
(`tests/attacks/run.py --long`), and the whole library pack (`tests/bench/whole_pack.py`), without busy processes.
The exit code is 1 if any of it failed.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent
ROUND_MAX_S: Final = 600.0
"""Measured: a round takes 95 to 140 s on two CPUs that others use too. Each of its tests ends itself after 120 s."""

# Ends by itself when we are gone, however we went.
BUSY: Final = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(10000))"


@contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """So many processes that do nothing but run, for the block."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(number):
            processes.append(subprocess.Popen([sys.executable, "-c", BUSY]))
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def run_round(marker: str) -> str | None:
    """None if every test passed, else what pytest said. No tests at all is a failure."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", marker, "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=ROUND_MAX_S)
    except subprocess.TimeoutExpired as late:
        said, end = late.output or b"", f"the round did not end within {ROUND_MAX_S:g} s"
    else:
        if done.returncode == 0:
            return None
        said, end = done.stdout, f"pytest ended with exit code {done.returncode}"
    return f"{said.decode(errors='replace')}\n{end}"


def run_edits(number: int, time_max_s: float) -> bool:
    """Whether an edit went wrong, of so many, or of as many as the time is enough for."""
    command = [sys.executable, str(ROOT / "tests" / "fuzz" / "many.py"), "--edits", str(number)]
    return number > 0 and subprocess.run([*command, "--seconds", str(time_max_s)], cwd=ROOT).returncode != 0


def run_switches(number: int) -> bool:
    """Whether one of so many switches, or one of many threads, gave something wrong."""
    command = [sys.executable, str(ROOT / "tests" / "switching" / "many.py"), "--switches", str(number)]
    return number > 0 and subprocess.run(command, cwd=ROOT).returncode != 0


def run_attacks(time_max_s: float) -> bool:
    """Whether one of the attacks on the farm did harm, or they did not end in time."""
    return _goes_wrong("the attacks", ("attacks", "run.py", "--long", "--farm-alone"), time_max_s)


def run_pack(time_max_s: float) -> bool:
    """Whether a recipe of the library pack does not compile, or what it is for is compiled all the same."""
    return _goes_wrong("the library pack", ("bench", "whole_pack.py"), time_max_s)


def _goes_wrong(what: str, words: tuple[str, ...], time_max_s: float) -> bool:
    """Run a script below tests/; with no time for it, it is left out."""
    folder, script, *options = words
    command = [sys.executable, str(ROOT / "tests" / folder / script), *options]
    try:
        return time_max_s > 0 and subprocess.run(command, cwd=ROOT, timeout=time_max_s).returncode != 0
    except subprocess.TimeoutExpired:
        print(f"{what} did not end within {time_max_s:g} s")
        return True


def main() -> int:
    """Run the rounds, the edits, the switches, the attacks and the library pack; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--busy", type=int, default=2, help="busy processes beside the tests")
    parser.add_argument("--edits", type=int, default=3000, help="random edits after the rounds; 0 for none")
    parser.add_argument("--edits-max-s", type=float, default=1800.0, help="end them after so many seconds")
    parser.add_argument("--switches", type=int, default=10_000, help="switches of Python bodies; 0 for none")
    parser.add_argument("--attacks-max-s", type=float, default=7200.0, help="the attacks must end by then; 0 for none")
    parser.add_argument("--pack-max-s", type=float, default=1800.0, help="so long for the library pack; 0 for none")
    parser.add_argument("--marker", default="concurrency", help="which tests: a pytest marker expression")
    options = parser.parse_args()
    failed = 0
    with busy_processes(options.busy):
        for number in range(1, options.rounds + 1):
            started = time.monotonic()
            said = run_round(options.marker)
            failed += said is not None
            verdict = "passed" if said is None else "FAILED"
            print(f"round {number} of {options.rounds}: {verdict}, {time.monotonic() - started:.1f} s", flush=True)
            if said is not None:
                print(said, flush=True)
    print(f"{failed} of {options.rounds} rounds failed, beside {options.busy} busy processes")
    others = (
        run_edits(options.edits, options.edits_max_s),
        run_switches(options.switches),
        run_attacks(options.attacks_max_s),
        run_pack(options.pack_max_s),
    )
    return 1 if failed or any(others) else 0


if __name__ == "__main__":
    sys.exit(main())
