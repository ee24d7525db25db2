"""What a function that another process compiled says of itself: timings, reports, code."""

import contextlib
import io
import json
import pickle
import re
import sys
from pathlib import Path

import numba
import pytest
from numba.core.compiler_machinery import pass_timings
from numba.misc.llvm_pass_timings import NamedTimings, PassTimingsCollection, ProcessedPassTimings

sys.path.insert(0, str(Path(__file__).parent))

from subjects import SUBJECTS
from test_load import run_maker

from farm.port.compile import Parts, compile_signature
from farm.port.load import load
from farm.port.metadata import from_plain, to_plain

NAMES = ["add", "parallel_sum"]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where another process writes what it compiles; `pruned` lies beside it."""
    return tmp_path_factory.mktemp("parts") / "some"


@pytest.fixture(scope="module")
def loaded(out: Path):
    """By name: a dispatcher of this process with what another compiled for it."""
    made = run_maker(out, NAMES)
    dispatchers = {}
    for name in NAMES:
        parts = made[name]
        assert isinstance(parts, Parts)
        own = SUBJECTS[name][0]
        dispatcher = numba.jit(**own.targetoptions)(own.py_func)
        result = load(parts, own.py_func.__globals__)
        dispatcher.targetctx.insert_user_function(result.entry_point, result.fndesc, [result.library])
        dispatcher.add_overload(result)
        dispatchers[name] = dispatcher
    return dispatchers


def compiled_here(name: str):
    own = SUBJECTS[name][0]
    dispatcher = numba.jit(**own.targetoptions)(own.py_func)
    dispatcher.compile(SUBJECTS[name][1])
    return dispatcher


def report(dispatcher, level: int) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as text:
        dispatcher.parallel_diagnostics(level=level)
    return text.getvalue()


def without_numbers(text: str) -> str:
    """Loops and variables are numbered through the whole process, and the lines drawn to the same width."""
    return re.sub("-+", "-", re.sub(r"\d+(\.\d+)?", "N", text))


@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_function_has_the_metadata_that_numbas_own_has(out: Path, loaded, name: str) -> None:
    (here,), (there,) = compiled_here(name).get_metadata().values(), loaded[name].get_metadata().values()
    assert there.keys() == here.keys()
    assert {key: type(value) for key, value in there.items() if key != "parfor_diagnostics"} == {
        key: type(value) for key, value in here.items() if key != "parfor_diagnostics"
    }
    (passes_here,), (passes_there,) = here["pipeline_times"].values(), there["pipeline_times"].values()
    assert list(passes_there) == list(passes_here)
    assert all(isinstance(times, pass_timings) and times.run >= 0 for times in passes_there.values())
    assert sum(times.run for times in passes_there.values()) > 0
    # Not as here: the first parallel function of a process has more to prune, as it brings library code along.
    assert tuple(there["prune_stats"]) == pickle.loads(out.with_suffix(".pruned").read_bytes())[name]
    assert set(there["timers"]) == {"compiler_lock", "llvm_lock"} and min(there["timers"].values()) > 0


@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_parallel_diagnostics_are_those_of_numba(loaded, level: int) -> None:
    there = report(loaded["parallel_sum"], level)
    assert without_numbers(there) == without_numbers(report(compiled_here("parallel_sum"), level))
    assert "Parallel loop listing" in there


def test_an_unknown_level_and_a_serial_function_are_refused_as_numba_does(loaded) -> None:
    with pytest.raises(ValueError, match="5"):
        loaded["parallel_sum"].parallel_diagnostics(level=5)
    with pytest.raises(RuntimeError, match="setup"):
        loaded["add"].parallel_diagnostics()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", NAMES)
def test_llvm_assembly_and_graph_show_the_code(loaded, name: str) -> None:
    dispatcher = loaded[name]
    (signature,) = dispatcher.signatures
    symbol = dispatcher.overloads[signature].fndesc.mangled_name
    llvm_ir, assembly = dispatcher.inspect_llvm(signature), dispatcher.inspect_asm(signature)
    assert f'@"{symbol}"(' in llvm_ir or f"@{symbol}(" in llvm_ir
    assert symbol in assembly and {"ret", "retq"} & set(assembly.split())
    assert "digraph" in repr(dispatcher.inspect_cfg(signature))


def test_inspected_code_still_runs_and_links(loaded) -> None:
    add = loaded["add"]
    add.inspect_asm()
    assert numba.njit(lambda a: add(a, a))(1.5) == 3.0
    assert add(1.5, 2.0) == 3.5


def test_llvms_own_timings_come_back() -> None:
    timings = PassTimingsCollection("library")
    timings._records.append(NamedTimings("module passes", ProcessedPassTimings("=== raw report ===")))
    plain = json.loads(json.dumps(to_plain({"llvm_pass_timings": timings})))
    (back,) = from_plain(plain)["llvm_pass_timings"]
    assert (back.name, back.timings.get_raw_data()) == ("module passes", "=== raw report ===")


def test_notes_of_others_travel_if_they_are_plain() -> None:
    plain = to_plain({"a": {"fused": 3}, "b": object(), "c": float("nan"), "pipeline_times": "not numba's"})
    assert plain == {"a": {"fused": 3}}
    assert from_plain(plain) == {"a": {"fused": 3}}


def test_a_compile_here_has_timers_too() -> None:
    result, _ = compile_signature(numba.njit(lambda a: a + 1), (numba.float64,), None, None)
    assert set(result.metadata["timers"]) == {"compiler_lock", "llvm_lock"}
