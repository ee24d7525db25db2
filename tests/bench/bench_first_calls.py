"""What the first call of a function costs: plain Python, plain numba, and the farm, which may take either way.

    python tests/bench/bench_first_calls.py [--rounds N] [--only WORD ...] [--very-first] [--json PATH]

Every call is the first one of its function, in a process of its own, with an empty store and warm compilers: a trivial
function was compiled before, by whoever is measured. Imports and arguments are not in the time. Python is given up
after a minute. The bar is 1.15 times the better of Python and numba, and 30 ms.

`--very-first`: the call is the first thing that the process compiles, so that the start of the pool is in it. The bar
is numba's time and 0.6 s.

What the call gives and what it leaves in its arguments are compared bit by bit with numba's. A function that gives
other bits in plain Python than under numba (other libraries round otherwise) may give either under the farm, or what
lies between where its parts went different ways, equal but for rounding: its row says so. Exit code 1 if any row is
WRONG, or a process failed; rows above the bar are counted, and are the last of the table.
"""

import argparse
import hashlib
import itertools
import json
import os
import platform
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numba
import numpy as np
from numba.core.dispatcher import Dispatcher

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import demo_compiler

import farm

PYTHON, NUMBA, FARM = "python", "numba", "farm"
GIVE_UP_S: Final = 60.0
STUCK_S: Final = 300.0
"""A process that has not come so far is stuck: the slowest library takes a tenth of it."""
NUMBERS_MAX: Final = 100_000
"""What gives more is compared bit by bit only."""
SLOW: Final = 3.0
"""A Python run this many times as long as numba's, and over 5 s, is not measured again: it does not count."""
FACTOR: Final = 1.15
EXTRA_S: Final = 0.03
VERY_FIRST_EXTRA_S: Final = 0.6


# -- in the child --------------------------------------------------------------------------------------


def trivial(a: int) -> int:
    """What warms the compilers."""
    return a + 2


def bits(value: Any, add: Callable[[bytes], None]) -> None:
    """Tell what a value is, bit by bit; a number of numpy's is the same as Python's."""
    if isinstance(value, np.ndarray) and value.dtype.names is None and value.dtype.hasobject:
        bits(value.tolist(), add)
    elif isinstance(value, np.ndarray):
        add(f"array {value.dtype.str} {value.shape}".encode())
        if value.dtype.names is None:
            add(np.ascontiguousarray(value).tobytes())
        else:  # without what is between the fields
            for name in value.dtype.names:
                bits(value[name], add)
    elif isinstance(value, (bool, np.bool_, int, np.integer)):
        add(f"int {int(value)}".encode())
    elif isinstance(value, (float, np.floating)):
        add(b"float" + struct.pack("d", value))
    elif isinstance(value, (complex, np.complexfloating)):
        add(b"complex" + struct.pack("dd", value.real, value.imag))
    elif isinstance(value, (str, bytes)) or value is None:
        add(repr(value).encode())
    elif isinstance(value, BaseException):
        bits((type(value).__name__, *value.args), add)
    elif hasattr(value, "items"):
        add(b"dict")
        for pair in value.items():
            bits(pair, add)
    elif isinstance(value, (tuple, list)) or type(value).__name__ == "List":
        add(f"list {len(value)}".encode())
        for one in value:
            bits(one, add)
    else:  # an object of a library: what it was made of is not what is compared
        add(type(value).__name__.encode())


def digest_of(values: Iterable[Any]) -> str:
    """A digest of what the call gave and left."""
    found = hashlib.sha256()

    def add(part: bytes) -> None:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)

    for value in values:
        bits(value, add)
    return found.hexdigest()[:16]


def numbers_of(value: Any) -> Iterator[float]:
    """All numbers in it, for a comparison but for rounding."""
    if isinstance(value, np.ndarray):
        yield from value.ravel().tolist() if value.dtype.names is None else ()
    elif isinstance(value, (bool, int, float, np.generic)):
        yield float(value)
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from numbers_of(one)


