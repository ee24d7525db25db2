"""What `import farm` adds to `import numba`: alternating fresh processes, medians.

With bytecode written, as it is for who uses the farm: compiling the modules anew each time takes as long again.
"""

import os
import statistics
import subprocess
import sys

ROUNDS = 15
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
PROGRAM = "import time; import numba; started = time.perf_counter(); {}; print(time.perf_counter() - started)"


def seconds(statement: str) -> float:
    """What the statement takes in a fresh process that has imported numba."""
    command = [sys.executable, "-c", PROGRAM.format(statement)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT)
    return float(done.stdout)


def main() -> None:
    seconds("import farm")  # writes the bytecode
    farm, nothing = [], []
    for _ in range(ROUNDS):
        farm.append(seconds("import farm"))
        nothing.append(seconds("pass"))
    added = statistics.median(farm) - statistics.median(nothing)
    print(f"import farm after numba:       {added * 1e3:.1f} ms (target 30)")


if __name__ == "__main__":
    main()
