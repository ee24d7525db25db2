"""The functor is data: a fresh interpreter that never saw the front runs it, and refuses one that is not itself."""

import dataclasses
import pickle
import subprocess
import sys
from pathlib import Path

import numba
import pytest
from numba import float64, int64

from farm.errors import NotShippable
from farm.job.functor import CompileFunctor, compute_key, make_functor
from farm.port.cpu import Cpu
from farm.port.load import load
from farm.port.target import settings
from farm.reasons import RefusalReason

RUN = """
import pickle, sys
functor = pickle.loads(open(sys.argv[1], "rb").read())
open(sys.argv[2], "wb").write(pickle.dumps(functor()))
"""

GAIN = 3


@numba.njit
def scaled(x):
    return x * GAIN


@numba.njit
def caller(x):
    return scaled(x) + 1


@numba.njit(fastmath={"nnan", "ninf"})
def relaxed(x):
    return x + 1.0


def run_elsewhere(functor: CompileFunctor, folder: Path):
    source, out = folder / "functor", folder / "parts"
    source.write_bytes(pickle.dumps(functor))
    subprocess.run([sys.executable, "-c", RUN, str(source), str(out)], check=True, timeout=100, cwd="/")
    return load(pickle.loads(out.read_bytes()), {}).entry_point


@pytest.mark.parametrize(
    ("dispatcher", "value", "expected"), [(scaled, 4.0, 12.0), (caller, 4.0, 13.0), (relaxed, 1.0, 2.0)]
)
def test_functor_runs_in_a_fresh_interpreter(dispatcher, value: float, expected: float, tmp_path: Path) -> None:
    assert run_elsewhere(make_functor(dispatcher, (float64,), None), tmp_path)(value) == expected


def test_a_functor_with_another_key_refuses_itself() -> None:
    functor = make_functor(scaled, (float64,), None)
    other = make_functor(scaled, (int64,), None)
    with pytest.raises(NotShippable) as refused:
        dataclasses.replace(functor, key=other.key).rebuild()
    assert refused.value.reason is RefusalReason.KEY_MISMATCH
    assert "signature" in refused.value.detail


def test_a_functor_for_another_cpu_is_refused_by_who_compiles_for_this_one() -> None:
    functor = dataclasses.replace(make_functor(scaled, (float64,), None, Cpu("x86-64-v2")), settings=settings())
    with pytest.raises(NotShippable) as refused:
        functor.rebuild()
    assert refused.value.reason is RefusalReason.KEY_MISMATCH
    assert "target" in refused.value.detail


def test_a_changed_global_changes_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = make_functor(scaled, (float64,), None).key
    monkeypatch.setattr(sys.modules[__name__], "GAIN", 4)
    after = make_functor(scaled, (float64,), None).key
    assert after != before
    assert after.first_difference(before) == "function"
    assert make_functor(caller, (float64,), None).key != before


def test_equal_functions_have_equal_keys() -> None:
    assert make_functor(scaled, (float64,), None).key == make_functor(scaled, (float64,), None).key


def test_the_flags_of_the_caller_are_part_of_the_key() -> None:
    own = compute_key(scaled, (float64,), None, None)
    flags = numba.core.compiler.Flags()
    flags.error_model = "numpy"
    inherited = compute_key(scaled, (float64,), None, flags)
    assert own.first_difference(inherited) == "flags"


def test_a_numba_setting_is_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = make_functor(scaled, (float64,), None).key
    monkeypatch.setattr(numba.config, "BOUNDSCHECK", 1)
    with_one = make_functor(scaled, (float64,), None).key
    assert with_one.first_difference(before) == "settings"
    monkeypatch.setattr(numba.config, "BOUNDSCHECK", 1.0)  # equal to 1, and another value to a compiler
    assert make_functor(scaled, (float64,), None).key.first_difference(with_one) == "settings"
    monkeypatch.undo()
    assert make_functor(scaled, (float64,), None).key == before
