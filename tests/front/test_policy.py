"""The profiler's rules, by the names of the protocol."""

import threading

import pytest

from farm.config import CompileMode, Config
from farm.front.policy import FunctionProfile, Ground, Limits, Profiler, choose_mode, should_compile, waiting_is_better

LIMITS = Limits.from_config(Config(), workers=1)
STRICT, LAZY, ASYNC = CompileMode.STRICT, CompileMode.LAZY, CompileMode.ASYNC


@pytest.fixture
def profiler() -> Profiler:
    return Profiler(LIMITS)


@pytest.mark.parametrize("asked", CompileMode)
def test_choose_mode(asked: CompileMode) -> None:
    assert choose_mode(asked, must_compile=True) is STRICT
    assert choose_mode(asked, must_compile=False) is asked


def test_register_execution(profiler: Profiler) -> None:
    for _ in range(5):
        profiler.register_execution("f")
    assert profiler.profile("f").execution_count == 5
    assert profiler.profile("g") == FunctionProfile()


def test_register_compilation(profiler: Profiler) -> None:
    seen = [profiler.register_compilation("f", 4e-6) for _ in range(5)]
    assert [p.compile_count for p in seen] == [1, 2, 3, 4, 5]
    assert [p.cumulative_compile_time_s for p in seen] == pytest.approx([4e-6, 8e-6, 12e-6, 16e-6, 20e-6])


def test_ongoing_counter_exact(profiler: Profiler) -> None:
    slots = [object() for _ in range(20)]
    for i, slot in enumerate(slots):
        assert profiler.should_compile(i, ASYNC, 1, slot).compiles
        assert profiler.ongoing == i + 1
    refused = object()
    assert not profiler.should_compile(0, ASYNC, 2, refused).compiles
    assert profiler.ongoing == 20
    profiler.release(refused)  # it holds nothing
    for i, slot in enumerate(slots):
        profiler.release(slot)
        profiler.release(slot)  # as whoever is interrupted does
        assert profiler.ongoing == 19 - i


@pytest.mark.parametrize("mode", CompileMode)
def test_should_compile_unknown_function(profiler: Profiler, mode: CompileMode) -> None:
    assert profiler.should_compile("f", mode, 0, object()).compiles


def test_should_compile_first_execution() -> None:
    for mode in (LAZY, ASYNC):
        verdict = should_compile(mode, FunctionProfile(), request_count=0, ongoing=10**6, limits=LIMITS)
        assert verdict.ground is Ground.FIRST_EXECUTION
    # First of the function, not of the signature: another one of the same function is no first.
    assert not should_compile(LAZY, verdict.profile, request_count=1, ongoing=0, limits=LIMITS).compiles


def test_should_compile_megamorphic(profiler: Profiler) -> None:
    for _ in range(11):
        profiler.register_compilation("f", 1.0)
    profiler.register_execution("f")
    assert profiler.profile("f").megamorphic
    for mode in (ASYNC, LAZY):
        assert profiler.should_compile("f", mode, 100, object()).ground is Ground.MEGAMORPHIC
    assert profiler.should_compile("f", STRICT, 100, object()).compiles
    for _ in range(501):
        profiler.register_execution("f")
    assert profiler.should_compile("f", ASYNC, 100, object()).ground is Ground.MEGAMORPHIC
    assert profiler.should_compile("f", STRICT, 100, object()).compiles


def test_megamorphic_is_announced_once_and_tested_before_the_first_execution(profiler: Profiler) -> None:
    for _ in range(11):
        profiler.register_compilation("f", 1.0)
    verdicts = [profiler.should_compile("f", ASYNC, 1, object()) for _ in range(3)]
    assert [v.became_megamorphic for v in verdicts] == [True, False, False]


@pytest.mark.parametrize(("compiles", "executions", "megamorphic"), [(10, 1, False), (11, 549, True), (11, 550, False)])
def test_the_edges_of_megamorphism(compiles: int, executions: int, megamorphic: bool) -> None:
    before = FunctionProfile(compile_count=compiles, execution_count=executions - 1)
    assert before.with_execution(LIMITS).megamorphic is megamorphic


def test_should_compile_async() -> None:
    def ask(profile: FunctionProfile, ongoing: int) -> tuple[bool, FunctionProfile]:
        verdict = should_compile(ASYNC, profile, request_count=1, ongoing=ongoing, limits=LIMITS)
        return verdict.compiles, verdict.profile

    first, profile = ask(FunctionProfile(), 10)
    second, profile = ask(profile, 10)
    after_one_finished, profile = ask(profile, 9)
    assert (first, second, after_one_finished) == (True, False, True)


def test_should_compile_lazy(profiler: Profiler) -> None:
    assert profiler.should_compile("f", LAZY, 1, object()).compiles
    assert [profiler.should_compile("f", LAZY, n, object()).compiles for n in (0, 1, 2)] == [False, False, True]


def test_lazy_is_not_held_back_by_the_limit() -> None:
    seen = FunctionProfile(execution_count=1)
    assert should_compile(LAZY, seen, request_count=2, ongoing=10**6, limits=LIMITS).compiles


def test_strict_counts_no_execution(profiler: Profiler) -> None:
    profiler.should_compile("f", STRICT, 1, object())
    assert profiler.profile("f").execution_count == 0


@pytest.mark.concurrency
def test_two_first_calls_at_once_give_exactly_one_first() -> None:
    for _ in range(200):
        profiler, barrier, grounds = Profiler(LIMITS), threading.Barrier(2), []

        def call(
            profiler: Profiler = profiler, barrier: threading.Barrier = barrier, grounds: list[Ground] = grounds
        ) -> None:
            barrier.wait(10)
            grounds.append(profiler.should_compile("f", LAZY, 1, object()).ground)

        threads = [threading.Thread(target=call) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert sorted(g.name for g in grounds) == ["BELOW_THRESHOLD", "FIRST_EXECUTION"]


# -- waiting, or Python to its end ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known_s", "expected_s", "elapsed_s", "waits"),
    [
        (0.1, 1.0, 0.0, False),  # over long before the compile is
        (1.0, 1.0, 0.0, True),
        (0.7, 1.0, 0.4, True),  # 0.6 s are left
        (0.5, 1.0, 0.4, False),
        (0.6, 1.0, 0.9, True),  # nobody knows how much is left of what is nearly over
        (0.4, 1.0, 0.9, False),
        (4.0, 1.0, 10.0, False),  # overdue: it may take half as long again
        (6.0, 1.0, 10.0, True),
    ],
)
def test_a_call_waits_if_python_would_take_longer_than_what_is_left_of_the_compile(
    known_s: float, expected_s: float, elapsed_s: float, waits: bool
) -> None:
    assert waiting_is_better(known_s, expected_s, elapsed_s) is waits
