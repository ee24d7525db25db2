"""A farm that verifies: what the store has is compiled again and compared, and a difference is an error.

Forged artifacts are whole and well-formed: no digest, no signature and no key tells them apart.
"""

import pickle
import struct
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba import objmode, prange
from test_farm import run_script

import farm
from farm.config import worker_environment
from farm.errors import VerifyFailed
from farm.front.supply import Supply
from farm.front.table import CompileState
from farm.job.functor import make_functor
from farm.job.key import CompileKey
from farm.pool.pool import Pool
from farm.reasons import DegradedReason
from farm.store.artifact import Artifact, Stored
from farm.store.disk import DiskStore


def add(a, b):
    return a + b


def scale(a, b):
    return a * 1.5 + b


inner = numba.njit(add)


def calls_add(a, b):
    return inner(a, b) * 2


@numba.njit
def checked(a, b):
    if a < 0:
        raise ValueError("negative", a)
    return b


@numba.njit
def calls_checked(a, b):
    return checked(a, b) + a


def calls_both(a, b):
    return calls_checked(a, b) + checked(b, a) * 4.0


def raises(a, b):
    if a < 0:
        raise ValueError("negative", a)
    return b


def generate(a, b):
    for i in range(int(a)):
        yield i * b


def in_python(a, b):
    with objmode(c="float64"):
        c = float(np.float64(a) + b)
    return c


def in_parallel(a, b):
    total = 0.0
    for i in prange(int(a)):
        total += i * b
    return total


def makes_array(a, b):
    return np.arange(int(a)).astype(np.float64) * b


def make_adder(constant):
    def adder(a, b):
        return a + b + constant

    return adder


FLOATS = "(float64, float64)"
TYPES = (numba.float64, numba.float64)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


Verifying = Callable[..., farm.Farm]


@pytest.fixture
def verifying(cache: Path) -> Iterator[Verifying]:
    farms: list[farm.Farm] = []

    def make(**settings: Any) -> farm.Farm:
        farms.append(farm.Farm(cache_dir=cache, workers=1, verify=True, **settings))
        return farms[-1]

    yield make
    for one in farms:
        one.close()


def fill(cache: Path, *functions: Callable[..., Any], **options: Any) -> None:
    with farm.Farm(cache_dir=cache, workers=1) as one:
        for function in functions:
            farm.njit(getattr(function, "py_func", function), farm=one, **options).compile(FLOATS)
        assert one.stats().compiled == len(functions)


def key_of(function: Callable[..., Any]) -> CompileKey:
    return make_functor(numba.njit(getattr(function, "py_func", function)), TYPES, None).key


def stored(cache: Path, function: Callable[..., Any]) -> Artifact:
    found = DiskStore(cache).get(key_of(function))
    assert isinstance(found, Stored), found
    artifact = found.artifact()
    assert isinstance(artifact, Artifact)
    return artifact


def put_under(cache: Path, function: Callable[..., Any], forged: Artifact) -> None:
    DiskStore(cache).put(replace(forged, key=key_of(function)))


# -- what is right ----------------------------------------------------------------------------------------


def test_honest_artifacts_of_many_kinds_verify_clean_and_are_loaded(cache: Path, verifying: Verifying) -> None:
    """Filled by one worker that does one job after the other: it has in memory what a fresh one has not."""
    plain = (add, scale, calls_add, raises, generate, in_python, makes_array, make_adder(1.0), make_adder(2.0))
    fill(cache, *plain)
    fill(cache, in_parallel, parallel=True)
    one = verifying()
    functions = [farm.njit(function, farm=one) for function in plain]
    functions.append(farm.njit(in_parallel, farm=one, parallel=True))
    for function in functions:
        function.compile(FLOATS)
    stats = one.stats()
    assert (stats.compiled, stats.loaded, stats.local, stats.failed) == (0, len(functions), 0, 0)
    assert stats.verified > len(functions), "callees too"
    assert stats.saved_s == 0 and not stats.degraded
    results = [function(3.0, 2.0) for function in functions]
    assert results[:4] == [5.0, 6.5, 10.0, 2.0]
    assert list(results[4]) == [0.0, 2.0, 4.0] and results[5] == 5.0
    assert results[6].tolist() == [0.0, 2.0, 4.0] and results[7:] == [6.0, 7.0, 6.0]


def test_what_is_not_there_is_compiled_and_verified_by_the_next_program(cache: Path, verifying: Verifying) -> None:
    first = verifying()
    assert farm.njit(calls_add, farm=first).compile(FLOATS)(1.0, 2.0) == 6.0
    assert (first.stats().compiled, first.stats().verified) == (1, 0)
    second = verifying()
    assert farm.njit(calls_add, farm=second).compile(FLOATS)(1.0, 2.0) == 6.0
    assert (second.stats().compiled, second.stats().loaded, second.stats().verified) == (0, 1, 2)


