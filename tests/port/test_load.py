"""What one process compiles, another loads and runs: real processes, real machine code."""

import dataclasses
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from once import once

sys.path.insert(0, str(Path(__file__).parent))

from subjects import SUBJECTS

from farm.errors import NotShippable
from farm.port import load as loading
from farm.port.compile import Parts
from farm.port.load import LoadRefused, load
from farm.reasons import MissReason, RefusalReason

MAKER = Path(__file__).with_name("maker.py")


def run_maker(out: Path, names: list[str]) -> dict[str, Parts | NotShippable]:
    subprocess.run([sys.executable, str(MAKER), str(out), *names], check=True, timeout=300)
    return pickle.loads(out.read_bytes())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Parts | NotShippable]:
    return once(tmp_path_factory, "parts", lambda folder: run_maker(folder / "all", list(SUBJECTS)))


def entry(made: dict[str, Parts | NotShippable], name: str):
    parts = made[name]
    assert isinstance(parts, Parts), parts
    return load(parts, SUBJECTS[name][0].py_func.__globals__).entry_point


def test_scalar_function(made) -> None:
    assert entry(made, "add")(1.5, 2.0) == 3.5


def test_function_of_three_arrays_writes_the_callers_array(made) -> None:
    x, w, out = np.arange(4.0), np.full(4, 2.0), np.zeros(4)
    assert entry(made, "weighted")(x, w, out) == 12.0
    assert out.tolist() == [0.0, 2.0, 4.0, 6.0]


def test_exception_with_its_arguments(made) -> None:
    raises = entry(made, "raises")
    assert raises(3) == 3
    with pytest.raises(ValueError) as caught:
        raises(-2)
    assert caught.value.args == ("negative", -2)


def test_generator(made) -> None:
    assert list(entry(made, "count_to")(4)) == [0, 2, 4, 6]


def test_object_mode_block_sees_the_functions_own_globals(made) -> None:
    assert entry(made, "prints_in_python")(1.0) == 5.0


def test_parallel_function(made) -> None:
    assert entry(made, "parallel_sum")(np.arange(1000.0)) == 499500.0


def test_a_caller_brings_what_its_parallel_callee_needs(tmp_path: Path) -> None:
    """Into a process that has run nothing parallel."""
    run_maker(tmp_path / "parts", ["twice_the_sum"])
    script = (
        "import pickle, sys, numpy; from farm.port.load import load; "
        "made = pickle.load(open(sys.argv[1], 'rb')); "
        "print(load(made['twice_the_sum']).entry_point(numpy.arange(1000.0)))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "parts")]
    loaded = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert loaded.stdout == "999000.0\n", loaded.stderr


def test_string_function_that_needs_hashing_symbols(made) -> None:
    assert entry(made, "text_length")("straße") == 7


def test_self_recursion(made) -> None:
    assert entry(made, "fact")(10) == 3628800


def test_caller_with_a_callee_linked_in(made) -> None:
    assert entry(made, "caller_of_add")(1.0) == 5.0


def test_typed_dictionary_inside(made) -> None:
    assert entry(made, "makes_dict")(9) == 64


def test_two_closures_of_one_factory_keep_their_own_constants(made) -> None:
    one, hundred = entry(made, "scaled_1"), entry(made, "scaled_100")
    assert (one(2), hundred(2)) == (3, 300)


def test_closures_compiled_in_two_processes_do_not_collide(tmp_path: Path) -> None:
    first = run_maker(tmp_path / "a", ["scaled_1"])
    second = run_maker(tmp_path / "b", ["scaled_100"])
    one, hundred = entry(first, "scaled_1"), entry(second, "scaled_100")
    assert (one(2), hundred(2)) == (3, 300)
    assert not set(first["scaled_1"].meta["defined"]) & set(second["scaled_100"].meta["defined"])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ping", RefusalReason.UNRESOLVED_SYMBOLS),
        ("in_object_mode", RefusalReason.OBJECT_MODE),
        ("reads_huge", RefusalReason.DYNAMIC_GLOBALS),
    ],
)
def test_what_cannot_travel_is_refused_with_its_reason(made, name: str, reason: RefusalReason) -> None:
    refusal = made[name]
    assert isinstance(refusal, NotShippable)
    assert refusal.reason is reason


def test_a_loaded_function_can_be_linked_into_a_new_compile(made) -> None:
    """The bitcode is parsed only then, and the callee's constants arrive in the caller."""
    result = load(made["add"], SUBJECTS["add"][0].py_func.__globals__)
    assert result.library._shared_module is None
    dispatcher = SUBJECTS["add"][0]
    context = result.target_context
    context.insert_user_function(result.entry_point, result.fndesc, [result.library])
    dispatcher.add_overload(result)
    assert SUBJECTS["caller_of_add"][0](2.0) == 7.0
    assert result.library._shared_module is not None


def test_a_missing_symbol_is_a_miss_and_not_a_crash(made) -> None:
    parts = made["add"]
    meta = {**parts.meta, "undefined": [*parts.meta["undefined"], "no_such_symbol_anywhere"]}
    with pytest.raises(LoadRefused) as refused:
        load(dataclasses.replace(parts, meta=meta))
    assert refused.value.reason is MissReason.SYMBOL_MISSING


@pytest.mark.parametrize(
    ("part", "value", "lacks"),
    [
        ("features", "+sse2,+warp-drive", "warp-drive"),
        ("cpu", "knl", "what knl has"),
        ("triple", "riscv64-unknown-linux-gnu", "riscv64-unknown-linux-gnu"),
    ],
)
def test_code_for_a_richer_cpu_is_a_miss(made, part: str, value: str, lacks: str) -> None:
    parts = made["add"]
    meta = {**parts.meta, "target": {**parts.meta["target"], part: value}}
    with pytest.raises(LoadRefused) as refused:
        load(dataclasses.replace(parts, meta=meta))
    assert refused.value.reason is MissReason.CPU_LACKS_FEATURE
    assert refused.value.detail == lacks


def test_an_environment_that_does_not_unpickle_is_a_miss(made) -> None:
    with pytest.raises(LoadRefused) as refused:
        load(dataclasses.replace(made["add"], environment=b"\x80\x04nonsense"))
    assert refused.value.reason is MissReason.LOAD_FAILED


def test_a_returned_array_is_compared_with_numpys_own_dtype(made: dict[str, Parts]) -> None:
    """A copy of the dtype is equal and slower: each call would pay for it."""
    for constant in (np.dtype("float64"), np.dtype("int8"), np.dtype("complex64")):
        copied = pickle.loads(pickle.dumps(constant))
        assert loading._as_numpy_keeps_it(copied) is constant
    for other in (np.dtype([("a", "f8")]), np.dtype(">f8"), np.dtype("S5"), np.dtype("M8[ns]"), "text"):
        assert loading._as_numpy_keeps_it(other) is other
