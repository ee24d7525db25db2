"""Outlines: what they say of a function, how two of them are told apart, and that nothing in them breaks a compile."""

import types as python_types
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from numba import float64, int64, types

from farm.job.functor import key_parts
from farm.job.key import CompileKey
from farm.job.outline import ENTRIES_MAX, NAME_MAX, PACKED_MAX, TEXT_MAX, outline, pack, type_text, unpack
from farm.job.sentences import differences, surroundings

PROGRAM = '''
import numpy as np
from numba import njit
GAIN = 2.5
TABLE = np.arange(3.0)
@njit
def inner(x):
    return x + 7
@njit
def helper(x, k=4):
    return inner(x) * 3 + GAIN
@njit(error_model="python")
def score(x, w):
    """Says nothing."""
    s = 0.0
    for i in range(len(w)):
        s += w[i] * helper(x) + TABLE[0]
    return s
'''
ARRAY = float64[::1]


def made(source: str, arguments: tuple[Any, ...] = (float64, ARRAY)) -> tuple[dict[str, bytes], Any]:
    """The key's parts of `score`, and its outline."""
    module = python_types.ModuleType("program")
    exec(compile(source, "program.py", "exec"), vars(module))
    parts = key_parts(module.score, arguments, None, None)
    return parts, outline(parts, arguments, None)


def told(source: str, again: str, arguments: tuple[Any, ...] = (float64, ARRAY)) -> list[str]:
    """The sentences about an edit, of the parts of the key that it changes."""
    (before, stored), (after, now) = made(source), made(again, arguments)
    changed = [label for label in after if before[label] != after[label]]
    assert changed, "the edit changes the key"
    return [one.text for one in differences(stored, now, "score", changed)]


def test_an_outline_says_what_the_function_reaches() -> None:
    found = dict(made(PROGRAM)[1])
    assert found["argument 1"] == "float64" and found["argument 2"] == "array(float64, 1d, C)"
    assert found["helper: global GAIN"] == "2.5" and found["helper: default 1"] == "4"
    assert found["helper: constant 1"] == "3" and found["helper/inner: constant 1"] == "7"
    assert found["local variables"] == "x, w, s, i" and found["global range"] == "a builtin"
    assert found["global TABLE"].startswith("array of <f8, shape (3), ")
    assert found["option error_model"] == "'python'" and found["flag error_model"] == "'python'"
    assert found["setting OPT"] == "3"


@pytest.mark.parametrize(
    ("before", "after", "sentences"),
    [
        ("* 3 + GAIN", "* 4 + GAIN", ["callee `helper` changed: constant 3 -> 4"]),
        ("x + 7", "x + 7 + 8", None),
        ("GAIN = 2.5", "GAIN = 3.0", ["global GAIN of callee `helper`: 2.5 -> 3.0"]),
        ("x + 7", "x - 7", ["the bytecode of callee `inner` (of `helper`) changed"]),
        ("w[i] *", "w[i] -", ["the bytecode of `score` changed"]),
        ("s = 0.0", "s = 1.0", ["`score` changed: constant 0.0 -> 1.0"]),
        ("k=4", "k=5", ["default 1 of callee `helper`: 4 -> 5"]),
        ("arange(3.0)", "arange(4.0)", None),
        ('error_model="python"', 'error_model="numpy"', None),
        ("inner(x) *", "x *", None),
    ],
)
def test_an_edit_is_told_in_words(before: str, after: str, sentences: list[str] | None) -> None:
    found = told(PROGRAM, PROGRAM.replace(before, after))
    if sentences is not None:
        assert found == sentences
    else:
        assert found and not any("does not hold" in one for one in found)


def test_more_of_what_edits_are_told_as() -> None:
    found = told(PROGRAM, PROGRAM.replace("inner(x) *", "x *"))
    assert "callee `inner` (of `helper`) is gone" in found
    found = told(PROGRAM, PROGRAM.replace("arange(3.0)", "arange(4.0)"))
    assert len(found) == 1 and "global TABLE: array of <f8, shape (3), " in found[0] and "shape (4)" in found[0]
    found = told(PROGRAM, PROGRAM.replace('error_model="python"', 'error_model="numpy"'))
    assert "flag error_model: 'python' -> 'numpy'" in found
    found = told(PROGRAM, PROGRAM.replace("for i in", "for j in").replace("w[i]", "w[j]"))
    assert found == ["local variables of `score`: x, w, s, i -> x, w, s, j"]
    swapped = "import numba\n@numba.njit\ndef score(x, w):\n    return (x - {}) * (x + {})\n"
    found = told(swapped.format(3, 4), swapped.format(4, 3))
    assert found == ["`score` changed: its constants are in another order"]


