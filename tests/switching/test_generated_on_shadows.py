"""Functions that nobody wrote, on shadows of their arguments: after `keep` all is as if they had run in place."""

from typing import Any

from generated import Arguments, Left, generate

from farm.front.shadow import Plan, plan_shadows

ARRAYS = frozenset(range(6))


def run_on_shadows(arguments: Arguments, function: Any) -> Left:
    plan = plan_shadows(arguments.values, ARRAYS)
    assert isinstance(plan, Plan) and plan.size_bytes > 0
    before = arguments.left(None, None)
    shadows = plan.copy()
    value, raised = None, None
    try:
        value = function(*shadows.arguments)
    except ValueError as error:
        raised = (type(error).__name__, str(error))
    assert arguments.left(None, None) == before
    shadows.keep()
    returned = None if raised else arguments.described(shadows.returned(value))
    return arguments.left(returned, raised)


def test_a_run_on_shadows_leaves_what_a_run_in_place_leaves() -> None:
    for seed in range(300):
        case = generate(seed)
        function = case.make()
        assert run_on_shadows(case.arguments(), function) == case.arguments().run(function), case.source
