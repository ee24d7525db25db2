"""Batch: many signatures at once. Errors are collected, one row per signature, in the order they were given."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, as_completed
from dataclasses import dataclass
from typing import Any

from farm.errors import DecorationError
from farm.front.dispatcher import FarmDispatcher
from farm.front.farm import Farm
from farm.front.status import Status, status_of
from farm.front.table import CompileState
from farm.port.dispatch import parse_signature
from farm.port.failure import headline
from farm.port.role import compiles_for_others

Progress = Callable[["Row", int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What became of one signature."""

    function: str
    signature: str
    status: Status

    @property
    def compiled(self) -> bool:
        """Whether there is machine code."""
        return self.status.state is CompileState.COMPILED

    def __str__(self) -> str:
        status = self.status
        if status.error is not None:
            how = headline(status.error)
        elif status.origin is None:
            how = status.state.value
        else:
            how = f"{status.origin.source.value}, {status.origin.compile_s:.2f} s"
        return f"{self.function}({self.signature}): {how}"


@dataclass(frozen=True, slots=True)
class Report:
    """One row per signature asked for; prints as one line each, and a sum."""

    rows: tuple[Row, ...]

    @property
    def failed(self) -> tuple[Row, ...]:
        """The rows without machine code."""
        return tuple(row for row in self.rows if not row.compiled)

    def __str__(self) -> str:
        total = f"{len(self.rows) - len(self.failed)} of {len(self.rows)} compiled"
        return "\n".join([*map(str, self.rows), total])


def compile_all(
    pairs: Iterable[tuple[Any, Any]], progress: Progress | None = None, *, raise_errors: bool = False
) -> Report:
    """Compile many (function, signature) pairs in parallel, and wait for all of them.

    Parameters
    ----------
    pairs
        Functions decorated by `farm.njit` or `farm.jit`, each with a signature in any form that numba takes.
    progress
        Called with (row, how many are done, how many there are) as they get done, in this thread.
    raise_errors
        Raise the first error, in the order of the pairs, once all are done; else errors are in the report.

    Raises DecorationError for a function that is not the farm's, SignatureError for what is no signature: before
    anything is compiled. In a worker, which may import the module that says it, nothing is and the report is empty.
    """
    if compiles_for_others():
        return Report(())
    asked = []
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise DecorationError(f"compile_all takes pairs (function, signature), and {pair!r} is none")
        function, signature = pair
        if not isinstance(function, FarmDispatcher):
            raise DecorationError(f"compile_all takes functions decorated by farm.njit, not {function!r}")
        asked.append((function, *parse_signature(signature)))
    entries = []
    places: dict[Future[Status], list[int]] = {}
    for place, (function, arguments, return_type) in enumerate(asked):
        owner: Farm = function.farm()
        (entry,) = owner.submit(function, [(arguments, return_type)], waited=True)
        entries.append(entry)
        places.setdefault(owner.requests.future(entry), []).append(place)

    for owner in {function.farm() for function, _, _ in asked}:
        owner.wait_if_it_installs()

    def row(place: int) -> Row:
        function, arguments, _ = asked[place]
        return Row(function=function.label, signature=function.types_label(arguments), status=status_of(entries[place]))

    rows: dict[int, Row] = {}
    for done in as_completed(places):
        for place in places[done]:
            rows[place] = row(place)
            if progress is not None:
                progress(rows[place], len(rows), len(asked))
    report = Report(tuple(rows[place] for place in range(len(asked))))
    if raise_errors:
        for failed in report.failed:
            if failed.status.error is not None:
                raise failed.status.error
    return report
