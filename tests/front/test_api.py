"""What users ask of a dispatcher and of a farm, beyond calling."""

import logging
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from numba import literally, types

import farm
from farm import CompileState
from farm.errors import ConfigError, DecorationError, FarmClosed, SignatureError
from farm.front import loading, settle
from farm.front.pending import Source
from farm.front.supply import Supply
from farm.observe import events
from farm.reasons import RefusalReason

OVERFLOW = 10**9


@pytest.fixture
def barn(tmp_path: Path) -> Iterator[farm.Farm]:
    with farm.Farm(cache_dir=tmp_path / "cache", workers=2) as one:
        yield one


def cube(a):
    return a * a * a


def half(a):
    return a / 2


def impossible(a):
    return a.no_such_attribute


# -- one signature --------------------------------------------------------------------------------------


def test_submit_gives_a_future_of_the_status(barn: farm.Farm) -> None:
    function = farm.njit(cube, farm=barn)
    status = function.submit("int64(int64)").result(60)
    assert (status.state, status.error, status.reason) == (CompileState.COMPILED, None, None)
    assert status.origin is not None and status.origin.source is Source.WORKER
    assert status.seconds is not None and status.seconds > 0
    assert function.submit((types.int64,)).result(1) == status


def spread(a):
    total = 0
    for i in numba.prange(a):
        total += i
    return total


def test_what_a_worker_compiled_can_be_inspected_as_with_numba(
    barn: farm.Farm, capsys: pytest.CaptureFixture[str]
) -> None:
    function = farm.njit(spread, farm=barn, parallel=True)
    assert function.compile("int64(int64)")(4) == 6
    (metadata,) = function.get_metadata().values()
    assert metadata["timers"]["compiler_lock"] > 0
    assert any(times.run > 0 for times in metadata["pipeline_times"]["nopython"].values())
    function.parallel_diagnostics(level=1)
    assert "Parallel loop listing for  Function spread" in capsys.readouterr().out
    symbol = function.overloads[types.int64,].fndesc.mangled_name
    (assembly,) = function.inspect_asm().values()
    assert symbol in assembly


def test_submit_of_what_cannot_compile_gives_numbas_error(barn: farm.Farm) -> None:
    future = farm.njit(impossible, farm=barn).submit("(int64,)")
    with pytest.raises(numba.TypingError, match="no_such_attribute"):
        future.result(60)


def test_compile_blocks_and_gives_a_callable(barn: farm.Farm) -> None:
    function = farm.njit(cube, farm=barn)
    code = function.compile("int64(int64)")
    assert code(OVERFLOW) != OVERFLOW**3
    assert function.status("(int64,)").state is CompileState.COMPILED


def test_status_of_what_nobody_asked_for_is_uncompiled(barn: farm.Farm) -> None:
    assert farm.njit(cube, farm=barn).status((types.int64,)).state is CompileState.UNCOMPILED


@pytest.mark.parametrize("bad", ["int64(", "no_such_type(int64)", "int64(int64) -> x", 3, [1]])
def test_a_signature_that_does_not_parse_is_named(barn: farm.Farm, bad: object) -> None:
    function = farm.njit(cube, farm=barn)
    for ask in (function.submit, function.status, function.compile):
        with pytest.raises(SignatureError, match="is not a signature"):
            ask(bad)
    assert barn.stats().pending == 0


# -- explicit signatures --------------------------------------------------------------------------------


def outcome(function: object, value: object) -> object:
    """What a call gives, type included, or the start of what it raises."""
    try:
        found = function(value)  # type: ignore[operator]
    except TypeError as error:
        return str(error).partition(" for ")[0]
    return type(found), found


