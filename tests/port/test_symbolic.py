"""Pickles as structure: read without running them, compared but for what a key leaves out."""

import pickle

import pytest

from farm.port import symbolic
from farm.port.renaming import Renaming


def forbidden(*_: object) -> None:
    raise AssertionError("this must not be called")


class Trap:
    def __init__(self, content: object) -> None:
        self.content = content

    def __reduce__(self) -> object:
        return forbidden, (self.content,), {"state": self.content}, iter([1]), iter([("k", 2)])


def differing(one: object, other: object) -> list[str]:
    first, second = symbolic.read(pickle.dumps(one)), symbolic.read(pickle.dumps(other))
    return [place for place, _, _ in symbolic.differences(first, second, "", Renaming())]


def test_a_pickle_is_read_without_calling_what_it_names() -> None:
    assert differing(Trap(1), Trap(1)) == []
    assert differing(Trap("a"), Trap("b"))[0] == ".arguments[0]"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ("a", b"a"),
        ([1], (1,)),
        ([1, 2], [1]),
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"b": 1}),
        ({1, 2}, {1, 3}),
        (complex(0.0), complex(-0.0)),
        (pickle.dumps([1]), pickle.dumps([2])),
        (int, float),
        ([float("nan")], [0.0]),
    ],
)
def test_values_that_differ_in_anything_differ(one: object, other: object) -> None:
    assert differing(one, one) == []
    assert differing(one, other)


def test_sharing_makes_no_difference_and_a_loop_has_an_end() -> None:
    text = "".join(["sha", "red"])
    assert differing([text, text], ["shared", "".join(["sha", "red"])]) == []
    loop: list[object] = []
    loop.append(loop)
    assert differing(loop, loop) == []


def made_with(name: str, value: object) -> dict[str, object]:
    return {"descriptor": 1, name: value}


@pytest.mark.parametrize("name", ["annotation", "__doc__", "doc", "__file__", "firstlineno"])
def test_what_is_not_compared_must_be_plain_all_the_same(name: str) -> None:
    """Unpickling runs whatever a pickle makes, wherever it stands."""
    assert differing(made_with(name, "one"), made_with(name, "two")) == []
    assert differing(made_with(name, None), made_with(name, "two")) == []
    assert differing(made_with(name, Trap("a")), made_with(name, "two"))
    assert differing(made_with("another", "one"), made_with("another", "two"))


def test_code_objects_are_the_same_wherever_they_lie_and_with_any_docstring() -> None:
    from numba.cloudpickle import dumps

    def code_of(source: str, file: str) -> bytes:
        namespace: dict[str, object] = {}
        exec(compile(source, file, "exec"), namespace)
        pickled: bytes = dumps(namespace["f"].__code__)  # type: ignore[attr-defined]
        return pickled

    def places(one: bytes, other: bytes) -> list[str]:
        found = symbolic.differences(symbolic.read(one), symbolic.read(other), "", Renaming())
        return [place for place, _, _ in found]

    first = code_of("def f(a):\n    'words'\n    return a + 1\n", "a.py")
    assert places(first, code_of("\n\n\ndef f(a):\n    'other words'\n\n    return a + 1\n", "elsewhere/b.py")) == []
    assert places(first, code_of("def f(a):\n    'words'\n    return a + 2\n", "a.py"))


def test_an_exceptions_position_is_not_compared_and_its_arguments_are() -> None:
    def places(one: object, other: object) -> list[str]:
        found = [symbolic.read_exception(pickle.dumps(value)) for value in (one, other)]
        return [place for place, _, _ in symbolic.differences(*found, "", Renaming())]

    raised = (ValueError, ("negative",), ("f", "a.py", 3))
    assert places(raised, (ValueError, ("negative",), ("f", "elsewhere/b.py", 300))) == []
    assert places(raised, (ValueError, ("positive",), ("f", "a.py", 3)))
    assert places(raised, (KeyError, ("negative",), ("f", "a.py", 3)))
    assert places(raised, (ValueError, ("negative",), ("g", "a.py", 3)))
    assert places(raised, (ValueError, ("negative",), None))
