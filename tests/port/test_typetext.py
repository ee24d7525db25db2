"""Types as text: what is written is read back and equal, is the same from every process, and is never evaluated."""

import base64
import os
import pickle
import subprocess
import sys
from pathlib import Path

import named_things as things
import numba
import numpy as np
import pytest
from numba import types

from farm.port.typetext import NotReadable, NotWritable, read, read_signature, same_type, write_signature

HERE = Path(__file__).parent


def readonly() -> np.ndarray:
    array = np.zeros(3)
    array.flags.writeable = False
    return array


VALUES = {
    "int64": 1,
    "float64": 1.0,
    "complex128": 1j,
    "boolean": True,
    "float32": np.float32(1),
    "unicode_type": "a",
    "none": None,
    "float64[::1]": np.zeros(3),
    "float64[:]": np.zeros(6)[::2],
    "float64[::1, :]": np.zeros((2, 3)).T,
    "int8[:, :, ::1]": np.zeros((2, 2, 2), "i1"),
    "Array(float64, 1, 'C', readonly=True)": readonly(),
    "Array(float64, 0, 'C')": np.array(3.0),
    "Array(NPDatetime('D'), 1, 'C')": np.zeros(2, "M8[D]"),
    "Array(UnicodeCharSeq(5), 1, 'C')": np.zeros(2, "U5"),
    "Array(CharSeq(5), 1, 'C')": np.zeros(2, "S5"),
    "Array(Record(('a', int8, 0), ('b', float64, 8), size=16, aligned=True), 1, 'C')": np.zeros(
        2, np.dtype([("a", "i1"), ("b", "f8")], align=True)
    ),
    "Array(Record(('a', int8, 0), ('b', NestedArray(float64, (2,)), 1), size=17, aligned=False), 1, 'C', "
    "aligned=False)": np.zeros(2, [("a", "i1"), ("b", "f8", (2,))]),
    "Bytes(uint8, 1, 'C', readonly=True)": b"x",
    "ByteArray(uint8, 1, 'C')": bytearray(b"x"),
    "UniTuple(int64, 2)": (1, 2),
    "Tuple(int64, UniTuple(float64, 1))": (1, (2.0,)),
    "Tuple()": (),
    "NamedTuple('named_things:Point', int64, float64)": things.Point(1, 2.0),
    "NamedUniTuple('named_things:Point', int64, 2)": things.Point(1, 2),
    "NPDatetime('ns')": np.datetime64("2020-01-01", "ns"),
    "NPTimedelta('s')": np.timedelta64(1, "s"),
    "List(Tuple(int64, unicode_type), reflected=True)": [(1, "a")],
    "Set(int64, reflected=True)": {1},
    "ListType(int64)": numba.typed.List([1]),
    "DictType(unicode_type, float64[::1])": numba.typed.Dict.empty(types.unicode_type, types.float64[::1]),
    "EnumMember('named_things:Colour', int64)": things.Colour.RED,
    "IntEnumMember('named_things:Level', int64)": things.Level.LOW,
    "EnumClass('named_things:Colour', int64)": things.Colour,
    "function('named_things:double')": things.double,
    "jitclass('named_things:Counter')": things.Counter(),
    "slice2_type": slice(1, 2),
    "slice3_type": slice(1, 2, 3),
    "npy_rng": np.random.default_rng(),
    "NumberClass(int64)": np.int64,
    "DType(float64)": np.dtype("f8"),
}
KINDS = {
    "Optional(float64)": types.Optional(types.float64),
    "Omitted(None)": types.Omitted(None),
    "Omitted(-1.5)": types.Omitted(-1.5),
    "Omitted(float('inf'))": types.Omitted(float("inf")),
    "Omitted(complex(1.0, -2.0))": types.Omitted(1 - 2j),
    "Omitted('a')": types.Omitted("a"),
    "Omitted((1,))": types.Omitted((1,)),
    "Omitted(function('named_things:double'))": types.Omitted(things.double),
    "Omitted(scalar('float32', 1.0))": types.Omitted(np.float32(1)),
    "Omitted(member('named_things:Colour', 'RED'))": types.Omitted(things.Colour.RED),
    "literal(-3)": types.literal(-3),
    "literal('a')": types.literal("a"),
    "literal(True)": types.literal(True),
    "literal(slice(0, 3, None))": types.literal(slice(0, 3, None)),
    "FunctionType(float64(float64, int64))": types.FunctionType(types.float64(types.float64, types.int64)),
    "range_state64_type": types.range_state64_type,
    "StarArgUniTuple(int64, 2)": types.StarArgUniTuple(types.int64, 2),
    "StarArgTuple(int64, float32)": types.StarArgTuple((types.int64, types.float32)),
    "IntEnumClass('named_things:Level', int64)": types.IntEnumClass(things.Level, types.int64),
    "MemoryView(uint8, 1, 'C', readonly=True)": types.MemoryView(types.uint8, 1, "C", readonly=True),
}


