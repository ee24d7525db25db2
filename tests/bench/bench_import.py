"""What `import farm` adds to `import numba`: alternating fresh processes, medians."""

import statistics
import subprocess
import sys

ROUNDS = 15
PROGRAM = "import time; import numba; started = time.perf_counter(); {}; print(time.perf_counter() - started)"


def seconds(statement: str) -> float:
    """What the statement takes in a fresh process that has imported numba."""
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(statement)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    farm, nothing = [], []
    for _ in range(ROUNDS):
        farm.append(seconds("import farm"))
        nothing.append(seconds("pass"))
    added = statistics.median(farm) - statistics.median(nothing)
    print(f"import farm after numba:       {added * 1e3:.1f} ms (target 30)")


if __name__ == "__main__":
    main()