def test_a_call_that_does_not_wait_gets_verified_code(cache: Path, verifying: Verifying) -> None:
    fill(cache, add)
    function = farm.njit(add, farm=verifying())
    assert function(1.0, 2.0) == 3.0
    assert function.wait(60)
    status = function.status(FLOATS)
    assert status.state is CompileState.COMPILED and status.origin.source.name == "STORE"


def test_a_callee_published_again_under_other_names_leaves_its_callers_right(cache: Path, verifying: Verifying) -> None:
    fill(cache, calls_add)
    before = stored(cache, add)
    (cache / "v1" / before.key.hex[:2] / f"{before.key.hex}.farm").unlink()
    fill(cache, add)
    assert stored(cache, add).meta["symbol_base"] != before.meta["symbol_base"]
    one = verifying()
    assert farm.njit(calls_add, farm=one).compile(FLOATS)(1.0, 2.0) == 6.0
    assert one.stats().verified == 2


def test_two_copies_of_one_callee_in_a_caller_are_one_when_it_is_compiled_again(
    cache: Path, verifying: Verifying
) -> None:
    """As when two workers publish one callee at the same time, each under names of its own."""
    fill(cache, calls_checked)
    (path,) = [cache / "v1" / key.hex[:2] / f"{key.hex}.farm" for key in (stored(cache, checked).key,)]
    path.unlink()
    fill(cache, checked)
    fill(cache, calls_both)
    names = stored(cache, calls_both).meta["defined"]
    assert len([name for name in names if "NumbaEnv" in name and "7checked" in name]) == 2
    one = verifying()
    assert farm.njit(calls_both, farm=one).compile(FLOATS)(1.0, 2.0) == 7.0
    assert one.stats().verified == 3
    forged = stored(cache, calls_both)
    assert forged.code.count(struct.pack("<d", 4.0)) == 1
    code = forged.code.replace(struct.pack("<d", 4.0), struct.pack("<d", 5.0))
    put_under(cache, calls_both, replace(forged, code=code))
    with pytest.raises(VerifyFailed):
        farm.njit(calls_both, farm=verifying()).compile(FLOATS)


def test_a_function_that_has_moved_since_verifies_clean(cache: Path, tmp_path: Path) -> None:
    source = "def raises(a):\n    if a < 0:\n        raise ValueError('negative', a)\n    return a\n"
    script = """
        import sys; sys.path.insert(0, {place!r})
        import farm
        from moved import raises
        with farm.Farm(cache_dir={cache!r}, workers=1, verify={verify}) as one:
            farm.njit(raises, farm=one).compile("(int64,)")
            print(one.stats().loaded, one.stats().verified)
    """
    said = []
    for name, blank in (("a", ""), ("quite/another/place", "# a line more\n" * 300)):
        place = tmp_path / name
        place.mkdir(parents=True)
        (place / "moved.py").write_text(blank + source)
        text = script.format(place=str(place), cache=str(cache), verify=bool(blank))
        done = run_script(tmp_path, text)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.split())
    assert said == [["0", "0"], ["1", "1"]]