@pytest.mark.parametrize("text", [*VALUES, *KINDS])
def test_a_type_is_written_readably_and_read_back(text: str) -> None:
    kind = KINDS[text] if text in KINDS else numba.typeof(VALUES[text])
    assert write_signature([kind], kind) == (f"({text})", text, [])
    arguments, return_type = read_signature(f"({text})", text)
    assert same_type(arguments[0], kind) and same_type(return_type, kind)


def test_an_unaligned_array_is_told_from_an_aligned_one() -> None:
    aligned, unaligned = types.Array(types.float64, 1, "C"), types.Array(types.float64, 1, "C", aligned=False)
    (text, _, _) = write_signature([aligned, unaligned], None)
    assert text == "(float64[::1], Array(float64, 1, 'C', aligned=False))"
    assert read_signature(text, None) == ((aligned, unaligned), None)


def test_a_type_without_a_text_is_a_pickle_beside_what_it_is() -> None:
    kind = types.ListType(things.Money("EUR"))
    text, returns, pickles = write_signature([kind, kind, things.Money("CHF")], things.Money("EUR"))
    assert text == "(ListType(pickled(0, 'Money(EUR)')), ListType(pickled(0, 'Money(EUR)')), pickled(1, 'Money(CHF)'))"
    assert returns == "pickled(0, 'Money(EUR)')" and len(pickles) == 2
    arguments, return_type = read_signature(text, returns, pickles)
    assert arguments == (kind, kind, things.Money("CHF")) and return_type == things.Money("EUR")


def test_what_its_text_would_not_bring_back_is_a_pickle_too() -> None:
    kind = types.List(types.int64, True, [1])  # numba knows what is in it
    text, _, pickles = write_signature([kind], None)
    assert text.startswith("(pickled(0, 'reflected list(int64)")
    assert read_signature(text, None, pickles)[0][0].initial_value == [1]


def test_a_pickle_is_the_same_from_every_process() -> None:
    program = (
        "import numba; [numba.types.UniTuple(numba.types.int64, n) for n in range(50)];"
        "import named_things; from farm.port.typetext import write_signature;"
        "print(*write_signature([named_things.Money('EUR')], None)[2])"
    )
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environment)
    assert done.stdout.split() == write_signature([things.Money("EUR")], None)[2]


class Hidden(types.Type):
    def __init__(self, place):
        self.place = place
        super().__init__(name="hidden")


class Lonely(types.Type):
    def __init__(self):
        super().__init__(name=f"lonely {id(self)}")

    def __reduce__(self):
        return Lonely, ()


def test_what_holds_a_path_or_is_equal_only_to_itself_is_refused_with_the_reason() -> None:
    here = str(HERE)
    with pytest.raises(NotWritable, match="path of this machine") as refused:
        write_signature([Hidden(here)], None)
    assert here not in str(refused.value)
    with pytest.raises(NotWritable, match="equal only to itself"):
        write_signature([Lonely()], None)
    inner = numba.njit(lambda x: x)
    with pytest.raises(NotWritable, match="lambda> is not found under its name"):
        write_signature([numba.typeof(inner)], None)


@pytest.mark.parametrize(
    "text",
    [
        "(__import__('os').system('touch x'))",
        "(int64.__class__)",
        "((lambda: int64)())",
        "([int64 for _ in 'a'][0])",
        "(Array(float64, 1, 'C', **{'readonly': True}))",
        "(float64[0])",
        "(float64[1:])",
        "(open('x'))",
        "(eval('int64'))",
        "(int64 if 1 else int64)",
        "(f'{int64}')",
        "(nothing)",
        "(3)",
        "(int64(3))",
        "('int64')",
        "int64",
        "(int64",
        "(*int64)",
        "(a=int64)",
        "(pickled(0, 'x'))",
        "(pickled(-1, 'x'))",
        "(EnumMember('no_such_module:X', int64))",
        "(EnumMember('named_things:Nothing', int64))",
        "(function('named_things:Point'))",
        "(NamedTuple('named_things:double', int64))",
        "(" * 3000,
        "(Optional(" * 200 + "int64" + "))" * 200,
    ],
)
def test_what_is_no_type_is_refused_and_nothing_of_it_runs(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    monkeypatch.setattr(os, "system", ran.append)
    with pytest.raises(NotReadable):
        read_signature(text, None)
    assert ran == []


def test_a_pickle_that_holds_no_type_is_refused() -> None:
    for data in (pickle.dumps("int64"), b"garbage"):
        with pytest.raises(NotReadable):
            read("pickled(0, 'x')", [base64.b64encode(data).decode()])
    with pytest.raises(NotReadable):
        read("pickled(0, 'x')", ["not base64!"])
