"""Two compiles of one function: when they are the same, and that nothing else is.

The functions are compiled by processes of their own, the second time under the first one's symbol base.
"""

import dataclasses
import os
import pickle
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from once import once

sys.path.insert(0, str(Path(__file__).parent))

from subjects import SUBJECTS

from farm.errors import NotShippable
from farm.port import elf
from farm.port.compare import Sameness, compare
from farm.port.compile import Parts

Made = dict[str, Parts]

HERE = Path(__file__).parent
CANNOT_TRAVEL = {"ping", "in_object_mode", "reads_huge"}
IDENTICAL = {"add", "weighted", "raises", "scaled_1", "scaled_100", "text_length", "makes_dict"}
EQUIVALENT = {
    "count_to",  # an address in a generator's name
    "prints_in_python",  # the identity of an object mode block's dispatcher
    "parallel_sum",  # an address in the name of a parallel loop's body
    "fact",  # an address in the annotation, where it names the function that is called
    "caller_of_add",  # the same
    "twice_the_sum",  # the same, of a parallel function
}


def make(
    folder: Path, *words: str, seed: str = "0", here: Path = HERE, each: bool = False
) -> dict[str, Parts | NotShippable]:
    out = folder / f"made-{len(list(folder.iterdir()))}"
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    command = [sys.executable, str(here / "maker.py"), *(["--each"] if each else []), str(out), *words]
    subprocess.run(command, check=True, timeout=300, env=environment)
    found: dict[str, Parts | NotShippable] = pickle.loads(out.read_bytes())
    return found


def again(folder: Path, made: Made, *names: str, seed: str = "0", here: Path = HERE) -> Made:
    """Compiled again, each in a process that has compiled nothing."""
    words = (f"{name}={made[name].meta['symbol_base']}" for name in names)
    found = make(folder, *words, seed=seed, here=here, each=True)
    return {name: parts for name, parts in found.items() if isinstance(parts, Parts)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("made")


def travelling(folder: Path, *names: str) -> Made:
    return {name: parts for name, parts in make(folder, *names).items() if isinstance(parts, Parts)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """All of them in one process, as a worker that does one job after the other."""
    return once(tmp_path_factory, "made", lambda folder: travelling(folder, *SUBJECTS))


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory, made: Made) -> Made:
    """Compiled again under the same names, each by a process that has compiled nothing."""
    return once(tmp_path_factory, "fresh", lambda folder: again(folder, made, *made))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory, made: Made) -> Made:
    """Compiled once more, under other names."""
    return once(tmp_path_factory, "other", lambda folder: travelling(folder, *made))


def tampered(parts: Parts, **changes: object) -> Parts:
    return dataclasses.replace(parts, **changes)


def where(outcome: object) -> list[str]:
    assert isinstance(outcome, tuple) and outcome, outcome
    return [place for place, _, _ in outcome]


def test_every_kind_of_function_that_travels_has_its_place_in_this_test(made: Made) -> None:
    assert made.keys() == IDENTICAL | EQUIVALENT
    assert SUBJECTS.keys() - made.keys() == CANNOT_TRAVEL


@pytest.mark.parametrize("seed", ["0", "77"])
def test_what_is_compiled_again_is_the_same_and_for_these_kinds_byte_for_byte(
    fresh: Made, folder: Path, seed: str
) -> None:
    second = again(folder, fresh, *fresh, seed=seed)
    outcomes = {name: compare(fresh[name], second[name]) for name in fresh}
    assert outcomes == {
        name: Sameness.IDENTICAL if name in IDENTICAL else Sameness.EQUIVALENT for name in IDENTICAL | EQUIVALENT
    }


def test_a_worker_that_compiled_others_before_makes_the_same(made: Made, fresh: Made) -> None:
    """But for the names: numba counts on where it has some of its own functions in memory."""
    outcomes = {name: compare(made[name], fresh[name]) for name in made}
    assert all(isinstance(outcome, Sameness) for outcome in outcomes.values()), outcomes
    assert outcomes["makes_dict"] is Sameness.EQUIVALENT


def test_under_other_names_it_is_the_same(made: Made, other: Made) -> None:
    """As a caller is whose callee was published once more."""
    for name in made:
        assert compare(made[name], other[name]) is Sameness.EQUIVALENT, name