def test_what_is_loaded_is_what_was_compared(
    cache: Path, verifying: Verifying, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever lies in the store when the worker has answered: it is not read once more."""
    fill(cache, add, scale)
    forged = stored(cache, scale)
    looks: list[str] = []
    real = Supply.look_up

    def look_up(supply, config, key):
        looks.append(key.hex)
        return real(supply, config, key)

    monkeypatch.setattr(Supply, "look_up", look_up)
    function = farm.njit(add, farm=verifying())
    future = function.submit(FLOATS)
    future.result(60)
    put_under(cache, add, forged)
    assert function(1.0, 2.0) == 3.0
    assert len(looks) == 1


def test_a_readonly_store_is_verified_as_well(cache: Path, verifying: Verifying) -> None:
    fill(cache, calls_add)
    one = verifying(readonly=True)
    assert farm.njit(calls_add, farm=one).compile(FLOATS)(1.0, 2.0) == 6.0
    assert (one.stats().loaded, one.stats().verified) == (1, 2)


# -- what is wrong ----------------------------------------------------------------------------------------


def test_another_functions_artifact_under_this_key_is_an_error_that_says_what_differs(
    cache: Path, verifying: Verifying
) -> None:
    fill(cache, add, scale)
    put_under(cache, add, stored(cache, scale))
    with farm.Farm(cache_dir=cache, workers=1) as trusting:
        assert farm.njit(add, farm=trusting).compile(FLOATS)(1.0, 2.0) == 3.5, "this is what it would do"
    with pytest.raises(VerifyFailed) as caught:
        farm.njit(add, farm=verifying()).compile(FLOATS)
    error = caught.value
    assert error.function.endswith(".add") and error.signature == "(float64, float64)"
    assert (error.key, error.made_under) == (key_of(add).hex, key_of(scale).hex)
    assert [label for label, artifacts, now in error.parts if artifacts != now] == ["function"]
    assert {label for label, _, _ in error.parts} >= {"flags", "settings", "signature", "target", "toolchain"}
    for spoken in ("machine code", "bitcode", "environment"):
        assert any(place.startswith(spoken) for place, _, _ in error.differences)


def test_the_error_prints_both_keys_part_by_part_and_what_differs_and_survives_pickling(
    cache: Path, verifying: Verifying
) -> None:
    fill(cache, add, scale)
    put_under(cache, add, stored(cache, scale))
    with pytest.raises(VerifyFailed) as caught:
        farm.njit(add, farm=verifying()).compile(FLOATS)
    text = str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == text
    now, then = dict(key_of(add).parts), dict(key_of(scale).parts)
    for label, digest in now.items():
        (line,) = [line for line in text.splitlines() if line.split()[:1] == [label]]
        assert digest[:16] in line and then[label][:16] in line
        assert line.endswith("<- differs") == (label == "function")
    for place, artifacts, again in caught.value.differences:
        assert place in text and artifacts in text and again in text


def test_explain_says_that_calls_raise(cache: Path, verifying: Verifying) -> None:
    fill(cache, add, scale)
    put_under(cache, add, stored(cache, scale))
    function = farm.njit(add, farm=verifying())
    with pytest.raises(VerifyFailed):
        function.compile(FLOATS)
    with pytest.raises(VerifyFailed):
        function(1.0, 2.0)
    assert "its calls raise: VerifyFailed" in farm.explain(function, 1.0, 2.0)


@pytest.mark.parametrize("section", ["code", "bitcode"])
def test_a_changed_constant_is_an_error(cache: Path, verifying: Verifying, section: str) -> None:
    fill(cache, scale)
    honest = stored(cache, scale)
    old, new = struct.pack("<d", 1.5), struct.pack("<d", 2.5)
    if section == "code":
        assert honest.code.count(old) == 1
        forged = replace(honest, code=honest.code.replace(old, new))
    else:
        fill(cache, add)
        forged = replace(honest, bitcode=stored(cache, add).bitcode)
    put_under(cache, scale, forged)
    with pytest.raises(VerifyFailed) as caught:
        farm.njit(scale, farm=verifying()).compile(FLOATS)
    assert caught.value.made_under == caught.value.key == key_of(scale).hex
    spoken = {"code": "machine code"}.get(section, section)
    assert caught.value.differences and all(place.startswith(spoken) for place, _, _ in caught.value.differences)
    assert "1.5" not in str(caught.value.parts)


def test_a_changed_constant_of_what_is_never_the_same_bytes_is_an_error_too(cache: Path, verifying: Verifying) -> None:
    """A parallel function's names hold an address, so that it is compared in parts."""

    def parallel(a, b):
        total = 0.0
        for i in prange(int(a)):
            total += i * 1.25
        return total + b

    fill(cache, parallel, parallel=True)
    with farm.Farm(cache_dir=cache, workers=1) as one:
        key = make_functor(farm.njit(parallel, farm=one, parallel=True), TYPES, None).key
    found = DiskStore(cache).get(key)
    assert isinstance(found, Stored)
    honest = found.artifact()
    assert isinstance(honest, Artifact)
    old, new = struct.pack("<d", 1.25), struct.pack("<d", 1.75)
    assert old in honest.code
    DiskStore(cache).put(replace(honest, code=honest.code.replace(old, new)))
    with pytest.raises(VerifyFailed) as caught:
        farm.njit(parallel, farm=verifying(), parallel=True).compile(FLOATS)
    assert all(place.startswith("machine code") for place, _, _ in caught.value.differences)


def test_a_callees_wrong_artifact_fails_its_caller_and_is_named(cache: Path, verifying: Verifying) -> None:
    fill(cache, scale, add)
    put_under(cache, add, stored(cache, scale))
    with pytest.raises(VerifyFailed) as caught:
        farm.njit(calls_add, farm=verifying()).compile(FLOATS)
    assert caught.value.function.endswith(".add") and caught.value.others == ()


def test_a_caller_that_has_the_wrong_callee_in_it_is_told_after_it(cache: Path, verifying: Verifying) -> None:
    fill(cache, scale, add)
    put_under(cache, add, stored(cache, scale))
    fill(cache, calls_add)  # links what lies there
    with pytest.raises(VerifyFailed) as caught:
        farm.njit(calls_add, farm=verifying()).compile(FLOATS)
    assert caught.value.function.endswith(".add")
    (other,) = caught.value.others
    assert ".calls_add" in other and other in str(caught.value)


def test_an_artifact_of_what_does_not_compile_is_an_error(cache: Path, verifying: Verifying) -> None:
    def wrong(a, b):
        return a.no_such_attribute

    fill(cache, add)
    put_under(cache, wrong, stored(cache, add))
    with pytest.raises(VerifyFailed) as caught:
        farm.njit(wrong, farm=verifying()).compile(FLOATS)
    assert "TypingError" in str(caught.value)


@pytest.mark.parametrize("settings", [{}, {"mode": "strict"}, {"on_error": "raise"}], ids=["async", "strict", "raise"])
def test_every_call_of_the_signature_raises_whatever_the_settings_say_of_errors(
    cache: Path, verifying: Verifying, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    fill(cache, add, scale)
    put_under(cache, add, stored(cache, scale))
    one = verifying(**settings)
    function = farm.njit(add, farm=one)
    if settings.get("mode") != "strict":
        assert function(1.0, 2.0) == 3.0, "nobody knows yet: the Python body"
        function.wait(60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(VerifyFailed):
                function(1.0, 2.0)
    assert function(1, 2) == 3, "another signature"
    assert "is not what compiling it again gives" in caplog.text
    status = function.status(FLOATS)
    assert status.state is CompileState.FAILED and isinstance(status.error, VerifyFailed)
    assert one.stats().failed == 1 and one.stats().local == 0


def test_after_the_file_is_gone_recompile_makes_it_right(cache: Path, verifying: Verifying) -> None:
    fill(cache, add, scale)
    put_under(cache, add, stored(cache, scale))
    function = farm.njit(add, farm=verifying())
    with pytest.raises(VerifyFailed):
        function.compile(FLOATS)
    key = key_of(add).hex
    path = cache / "v1" / key[:2] / f"{key}.farm"
    assert path.exists(), "the evidence stays"
    path.unlink()
    function.recompile()
    assert function.compile(FLOATS)(1.0, 2.0) == 3.0


# -- off, and around it -----------------------------------------------------------------------------------


def test_off_a_hit_starts_no_worker_and_nothing_is_compared(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(cache, calls_add)
    monkeypatch.setattr(Pool, "submit", None)
    with farm.Farm(cache_dir=cache, workers=1) as one:
        assert farm.njit(calls_add, farm=one).compile(FLOATS)(1.0, 2.0) == 6.0
        assert (one.stats().loaded, one.stats().verified) == (1, 0)


def test_the_variable_turns_it_on(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(cache, add)
    monkeypatch.setenv("FARM_VERIFY", "1")
    with farm.Farm(cache_dir=cache, workers=1) as one:
        farm.njit(add, farm=one).compile(FLOATS)
        assert one.stats().verified == 1


def test_without_workers_nothing_unverified_is_loaded(
    cache: Path, verifying: Verifying, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(cache, add, scale)
    put_under(cache, add, stored(cache, scale))
    monkeypatch.setattr("multiprocessing.spawn._python_exe", None)
    one = verifying()
    assert farm.njit(add, farm=one).compile(FLOATS)(1.0, 2.0) == 3.0
    stats = one.stats()
    assert (stats.local, stats.loaded) == (1, 0) and DegradedReason.POOL_UNAVAILABLE in stats.degraded


def test_workers_have_one_hash_seed_but_for_one_that_the_user_has_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, expected in ((None, "0"), ("", "0"), ("random", "0"), ("42", "42")):
        if given is None:
            monkeypatch.delenv("PYTHONHASHSEED", raising=False)
        else:
            monkeypatch.setenv("PYTHONHASHSEED", given)
        assert worker_environment({})["PYTHONHASHSEED"] == expected


@pytest.mark.parametrize("seed", ["random", "7"])
def test_machine_code_hashes_as_the_program_does_whatever_seed_the_worker_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: str
) -> None:
    script = """
        import farm
        GIVEN = hash("a global that was hashed in the program") % 1000

        @farm.njit(mode="strict")
        def hashes(text):
            return hash(text), GIVEN

        assert hashes("numba") == (hash("numba"), GIVEN)
        print(farm.stats().compiled, farm.stats().local)
    """
    monkeypatch.setenv("PYTHONHASHSEED", seed)
    done = run_script(tmp_path, script)
    assert done.stdout.split() == ["1", "0"], done.stderr