def test_what_follows_from_another_difference_is_not_told() -> None:
    """One more constant moves the order of all."""
    found = told(PROGRAM, PROGRAM.replace("x + 7", "x + 7 + 8"))
    assert found == [
        "the bytecode of callee `inner` (of `helper`) changed",
        "callee `inner` (of `helper`) changed: constant nothing -> 8",
    ]


def test_other_argument_types_are_told_by_their_places() -> None:
    assert told(PROGRAM, PROGRAM, (int64, ARRAY)) == ["argument 1: float64 -> int64"]


def test_other_versions_and_targets_are_told() -> None:
    stored = surroundings({"cpu": "one", "features": "+avx,+fma,-x"}, {"numba": "0.68.1", "svml": "False"})
    now = surroundings({"cpu": "two", "features": "+avx,+sse,-x"}, {"numba": "0.68.2", "svml": "False"})
    found = [one.text for one in differences(stored, now, "f", ["target", "toolchain"])]
    assert found == [
        "target cpu: one -> two",
        "target features: only what is stored uses fma; only what is asked for uses sse",
        "numba 0.68.1 -> 0.68.2",
    ]


def test_an_extensions_name_may_have_a_colon_in_it() -> None:
    (one,) = differences((("extension a: b", "11111111"),), (("extension a: b", "22222222"),), "f", ["extensions"])
    assert one.text == "extension a: b changed"


def test_what_an_outline_does_not_hold_is_told_as_a_part() -> None:
    (one,) = differences((), (), "f", ["function"])
    assert one.part == "function" and "the part 'function' of the key differs" in one.text


def many(number: int) -> str:
    calls = " + ".join(f"f{n}(x)" for n in range(number))
    functions = "".join(
        f"GLOBAL_WITH_A_LONG_NAME_{n} = '{n}' * 100\n@njit\ndef f{n}(x):\n"
        f"    return x + {n} + len(GLOBAL_WITH_A_LONG_NAME_{n})\n"
        for n in range(number)
    )
    return f"from numba import njit\n{functions}@njit\ndef score(x, w):\n    return {calls}\n"


def test_an_outline_is_bounded_and_still_sees_every_difference() -> None:
    """What is beyond the bound is in the digest of all that is."""
    source = many(300)
    _, found = made(source)
    assert len(pack(found)) <= PACKED_MAX and len(found) <= 2 * ENTRIES_MAX + 100
    assert all(len(name) <= NAME_MAX + 8 and len(text) <= TEXT_MAX for name, text in found)
    for n in (0, 150, 299):
        sentences = told(source, source.replace(f"x + {n} +", f"x + {n + 1000} +"))
        assert sentences and "does not hold" not in sentences[0], n


