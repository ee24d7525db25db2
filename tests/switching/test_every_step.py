"""A call that is switched after any bytecode gives what a call gives that was never disturbed."""

from every_step import switched_at, try_all_steps
from generated import generate


def test_switched_after_each_step_a_call_gives_what_it_gives_undisturbed() -> None:
    tried = sum(try_all_steps(generate(seed), nested=False) for seed in range(3))
    assert tried > 500


def test_switched_after_each_step_calls_inside_calls_do_too() -> None:
    tried = sum(try_all_steps(generate(seed), nested=True, stride=7) for seed in range(3, 20))
    assert tried > 500


def test_a_step_past_the_end_switches_nothing() -> None:
    _, came = switched_at(generate(0), 1_000_000, nested=False)
    assert not came