def in_plain_python(library: str) -> None:
    """Put the Python functions in the place of a library's jitted ones."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == library:
            for attribute, value in list(vars(module).items()):
                if isinstance(value, Dispatcher):
                    setattr(module, attribute, value.py_func)


def child(name: str, contestant: str, *, warm: bool) -> None:
    """Call one function once, and say how long that took and what came out."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nobody else writes there
    demo_compiler.use({PYTHON: undecorated, NUMBA: numba.njit, FARM: farm.njit}[contestant])
    if contestant == FARM and os.environ.get("FIRST_CALLS_LIBRARY"):
        farm.enable()
    import first_calls  # not before it is known who decorates

    case = next(one for one in first_calls.CASES if one.name == name)
    function, make = case.load()
    if contestant == PYTHON and case.library is not None:
        in_plain_python(case.library)
        function, make = case.load()
    arguments = make(np.random.default_rng(5))
    if warm:
        (farm.njit if contestant == FARM else numba.njit)(trivial)(1)
        if contestant == FARM:
            farm.wait()  # what a library has asked for when it was imported as well: numba has compiled it by now
    print("ready", file=out, flush=True)
    started = time.perf_counter()
    try:
        value = function(*arguments)
    except Exception as error:
        value = error
    seconds = time.perf_counter() - started
    said: dict[str, Any] = {"seconds": seconds, "digest": digest_of((value, *arguments))}
    numbers = list(itertools.islice(numbers_of((value, *arguments)), NUMBERS_MAX + 1))
    said["numbers"] = numbers if len(numbers) <= NUMBERS_MAX else None
    if isinstance(value, Exception):
        said["raised"] = f"{type(value).__name__}: {value}"
    if contestant == FARM:
        counted = farm.stats()
        said["stats"] = {name: value for name, value in asdict(counted).items() if isinstance(value, (int, float))}
    print(json.dumps(said), file=out, flush=True)
    os._exit(0)  # what still compiles is nobody's: the workers end with this process


def undecorated(function: Callable[..., Any] | None = None, **_: Any) -> Any:
    """What decorates for plain Python."""
    return (lambda one: one) if function is None else function


# -- in the parent -------------------------------------------------------------------------------------


@dataclass
class Runs:
    """What one contestant did with one function."""

    seconds: list[float] = field(default_factory=list)
    digests: set[str] = field(default_factory=set)
    numbers: list[list[float] | None] = field(default_factory=list)
    given_up: bool = False
    failure: str = ""
    notes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def median(self) -> float | None:
        """Seconds; None if there are none."""
        return statistics.median(self.seconds) if self.seconds and not self.given_up else None

    def text(self) -> str:
        """For the table."""
        if self.given_up:
            return f">{GIVE_UP_S:.0f}"
        return "-" if self.median is None else f"{self.median:.3f}"