@pytest.mark.parametrize(
    "declared", [["float64(float64)", "complex128(complex128)"], ["float64(float64)", "int64(int64)"], ["f4(f4)"]]
)
def test_explicit_signatures_are_queued_at_decoration_and_choose_as_numba_does(
    barn: farm.Farm, declared: list[str]
) -> None:
    values = [3, 3.5, 3j, True, np.float32(3.1), np.int8(3)]
    own = [outcome(numba.njit(declared)(half), value) for value in values]
    function = farm.njit(declared, farm=barn, fallback="python")(half)
    before = [outcome(function, value) for value in values]
    assert function.wait(60)
    assert [outcome(function, value) for value in values] == own
    assert len(function.overloads) == len(declared) == barn.stats().compiled
    # Machine code rounds a float32 once more when it is boxed; the values are the same.
    assert [one[1] if isinstance(one, tuple) else one for one in before] == [
        one[1] if isinstance(one, tuple) else one for one in own
    ]


def test_an_argument_that_fits_no_explicit_signature_is_a_type_error_before_and_after(barn: farm.Farm) -> None:
    function = farm.njit("float64(float64)", farm=barn)(half)
    with pytest.raises(TypeError, match="No matching definition"):
        function("text")
    assert function.wait(60)
    with pytest.raises(TypeError, match="No matching definition"):
        function("text")


def test_a_strict_explicit_signature_blocks_the_decoration(barn: farm.Farm) -> None:
    function = farm.njit(["float64(float64)", "int64(int64)"], farm=barn, mode="strict")(cube)
    assert len(function.overloads) == 2
    with pytest.raises(numba.TypingError):
        farm.njit("float64(float64)", farm=barn, mode="strict")(impossible)


def test_explicit_signatures_of_a_farm_that_is_off_compile_here_for_who_needs_them(tmp_path: Path) -> None:
    with farm.Farm(cache_dir=tmp_path / "cache", enabled=False) as off:
        strict = farm.njit(["float64(float64)", "int64(int64)"], farm=off, mode="strict")(cube)
        assert len(strict.overloads) == 2
        callee = farm.njit("float64(float64)", farm=off)(cube)
        assert callee(2) == 8.0
        assert numba.njit(lambda a: callee(a))(2) == 8.0


def test_a_jitted_caller_waits_for_all_explicit_signatures(barn: farm.Farm) -> None:
    function = farm.njit(["float64(float64)", "int64(int64)"], farm=barn)(cube)
    caller = numba.njit(lambda a: function(a))
    assert caller(2) == 8
    assert isinstance(caller(2), int)
    assert len(function.overloads) == 2


def test_an_explicit_signature_of_a_function_that_calls_itself(barn: farm.Farm) -> None:
    @farm.njit("int64(int64)", farm=barn)
    def factorial(n):
        return 1 if n < 2 else n * factorial(n - 1)

    assert factorial.wait(60)
    assert factorial(10) == 3628800
    assert barn.stats().failed == 0


def test_a_wrong_explicit_signature_is_refused_at_decoration() -> None:
    with pytest.raises(SignatureError, match="no_such_type"):
        farm.njit(["no_such_type(int64)"])(cube)
    with pytest.raises(SignatureError):
        farm.njit("int64(")(cube)


# -- many -----------------------------------------------------------------------------------------------


def test_compile_all_reports_each_pair_in_order(barn: farm.Farm) -> None:
    good, bad = farm.njit(cube, farm=barn), farm.njit(impossible, farm=barn)
    seen: list[tuple[int, int]] = []
    report = farm.compile_all(
        [(good, "(int64,)"), (bad, "(int64,)"), (good, "(float64,)")],
        progress=lambda row, done, total: seen.append((done, total)),
    )
    assert [row.compiled for row in report.rows] == [True, False, True]
    assert [row.signature for row in report.rows] == ["int64", "int64", "float64"]
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert "2 of 3 compiled" in str(report)
    assert "no_such_attribute" in str(report.failed[0])


def test_compile_all_can_raise_the_first_error(barn: farm.Farm) -> None:
    with pytest.raises(numba.TypingError):
        farm.compile_all([(farm.njit(impossible, farm=barn), "(int64,)")], raise_errors=True)


def test_compile_all_refuses_what_is_not_the_farms(barn: farm.Farm) -> None:
    with pytest.raises(DecorationError, match="compile_all takes"):
        farm.compile_all([(cube, "(int64,)")])
    assert "0 of 0" in str(farm.compile_all([]))


