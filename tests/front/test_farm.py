"""The whole path, end to end: real workers, a real store, real machine code."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numba
import numpy as np
import pytest
from these import bring_up

import farm
from farm.errors import CompileFailedWarning, DecorationError

OVERFLOW = 10**9
"""Its fifth power differs between Python and machine arithmetic, so a result tells who computed it."""


@pytest.fixture
def barn(tmp_path: Path) -> Iterator[farm.Farm]:
    with farm.Farm(cache_dir=tmp_path / "cache", workers=2) as one:
        yield one


def fifth_power(a):
    return a * a * a * a * a


IN_PYTHON = fifth_power(OVERFLOW)


def compiled(function: object, value: int = OVERFLOW) -> bool:
    return function(value) != value**5  # type: ignore[operator]


def test_async_first_call_is_fallback_then_compiled(barn: farm.Farm) -> None:
    function = farm.njit(fifth_power, farm=barn)
    assert function(OVERFLOW) == IN_PYTHON
    assert function.wait(60)
    assert compiled(function)
    assert barn.stats().compiled == 1
    assert barn.stats().local == 0


def test_strict_success(barn: farm.Farm) -> None:
    function = farm.njit(fifth_power, farm=barn, mode="strict")
    assert compiled(function)
    assert barn.stats().fallback_calls == 0


def test_fallback_wait_blocks_for_the_machine_code(barn: farm.Farm) -> None:
    bring_up(barn)
    assert compiled(farm.njit(fifth_power, farm=barn, fallback="wait"))


def test_fallback_callable_runs_instead_of_the_body(barn: farm.Farm) -> None:
    function = farm.njit(fifth_power, farm=barn, fallback=lambda a: "instead")
    assert function(OVERFLOW) == "instead"
    assert function.wait(60)
    assert compiled(function)


def test_lazy_compilation(barn: farm.Farm) -> None:
    """Run 1 compiles; new types once: fallback; again: compiled; third types: fallback."""
    function = farm.njit(fifth_power, farm=barn, mode="lazy")
    function(1)
    function.wait(60)
    assert barn.stats().compiled == 1
    function(1.5)
    function.wait(60)
    assert barn.stats().compiled == 1
    function(1.5)
    function.wait(60)
    assert barn.stats().compiled == 2
    function(1j)
    function.wait(60)
    assert barn.stats().compiled == 2


def test_persistent_cache_first_false_then_true(tmp_path: Path) -> None:
    for compiled_count, loaded_count in ((1, 0), (0, 1)):
        with farm.Farm(cache_dir=tmp_path / "cache", workers=1) as one:
            assert compiled(farm.njit(fifth_power, farm=one, mode="strict"))
            assert (one.stats().compiled, one.stats().loaded) == (compiled_count, loaded_count)


def test_garbage_in_store_is_a_miss(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with farm.Farm(cache_dir=cache, workers=1) as one:
        assert compiled(farm.njit(fifth_power, farm=one, mode="strict"))
    (artifact,) = cache.rglob("*.farm")
    artifact.write_bytes(b"garbage" * 100)
    with farm.Farm(cache_dir=cache, workers=1) as one:
        assert compiled(farm.njit(fifth_power, farm=one, mode="strict"))
        assert one.stats().compiled == 1


def test_failure_to_persist_still_delivers(tmp_path: Path) -> None:
    with farm.Farm(cache_dir=tmp_path / "cache", workers=1, readonly=True) as one:
        assert compiled(farm.njit(fifth_power, farm=one, mode="strict"))
        assert one.stats().compiled == 1
    assert not list(tmp_path.rglob("*.farm"))


def test_disabled_serves_compiled_only(tmp_path: Path) -> None:
    with farm.Farm(cache_dir=tmp_path / "cache", workers=1, enabled=False) as one:
        function = farm.njit(fifth_power, farm=one)
        assert function(OVERFLOW) == IN_PYTHON
        assert one.stats().pending == 0


def test_error_status_reaches_the_user(barn: farm.Farm) -> None:
    def impossible(a):
        return a.no_such_attribute

    strict = farm.njit(impossible, farm=barn, mode="strict")
    with pytest.raises(numba.TypingError, match="no_such_attribute"):
        strict(1)
    relaxed = farm.njit(impossible, farm=barn, fallback=lambda a: a)
    assert relaxed(1) == 1
    relaxed.wait(60)
    with pytest.warns(CompileFailedWarning, match="impossible"):
        assert relaxed(1) == 1


def test_a_jitted_caller_waits_for_its_callee(barn: farm.Farm) -> None:
    callee = farm.njit(fifth_power, farm=barn)
    caller = numba.njit(lambda a: callee(a) + 1)
    bring_up(barn)
    assert caller(2) == 33
    assert barn.stats().local == 0


@pytest.mark.parametrize("up", [True, False])
def test_a_jitted_callers_error_model_reaches_the_callee(barn: farm.Farm, up: bool) -> None:
    """A callee inherits its caller's flags; a compile for Python beside it inherits nothing."""
    if up:
        bring_up(barn)
    divide = farm.njit(lambda a, b: a / b, farm=barn)
    careless = numba.njit(lambda a, b: divide(a, b), error_model="numpy")
    assert careless(1.0, 0.0) == float("inf")
    assert barn.stats().local == (0 if up else 1)
    strict = farm.njit(lambda a, b: a / b, farm=barn, mode="strict")
    with pytest.raises(ZeroDivisionError):
        strict(1.0, 0.0)


