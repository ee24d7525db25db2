"""Run as a program: compiles and calls functions while something is wrong with the cache directory, and reports.

    python disk_program.py CACHE FAULT

Everything is in one report, a JSON object: whether the results were right in strict and in async mode, whatever was
raised, what was counted, what was warned of, and what `on_degraded="raise"` raises.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

import troubles

import farm
from farm.errors import Degraded, FarmWarning
from farm.front.supply import Supply

VALUE: Final = 10**9
"""Its fifth power differs between Python and machine arithmetic, so a result tells who computed it."""
STRICT, ASYNC = 3, 1
"""How many functions: what they leave in the cache is more than 36 KiB."""
PLACES: Final = ("", "v1", "v1/tmp", "v1/locks", "v1/shards")


def make(number: int) -> Callable[[int], int]:
    def fifth_power(a):
        return a * a * a * a * a + number

    return fifth_power


def wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


class Run:
    """The calls of one farm, and what came of them."""

    def __init__(self, barn: farm.Farm) -> None:
        self.barn = barn
        self.raised: list[str] = []
        self.wrong = self.calls = 0

    def check(self, number: int, mode: str) -> None:
        right = make(number)(VALUE)
        try:
            function = farm.njit(make(number), farm=self.barn, mode=mode)
            first = function(VALUE)
            self._count(first == wrapped(right) or (mode == "async" and first == right))
            if mode == "async":
                self._count(function.wait(60))
                self._count(function(VALUE) == wrapped(right))
        except Exception as error:
            self.raised.append(f"{type(error).__name__}: {error}")

    def _count(self, is_right: bool) -> None:
        self.calls += 1
        self.wrong += not is_right

    def report(self) -> dict[str, Any]:
        stats = self.barn.stats()
        counted = {name: getattr(stats, name) for name in ("compiled", "loaded", "local", "failed", "died", "rejected")}
        degraded = {reason.name: times for reason, times in stats.degraded.items()}
        misses = {reason.name: times for reason, times in stats.misses.items()}
        return {
            **counted,
            "degraded": degraded,
            "misses": misses,
            "calls": self.calls,
            "wrong": self.wrong,
            "raised": self.raised,
        }


# -- what is wrong ----------------------------------------------------------------------------------------


@contextmanager
def nothing(cache: Path, barn: farm.Farm) -> Iterator[None]:
    """What was done to the directory beforehand is enough."""
    yield


@contextmanager
def vanishes_before_the_load(cache: Path, barn: farm.Farm) -> Iterator[None]:
    """The whole directory is removed before each look into it: also between a worker's answer and the load."""
    real = Supply.look_up

    def look_up(supply: Supply, config: Any, key: Any) -> Any:
        shutil.rmtree(cache, ignore_errors=True)
        return real(supply, config, key)

    Supply.look_up = look_up  # type: ignore[method-assign]
    try:
        yield
    finally:
        Supply.look_up = real  # type: ignore[method-assign]


@contextmanager
def vanishes_all_the_time(cache: Path, barn: farm.Farm) -> Iterator[None]:
    """A thread removes the directory again and again, while workers look, lock, compile and publish."""
    with troubles.vanishing(cache):
        yield


@contextmanager
def turns_read_only(cache: Path, barn: farm.Farm) -> Iterator[None]:
    """The file system is mounted anew, only for reading."""
    subprocess.run(["mount", "-o", "remount,bind,ro", str(cache)], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,bind,rw", str(cache)], check=True)


@contextmanager
def closes(cache: Path, barn: farm.Farm) -> Iterator[None]:
    """The shards, and where files are written, are closed to their owner."""
    closed = [path for path in (cache / "v1").iterdir() if path.is_dir()]
    for path in closed:
        path.chmod(0)
    try:
        yield
    finally:
        for path in closed:
            path.chmod(0o700)


@contextmanager
def has_no_descriptors(cache: Path, barn: farm.Farm) -> Iterator[None]:
    """This process can open no file any more; its pool runs already."""
    with troubles.no_descriptors():
        yield


@contextmanager
def reads_fail(cache: Path, barn: farm.Farm) -> Iterator[None]:
    """Every read of a file fails in this process, as on a disk with bad blocks."""
    real = os.pread

    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    os.pread = fail  # type: ignore[assignment]
    try:
        yield
    finally:
        os.pread = real


FAULTS: Final[dict[str, Callable[[Path, farm.Farm], AbstractContextManager[None]]]] = {
    one.__name__: one  # type: ignore[attr-defined]
    for one in (
        nothing,
        vanishes_before_the_load,
        vanishes_all_the_time,
        turns_read_only,
        closes,
        has_no_descriptors,
        reads_fail,
    )
}


def spoil(cache: Path, place: str, what: str) -> None:
    """Something else in the place of a directory of the cache; all 256 shards count as one place."""
    shards = [f"v1/{number:02x}" for number in range(256)]
    (cache / "v1").mkdir(parents=True, mode=0o700)
    cache.chmod(0o700)
    for name in shards if place == "v1/shards" else [place]:
        path = cache / name
        if path.is_dir():
            shutil.rmtree(path)
        path.touch() if what == "file" else path.symlink_to(cache.parent / "elsewhere")


def run(cache: Path, fault: str) -> dict[str, Any]:
    """With one farm that counts, and one that raises."""
    if ":" in fault:
        what, _, place = fault.partition(":")
        spoil(cache, place, what)
        fault = "nothing"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with farm.Farm(cache_dir=cache, workers=1) as barn:
            counting = Run(barn)
            if fault != "nothing":
                counting.check(1000, "strict")  # the pool runs, the directory is there
            with FAULTS[fault](cache, barn):
                for number in range(STRICT):
                    counting.check(number, "strict")
                for number in range(STRICT, STRICT + ASYNC):
                    counting.check(number, "async")
            report = counting.report()
    report["warned"] = [str(one.message) for one in caught if issubclass(one.category, FarmWarning)]
    report["kept"] = len(list(cache.glob("v1/??/*.farm"))) if cache.is_dir() else 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # where it raises it does not warn as well
        with farm.Farm(cache_dir=cache, workers=1, on_degraded="raise") as barn:
            raising = Run(barn)
            if fault != "nothing":
                with contextlib.suppress(Degraded):
                    farm.njit(make(1000), farm=barn, mode="strict")(VALUE)
                    farm.njit(make(1001), farm=barn, mode="strict")(VALUE)
            with FAULTS[fault](cache, barn):
                raising.check(2000, "strict")
                raising.check(2001, "async")
    report["raises"] = raising.raised
    report["wrong"] += raising.wrong
    return report


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]), sys.argv[2])), flush=True)