# -- literals -------------------------------------------------------------------------------------------


def by_value(a, n):
    return a + literally(n)


def test_a_function_that_asks_for_literals_is_compiled_by_value(barn: farm.Farm) -> None:
    function = farm.njit(by_value, farm=barn, mode="strict")
    assert [function(1, 2), function(1, 3), function(1, 2)] == [3, 4, 3]
    assert {str(kinds[1]) for kinds in function.overloads} == {"Literal[int](2)", "Literal[int](3)"}
    assert barn.stats().compiled == 2 and barn.stats().failed == 0


def test_literals_in_async_mode_run_the_fallback_first(barn: farm.Farm) -> None:
    function = farm.njit(by_value, farm=barn)
    for _ in range(3):
        assert function(1, 2) == 3
        assert function.wait(60)
    assert barn.stats().compiled == 1 and barn.stats().failed == 0
    assert "compiled for each value" in farm.explain(function, 1, 2) or "runs machine code" in farm.explain(
        function, 1, 2
    )


def test_a_jitted_caller_passes_literals_on(barn: farm.Farm) -> None:
    function = farm.njit(by_value, farm=barn)
    caller = numba.njit(lambda a: function(a, 5))
    assert caller(1) == 6


# -- explanations ---------------------------------------------------------------------------------------


def test_explain_follows_the_states(barn: farm.Farm) -> None:
    function = farm.njit(cube, farm=barn)
    assert "Nobody has called it" in farm.explain(function, 1)
    function(1)
    function.wait(60)
    assert "runs machine code" in farm.explain(function, 1)
    assert "compiled by a worker" in farm.explain(function, 1)
    with pytest.raises(DecorationError):
        farm.explain(cube, 1)


def test_explain_names_why_it_was_compiled_locally(barn: farm.Farm) -> None:
    large = np.zeros(10**6)

    @farm.njit(farm=barn, mode="strict")
    def reads(i):
        return large[i]

    assert reads(3) == 0.0
    text = farm.explain(reads, 3)
    assert RefusalReason.ARRAY_TOO_LARGE.value in text and "large" in text
    assert reads.status("(int64,)").reason is RefusalReason.ARRAY_TOO_LARGE


def test_explain_names_numbas_error(barn: farm.Farm) -> None:
    function = farm.njit(impossible, farm=barn, fallback=lambda a: a)
    function(1)
    function.wait(60)
    text = farm.explain(function, 1)
    assert "stays on its fallback" in text and "no_such_attribute" in text
    barn.configure(on_error="raise")
    assert "its calls raise" in farm.explain(function, 1)


@pytest.mark.parametrize("choice", [{"mode": "strict"}, {"fallback": "wait"}])
def test_explain_says_of_a_function_whose_calls_wait_that_they_wait_or_raise(
    barn: farm.Farm, choice: dict[str, str]
) -> None:
    function = farm.njit(impossible, farm=barn, **choice)
    waits = "wait for the compile ({}={!r})".format(*next(iter(choice.items())))
    assert waits in farm.explain(function, 1)
    entry = function.table.get_or_create((types.int64,))
    flight = entry.reserve()
    text = farm.explain(function, 1)
    assert "is being compiled" in text and waits in text and "fallback." not in text
    assert flight is not None and entry.fail(flight, ValueError("no"))
    assert "its calls raise: ValueError: no" in farm.explain(function, 1)
    assert "wait" not in farm.explain(function, 1) and "stays" not in farm.explain(function, 1)


# -- events ---------------------------------------------------------------------------------------------


class Heard:
    """A listener that keeps what it hears. Events come outside all locks, so a moment after what they tell of."""

    def __init__(self) -> None:
        self._events: list[events.Event] = []
        self._more = threading.Condition()

    def on_event(self, event: events.Event) -> None:
        with self._more:
            self._events.append(event)
            self._more.notify_all()

    def of(self, kind: type[events.Event], number: int = 1) -> list[events.Event]:
        def found() -> list[events.Event]:
            return [event for event in self._events if type(event) is kind]

        with self._more:
            self._more.wait_for(lambda: len(found()) >= number, 10)
            return found()


