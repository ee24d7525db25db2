"""1,000 different functions through two workers: results, memory, recycling, open files."""

import os
import tempfile
import time
from collections import Counter
from typing import Any

import psutil

import farm
from farm.observe.events import CompileFinished, Event

FUNCTIONS = 1000
REPORT_AT = (100, 500, 1000)
SOURCE = """
def function_{n}(x, y):
    total = {n}
    for i in range(x):
        if i % {k} == 0:
            total += i * y
        else:
            total -= {n}
    return total
"""


def make(n: int) -> Any:
    """The n-th function: another constant, another rhythm."""
    space: dict[str, Any] = {"__name__": __name__}
    exec(SOURCE.format(n=n, k=n % 7 + 2), space)
    return space[f"function_{n}"]


class Workers:
    """Which worker compiled how many."""

    def __init__(self) -> None:
        self.jobs: Counter[int | None] = Counter()

    def on_event(self, event: Event) -> None:
        """Count one finished compile."""
        if isinstance(event, CompileFinished):
            self.jobs[event.worker] += 1


def megabytes(process: psutil.Process) -> str:
    """Private memory (USS), or a word for a process that ended a moment ago."""
    try:
        return f"{process.memory_full_info().uss / 2**20:.0f}"
    except psutil.Error:
        return "gone"


def report(done: int, started: float) -> None:
    """One line about the processes as they are now."""
    front = psutil.Process()
    children = front.children(recursive=True)
    each = ", ".join(megabytes(child) for child in children)
    files = len(os.listdir("/proc/self/fd"))
    print(
        f"{done:5d} functions, {time.monotonic() - started:6.1f} s: front {megabytes(front)} MB, "
        f"foreman and workers {each} MB, {files} open files",
        flush=True,
    )


def main() -> None:
    bodies = [make(n) for n in range(FUNCTIONS)]
    workers = Workers()
    with tempfile.TemporaryDirectory() as folder, farm.Farm(cache_dir=folder, workers=2) as barn:
        barn.add_listener(workers)
        functions = [farm.njit(body, farm=barn) for body in bodies]
        started, done = time.monotonic(), 0
        report(0, started)
        for until in REPORT_AT:
            farm.compile_all([(one, "int64(int64, int64)") for one in functions[done:until]], raise_errors=True)
            done = until
            report(done, started)
        wrong = [n for n in range(FUNCTIONS) if functions[n](50, 3) != bodies[n](50, 3)]
        stats = barn.stats()
    jobs = ", ".join(str(count) for count in workers.jobs.values())
    print(f"compiled {stats.compiled}, local {stats.local}, failed {stats.failed}; wrong results: {len(wrong)}")
    print(f"{len(workers.jobs)} workers in turn, jobs of each: {jobs}")
    if wrong or stats.compiled != FUNCTIONS:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
