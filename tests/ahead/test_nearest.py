"""Which artifact is the nearest, and what asking finds out without a command."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from numba import float64, int64

import farm
from farm.ahead.find import NotFound, find
from farm.ahead.why import Asked, ask, between, nearest, why
from farm.errors import NotShippable, SignatureError
from farm.job.key import CompileKey
from farm.job.outline import OUTLINE, pack
from farm.port.target import target
from farm.reasons import MissReason, RefusalReason
from farm.store.artifact import Artifact, Description, Digest, Miss
from farm.store.catalog import Entry, Unreadable
from farm.store.disk import DiskStore


def entry(function: str, made_at: float = 1.0, **parts: str) -> Entry:
    """An artifact's entry whose key has these parts."""
    key = CompileKey.from_parts({label: text.encode() for label, text in parts.items()})
    outlined = pack(tuple(sorted((f"setting {label}", text) for label, text in parts.items())))
    meta: Any = {"function": function, "made_at": made_at, "key_parts": dict(key.parts), OUTLINE: outlined}
    return Entry(Description(key, Digest("0" * 64), meta, 1, {}, False), 1.0, 1.0)


def asked(function: str, **parts: str) -> Asked:
    one = entry(function, **parts)
    return Asked(function, "()", one.key, tuple(sorted((f"setting {label}", text) for label, text in parts.items())))


WANTED = asked("m.f", settings="a", flags="b", target="c")
LESS = entry("m.f", settings="x", flags="y", target="c")
MORE = entry("m.f", settings="x", flags="b", target="c")
OTHERS = entry("m.g", settings="a", flags="b", target="c")
NEWER = entry("m.f", 2.0, settings="y", flags="b", target="c")


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([LESS], LESS),
        ([LESS, MORE], MORE),
        ([MORE, LESS], MORE),
        ([OTHERS, LESS], LESS),
        ([LESS, OTHERS], LESS),
        ([MORE, NEWER], NEWER),
        ([NEWER, MORE], NEWER),
        ([OTHERS], OTHERS),
    ],
)
def test_the_nearest_is_the_same_function_then_the_most_equal_then_the_newest(
    entries: list[Entry], expected: Entry
) -> None:
    found = nearest(WANTED, entries)
    assert found is not None and found.entry is expected
    assert found.same_function is (expected is not OTHERS)


def test_what_tells_no_key_is_no_neighbour() -> None:
    silent = replace(LESS, description=replace(LESS.description, meta={"function": "m.f"}))
    damaged = Unreadable("x.farm", Miss(MissReason.EMPTY))
    assert nearest(WANTED, [silent, damaged]) is None
    assert nearest(WANTED, []) is None


def test_the_parts_that_differ_and_sentences_about_them() -> None:
    found = nearest(WANTED, [MORE])
    assert found is not None and found.parts == ("settings",)
    assert [one.text for one in found.differences] == ["numba's setting settings: x -> a"]
    parts, told = between(MORE, NEWER)
    assert parts == ("settings",) and [one.text for one in told] == ["numba's setting settings: x -> y"]
    assert between(MORE, MORE) == ((), ())


@farm.njit
def plain(n):
    return n + 1


class Module:
    """Something without stable content."""


THING = Module()


@farm.njit
def unkeyable(n):
    return THING


@farm.jit(forceobj=True)
def in_python(n):
    return n


def test_a_signature_with_a_return_type_is_asked_for_as_a_call_and_by_name() -> None:
    with_type = ask(plain, "float64(float64)")
    without = ask(plain, (float64,))
    assert len(with_type) == 2 and without == with_type[:1]
    assert with_type[0].key != with_type[1].key
    assert without[0].function == f"{__name__}.plain" and without[0].signature == "(float64)"


def test_asking_compiles_and_writes_nothing(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "cache")
    answer = why(store, plain, (int64,), ())
    assert not answer.hit and answer.miss == Miss(MissReason.ABSENT) and answer.near is None
    assert not (tmp_path / "cache").exists() and not plain.overloads and store.misses == {}
    assert len(plain.farm().requests) == 0


def test_an_artifact_of_a_lower_store_is_a_hit(tmp_path: Path) -> None:
    (one,) = ask(plain, (int64,))
    DiskStore(tmp_path / "low").put(Artifact(one.key, {}, b"", b"", b""))
    store = DiskStore(tmp_path / "cache", lower=(tmp_path / "low",))
    assert why(store, plain, (int64,), ()).hit
    assert not why(DiskStore(tmp_path / "cache"), plain, (int64,), ()).hit


def test_code_for_a_lesser_cpu_that_a_call_would_load_is_a_hit(tmp_path: Path) -> None:
    (one,) = ask(plain, (int64,))
    if not one.others:
        pytest.skip("this CPU is of no level that code can be made for")
    store = DiskStore(tmp_path / "cache")
    unfit: Any = {"target": {**target(), "cpu": "unfit", "features": "+no-such-feature"}}
    store.put(Artifact(one.others[0], unfit, b"", b"", b""))
    assert not why(store, plain, (int64,), ()).hit
    fit: Any = {"target": {**target(), "cpu": "x86-64", "features": ""}}
    store.put(Artifact(one.others[-1], fit, b"", b"", b""))
    answer = why(store, plain, (int64,), ())
    assert answer.hit is (len(one.others) > 1) and answer.made_for == ("x86-64" if answer.hit else None)
    store.put(Artifact(one.key, fit, b"", b"", b""))
    answer = why(store, plain, (int64,), ())
    assert answer.hit and answer.made_for is None, "its own comes first"


@pytest.mark.parametrize(
    ("function", "reason"), [(unkeyable, RefusalReason.UNKEYABLE), (in_python, RefusalReason.OBJECT_MODE)]
)
def test_what_is_never_stored_is_refused_with_its_reason(tmp_path: Path, function: Any, reason: RefusalReason) -> None:
    answer = why(DiskStore(tmp_path / "cache"), function, (int64,), ())
    assert not answer.hit and answer.refusal is not None and answer.refusal.reason is reason
    with pytest.raises(NotShippable):
        ask(function, (int64,))


def test_a_signature_that_is_not_among_the_declared_ones_is_none_of_the_function(tmp_path: Path) -> None:
    with farm.Farm(cache_dir=tmp_path / "cache", enabled=False) as barn:
        declared = farm.njit("float64(int64)", farm=barn)(lambda n: n)
        (one,) = ask(declared, (int64,))
        assert dict(one.outline)["return type"] == "float64"
        with pytest.raises(SignatureError):
            ask(declared, "float64(unicode_type)")


def test_a_function_is_found_by_its_name() -> None:
    assert find(f"{__name__}:plain") is plain
    for name, text in (
        ("plain", "not of the form module:function"),
        (":plain", "not of the form module:function"),
        (f"{__name__}:", "not of the form module:function"),
        (f"{__name__}:none.at_all", "holds no none"),
        (f"{__name__}:entry", "is not jitted"),
        ("numba.np.arraymath:none", "holds no none"),
    ):
        with pytest.raises(NotFound, match=text):
            find(name)
