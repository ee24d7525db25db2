"""When to compile: pure decisions, and the counters they are made from.

Guarantees: no clock, no I/O, no event is sent from here. `should_compile` and `choose_mode` are pure functions;
`Profiler` holds the counters and makes counting, deciding and taking a slot one section of its own lock, so
two first calls at the same time cannot both be refused and the limit is never blind.

The order of the tests in `should_compile` is the protocol's, and matters:

    1. STRICT                         yes   (counts nothing)
    2. one execution is counted
    3. megamorphic                    no    (sticky; refuses new signatures only)
    4. first execution of a function  yes   (past limit and threshold)
    5. ASYNC and no slot free         no    (nothing is queued: the next call asks again)
    6. enough requests                yes, else no
"""

import threading
from collections.abc import Hashable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from farm.config import CompileMode, Config

ASYNC_THRESHOLD: Final = 0  # The protocol's number: ASYNC costs the caller nothing, so its first request is enough.


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The numbers of the decision."""

    lazy_threshold: int
    max_ongoing: int
    megamorphic_compiles: int
    megamorphic_executions_per_compile: int

    @property
    def probation_calls(self) -> int:
        """How many calls of each new overload are counted before numba's C code answers them, out of sight.

        The rule is tested at each execution, so the calls counted for n signatures must carry one more compile, whose
        own calls come later: n * calls >= executions_per_compile * (n + 1), from the first n that can be
        megamorphic. With 50 calls a function of 11 busy signatures was found megamorphic (tried).
        """
        n = max(1, self.megamorphic_compiles)
        return -(-self.megamorphic_executions_per_compile * (n + 1) // n)

    @classmethod
    def from_config(cls, config: Config, workers: int) -> "Limits":
        """The settings' numbers for a pool of at most `workers` processes."""
        return cls(
            lazy_threshold=config.lazy_threshold,
            max_ongoing=config.ongoing_limit(workers),
            megamorphic_compiles=config.megamorphic_compiles,
            megamorphic_executions_per_compile=config.megamorphic_executions_per_compile,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionProfile:
    """What one function has done so far; every signature of it counts into the same profile."""

    execution_count: int = 0
    compile_count: int = 0
    cumulative_compile_time_s: float = 0.0
    megamorphic: bool = False

    def with_execution(self, limits: Limits) -> "FunctionProfile":
        """One execution later. Megamorphism is tested at each execution and never goes away."""
        count = self.execution_count + 1
        megamorphic = self.megamorphic or (
            self.compile_count > limits.megamorphic_compiles
            and count < limits.megamorphic_executions_per_compile * self.compile_count
        )
        return replace(self, execution_count=count, megamorphic=megamorphic)

    def with_compilation(self, compile_time_s: float) -> "FunctionProfile":
        """One finished compile later. A load from the store is not a compile."""
        total_s = self.cumulative_compile_time_s + compile_time_s
        return replace(self, compile_count=self.compile_count + 1, cumulative_compile_time_s=total_s)


class Ground(Enum):
    """Why a signature is, or is not, compiled now."""

    STRICT = "the caller waits for it"
    MEGAMORPHIC = "the function has too many signatures for its number of executions"
    FIRST_EXECUTION = "it is the function's first execution"
    LIMIT = "too many compiles are running"
    REQUESTED = "the signature was asked for often enough"
    BELOW_THRESHOLD = "the signature was not asked for often enough yet"

    @property
    def compiles(self) -> bool:
        """Whether this ground is a yes."""
        return self in _YES


_YES: Final = frozenset({Ground.STRICT, Ground.FIRST_EXECUTION, Ground.REQUESTED})


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision and the profile after it. `became_megamorphic` is true once per function: time for the event."""

    ground: Ground
    profile: FunctionProfile
    became_megamorphic: bool = False

    @property
    def compiles(self) -> bool:
        """Whether to compile now."""
        return self.ground.compiles


def choose_mode(asked: CompileMode, *, must_compile: bool) -> CompileMode:
    """The one place where a call's mode is decided. `must_compile`: no fallback, or the call asks for the code."""
    return CompileMode.STRICT if must_compile else asked


def waiting_is_better(known_s: float, expected_s: float, elapsed_s: float) -> bool:
    """Whether a call that cannot be restarted waits for its compile, instead of running in Python to its end.

    Parameters
    ----------
    known_s
        What such a call took in Python.
    expected_s, elapsed_s
        What the compile is expected to take, and has taken by now. One that is overdue is taken for half done.
    """
    return known_s >= (expected_s - elapsed_s if elapsed_s < expected_s / 2 else max(elapsed_s, expected_s) / 2)


def should_compile(
    mode: CompileMode, profile: FunctionProfile, *, request_count: int, ongoing: int, limits: Limits
) -> Verdict:
    """Whether an UNCOMPILED signature is compiled now, by the order at the top of this file.

    Parameters
    ----------
    request_count
        How often this signature was looked up, this call included.
    ongoing
        How many on-demand compiles run; batch compiles do not count, a prewarm would shut out every call.
    """
    if mode is CompileMode.STRICT:
        return Verdict(Ground.STRICT, profile)
    after = profile.with_execution(limits)
    if after.megamorphic:
        return Verdict(Ground.MEGAMORPHIC, after, became_megamorphic=not profile.megamorphic)
    if after.execution_count == 1:
        return Verdict(Ground.FIRST_EXECUTION, after)
    if mode is CompileMode.ASYNC and ongoing >= limits.max_ongoing:
        return Verdict(Ground.LIMIT, after)
    threshold = ASYNC_THRESHOLD if mode is CompileMode.ASYNC else limits.lazy_threshold
    return Verdict(Ground.REQUESTED if request_count >= threshold else Ground.BELOW_THRESHOLD, after)


class Profiler:
    """The counters of every function, and of the on-demand compiles that run."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        # Guards _profiles and _slots; held for arithmetic only, and no method here calls out.
        # May be taken while a table entry's lock is held (`Entry.reserve`), so no lock is taken inside it.
        # Re-entrant, as a collection in here may end a dispatcher, whose finalizer calls `forget`.
        self._lock = threading.RLock()
        self._profiles: dict[Hashable, FunctionProfile] = {}
        self._slots: set[object] = set()
        """What on-demand compiles hold. Not a number: who is interrupted cannot know whether it was counted."""

    def should_compile(self, function: Hashable, mode: CompileMode, request_count: int, slot: object) -> Verdict:
        """Count, decide, and on a yes take the slot, in one lock section. A slot taken is given back by `release`."""
        with self._lock:
            before = self._profiles.get(function, FunctionProfile())
            verdict = should_compile(
                mode, before, request_count=request_count, ongoing=len(self._slots), limits=self.limits
            )
            self._profiles[function] = verdict.profile
            if verdict.compiles:
                self._slots.add(slot)
            return verdict

    def release(self, slot: object) -> None:
        """Give back what an on-demand compile held that has ended: well, badly, or overtaken. Harmless if repeated."""
        with self._lock:
            self._slots.discard(slot)

    @property
    def ongoing(self) -> int:
        """How many on-demand compiles run."""
        with self._lock:
            return len(self._slots)

    def register_execution(self, function: Hashable) -> FunctionProfile:
        """Count an execution that asks for nothing: compiled code on probation, or a fallback while COMPILING."""
        with self._lock:
            after = self._profiles.get(function, FunctionProfile()).with_execution(self.limits)
            self._profiles[function] = after
            return after

    def register_executions(self, function: Hashable, count: int) -> None:
        """Count executions that were counted elsewhere first. None of them could make the function megamorphic."""
        with self._lock:
            before = self._profiles.get(function, FunctionProfile())
            self._profiles[function] = replace(before, execution_count=before.execution_count + count)

    def may_become_megamorphic(self, function: Hashable) -> bool:
        """Whether the next execution might: then each one has to be tested, and none may be counted in bulk."""
        with self._lock:
            profile = self._profiles.get(function, FunctionProfile())
            return not profile.megamorphic and profile.compile_count > self.limits.megamorphic_compiles

    def reset_in_child(self) -> None:
        """In a forked child: the lock may have been held by a thread that is not here, and nothing runs."""
        self._lock = threading.RLock()
        self._slots = set()

    def forget(self, function: Hashable) -> None:
        """Drop the counters of a function that is gone."""
        with self._lock:
            self._profiles.pop(function, None)

    def register_compilation(self, function: Hashable, compile_time_s: float) -> FunctionProfile:
        """Count a finished compile; the profile that comes back is what the event reports."""
        with self._lock:
            after = self._profiles.get(function, FunctionProfile()).with_compilation(compile_time_s)
            self._profiles[function] = after
            return after

    def profile(self, function: Hashable) -> FunctionProfile:
        """The counters of one function; all zero for an unknown one."""
        with self._lock:
            return self._profiles.get(function, FunctionProfile())