def test_a_farm_function_that_calls_a_farm_function(barn: farm.Farm) -> None:
    callee = farm.njit(fifth_power, farm=barn)

    @farm.njit(farm=barn, mode="strict")
    def caller(a):
        return callee(a) + 1

    assert caller(OVERFLOW) != IN_PYTHON + 1
    assert barn.stats().local == 0


def test_arrays_defaults_and_star_arguments(barn: farm.Farm) -> None:
    @farm.njit(farm=barn)
    def shaped(x, scale=2.0, *rest):
        return x.sum() * scale + len(rest)

    x = np.arange(5.0)
    for _ in range(2):
        assert (shaped(x), shaped(x, 3.0), shaped(x, 3.0, 1, 2)) == (20.0, 30.0, 32.0)
        assert shaped.wait(60)


def test_a_changed_global_followed_by_recompile(barn: farm.Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    @farm.njit(farm=barn, mode="strict")
    def gained(a):
        return a * GAIN

    assert gained(2) == 6
    monkeypatch.setitem(globals(), "GAIN", 5)
    assert gained(2) == 6
    gained.recompile()
    assert gained(2) == 10


GAIN = 3


def test_closures_of_one_factory_keep_their_constants(barn: farm.Farm) -> None:
    def make(factor):
        def scaled(a):
            return a * factor

        return farm.njit(scaled, farm=barn, mode="strict")

    assert [make(factor)(2) for factor in (1, 2, 3, 4)] == [2, 4, 6, 8]


def test_a_script_without_a_guard_beside_modules_with_common_names(tmp_path: Path) -> None:
    (tmp_path / "typing.py").write_text("raise ImportError('shadowed')\n")
    (tmp_path / "numba_helper.py").write_text("raise ImportError('shadowed')\n")
    done = run_script(
        tmp_path,
        """
        import sys
        here = sys.path.pop(0)
        import farm
        sys.path.insert(0, here)
        @farm.njit(mode="strict")
        def f(a): return a * a * a * a * a
        assert f(10**9) != 10**45
        assert farm.stats().compiled == 1, farm.stats()
        """,
    )
    assert done.returncode == 0, done.stderr


def test_classes_of_main_come_back_as_themselves(tmp_path: Path) -> None:
    """A worker compiles with stand-ins, and what comes out of its code is the script's own class."""
    done = run_script(
        tmp_path,
        """
        import enum
        import farm
        class Color(enum.Enum):
            RED = 1
            BLUE = 2
        class MyError(Exception): pass
        @farm.njit(mode="strict")
        def pick(a): return Color.RED if a > 0 else Color.BLUE
        @farm.njit(mode="strict")
        def refuse(a):
            if a > 0: raise MyError("x")
            return a
        assert pick(1) is Color.RED
        try:
            refuse(1)
        except MyError:
            assert farm.stats().compiled == 2, farm.stats()
        else:
            raise SystemExit("nothing was raised")
        """,
    )
    assert done.returncode == 0, done.stderr


def test_importing_farm_starts_no_thread_and_no_process() -> None:
    program = "import farm, threading, psutil; print(threading.active_count(), len(psutil.Process().children()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["1", "0"], done.stderr


def run_script(folder: Path, text: str) -> "subprocess.CompletedProcess[str]":
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text))
    environment = {**os.environ, "FARM_CACHE_DIR": str(folder / "cache")}
    return subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=100, env=environment)


@pytest.mark.parametrize("bad", [{"mode": "sometimes"}, {"fallback": "maybe"}])
def test_a_wrong_word_names_the_legal_ones(bad: dict[str, str]) -> None:
    with pytest.raises(DecorationError, match="use '"):
        farm.njit(fifth_power, **bad)


def test_a_non_function_is_refused_by_name() -> None:
    with pytest.raises(DecorationError, match="int"):
        farm.njit(3)


@pytest.mark.concurrency
def test_the_first_call_of_what_the_store_has_runs_machine_code_however_quick_the_installer_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it is given it begins to settle at once: so it must not be given what the call can settle."""
    for fallback_calls in (1, 0):
        with farm.Farm(cache_dir=tmp_path / "cache", workers=1) as barn:
            installer = barn.settler().installer
            function = farm.njit(lambda x: x * x * x + 7, farm=barn)
            if not fallback_calls:
                monkeypatch.setattr(installer, "arrive", lambda pending: pytest.fail("the installer was asked"))
            assert function(3) == 34
            assert barn.stats().fallback_calls == fallback_calls
            assert function.wait(60)
    assert barn.stats().loaded == barn.stats().fallback_avoided == 1


@pytest.mark.parametrize("mode", ["async", "strict"])
def test_what_was_declared_while_the_farm_was_off_is_compiled_as_declared(barn: farm.Farm, mode: str) -> None:
    """Its signatures were not queued, so the first call after asks for them: with the return type that they have."""
    barn.configure(enabled=False)
    function = farm.njit("float64(int64)", farm=barn)(lambda n: n)
    barn.configure(enabled=True, mode=mode)
    assert isinstance(function(3), float)
    assert function.wait(60) and barn.stats().compiled == 1
    assert isinstance(function(3), float)
