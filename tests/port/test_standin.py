"""Stand-ins for the front's classes: what they repeat, how they are written, and what a name is refused for."""

import collections
import enum
import pickle
import sys
import types

import pytest
from numba.core import serialize

from farm.port import standin


class Color(enum.Enum):
    RED = 1
    GREEN = "two"


class Flags(enum.IntFlag):
    A = 1
    B = 2
    AB = 3


class Failure(ValueError):
    pass


Pair = collections.namedtuple("Pair", "a b", defaults=(7,))


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch):
    """A job of a worker, in this process: numba's pickler is put back afterwards."""
    monkeypatch.setattr(serialize.NumbaPickler, "reducer_override", serialize.NumbaPickler.reducer_override)
    standin.begin_job()
    yield
    standin._standing.clear()


def standin_of(cls: type) -> type:
    with pytest.MonkeyPatch.context() as patch:  # as in a worker, which has not imported the class's module
        patch.delitem(sys.modules, cls.__module__)
        return make(cls)


def make(cls: type) -> type:
    return standin.make(cls.__module__, cls.__qualname__, cls.__bases__, standin.content(cls), standin.shape(cls))


@pytest.mark.parametrize("cls", [Color, Flags, Failure, Pair])
def test_a_standin_has_the_shape_of_its_class_and_is_written_as_its_name(job: None, cls: type) -> None:
    made = standin_of(cls)
    assert made is not cls
    assert (made.__module__, made.__qualname__) == (cls.__module__, cls.__qualname__)
    written = serialize.dumps((made, "other"))
    (reference,) = standin.references(b"code around " + written)
    standin._standing.clear()  # as in the front, where there are no stand-ins
    assert pickle.loads(written)[0] is cls
    assert standin.find(reference) is cls


def test_a_class_whose_module_is_imported_needs_no_standin(job: None) -> None:
    assert make(Color) is Color
    (reference,) = standin.references(serialize.dumps(Color))
    assert standin.find(reference) is Color
    del standin._written_as[Color]


def test_a_member_is_written_as_a_member_of_the_named_class(job: None) -> None:
    member = standin_of(Color)["GREEN"]  # type: ignore[index]
    written = serialize.dumps(member)
    standin._standing.clear()
    assert pickle.loads(written) is Color.GREEN


def test_a_name_that_means_a_class_of_another_shape_is_refused(job: None, monkeypatch: pytest.MonkeyPatch) -> None:
    (reference,) = standin.references(serialize.dumps(standin_of(Color)))
    standin._standing.clear()
    monkeypatch.setattr(sys.modules[__name__], "Color", enum.Enum("Color", {"RED": 1, "GREEN": "three"}))
    with pytest.raises(LookupError, match="Color"):
        standin.find(reference)
    with pytest.raises(LookupError, match="Color"):
        standin.pin([reference])


def test_a_reference_keeps_the_class_it_was_linked_for(job: None, monkeypatch: pytest.MonkeyPatch) -> None:
    (reference,) = standin.references(serialize.dumps(standin_of(Failure)))
    standin._standing.clear()
    monkeypatch.setattr(standin, "_pinned", {})
    standin.pin([reference])
    first = Failure
    again = types.new_class("Failure", (ValueError,))
    again.__module__, again.__qualname__ = first.__module__, "Failure"
    monkeypatch.setattr(sys.modules[__name__], "Failure", again)
    assert standin.find(reference) is first
    with pytest.raises(LookupError, match="linked already"):
        standin.pin([reference])


def test_classes_that_numba_may_read_more_of_have_no_standin() -> None:
    class Meta(type):
        pass

    class Plain:
        pass

    class Signed(Pair):
        def __new__(cls, a):
            return super().__new__(cls, a, 1)

    odd = types.new_class("Odd", (ValueError,), {"metaclass": Meta})
    assert not any(map(standin.has_standin, (Plain, Signed, odd)))
