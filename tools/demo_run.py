"""One run of the demo's loop, in its own process: a service that handles a stream of work.

Work arrives as batches for about two dozen kernels, in turn: one call of one kernel on one batch is a step.
There are `BATCHES` batches per kernel, made from fixed seeds, so that every run sees the same work, and meets
each batch again: a later result, by machine code, must agree with the first one, by Python.

The run ends some rounds after every kernel runs machine code. It prints its progress
as lines of JSON on its standard output, for the process that started it to show.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import demo_compiler
import numba
import numpy as np
from demo_report import Arrays, Progress, Report, agree, flatten, save_results
from demo_watch import FarmWatcher, NumbaWatcher, Watcher

import farm

BATCHES: Final = 3
PROGRESS_EVERY_S: Final = 0.25  # A guess: often enough to watch, and far too rare to slow the loop.
SLOW_STEP_S: Final = 0.1
SETTLE_S: Final = 300.0


@dataclass(slots=True)
class Tally:
    """What one kernel did so far."""

    calls: int = 0
    machine_code_at_s: float | None = None
    first: dict[int, Arrays] = field(default_factory=dict)
    last: dict[int, Arrays] = field(default_factory=dict)


class Loop:
    """The stream of work. `clock` counts seconds; steps are timed by it, bookkeeping between steps is not."""

    def __init__(
        self,
        kernels: Sequence[demo_compiler.Kernel],
        watcher: Watcher,
        tell: Callable[[Progress], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.kernels = kernels
        self.watcher = watcher
        self.tell = tell
        self.clock = clock
        self.tallies = {kernel.name: Tally() for kernel in kernels}
        self.batches = {
            kernel.name: [batch_of(kernel, number, i) for i in range(BATCHES)] for number, kernel in enumerate(kernels)
        }
        self.steps = self.rounds = self.machine_code_rounds = 0
        self.compared = 0
        self.disagreements: list[str] = []
        self.longest_s, self.longest = 0.0, ""
        self.slow_steps = 0
        self.all_results_s = math.nan
        self.started_s = self.told_s = 0.0
        self.notes: list[str] = []

    def run(self, limit_s: float) -> Report:
        """Handle rounds of work until `BATCHES` of them ran as machine code only.

        After `limit_s` seconds the loop stops, waits for the compiles that are left, and does the last rounds then.
        """
        self.started_s = self.told_s = self.clock()
        while self.machine_code_rounds < BATCHES and self.clock() - self.started_s < limit_s:
            self._round()
        self.watcher.settle(SETTLE_S)
        if self.machine_code_rounds < BATCHES:
            self.notes.append(f"After {limit_s:g} s the loop stopped and waited for the compiles that were left.")
            for _ in range(BATCHES):
                self._round()
        total_s = self.clock() - self.started_s
        self.tell(self.progress())
        return self._report(total_s)

    def _round(self) -> None:
        self.machine_code_rounds += self.all_machine_code_s is not None
        for kernel in self.kernels:
            self._step(kernel, self.rounds % BATCHES)
            if self.clock() - self.told_s > PROGRESS_EVERY_S:
                self.tell(self.progress())
                self.told_s = self.clock()
        if self.rounds == 0:
            self.all_results_s = self.clock() - self.started_s
        self.rounds += 1

    def _step(self, kernel: demo_compiler.Kernel, batch: int) -> None:
        tally = self.tallies[kernel.name]
        before = self.clock()
        result = kernel.function(*self.batches[kernel.name][batch])
        after = self.clock()
        self.steps += 1
        tally.calls += 1
        if tally.machine_code_at_s is None and kernel.runs_machine_code:
            tally.machine_code_at_s = after - self.started_s
        if after - before > self.longest_s:
            self.longest_s, self.longest = after - before, f"{kernel.name}, call {tally.calls}"
        self.slow_steps += after - before > SLOW_STEP_S
        tally.last[batch] = flatten(result)
        if batch not in tally.first:
            tally.first[batch] = tally.last[batch]
            return
        self.compared += 1
        if not agree(tally.first[batch], tally.last[batch]):
            self.disagreements.append(f"{kernel.name}, batch {batch}, call {tally.calls}")

    @property
    def all_machine_code_s(self) -> float | None:
        """When the last kernel had machine code; None before that."""
        seconds = [tally.machine_code_at_s for tally in self.tallies.values()]
        known = [s for s in seconds if s is not None]
        return max(known) if len(known) == len(seconds) else None

    def progress(self) -> Progress:
        """What the live table shows."""
        rows = [
            self.watcher.row(dispatcher, self.tallies[kernel.name].calls)
            for kernel in self.kernels
            for dispatcher in kernel.dispatchers
        ]
        return Progress(self.clock() - self.started_s, self.steps, self.longest_s, tuple(rows))

    def results(self) -> dict[str, Arrays]:
        """First and last result of each kernel for each batch, by name."""
        return {
            f"{kernel}/{batch}/{which}": arrays
            for kernel, tally in self.tallies.items()
            for which, results in (("first", tally.first), ("last", tally.last))
            for batch, arrays in results.items()
        }

    def _report(self, total_s: float) -> Report:
        totals = self.watcher.totals()
        return Report(
            longest_step_s=self.longest_s,
            longest_step=self.longest,
            steps_over_100_ms=self.slow_steps,
            all_results_s=self.all_results_s,
            all_machine_code_s=self.all_machine_code_s,
            total_s=total_s,
            steps=self.steps,
            compared=self.compared,
            disagreements=tuple(self.disagreements),
            compiled=totals.compiled,
            loaded=totals.loaded,
            local=totals.local,
            fallback_calls=totals.fallback_calls,
            switched=totals.switched,
            waited=totals.waited,
            notes=(*self.notes, *self.watcher.notes()),
        )


def batch_of(kernel: demo_compiler.Kernel, number: int, batch: int) -> tuple[Any, ...]:
    """The arguments of one step, the same in every run."""
    return kernel.make_batch(np.random.default_rng([number, batch]))


def make_watcher(compiler: str, cache: Path) -> Watcher:
    """The watcher for `farm` or `numba`, whose compiled code is kept in `cache`."""
    if compiler == "farm":
        farm.configure(cache_dir=cache)
        return FarmWatcher()
    # Libraries that ask numba for its own cache find this one, and not what an earlier run left beside their source.
    numba.config.CACHE_DIR = str(cache)
    return NumbaWatcher()


def tell_parent(progress: Progress) -> None:
    """Print progress as one line."""
    print(progress.to_json(), flush=True)


def arguments(description: str) -> argparse.ArgumentParser:
    """What every run is told."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--compiler", choices=["farm", "numba"], required=True)
    parser.add_argument("--report", type=Path, required=True, help="where the report is written, as JSON")
    parser.add_argument("--results", type=Path, required=True, help="where the results are written, as .npz")
    parser.add_argument("--cache", type=Path, required=True, help="where farm's store is, or numba's own cache")
    parser.add_argument("--limit-s", type=float, default=300.0, help="when to stop and wait for the compiles")
    return parser


def main() -> int:
    """Run the loop once."""
    parser = arguments("One run of the demo's loop.")
    parser.add_argument("--only", nargs="*", help="names of kernels; all if not given")
    options = parser.parse_args()
    watcher = make_watcher(options.compiler, options.cache)
    demo_compiler.use(watcher.decorator)

    # Imported here, because their decorators run at import and must be the chosen compiler's.
    import demo_data_kernels
    import demo_kernels

    every = (*demo_kernels.KERNELS, *demo_data_kernels.KERNELS)
    unknown = set(options.only or ()) - {kernel.name for kernel in every}
    if unknown:
        parser.error(f"no kernel is called {', '.join(sorted(unknown))}")
    chosen = [kernel for kernel in every if not options.only or kernel.name in options.only]
    loop = Loop(chosen, watcher, tell_parent)
    report = loop.run(options.limit_s)
    save_results(options.results, loop.results())
    report.write(options.report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
