"""What a program brings in that finds all its code in the store: nothing that compiles."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys, numba
before = set(sys.modules)
import farm

@farm.njit
def stored(x):
    return x + 1

@farm.njit
def other(x):
    return x * {factor}

def brought_in():
    return " ".join(sorted(set(sys.modules) - before))

print(brought_in())
import farm.front.bulletin  # what others see of a program is told a moment later, in a thread
stored(1)
farm.wait()
print(brought_in())
other(1)
farm.wait()
print(brought_in())
stats = farm.stats()
print(stats.loaded, stats.compiled, stats.local, other(2))
"""
COMPILES = {"farm.front.pools", "farm.pool.pool", "farm.pool.task"}
NEEDED_BY_NO_LOAD = COMPILES | {"farm.front.meanwhile", "farm.job.restart", "farm.pool.launch"}
NEEDED_BY_NO_LOAD |= {"farm.job.outline", "farm.pool.ticket", "multiprocessing", "psutil", "filelock"}
LOADS = {"farm.front.settle", "farm.job.reach", "farm.port.load", "farm.store.disk"}


@pytest.fixture(scope="module")
def brought_in(tmp_path_factory: pytest.TempPathFactory) -> list[set[str]]:
    """The modules after the decorators, after a load, and after a compile, of a program that has run once before."""
    place = tmp_path_factory.mktemp("light")
    given = {"FARM_CACHE_DIR": str(place / "cache"), "FARM_WORKERS": "1", "FARM_PUBLISH_STATUS": "0"}
    text = ""
    for run, factor in enumerate((3, 5)):
        path = place / "program.py"
        path.write_text(PROGRAM.format(factor=factor))
        done = subprocess.run(
            [sys.executable, path], env=os.environ | given, capture_output=True, text=True, check=True, timeout=300
        )
        *text, counted = done.stdout.splitlines()
        assert counted == f"{run} {2 - run} 0 {2 * factor}", done.stderr
    return [set(line.split()) for line in text]


def test_importing_farm_and_decorating_bring_in_nothing_that_loads_or_compiles(brought_in: list[set[str]]) -> None:
    assert brought_in[0] & (NEEDED_BY_NO_LOAD | LOADS) == set()


def test_a_load_brings_in_nothing_that_compiles_and_a_compile_after_it_does(brought_in: list[set[str]]) -> None:
    _, loaded, compiled = brought_in
    assert loaded & NEEDED_BY_NO_LOAD == set()
    assert loaded >= LOADS  # or the names are out of date
    assert compiled >= COMPILES
