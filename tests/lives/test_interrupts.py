"""Ctrl-C in the middle of a call, a wait, a compile, an installation: at every place there is, and by real signals."""

import itertools
import threading
from collections.abc import Callable, Iterator

import numba
import numpy as np
import pytest
from interrupted import Place, interrupted, places

import farm
from farm import CompileState
from farm.front.pending import Source
from farm.port.locks import LOCKS

OVERFLOW = 10**9
"""Its fifth power differs between Python and machine arithmetic, so a result tells who computed it."""
BOUND_S = 60.0
LARGE = np.arange(10.0**6)
"""Too large to be sent: what reads it is compiled in this process."""
_numbers = itertools.count(1)
_tried: set[Place] = set()


@pytest.fixture(scope="module")
def barn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[farm.Farm]:
    with farm.Farm(cache_dir=tmp_path_factory.mktemp("cache"), workers=1, nice=0) as one:
        yield one


def power(number: int) -> Callable[[int], int]:
    def fifth(a):
        return a * a * a * a * a + number

    return fifth


def is_compiled(function: Callable[[int], int]) -> bool:
    """It is, and the table says so."""
    return is_machine_code(function) and function.status("(int64,)").state is CompileState.COMPILED


def is_machine_code(function: Callable[[int], int]) -> bool:
    return function(OVERFLOW) < OVERFLOW**3


Case = tuple[Callable[[], object], Callable[[], bool]]
"""What is interrupted, and what must work afterwards."""


def stored(barn: farm.Farm) -> Case:
    function = farm.njit(power(0), farm=barn, mode="strict")
    return lambda: function(OVERFLOW), lambda: is_compiled(function)


def compiled_by_a_worker(barn: farm.Farm) -> Case:
    function = farm.njit(power(next(_numbers)), farm=barn, mode="strict")
    return lambda: function(OVERFLOW), lambda: is_compiled(function)


def compiled_here(barn: farm.Farm) -> Case:
    number = next(_numbers)
    function = farm.njit(lambda i: LARGE[i] + number, farm=barn, mode="strict")
    return lambda: function(1), lambda: function(2) == 2.0 + number and bool(function.overloads)


def called_and_waited_for(barn: farm.Farm) -> Case:
    function, settler = farm.njit(power(next(_numbers)), farm=barn), barn.settler()

    def call() -> None:
        settler.installer.arrive = lambda pending: (
            None
        )  # so that it is who waits that settles it, and never the installer
        try:
            function(OVERFLOW)
            function(OVERFLOW)
            assert function.wait(BOUND_S)
        finally:
            del settler.installer.arrive

    def works() -> bool:
        call()
        return is_compiled(function)

    return call, works


def called_by_jitted_code(barn: farm.Farm) -> Case:
    function = farm.njit(power(0), farm=barn)
    caller = numba.njit(lambda a: function(a))
    return lambda: caller(OVERFLOW), lambda: is_machine_code(caller)


def compiled_again(barn: farm.Farm) -> Case:
    function = farm.njit(power(0), farm=barn, mode="strict")
    function(OVERFLOW)

    def works() -> bool:
        function.recompile()
        return is_machine_code(function)

    return function.recompile, works


def asked_for_by_name(barn: farm.Farm) -> Case:
    function = farm.njit(power(0), farm=barn)

    def call() -> CompileState:
        farm.compile_all([(function, "(float64,)")])
        return function.submit("(int64,)").result(BOUND_S).state

    return call, lambda: call() is CompileState.COMPILED and is_machine_code(function)


def explicit(barn: farm.Farm) -> Case:
    body, made = power(0), []

    def call() -> None:
        made[:] = [farm.njit(["int64(int64)", "float64(float64)"], farm=barn)(body)]
        assert made[0](2) == 32
        assert made[0].wait(BOUND_S)

    def works() -> bool:
        if not made:  # interrupted before it was there
            call()
        assert made[0](2) == made[0](2.0) == 32 and made[0].wait(BOUND_S)
        return is_machine_code(made[0]) and not made[0]._can_compile

    return call, works


def by_a_new_farm(barn: farm.Farm) -> Case:
    new = farm.Farm(cache_dir=barn.config.cache_dir, workers=1, nice=0, exit_grace_s=0)
    function = farm.njit(power(0), farm=new, mode="strict")

    def works() -> bool:
        try:
            if not is_compiled(function) or new.stats().pending:
                return False
            return function.status("(int64,)").origin.source is Source.STORE
        finally:
            new.close()

    return lambda: function(OVERFLOW), works


CASES = {
    stored: 400,
    compiled_by_a_worker: 20,
    compiled_here: 5,
    called_and_waited_for: 30,
    called_by_jitted_code: 10,
    compiled_again: 10,
    asked_for_by_name: 15,
    explicit: 15,
    by_a_new_farm: 15,
}
"""How many places there are at least that the cases before have not tried."""


AGAIN = ("drop_shortcuts",)
"""What does something else where there are shortcuts."""


def in_another_thread(work: Callable[[], bool]) -> object:
    """What it gives or raises, or None if it is not done in time: the thread that was interrupted owns its locks."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(BOUND_S)
    return found[0] if found else None


def check(barn: farm.Farm, works: Callable[[], bool], where: object) -> None:
    """No lock is held, the call works, and nothing is left."""

    def free() -> bool:
        for lock in LOCKS:
            if not lock.acquire(timeout=BOUND_S):
                return False
            lock.release()
        return works() and barn.wait(BOUND_S)

    assert in_another_thread(free) is True, where
    assert (barn.stats().pending, barn.record.profiler.ongoing, len(barn.requests)) == (0, 0, 0), where


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_ctrl_c_anywhere_reaches_the_caller_and_the_next_call_works(barn: farm.Farm, case) -> None:
    assert stored(barn)[1]()  # what the store has to have
    for _ in range(2):  # what is imported, and made on first use
        call, works = case(barn)
        call()
        check(barn, works, "without an interrupt")
    call, works = case(barn)
    found = [place for place in places(call) if place not in _tried or place.code.co_name in AGAIN]
    check(barn, works, "while looking for places")
    met = 0
    for place in found:
        call, works = case(barn)
        if interrupted(call, place):
            met += 1
            _tried.add(place)
        check(barn, works, place)
    assert met >= CASES[case], f"{met} of {len(found)} places"
