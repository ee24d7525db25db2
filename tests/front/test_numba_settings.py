"""numba's own settings: what a program sets, in its environment or in `numba.config`, holds in the workers too."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SIGNATURE = "float64[::1](float64[::1], int64)"
BEGIN = f"""
import os
import farm
import numba
import numpy as np
from farm.front.pending import Source

def scale(a, n):
    for i in range(a.size):
        a[i] = a[i] * 2.5 + n
    return a

def pick(a, i):
    return a[i]

def by_worker(body, signature="{SIGNATURE}"):
    function = farm.njit(body, farm=barn)
    function.compile(signature)
    status = function.status(signature)
    assert status.origin.source is not Source.LOCAL, status
    return function

def size(function):
    (result,) = function.overloads.values()
    return len(result.library._get_compiled_object())
"""


def run(tmp_path: Path, script: str, **environment: str) -> list[str]:
    """What a program with a farm of one worker prints, word by word."""
    file = tmp_path / "program.py"
    barn = f"barn = farm.Farm(cache_dir={str(tmp_path / 'cache')!r}, workers=1)\n"
    file.write_text(BEGIN + barn + script + "\nbarn.close()\n")
    done = subprocess.run(
        [sys.executable, str(file)],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    "change",
    [
        "numba.config.OPT = numba.config._OptLevel(0)",
        "numba.config.CPU_NAME, numba.config.CPU_FEATURES = 'generic', ''",
        "numba.config.ENABLE_AVX = 0",
    ],
)
def test_a_change_to_the_code_generator_has_workers_of_its_own(tmp_path: Path, change: str) -> None:
    """numba reads these once in a process. What comes is other code, and is found again under the same settings."""
    script = f"""
before = size(by_worker(scale))
{change}
after = size(by_worker(scale))
print(before != after, size(by_worker(scale)) == after, barn.stats().compiled, barn.stats().loaded)
"""
    assert run(tmp_path, script) == ["True", "True", "2", "1"]


def test_an_environment_that_changes_counts_for_later_compiles(tmp_path: Path) -> None:
    script = """
os.environ["NUMBA_BOUNDSCHECK"] = "1"
try:
    by_worker(pick, "float64(float64[::1], int64)")(np.ones(3), 5)
except IndexError:
    print("IndexError")
"""
    assert run(tmp_path, script) == ["IndexError"]


def test_the_highest_optimisation_is_not_the_third(tmp_path: Path) -> None:
    script = "by_worker(scale); print(barn.stats().compiled, barn.stats().loaded)"
    assert run(tmp_path, script, NUMBA_OPT="3") == ["1", "0"]
    assert run(tmp_path, script, NUMBA_OPT="max") == ["1", "0"]
    assert run(tmp_path, script, NUMBA_OPT="max") == ["0", "1"]


def test_a_front_without_svml_has_workers_without_it(tmp_path: Path) -> None:
    script = "by_worker(scale); print(numba.config.USING_SVML, barn.stats().compiled)"
    assert run(tmp_path, script, NUMBA_DISABLE_INTEL_SVML="1") == ["False", "1"]
