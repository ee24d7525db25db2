"""The functions that nobody wrote: they run, end soon, do the same each time, and are varied."""

import itertools
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from generated import FEATURES, Generated, Left, codes_of, generate

SEEDS = range(150)
BYTECODES_MAX = 6000


def counted(case: Generated) -> tuple[Left, int, set[Any]]:
    """What a run left, how many bytecodes it took, and whose."""
    function, arguments = case.make(), case.arguments()
    codes = codes_of(function)
    seen: set[Any] = set()
    count = 0

    def each(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if frame.f_code not in codes:
            return None
        seen.add(frame.f_code)
        frame.f_trace_opcodes = True
        if event == "opcode":
            count += 1
            if count > BYTECODES_MAX:
                raise RuntimeError("it goes on and on")
        return each

    before = sys.gettrace()
    sys.settrace(each)
    try:
        left = arguments.run(function)
    finally:
        sys.settrace(before)
    return left, count, seen


@pytest.fixture(scope="module")
def runs() -> list[tuple[Generated, Left, int, set[Any]]]:
    return [(case, *counted(case)) for case in map(generate, SEEDS)]


def test_every_function_ends_after_some_bytecodes_and_most_after_a_few_hundred(runs: list[Any]) -> None:
    counts = sorted(count for _, _, count, _ in runs)
    assert counts[0] > 10 and counts[len(counts) // 2] < 800


def test_each_feature_occurs_in_several_functions_and_none_in_all(runs: list[Any]) -> None:
    occurs = Counter(feature for case, *_ in runs for feature in case.features)
    assert set(occurs) == FEATURES
    assert min(occurs.values()) >= 5 and max(occurs.values()) < len(runs)


def test_runs_change_arrays_raise_return_views_and_enter_callees(runs: list[Any]) -> None:
    changed = sum(left.floats != case.arguments().floats.tobytes() for case, left, _, _ in runs)
    assert changed > len(runs) / 2
    raised = [(case, left) for case, left, _, _ in runs if left.raised]
    assert 5 < len(raised) < len(runs) / 2
    assert any(left.floats != case.arguments().floats.tobytes() for case, left in raised), "none wrote, then raised"
    assert sum("floats" in str(left.returned) for _, left, _, _ in runs) > 5
    assert sum("own" in str(left.returned) for _, left, _, _ in runs) > 5
    entered = Counter(code.co_name for _, _, _, seen in runs for code in seen)
    assert entered["f"] == len(runs) and min(entered["g"], entered["h"]) > 5


def test_the_views_of_one_call_overlap(runs: list[Any]) -> None:
    for case, *_ in runs:
        floats = case.arguments().values[:4]
        assert all(value.base is floats[0].base for value in floats)
        extents = sorted((value.min(), value.max()) for value in map(places, floats))
        assert any(after[0] <= before[1] for before, after in itertools.pairwise(extents))


def places(array: Any) -> Any:
    """The numbers of the bytes where its elements begin."""
    first = np.full(array.shape, array.__array_interface__["data"][0])
    return first + sum(np.indices(array.shape)[axis] * array.strides[axis] for axis in range(array.ndim))


def test_a_seed_gives_the_same_text_and_a_run_leaves_the_same_each_time(runs: list[Any]) -> None:
    for case, left, _, _ in runs:
        assert generate(case.seed) == case
        assert case.arguments().run(case.make()) == left
    assert len({case.source for case, *_ in runs}) == len(runs)


def test_a_seed_gives_the_same_text_in_another_process() -> None:
    program = "import generated; print(*[generated.generate(seed).source for seed in range(20)], sep='', end='')"
    command = [sys.executable, "-c", program]
    there = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=100)
    assert there.stdout == "".join(generate(seed).source for seed in range(20))


@pytest.mark.parametrize("feature", sorted(FEATURES))
def test_a_feature_that_is_not_wanted_does_not_occur(feature: str) -> None:
    cases = [generate(seed, without=[feature]) for seed in range(40)]
    assert not [case for case in cases if feature in case.features]
    for case in cases[:5]:
        case.arguments().run(case.make())


def test_what_is_no_feature_cannot_be_left_out() -> None:
    with pytest.raises(KeyError, match="loops"):
        generate(1, without=["loops"])


def test_a_difference_in_what_was_left_shows() -> None:
    case = generate(1)
    arguments = case.arguments()
    floats = arguments.floats
    before = arguments.left(arguments.described(floats[1:3]), None)
    assert arguments.left(arguments.described(floats[1:3]), None) == before
    assert arguments.left(arguments.described(floats[1:3].copy()), None) != before
    assert arguments.left(arguments.described(floats[2:4]), None) != before
    assert arguments.left(arguments.described(floats[1:3]), ("ValueError", "1")) != before
    floats[0] += 2**-20
    assert arguments.left(arguments.described(floats[1:3]), None) != before