@dataclass
class Row:
    """One function, and what all did with it."""

    name: str
    kind: str
    runs: dict[str, Runs]
    missing: bool = False

    @property
    def raises(self) -> bool:
        """Whether that is what the function is there for."""
        return self.kind.startswith("raises")

    def bar_s(self, *, very_first: bool) -> float | None:
        """What the farm may take."""
        numbas = self.runs[NUMBA].median
        if numbas is None:
            return None
        if very_first:
            return numbas + VERY_FIRST_EXTRA_S
        pythons = None if self.runs[PYTHON].failure else self.runs[PYTHON].median
        return FACTOR * (numbas if pythons is None else min(pythons, numbas)) + EXTRA_S

    def ratio(self, *, very_first: bool) -> float:
        """The farm's time as a part of what it may take."""
        bar, farms = self.bar_s(very_first=very_first), self.runs[FARM].median
        return 0.0 if bar is None or farms is None else farms / bar

    @property
    def failure(self) -> str:
        """What went wrong in some process; not everything runs as plain Python."""
        return next((f"{who}: {one.failure}" for who, one in self.runs.items() if one.failure and who != PYTHON), "")

    @property
    def wrong(self) -> bool:
        """Whether the farm gave what neither numba nor, where that differs from numba, Python gives."""
        right = set(self.runs[NUMBA].digests)
        if self.python_differs:
            right |= self.runs[PYTHON].digests
        if len(self.runs[NUMBA].digests) > 1:
            return True
        return not self.runs[FARM].digests <= right and not (self.python_differs and self.is_close)

    @property
    def is_close(self) -> bool:
        """Whether the farm's numbers are numba's but for rounding."""
        right = self.runs[NUMBA].numbers[0]
        return right is not None and all(
            one is not None and len(one) == len(right) and np.allclose(one, right, rtol=1e-6, atol=1e-9, equal_nan=True)
            for one in self.runs[FARM].numbers
        )

    @property
    def python_differs(self) -> bool:
        """Whether plain Python gives other bits than numba."""
        return bool(self.runs[PYTHON].digests - self.runs[NUMBA].digests)

    def verdict(self, *, very_first: bool) -> str:
        """One word, or a few."""
        if self.missing:
            return "missing"
        if self.failure:
            return "FAILED"
        if self.wrong:
            return "WRONG"
        said = "" if self.ratio(very_first=very_first) <= 1 else "above"
        if self.runs[PYTHON].failure:
            said += " (does not run as Python)"
        return f"{said} (Python differs from numba)".strip() if self.python_differs else said.strip()


