"""A switch after each step of a body: what comes of it is compared with a run that was never disturbed.

A step is one bytecode instruction. At the chosen one `Switched` is raised, where Python would raise it at the most: it
looks for such exceptions at some instructions only. What the machine code would do, Python does here, in place.
"""

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from generated import Arguments, Generated, Left, codes_of

from farm.front.shadow import Plan, plan_shadows
from farm.front.switch import Run, Switched, run_stoppable, runs_here


class Stepping:
    """Raises Switched at one step, counted over all functions of a body."""

    def __init__(self, codes: frozenset[CodeType], at: int) -> None:
        self.codes = codes
        self.left = at
        self.there = False
        self.runs: list[Run] = []
        """Which run is switched when it comes to that, as soon as there is one."""

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code not in self.codes:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                self.runs[0].sent = True
                raise Switched
        return self.trace


def meanwhile(function: Callable[..., Any], codes: frozenset[CodeType], values: tuple[Any, ...], run: Run) -> Any:
    """What a call does whose code is pending: on shadows; and once more, on the caller's arrays, if it is switched."""
    plan = plan_shadows(values, frozenset(range(len(values))))
    assert isinstance(plan, Plan)
    shadows = plan.copy()
    done, result = run_stoppable(run, function, shadows.arguments, shadows.keep)
    return shadows.returned(result) if done else function(*values)


def switched_at(case: Generated, step: int, *, nested: bool) -> tuple[Left, bool]:
    """What a call leaves that is switched at this step, and whether it came to it.

    `nested`: its callees are such calls as well, with shadows of shadows, which the outer one's switch goes through.
    """
    function, arguments = case.make(), case.arguments()
    codes = codes_of(function)
    stepping = Stepping(codes, step)
    if nested:
        for name in ("g", "h"):
            callee = function.__globals__.get(name)
            if callee is not None:
                function.__globals__[name] = _as_call(callee, codes)

    def call(*values: Any) -> Any:
        run = Run(stepping, codes)
        stepping.runs.append(run)
        sys.settrace(stepping.trace)
        try:
            return meanwhile(function, codes, values, run)
        finally:
            sys.settrace(None)

    left = Arguments.run(arguments, call)
    assert not [one for one in runs_here() if one.open]
    return left, stepping.left <= 0


def _as_call(callee: Callable[..., Any], codes: frozenset[CodeType]) -> Callable[..., Any]:
    return lambda *values: meanwhile(callee, codes, values, Run(Stepping(codes, 0), codes))


def try_all_steps(case: Generated, *, nested: bool, first: int = 1, stride: int = 1) -> int:
    """Switch after each step, or after each so many; how many were tried. Fails with the step and the text."""
    undisturbed = case.arguments().run(case.make())
    step, tried = first, 0
    while True:
        left, came = switched_at(case, step, nested=nested)
        assert left == undisturbed, f"switched at step {step}, nested {nested}:\n{case.source}\n{left}\n{undisturbed}"
        if not came:
            return tried
        step, tried = step + stride, tried + 1