def test_an_outline_holds_no_place_of_the_machine_and_no_address(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    source = PROGRAM.replace('error_model="python"', "debug=True") + "\n@numba.njit\ndef other(f): return f(1)\n"
    module = python_types.ModuleType("program")
    exec(compile("import numba\n" + source, str(path), "exec"), vars(module))
    arguments = (float64, ARRAY)
    found = outline(key_parts(module.score, arguments, None, None), arguments, None)
    assert "position" in dict(found) and str(tmp_path) not in repr(found)
    kind = numba.typeof(module.inner)
    taken = outline(key_parts(module.other, (kind,), None, None), (kind,), None)
    assert "0x" not in repr(taken) and "0x" in str(kind)
    assert dict(taken)["argument 1: constant 1"] == "7", "what a function that is passed reaches counts too"


def test_equal_parts_give_equal_outlines() -> None:
    assert made(PROGRAM)[1] == made(PROGRAM)[1]


KINDS = {
    "cells": lambda: _closure(3),
    "a lambda and a comprehension": lambda: numba.njit(lambda x: len([y for y in range(x)])),
    "keyword defaults": lambda: numba.njit(_with_keywords),
    "a generator": lambda: numba.njit(_generates),
}


def _closure(n: int) -> Any:
    @numba.njit
    def adds(x):  # type: ignore[no-untyped-def]
        return x + n

    return adds


def _with_keywords(x, *, k=(1, "a"), m=None):  # type: ignore[no-untyped-def]
    return x


def _generates(x):  # type: ignore[no-untyped-def]
    yield from range(x)


@pytest.mark.parametrize("name", KINDS)
def test_no_kind_of_function_is_only_a_digest(name: str) -> None:
    arguments = (int64,)
    found = dict(outline(key_parts(KINDS[name](), arguments, None, None), arguments, None))
    assert "bytecode" in found and "function" not in found and "signature" not in found


def test_cells_and_keyword_defaults_have_their_names() -> None:
    found = dict(outline(key_parts(_closure(3), (int64,), None, None), (int64,), None))
    assert found["variable n"] == "3"
    found = dict(outline(key_parts(numba.njit(_with_keywords), (int64,), None, None), (int64,), None))
    assert found["default k"] == "(1, 'a')" and found["default m"] == "None"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "True"),
        (-0.0, "-0.0"),
        (1 << 70, hex(1 << 70)),
        (2j, "2j"),
        ("it's", '"it\'s"'),
        (b"\x00", "b'\\x00'"),
        (np.float32(1.5), "float32(1.5)"),
        ((1, (2.0, None)), "(1, (2.0, None))"),
    ],
)
def test_values_are_written_as_people_write_them(value: object, text: str) -> None:
    namespace: dict[str, Any] = {"VALUE": value, "njit": numba.njit}
    exec("@njit\ndef score(x): return VALUE", namespace)
    found = outline(key_parts(namespace["score"], (int64,), None, None), (int64,), None)
    assert dict(found)["global VALUE"] == text


def test_the_outline_enters_no_key_and_costs_the_key_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A front computes keys at calls. It must not compute outlines there."""
    from farm.job import functor
    from farm.job import outline as module

    def refuse(*_: object) -> Any:
        raise AssertionError("an outline was made")

    monkeypatch.setattr(module, "_outline", refuse)
    made_one = functor.make_functor(numba.njit(_generates), (int64,), None)
    assert made_one.key == CompileKey.from_parts(key_parts(numba.njit(_generates), (int64,), None, None))


@given(
    some.dictionaries(some.sampled_from(["function", "signature", "extensions", "flags", "settings"]), some.binary())
)
def test_bytes_that_are_no_description_are_digests(parts: dict[str, bytes]) -> None:
    assert isinstance(outline(parts, (), None), tuple)


@given(some.integers(0, 10_000), some.integers(0, 255))
def test_a_damaged_description_raises_nothing(at: int, byte: int) -> None:
    parts = {label: bytearray(part) for label, part in PARTS.items()}
    for part in parts.values():
        part[at % len(part)] = byte
    changed = {label: bytes(part) for label, part in parts.items()}
    assert len(pack(outline(changed, (float64, ARRAY), None))) <= PACKED_MAX


PARTS = made(PROGRAM)[0]


@given(some.text())
def test_what_is_no_packed_outline_is_empty(text: str) -> None:
    assert unpack(text) == () or isinstance(unpack(text)[0][0], str)


def test_packing_gives_the_outline_again() -> None:
    _, found = made(PROGRAM)
    assert unpack(pack(found)) == found and len(pack(found)) < 2000
    assert unpack(None) == unpack(3) == unpack(pack(found)[:-80]) == unpack("A" * 10**6) == ()
    odd = (("global \udc80", "'\ud800'"),)
    assert unpack(pack(odd)) == odd


def test_a_types_text_is_the_same_in_every_process() -> None:
    kind = numba.typeof(_closure(1))
    assert type_text(kind) == "type(CPUDispatcher(<function _closure.<locals>.adds at *>))"[:TEXT_MAX]
    assert type_text(types.Tuple([int64] * 100)).startswith("UniTuple(int64 x 100)")
