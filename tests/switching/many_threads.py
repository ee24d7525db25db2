"""Threads that call restartable functions while their compiles arrive, with a real pool: every value is looked at."""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

import farm
from farm.front.switch import runs_here

BOUND_S = 120.0

FILLS = """
def fills(a, n):
    for k in range(n):
        for i in range(a.size):
            a[i] = a[i] * 0.5 + (i + {constant}) % 7 + k % 3
    return a
"""
SUMS = """
def sums(a, n):
    total = {constant}
    for k in range(n):
        for value in a:
            total = (total * 31 + int(value) + k) % 1000003
    return total
"""
BOTH = """
def inner(b, n):
    for i in range(b.size - 1):
        b[i + 1] = b[i] * 0.25 + n % 5
    return b[1:]

def both(a, n):
    rest = a
    for k in range(n):
        rest = inner(a[k % 3 :], k + {constant})
    return rest
"""
RAISES = """
def raises(a, n):
    for k in range(n):
        for i in range(a.size):
            a[i] += 1.0
            if a[i] > {constant} % 97 + 2 * n:
                raise ValueError("too large")
    a[0] = -1.0
    return k
"""
KINDS = (("fills", FILLS), ("sums", SUMS), ("both", BOTH), ("raises", RAISES))


@dataclass
class Played:
    """What came of it."""

    calls: int = 0
    switched: int = 0
    waited: int = 0
    rounds: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.calls} calls in {self.rounds} rounds: {self.switched} switched, {self.waited} waited, all right"


def make(kind: str, text: str, constant: int, barn: farm.Farm) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The function under the farm and the same as plain Python; nobody has compiled it before."""
    code = compile(text.format(constant=constant), f"<{kind} {constant}>", "exec")
    farmed: dict[str, Any] = {"__name__": "many_threads"}
    plain: dict[str, Any] = {"__name__": "many_threads"}
    exec(code, farmed)
    exec(code, plain)
    for name, value in list(farmed.items()):
        if callable(value):
            farmed[name] = farm.njit(value, farm=barn)
    return farmed[kind], plain[kind]


def called(function: Callable[..., Any], array: Any, number: int) -> Any:
    """What it returns, views by their place in the array, or raises."""
    try:
        result = function(array, number)
    except ValueError as error:
        return ("raised", str(error))
    if isinstance(result, np.ndarray):
        offset = result.__array_interface__["data"][0] - array.__array_interface__["data"][0]
        return ("view", offset, result.shape, np.shares_memory(result, array))
    return ("value", result)


def play(seconds: float, *, threads: int, functions: int) -> Played:
    """Rounds of new functions, each called by all threads in an order of their own, until the time is over.

    Raises AssertionError if a value was wrong, an exception strayed, or one was pending after a call.
    """
    played, lock, constants = Played(), threading.Lock(), count(1)
    end = time.monotonic() + seconds
    with farm.Farm(max_ongoing=1000) as barn:
        while not played.rounds or (time.monotonic() < end and not played.wrong):
            made = [make(*KINDS[i % len(KINDS)], next(constants), barn) for i in range(functions)]
            running = [threading.Thread(target=_call_all, args=(made, s, played, lock)) for s in range(threads)]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join(BOUND_S)
                assert not thread.is_alive(), "a thread does not end"
            played.rounds += 1
            assert barn.wait(BOUND_S), "not all is compiled"
        counted = barn.stats()
    played.switched, played.waited = counted.switched, counted.waited
    assert not played.wrong, "\n".join(played.wrong[:5])
    return played


def _call_all(made: list[Any], seed: int, played: Played, lock: threading.Lock) -> None:
    chance = random.Random(seed)
    calls = 0
    try:
        for farmed, plain in chance.sample(made, len(made)):
            number = chance.choice([3, 300, 3000])
            array = np.arange(chance.randint(8, 40), dtype=np.float64)
            expected_in = array.copy()
            expected = called(plain, expected_in, number)
            for _ in range(2):
                given = array.copy()
                found = called(farmed, given, number)
                calls += 1
                if found != expected or given.tobytes() != expected_in.tobytes():
                    raise AssertionError(f"{farmed} gave {found}, not {expected}, for {number} and {array}")
                if sum(abs(one) for one in range(1000)) != 499500 or [one for one in runs_here() if one.open]:
                    raise AssertionError("something is left of the call")
    except BaseException as error:  # a stray switch is a BaseException
        with lock:
            played.wrong.append(f"thread {seed}: {type(error).__name__}: {error}")
    with lock:
        played.calls += calls
