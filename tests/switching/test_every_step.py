"""A call that is switched after any bytecode gives what a call gives that was never disturbed.

Hypothesis draws the functions, by their seeds; `make stress` tries ten thousand switches and prints how many.
"""

from every_step import switched_at, try_all_steps
from generated import generate
from hypothesis import given, settings
from hypothesis import strategies as st

SEEDS = st.integers(min_value=0, max_value=10**9)


@settings(max_examples=5, deadline=None)
@given(seed=SEEDS)
def test_switched_after_each_step_a_call_gives_what_it_gives_undisturbed(seed: int) -> None:
    assert try_all_steps(generate(seed), nested=False) > 20


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, first=st.integers(1, 7))
def test_switched_after_each_step_calls_inside_calls_do_too(seed: int, first: int) -> None:
    assert try_all_steps(generate(seed), nested=True, first=first, stride=7) > 2


def test_a_step_past_the_end_switches_nothing() -> None:
    _, came = switched_at(generate(0), 1_000_000, nested=False)
    assert not came
