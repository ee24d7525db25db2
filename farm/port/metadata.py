"""numba's metadata of one compile as JSON, and back: what a loaded function cannot say for itself.

    parfor_diagnostics   the report of each level, as text: what numba holds is the function's whole IR
    pipeline_times       seconds in each compiler pass
    timers               seconds with the compiler's lock and in LLVM
    llvm_pass_timings    LLVM's own report of each library, if NUMBA_LLVM_PASS_TIMINGS asks for it
    prune_stats          counts of pruned reference operations
    (anything else)      as it is, if it is JSON: a user's compiler passes may leave notes there

It travels in the artifact's description and not beside the machine code: two compiles of one function take
different times, and what they made is the same.
"""

import contextlib
import io
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from numba.core.compiler_machinery import pass_timings
from numba.misc.llvm_pass_timings import NamedTimings, PassTimingsCollection, ProcessedPassTimings
from numba.parfors.parfor import ParforDiagnostics

try:
    from llvmlite.binding.newpassmanagers import PruneStats
except ImportError:  # until llvmlite 0.45
    from llvmlite.binding.passmanagers import PruneStats

LEVELS: Final = (1, 2, 3, 4)
"""Of `Dispatcher.parallel_diagnostics`."""
DIGITS: Final = 9
"""Of seconds: a clock shows no more, and twice as many are half of what an artifact says about itself."""


class Diagnostics(ParforDiagnostics):
    """The reports of parallel optimisation as another process wrote them."""

    def __init__(self, reports: Mapping[str, str]) -> None:
        super().__init__()
        self.reports: Final = dict(reports)

    def dump(self, level: int = 1) -> None:
        """Print the report of this level. Raises ValueError for any other than LEVELS, as numba does."""
        if level not in LEVELS:
            raise ValueError(f"there is no report of level {level!r}, but of {', '.join(map(str, LEVELS))}")
        print(self.reports[str(level)], end="")


def to_plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """A compile's metadata as what JSON can hold. Never raises: what cannot be put down is left out."""
    plain = {}
    for name, value in metadata.items():
        with contextlib.suppress(Exception):  # the reports run over the user's IR, and anything may lie beside them
            written = _TO_PLAIN[name](value) if name in _TO_PLAIN else value
            json.dumps(written, allow_nan=False)
            plain[name] = written
    return plain


def from_plain(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata as numba has it. Raises anything if `plain` is not what `to_plain` gave."""
    return {name: _FROM_PLAIN[name](value) if name in _FROM_PLAIN else value for name, value in plain.items()}


def _seconds(value: float) -> float:
    return round(float(value), DIGITS)


def _reports(diagnostics: ParforDiagnostics) -> dict[str, str]:
    """Empty for a function that is not parallel."""
    reports = {}
    for level in LEVELS if diagnostics.has_setup else ():
        with contextlib.redirect_stdout(io.StringIO()) as report:
            diagnostics.dump(level)
        reports[str(level)] = report.getvalue()
    return reports


def _diagnostics(reports: Mapping[str, str]) -> ParforDiagnostics:
    return Diagnostics(reports) if reports else ParforDiagnostics()


def _llvm_timings(named: list[list[str]]) -> PassTimingsCollection:
    collection = PassTimingsCollection("loaded")
    collection._records += [NamedTimings(name, ProcessedPassTimings(report)) for name, report in named]
    return collection


_TO_PLAIN: Final[dict[str, Callable[[Any], Any]]] = {
    "parfor_diagnostics": _reports,
    "pipeline_times": lambda pipelines: {
        pipeline: {name: [*map(_seconds, times)] for name, times in passes.items()}
        for pipeline, passes in pipelines.items()
    },
    "timers": lambda timers: {name: _seconds(value) for name, value in timers.items()},
    "llvm_pass_timings": lambda collection: [[one.name, one.timings.get_raw_data()] for one in collection],
    "prune_stats": list,
}
_FROM_PLAIN: Final[dict[str, Callable[[Any], Any]]] = {
    "parfor_diagnostics": _diagnostics,
    "pipeline_times": lambda pipelines: {
        pipeline: OrderedDict((name, pass_timings(*times)) for name, times in passes.items())
        for pipeline, passes in pipelines.items()
    },
    "llvm_pass_timings": _llvm_timings,
    "prune_stats": lambda counts: PruneStats(*counts),
}