def test_a_function_that_has_moved_is_the_same(made: Made, folder: Path, tmp_path: Path) -> None:
    """Keys have no positions, and frozen pickles that hold one are longer where the path is."""
    elsewhere = tmp_path / "a" / "much" / "longer" / "path"
    elsewhere.mkdir(parents=True)
    shutil.copy(HERE / "maker.py", elsewhere)
    text = (HERE / "subjects.py").read_text()
    assert text.count("@njit\ndef raises(a):\n") == 1
    moved = "# one line more\n" * 300 + text.replace("def raises(a):\n", 'def raises(a):\n    """New words."""\n')
    (elsewhere / "subjects.py").write_text(moved)
    names = ("raises", "prints_in_python", "count_to", "fact", "makes_dict", "text_length")
    for name, parts in again(folder, made, *names, here=elsewhere).items():
        assert len(parts.code) != len(made[name].code) or name not in ("raises", "prints_in_python")
        assert compare(made[name], parts) is Sameness.EQUIVALENT, name


def test_another_functions_artifact_differs(made: Made) -> None:
    names = sorted(made)
    pairs = [(one, other) for one in names for other in names if one != other]
    for one, other in pairs:
        assert isinstance(compare(made[one], made[other]), tuple), (one, other)
    assert len(pairs) == len(made) * (len(made) - 1) > 100


def test_closures_that_differ_in_a_constant_differ(made: Made) -> None:
    assert isinstance(compare(made["scaled_1"], made["scaled_100"]), tuple)


@pytest.mark.parametrize("section", ["code", "bitcode", "environment"])
def test_one_section_of_another_function_is_found(made: Made, other: Made, section: str) -> None:
    """Also where the sections have to be compared by their content, as no two are the same bytes."""
    for first, second in ((made, made), (made, other)):
        for name, another in (("add", "raises"), ("parallel_sum", "weighted"), ("scaled_1", "scaled_100")):
            wrong = tampered(first[name], **{section: getattr(first[another], section)})
            outcome = compare(wrong, second[name])
            spoken = {"code": "machine code"}.get(section, section)
            assert [place for place in where(outcome) if place.startswith(spoken)], (name, section)


def bytes_that_count(parts: Parts) -> list[int]:
    """Offsets in the file, some of each symbol's and most of the instructions'; nothing that may be padding."""
    found = elf.read_object(parts.code)
    places = []
    for section in found.sections:
        for symbol in found.symbols:
            if symbol.section == section.index and section.content and symbol.size:
                start = parts.code.index(section.content) + symbol.value
                places += range(start, start + symbol.size, max(7, symbol.size // 40))
    return places


@pytest.mark.parametrize("name", ["add", "raises", "parallel_sum", "prints_in_python"])
def test_a_changed_byte_of_instructions_or_constants_is_found_wherever_it_is(
    made: Made, other: Made, name: str
) -> None:
    tried = 0
    for at in bytes_that_count(made[name]):
        code = bytearray(made[name].code)
        code[at] ^= 0x10
        assert isinstance(compare(tampered(made[name], code=bytes(code)), other[name]), tuple), at
        tried += 1
    assert tried > 40


def test_a_changed_constant_is_found_and_named(made: Made, fresh: Made) -> None:
    """The 1.5 of `add(a, 1.5) * 2`, in machine code and in bitcode alone."""
    parts, again_made = made["caller_of_add"], fresh["caller_of_add"]
    old, new = struct.pack("<d", 1.5), struct.pack("<d", 2.5)
    assert parts.code.count(old) == 1
    outcome = compare(tampered(parts, code=parts.code.replace(old, new)), again_made)
    assert all(place.startswith("machine code") for place in where(outcome))
    changed = compare(tampered(parts, bitcode=made["add"].bitcode), again_made)
    assert any(place.startswith("bitcode") for place in where(changed))


def test_bytes_that_nothing_can_be_made_of_differ_and_raise_nothing(made: Made) -> None:
    for section in ("code", "bitcode", "environment"):
        for damaged in (b"", b"\x80nonsense", getattr(made["add"], section)[:-1]):
            assert isinstance(compare(tampered(made["add"], **{section: damaged}), made["add"]), tuple)
    assert isinstance(compare(tampered(made["add"], meta={}), made["add"]), tuple)


def test_a_name_that_the_description_leaves_out_is_found(made: Made) -> None:
    parts = made["raises"]
    meta = {**parts.meta, "undefined": parts.meta["undefined"][1:]}
    assert where(compare(tampered(parts, meta=meta), parts)) == ["description, undefined"]


def test_times_and_reports_are_not_compared(made: Made) -> None:
    parts = made["add"]
    other = tampered(parts, meta={**parts.meta, "metadata": {"timers": {"llvm_lock": 1.0}}, "compile_s": 3.0})
    assert compare(parts, other) is Sameness.IDENTICAL
