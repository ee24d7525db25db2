"""What the farm calls: listeners, callbacks of futures, fallbacks. They may raise, block for long, and call it back."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import troubles

import farm
from farm import CompileState
from farm.observe import events
from farm.port.locks import compiler_lock
from farm.reasons import DegradedReason

OVERFLOW = 10**9
"""Its fifth power differs between Python and machine arithmetic, so a result tells who computed it."""


@pytest.fixture
def barn(tmp_path: Path) -> Iterator[farm.Farm]:
    with farm.Farm(cache_dir=tmp_path / "cache", workers=2, nice=0, exit_grace_s=0) as one:
        yield one


def power(number: int) -> Callable[[int], int]:
    def fifth(a):
        return a * a * a * a * a + number

    return fifth


def is_machine_code(function: Callable[[int], int]) -> bool:
    return function(OVERFLOW) < OVERFLOW**3


class Listens:
    """Does something with each event of a kind; remembers whether it is done."""

    def __init__(self, kind: type, then: Callable[[events.Event], object]) -> None:
        self._kind, self._then = kind, then
        self.done = threading.Event()

    def on_event(self, event: events.Event) -> None:
        if isinstance(event, self._kind):
            self._then(event)
            self.done.set()


@pytest.mark.concurrency
def test_a_listener_that_blocks_stops_only_the_thread_that_it_is_called_in(barn: farm.Farm) -> None:
    """If that is the installer, what nobody waits for is not installed until the listener returns; calls go on."""
    blocks, go_on = threading.Event(), threading.Event()

    def block(event: events.Event) -> None:
        if threading.current_thread().name == "farm-installer":
            blocks.set()
            assert go_on.wait(60)

    listener = Listens(events.CompileFinished, block)
    barn.add_listener(listener)
    first, strict, waited, unwaited = (
        farm.njit(power(n), farm=barn, mode=mode) for n, mode in enumerate(["async", "strict", "async", "async"])
    )
    first(1)
    assert blocks.wait(60)
    assert is_machine_code(first)  # it was installed before it was told
    assert is_machine_code(strict)
    assert waited(2) == 34 and waited.wait(60) and is_machine_code(waited)
    assert unwaited(2) == 35
    (pending,) = [one for one in barn.requests.all() if one.dispatcher is unwaited]
    assert pending.wait(60) and not pending.settled
    assert not is_machine_code(unwaited)
    assert compiler_lock.acquire(timeout=60)
    compiler_lock.release()
    assert barn.stats().compiled == 3
    go_on.set()
    assert unwaited.submit("(int64,)").result(60).state is CompileState.COMPILED


@pytest.mark.concurrency
@pytest.mark.parametrize("kind", [events.CompileStarted, events.CompileFinished])
@pytest.mark.parametrize("mode", ["async", "strict"])
def test_a_listener_may_call_the_farm(barn: farm.Farm, kind: type, mode: str) -> None:
    function, other = farm.njit(power(0), farm=barn, mode=mode), farm.njit(power(1), farm=barn)
    strict, more = farm.njit(power(2), farm=barn, mode="strict"), Listens(events.CompileFinished, lambda event: None)
    found: list[object] = []

    def call_back(event: events.Event) -> None:
        barn.remove_listener(listener)
        barn.add_listener(more)
        other(1)
        found.extend([is_machine_code(strict), other.wait(60), function.wait(60), barn.stats().pending])
        found.append("machine code" in farm.explain(function, OVERFLOW))
        barn.configure(lazy_threshold=3)
        function.recompile()
        found.append(farm.compile_all([(other, "(float64,)")]).failed)
        barn.start()

    listener = Listens(kind, call_back)
    barn.add_listener(listener)
    function(OVERFLOW)
    assert listener.done.wait(60)
    assert found == [True, True, True, 0, True, ()]
    assert is_machine_code(function) and is_machine_code(other)
    assert more.done.wait(60)
    assert barn.stats().degraded == {} and barn.stats().pending == 0


@pytest.mark.concurrency
def test_a_listener_that_hears_of_a_lost_foreman_may_wait_for_its_jobs(barn: farm.Farm) -> None:
    """It is the pool's thread that notices, and the same thread that brings the answers."""
    function = farm.njit(power(0), farm=barn)
    assert farm.njit(power(1), farm=barn).submit("(int64,)").result(60)
    found: list[bool] = []
    listener = Listens(events.Degraded, lambda event: found.append(function.wait(30)))
    barn.add_listener(listener)
    (foreman,) = troubles.children()
    foreman.suspend()  # so that it cannot be done before it is lost
    function(OVERFLOW)
    foreman.kill()
    assert listener.done.wait(60)
    assert found == [True] and is_machine_code(function)
    assert barn.stats().degraded == {DegradedReason.FOREMAN_LOST: 1}


