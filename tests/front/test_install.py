"""Installing overloads in a real numba dispatcher: probation, the C table, jitted callers, folded arguments."""

import sys
import threading
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from numba import float64, int64, types

from farm.front.install import Installation
from farm.port.compile import compile_signature
from farm.port.dispatch import HookedDispatcher, argument_types, fingerprint, unfold

PROBATION_CALLS = 50


class Probe(HookedDispatcher):
    """Compiles in place and records what it was asked."""

    def __init__(self, py_func: Callable[..., Any], **options: Any) -> None:
        super().__init__(py_func, targetoptions={"nopython": True, **options})
        self.installation = Installation(self)
        self.asked: list[tuple[Any, ...]] = []

    def callable_for(self, folded: tuple[Any, ...]) -> Callable[..., Any]:
        arguments = argument_types(self, folded)
        self.asked.append(arguments)
        code = self.installation.answer(arguments, PROBATION_CALLS)
        return code if code is not None else lambda *values: self.py_func(*unfold(self, values))

    def result_for(self, arguments: tuple[Any, ...], return_type: Any | None) -> Any:
        result, _ = compile_signature(self, arguments, return_type, None)
        self.installation.install(arguments, result, probation=True)
        self.installation.end_probation(arguments)
        return self.overloads[arguments]

    def build(self, *arguments: Any, probation: bool = True) -> None:
        result, _ = compile_signature(self, arguments, None, None)
        self.installation.install(arguments, result, probation=probation)


def double(a):
    return a * 2


def with_defaults(a, b=10, *rest):
    return a + b + len(rest)


def in_machine_code(a):
    """Overflows in machine arithmetic, not in Python."""
    return a * a * a * a * a


def test_a_call_without_an_overload_runs_the_python_body() -> None:
    assert Probe(in_machine_code)(10**9) == 10**45


def test_probation_counts_calls_and_then_the_c_table_answers() -> None:
    probe = Probe(in_machine_code)
    probe.build(int64)
    for _ in range(PROBATION_CALLS):
        assert probe(10**9) != 10**45
    assert len(probe.asked) == PROBATION_CALLS
    assert probe(10**9) != 10**45
    assert len(probe.asked) == PROBATION_CALLS


def test_without_probation_the_first_call_is_answered_by_the_c_table() -> None:
    probe = Probe(double)
    probe.build(int64, probation=False)
    assert probe(4) == 8
    assert probe.asked == []


def test_a_jitted_caller_ends_the_probation() -> None:
    probe = Probe(double)
    caller = numba.njit(lambda a: probe(a) + 1)
    assert caller(4) == 9
    assert probe(4) == 8
    assert probe.asked == []


def test_folded_defaults_keywords_and_star_arguments_reach_the_body_as_python_has_them() -> None:
    probe = Probe(with_defaults)
    assert probe(1) == with_defaults(1) == 11
    assert probe(1, b=2) == 3
    assert probe(1, 2, 3, 4) == with_defaults(1, 2, 3, 4) == 5
    assert isinstance(probe.asked[0][1], types.Omitted)


def test_folded_arguments_reach_the_machine_code() -> None:
    probe = Probe(with_defaults)
    for call in ((1,), (1, 2), (1, 2, 3.0, 4)):
        probe(*call)
        probe.build(*probe.asked[-1])
        assert probe(*call) == with_defaults(*call)


@pytest.mark.concurrency
def test_one_signature_installed_by_many_threads_is_inserted_once() -> None:
    probe = Probe(double)
    result, _ = compile_signature(probe, (float64,), None, None)
    barrier = threading.Barrier(8)
    inserted: list[Any] = []

    def install() -> None:
        barrier.wait(10)
        inserted.append(probe.installation.install((float64,), result, probation=False))

    threads = [threading.Thread(target=install) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert inserted == [result] * 8
    assert probe.in_table == {(float64,)}
    assert probe(2.0) == 4.0


def test_literal_types_are_never_put_into_the_c_table() -> None:
    probe = Probe(double)
    literal = types.literal(3)
    probe.build(literal, probation=False)
    assert probe.in_table == set()
    assert probe.installation.answer((literal,), PROBATION_CALLS) is not None


@pytest.mark.concurrency
def test_a_last_call_on_probation_beside_a_discard_is_answered() -> None:
    """It has found its machine code when everything is discarded, and puts nothing into the C table."""
    probe = Probe(in_machine_code)
    probe.build(int64)

    class Discarding(dict):  # type: ignore[type-arg]
        def get(self, key: Any, default: Any = None) -> Any:
            found = super().get(key, default)
            probe.overloads = plain
            discarder = threading.Thread(target=probe.installation.discard)
            discarder.start()
            discarder.join(10)
            return found

    plain = probe.overloads
    probe.overloads = Discarding(plain)
    code = probe.installation.answer((int64,), 1)
    assert code is not None and code(10**9) != 10**45
    assert probe.in_table == set()
    probe.installation.end_probation((int64,))
    assert probe(10**9) == 10**45


def test_discard_forgets_both_tables_and_the_counts() -> None:
    probe = Probe(in_machine_code)
    probe.build(int64, probation=False)
    assert probe(10**9) != 10**45
    assert probe.installation.discard() == ((int64,),)
    assert probe(10**9) == 10**45
    assert probe.installation.counted_calls((int64,)) == 1 - 1


def test_a_second_result_for_the_same_types_does_not_replace_the_first() -> None:
    probe = Probe(double)
    probe.build(int64)
    first = probe.overloads[(int64,)]
    second, _ = compile_signature(probe, (int64,), None, None)
    assert probe.installation.install((int64,), second, probation=True) is first


def test_compiled_exceptions_pass_through_on_probation() -> None:
    def refuse(a):
        raise KeyError(a)

    probe = Probe(refuse)
    probe.build(int64)
    with pytest.raises(KeyError):
        probe(3)


def test_reference_counts_are_stable_over_the_end_of_probation() -> None:
    def first(x):
        return x[0]

    probe, array = Probe(first), np.ones(3)
    probe.build(float64[::1])
    before = sys.getrefcount(array)
    for _ in range(2 * PROBATION_CALLS):
        probe(array)
    assert sys.getrefcount(array) == before


def test_no_types_stay_active_after_a_call() -> None:
    probe = Probe(double)
    probe(1.5)
    assert not probe._types_active_call


def test_fingerprints_tell_types_apart_and_not_values() -> None:
    assert fingerprint((1, 2.0)) == fingerprint((7, 3.5)) != fingerprint((1.0, 2))
    assert fingerprint((np.zeros(3),)) == fingerprint((np.ones(5),)) != fingerprint((np.zeros((3, 3)),))
