"""What one run of the demo says about itself, and whether two runs computed the same.

A run is its own process. It writes a report (JSON) and its results (numpy's .npz); the process that started
it reads both. Integers, booleans and texts must be equal; floats may differ by `RTOL`, because numpy sums
pairwise where machine code sums in order, and its vectorised functions may differ in the last bit.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

RTOL: Final = 1e-9
ATOL: Final = 1e-12

Arrays = tuple[npt.NDArray[Any], ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One function in the live table."""

    name: str
    state: str
    fallback_calls: int
    """Of these, `switched` were done again by the machine code that came; `waited` were not begun in Python."""
    switched: int
    waited: int
    compiled_calls: int
    compile_s: float
    worker: int | None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is."""

    elapsed_s: float
    steps: int
    longest_step_s: float
    rows: tuple[Row, ...]

    @classmethod
    def from_json(cls, line: str) -> "Progress":
        """Read what `to_json` wrote."""
        fields = json.loads(line)
        return cls(**fields | {"rows": tuple(Row(**row) for row in fields["rows"])})

    def to_json(self) -> str:
        """One line of text."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one run measured; seconds count from the first step, imports and input data come before.

    `disagreements` are results that differ from the first result for the same input in the same run: the first
    may come from Python and a later one from machine code. `compiled` (by workers), `loaded` and `local` (in the
    calling process) count signatures; for plain numba every compile is local.
    """

    longest_step_s: float
    longest_step: str
    steps_over_100_ms: int
    all_results_s: float
    all_machine_code_s: float | None
    total_s: float
    steps: int
    compared: int
    disagreements: tuple[str, ...]
    compiled: int
    loaded: int
    local: int
    fallback_calls: int
    switched: int
    waited: int
    notes: tuple[str, ...] = field(default=())

    @classmethod
    def read(cls, path: Path) -> "Report":
        """Read what `write` wrote."""
        fields: dict[str, Any] = json.loads(path.read_text())
        return cls(**fields | {name: tuple(fields[name]) for name in ("disagreements", "notes")})

    def write(self, path: Path) -> None:
        """Write the report as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1))


def flatten(result: object) -> Arrays:
    """A kernel's result, a scalar, array or tuple of them, as arrays."""
    return tuple(np.asarray(part) for part in result) if isinstance(result, tuple) else (np.asarray(result),)


def agree(one: Arrays, other: Arrays) -> bool:
    """Whether two results are the same: exactly, or to within the tolerance for floats."""
    return len(one) == len(other) and all(map(_same, one, other))


def _same(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    if one.dtype.kind != other.dtype.kind or one.shape != other.shape:
        return False
    if one.dtype.kind == "f":
        return bool(np.allclose(one, other, rtol=RTOL, atol=ATOL, equal_nan=True))
    return bool(np.array_equal(one, other))


def save_results(path: Path, results: Mapping[str, Arrays]) -> None:
    """Write named results."""
    parts = {f"{name}#{i}": part for name, arrays in results.items() for i, part in enumerate(arrays)}
    np.savez(path, **parts)  # type: ignore[arg-type]  # numpy's stub takes the names for its own keyword


def load_results(path: Path) -> dict[str, Arrays]:
    """Read named results."""
    results: dict[str, Arrays] = {}
    with np.load(path, allow_pickle=False) as parts:
        for key in parts.files:
            name = key.rpartition("#")[0]
            results[name] = (*results.get(name, ()), parts[key])
    return results


def differences(one: Mapping[str, Arrays], other: Mapping[str, Arrays]) -> Iterator[str]:
    """Names under which two runs have different results, or only one has a result."""
    for name in sorted(one.keys() | other.keys()):
        if name not in one or name not in other or not agree(one[name], other[name]):
            yield name