@pytest.mark.concurrency
@pytest.mark.parametrize("error", [ValueError("mine"), SystemExit(3)])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_callback_of_a_future_that_raises_costs_nobody_anything(barn: farm.Farm, error: BaseException) -> None:
    def raises(_: object) -> None:
        raise error

    function, other = farm.njit(power(0), farm=barn), farm.njit(power(1), farm=barn)
    futures = [function.submit("(int64,)") for _ in range(3)]
    for future in futures:
        future.add_done_callback(raises)
    assert all(future.result(60).state is CompileState.COMPILED for future in futures)
    assert other.submit("(int64,)").result(60).state is CompileState.COMPILED
    assert is_machine_code(function) and barn.stats().pending == 0


@pytest.mark.concurrency
def test_a_callback_of_a_future_may_block_and_call_the_farm(barn: farm.Farm) -> None:
    function, strict = farm.njit(power(0), farm=barn), farm.njit(power(1), farm=barn, mode="strict")
    go_on, done = threading.Event(), threading.Event()
    found: list[object] = []

    def call_back(future: object) -> None:
        assert go_on.wait(60)
        function.recompile()
        found.extend([is_machine_code(function), is_machine_code(strict), barn.wait(60)])
        done.set()

    function.submit("(int64,)").add_done_callback(call_back)
    assert is_machine_code(strict)  # while it blocks
    go_on.set()
    assert done.wait(60)
    assert found == [True, True, True]


def test_a_fallback_that_raises_is_the_callers_and_the_compile_goes_on(barn: farm.Farm) -> None:
    def raises(a: int) -> int:
        raise LookupError("mine")

    function = farm.njit(power(0), farm=barn, fallback=raises)
    for _ in range(3):
        with pytest.raises(LookupError, match="mine"):
            function(1.5)
            assert False, "it was compiled too soon for this test"  # noqa: B011
    assert function.wait(60)
    assert function(2.0) == 32.0


@pytest.mark.concurrency
def test_a_fallback_may_call_the_farm_and_itself(barn: farm.Farm) -> None:
    depths: list[int] = []

    def calls_back(a: int) -> int:
        depths.append(a)
        if len(depths) < 3:
            return function(a)
        assert function.wait(60)
        return function(a)

    function = farm.njit(power(0), farm=barn, fallback=calls_back)
    assert function(OVERFLOW) < OVERFLOW**3
    assert depths == [OVERFLOW] * 3


# -- what recompile() and two threads could lose -----------------------------------------------------------


@pytest.mark.concurrency
@pytest.mark.parametrize("by", ["recompile", "an interrupt"])
def test_a_future_whose_compile_is_overtaken_hears_of_the_next(
    barn: farm.Farm, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    settler, installs, go_on = barn.settler(), threading.Event(), threading.Event()
    obtain = settler._obtain

    def held(*arguments: object) -> object:
        monkeypatch.setattr(settler, "_obtain", obtain)
        installs.set()
        assert go_on.wait(60)
        if by == "an interrupt":
            raise KeyboardInterrupt
        return obtain(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(settler, "_obtain", held)
    function = farm.njit(power(0), farm=barn)
    futures = [function.submit("(int64,)") for _ in range(2)]
    assert installs.wait(60)
    if by == "recompile":
        for entry in function.table.entries():
            entry.recompile()
    go_on.set()
    assert [future.result(60).state for future in futures] == [CompileState.COMPILED] * 2
    assert is_machine_code(function) and barn.stats().pending == 0


@pytest.mark.concurrency
def test_settings_changed_by_two_threads_at_once_are_all_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first has read the settings and not put them back when the second comes."""
    with farm.Farm(cache_dir=tmp_path / "cache") as barn:
        with_changes, reads, go_on = type(barn.config).with_changes, threading.Event(), threading.Event()

        def held(config, **changes):
            changed = with_changes(config, **changes)
            if "max_ongoing" in changes:
                reads.set()
                assert go_on.wait(60)
            return changed

        monkeypatch.setattr(type(barn.config), "with_changes", held)
        first = threading.Thread(target=lambda: barn.configure(max_ongoing=3))
        second = threading.Thread(target=lambda: barn.configure(lazy_threshold=7))
        first.start()
        assert reads.wait(60)
        second.start()
        second.join(0.2)  # it has to wait for the first
        go_on.set()
        first.join(60)
        second.join(60)
        assert (barn.config.max_ongoing, barn.config.lazy_threshold) == (3, 7)