def test_a_finished_compile_is_told_with_its_figures(barn: farm.Farm) -> None:
    heard = Heard()
    barn.add_listener(heard)
    function = farm.njit(cube, farm=barn, mode="strict")
    function(1)
    function(1.5)
    first, second = heard.of(events.CompileFinished, 2)
    assert isinstance(first, events.CompileFinished) and isinstance(second, events.CompileFinished)
    assert (first.function, first.signature) == (function.label, "int64")
    assert (first.compile_count, second.compile_count) == (1, 2)
    assert second.cumulative_compile_time_s == pytest.approx(first.compile_time_s + second.compile_time_s)
    assert not first.used_persistent_cache and first.worker is not None and first.artifact_bytes > 0
    assert len(heard.of(events.CompileStarted, 2)) == 2


def test_the_time_of_a_load_has_all_its_steps(barn: farm.Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def taking(seconds: float, step):
        def slow(*arguments):
            nonlocal now
            now += seconds
            return step(*arguments)

        return slow

    monkeypatch.setattr(settle, "time", SimpleNamespace(perf_counter=lambda: now, monotonic=time.monotonic))
    monkeypatch.setattr(Supply, "look_up", taking(100, Supply.look_up))
    monkeypatch.setattr(loading, "time", settle.time)
    monkeypatch.setattr(loading, "unpack", taking(10, loading.unpack))
    monkeypatch.setattr(loading, "link", taking(1, loading.link))
    function = farm.njit(cube, farm=barn)
    status = function.submit("int64(int64)").result(60)
    # looked up in vain before it was compiled: that is no load
    assert status.origin is not None and status.origin.load_s == 111
    assert barn.stats().load_s == 111
    again = farm.njit(cube, farm=barn).submit("int64(int64)").result(60)
    assert again.origin is not None and (again.origin.source, again.origin.load_s) == (Source.STORE, 111)


def test_a_load_from_the_store_is_told_too(tmp_path: Path) -> None:
    for used in (False, True):
        with farm.Farm(cache_dir=tmp_path / "cache", workers=1) as one:
            heard = Heard()
            one.add_listener(heard)
            farm.njit(cube, farm=one, mode="strict")(1)
            (event,) = heard.of(events.CompileFinished)
            assert isinstance(event, events.CompileFinished) and event.used_persistent_cache is used
            assert len(heard.of(events.LoadStarted)) == len(heard.of(events.LoadFinished)) == 1


def test_listener_error_keeps_the_result(barn: farm.Farm) -> None:
    class Bad:
        def on_event(self, event: events.Event) -> None:
            raise RuntimeError("no")

    barn.add_listener(Bad())
    assert farm.njit(cube, farm=barn, mode="strict")(OVERFLOW) != OVERFLOW**3
    assert len(barn.stats().degraded) == 1


def test_a_failure_and_a_local_compile_are_told(barn: farm.Farm) -> None:
    heard = Heard()
    barn.add_listener(heard)
    with pytest.raises(numba.TypingError):
        farm.njit(impossible, farm=barn, mode="strict")(1)
    large = np.zeros(10**6)
    farm.njit(lambda i: large[i], farm=barn, mode="strict")(1)
    assert len(heard.of(events.CompileFailed)) == 1
    (local,) = heard.of(events.CompiledLocally)
    assert isinstance(local, events.CompiledLocally) and local.reason is RefusalReason.ARRAY_TOO_LARGE


# -- settings -------------------------------------------------------------------------------------------


def test_configure_changes_a_farm_in_use_but_not_its_pool(barn: farm.Farm) -> None:
    function = farm.njit(cube, farm=barn, mode="strict")
    function(1)
    barn.configure(on_error="raise", lazy_threshold=5)
    assert barn.config.lazy_threshold == 5
    with pytest.raises(ConfigError, match="when the pool started"):
        barn.configure(workers=1)
    with pytest.raises(ConfigError, match="did you mean"):
        barn.configure(lazy_treshold=5)


def test_the_log_level_is_a_setting_and_events_go_to_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("farm")
    before = logger.level
    try:
        with farm.Farm(cache_dir=tmp_path / "cache", workers=1, log_level="debug") as one:
            assert logger.level == logging.DEBUG
            heard = Heard()
            one.add_listener(heard)
            farm.njit(cube, farm=one, mode="strict")(1)
            assert heard.of(events.CompileFinished)  # logged before; it comes a moment after the code
            one.configure(log_level="error")
            assert logger.level == logging.ERROR
    finally:
        logger.setLevel(before)
    assert any("CompileFinished" in record.getMessage() for record in caplog.records)


def test_an_error_while_a_job_is_prepared_is_a_local_compile(barn: farm.Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise MemoryError("no room for the job")

    monkeypatch.setattr("farm.front.settle.make_functor", broken)
    function = farm.njit(cube, farm=barn)
    function(OVERFLOW)
    assert function.wait(60)
    assert function(OVERFLOW) != OVERFLOW**3
    assert function.status("(int64,)").reason is RefusalReason.HAND_OVER_FAILED


# -- methods, arguments, pickles ------------------------------------------------------------------------


def test_a_jitted_method_is_bound(barn: farm.Farm) -> None:
    class Scaler:
        @staticmethod
        @farm.njit(farm=barn, mode="strict")
        def scaled(a):
            return a * 3

        method = farm.njit(lambda self, a: a * 2, farm=barn, fallback="python")

    assert Scaler().scaled(2) == 6
    assert Scaler().method(2) == 4


def test_a_dispatcher_passed_as_an_argument(barn: farm.Farm) -> None:
    callee = farm.njit(cube, farm=barn)

    @farm.njit(farm=barn, mode="strict")
    def apply(function, a):
        return function(a) + 1

    assert apply(callee, OVERFLOW) != OVERFLOW**3 + 1
    assert barn.stats().local == 0


def test_a_pickled_dispatcher_is_itself_here_and_keeps_pending_signatures(barn: farm.Farm) -> None:
    assert pickle.loads(pickle.dumps(module_level)) is module_level


module_level = farm.njit(cube)


def test_ctrl_c_in_a_local_compile_leaves_the_signature_to_be_asked_for_again(
    barn: farm.Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = np.zeros(10**6)
    function = farm.njit(lambda i: large[i], farm=barn, mode="strict")

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("farm.front.settle.compile_signature", interrupted)
        patch.setattr("farm.front.installer.Installer.start", lambda self: None)  # so that this thread settles
        with pytest.raises(KeyboardInterrupt):
            function(1)
    assert barn.stats().pending == 0
    assert function.status("(int64,)").state is CompileState.UNCOMPILED
    assert function(1) == 0.0
    assert barn.stats().pending == 0


# -- a farm that is off or closed -----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["off", "closed"])
def test_what_must_not_run_as_python_compiles_here_without_a_farm(tmp_path: Path, how: str) -> None:
    one = farm.Farm(cache_dir=tmp_path / "cache", enabled=how != "off")
    if how == "closed":
        one.close()
    for function in (farm.njit(cube, farm=one, mode="strict"), farm.njit(cube, farm=one, fallback="wait")):
        assert function(OVERFLOW) != OVERFLOW**3
        assert function.status("(int64,)").state is CompileState.COMPILED
        assert "compiled in this process" in farm.explain(function, OVERFLOW)
    assert one.stats().local == 2
    assert one.stats().compile_s == one.stats().per_function[function.label].compile_s > 0
    assert farm.njit(cube, farm=one)(OVERFLOW) == OVERFLOW**3
    one.close()
    with pytest.raises(FarmClosed):
        farm.njit(cube, farm=one).submit("(int64,)")


def test_wrong_pairs_and_a_wrong_farm_are_named(barn: farm.Farm) -> None:
    for pairs in ([3], [(farm.njit(cube, farm=barn),)]):
        with pytest.raises(DecorationError, match="pairs"):
            farm.compile_all(pairs)
    with pytest.raises(DecorationError, match=r"farm\.Farm"):
        farm.njit(cube, farm=3)