def run_once(name: str, contestant: str, library: str | None, runs: Runs, *, warm: bool, raises: bool) -> None:
    """One call in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="first-calls-") as folder:
        environment = {
            **{variable: text for variable, text in os.environ.items() if not variable.startswith(("FARM_", "NUMBA_"))},
            "FARM_CACHE_DIR": os.path.join(folder, "store"),
            "FARM_FALLBACK": "auto",
            "NUMBA_CACHE_DIR": os.path.join(folder, "numba"),
        }
        if library is not None:
            environment["FIRST_CALLS_LIBRARY"] = library
        command = [sys.executable, __file__, "--child", name, contestant, *([] if warm else ["--very-first"])]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        assert process.stdout is not None and process.stderr is not None
        errors: list[str] = []
        reader = threading.Thread(target=lambda: errors.extend(process.stderr), daemon=True)
        reader.start()
        stuck = threading.Timer(STUCK_S, process.kill)
        patience = threading.Timer(GIVE_UP_S, process.kill) if contestant == PYTHON else None
        try:
            stuck.start()
            ready = process.stdout.readline().strip()
            if ready and patience is not None:
                patience.start()
            said = process.stdout.readline()
            process.wait()
        finally:
            stuck.cancel()
            if patience is not None:
                patience.cancel()
            process.kill()
            process.wait()
            reader.join()
            process.stdout.close()
            process.stderr.close()
    if said:
        found = json.loads(said)
        if "raised" in found and not raises:
            runs.failure = found["raised"].partition("\n")[0]
        runs.seconds.append(found.pop("seconds"))
        runs.digests.add(found.pop("digest"))
        runs.numbers.append(found.pop("numbers"))
        runs.notes.append(found)
    elif ready and patience is not None and process.returncode < 0:
        runs.given_up = True
    else:
        runs.failure = f"exit code {process.returncode}: {''.join(errors[-3:]).strip()}"


def is_over(contestant: str, row: Row) -> bool:
    """Whether it need not run again."""
    one, numbas = row.runs[contestant], row.runs[NUMBA].median
    slow = numbas is not None and bool(one.seconds) and one.seconds[0] > max(5.0, SLOW * numbas)
    return one.given_up or bool(one.failure) or (contestant == PYTHON and slow)


def measure(row: Row, library: str | None, rounds: int, *, very_first: bool) -> None:
    """All rounds of one function; who comes first changes from round to round."""
    contestants = [NUMBA, FARM] if very_first else [PYTHON, NUMBA, FARM]
    for number in range(rounds):
        turn = number % len(contestants)
        for contestant in contestants[turn:] + contestants[:turn]:
            if not is_over(contestant, row):
                run_once(row.name, contestant, library, row.runs[contestant], warm=not very_first, raises=row.raises)


def table(rows: list[Row], *, very_first: bool) -> str:
    """Plain text, the worst last."""
    heads = ("function", "kind", "python s", "numba s", "farm s", "may take", "of it", "")
    lines = []
    for row in sorted(
        rows,
        key=lambda row: (
            bool(row.verdict(very_first=very_first) in ("WRONG", "FAILED")),
            row.ratio(very_first=very_first),
        ),
    ):
        bar = row.bar_s(very_first=very_first)
        lines.append(
            (
                row.name,
                row.kind,
                *(row.runs[who].text() for who in (PYTHON, NUMBA, FARM)),
                "-" if bar is None else f"{bar:.3f}",
                "-" if row.missing or bar is None else f"{row.ratio(very_first=very_first):.2f}",
                row.verdict(very_first=very_first),
            )
        )
    widths = [max(len(line[i]) for line in (heads, *lines)) for i in range(len(heads))]
    return "\n".join(
        "  ".join(
            text.ljust(width) if i in (0, 1, 7) else text.rjust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in (heads, *lines)
    )


def as_json(row: Row, *, very_first: bool) -> dict[str, Any]:
    """Everything that was measured of a row."""
    return {
        "function": row.name,
        "kind": row.kind,
        "missing": row.missing,
        "verdict": row.verdict(very_first=very_first),
        "may_take_s": row.bar_s(very_first=very_first),
        "ratio": row.ratio(very_first=very_first),
        "python_differs": row.python_differs,
        "failure": row.failure,
        "runs": {
            who: {"median_s": one.median, "seconds": one.seconds, "given_up": one.given_up, "notes": one.notes}
            for who, one in row.runs.items()
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="medians are over so many")
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD", help="rows with one of these in name or kind")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all figures there")
    parser.add_argument("--very-first", action="store_true", help="the first call of the process, pool start included")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(*given.child, warm=not given.very_first)
    import first_calls

    very_first = given.very_first
    chosen = [
        one
        for one in first_calls.CASES
        if not given.only or any(word in one.name or word in one.kind for word in given.only)
    ]
    if not chosen or given.rounds < 1:
        parser.error(f"no function matches {given.only}" if not chosen else "at least one round")
    rows = []
    for one in chosen:
        row = Row(one.name, one.kind, {who: Runs() for who in (PYTHON, NUMBA, FARM)}, missing=one.missing)
        rows.append(row)
        if not row.missing:
            measure(row, one.library, given.rounds, very_first=very_first)
        figures = ", ".join(f"{who} {runs.text()}" for who, runs in row.runs.items())
        print(f"{row.name}: {figures} {row.verdict(very_first=very_first)} {row.failure}".rstrip(), flush=True)
    there = [row for row in rows if not row.missing]
    reached = sum(not row.failure and not row.wrong and row.ratio(very_first=very_first) <= 1 for row in there)
    bar = f"numba's and {VERY_FIRST_EXTRA_S} s" if very_first else f"{FACTOR} times the better and {EXTRA_S} s"
    title = "the very first call of a process" if very_first else "the first call of a function, compilers warm"
    print(f"\n{title}: seconds, medians of {given.rounds}\n\n{table(rows, very_first=very_first)}\n")
    print(f"{reached} of {len(there)} rows reach the target ({bar}); {len(rows) - len(there)} missing")
    if given.json is not None:
        told = {
            "very_first": very_first,
            "rounds": given.rounds,
            "python": platform.python_version(),
            "numba": numba.__version__,
            "processors": os.cpu_count(),
            "rows": [as_json(row, very_first=very_first) for row in rows],
        }
        given.json.write_text(json.dumps(told, indent=1))
    return 1 if any(row.failure or row.wrong for row in there) else 0


if __name__ == "__main__":
    sys.exit(main())
