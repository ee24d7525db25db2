"""The in-memory cache: requests, transitions, single flight, the end."""

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError

import pytest

from farm.config import CompileMode, Config
from farm.errors import FarmClosed
from farm.front.policy import Limits, Profiler
from farm.front.table import TRANSITIONS, Action, CompileState, Entry, Flight, IllegalTransition, Table, next_state

ROUNDS = 300


@pytest.fixture
def table() -> Table[str, int]:
    return Table()


def reserved(entry: Entry[str, int]) -> Flight[int]:
    flight = entry.reserve()
    assert flight is not None
    return flight


def together(*calls: Callable[[], None]) -> None:
    """Run the calls in threads that a barrier starts at once."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], None]) -> None:
        barrier.wait(10)
        call()

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_lookup_missing(table: Table[str, int]) -> None:
    assert table.lookup("a") is None
    assert len(table) == 0


def test_lookup_or_create(table: Table[str, int]) -> None:
    entry = table.lookup_or_create("a")
    assert entry.snapshot().request_count == 1
    assert entry.snapshot().state is CompileState.UNCOMPILED
    assert table.lookup("a") is entry


def test_requests_count_on_lookup(table: Table[str, int]) -> None:
    for count in (1, 2, 3):
        assert table.lookup_or_create("a").snapshot().request_count == count


def test_store_does_not_count(table: Table[str, int]) -> None:
    entry = table.get_or_create("a")
    assert entry.publish(reserved(entry), 7)
    assert entry.snapshot().request_count == 0
    assert table.get_or_create("a").snapshot().value == 7


def test_store_fields_independent(table: Table[str, int]) -> None:
    entry = table.lookup_or_create("a")
    entry.note_origin("somewhere")
    assert entry.snapshot().origin == "somewhere"
    assert entry.publish(reserved(entry), 7)
    seen = entry.snapshot()
    assert (seen.state, seen.request_count, seen.value, seen.error) == (CompileState.COMPILED, 1, 7, None)
    assert seen.origin == "somewhere"


def test_cache_hit_returns_the_same_entry(table: Table[str, int]) -> None:
    entry = table.lookup_or_create("a")
    entry.publish(reserved(entry), 7)
    assert table.lookup("a") is entry is table.lookup_or_create("a")
    assert entry.reserve() is None


def test_keys_compare_in_full() -> None:
    table: Table[tuple[str, ...], int] = Table()
    assert table.lookup_or_create(("constant", "parameter")) is not table.lookup_or_create(("parameter", "constant"))


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize("state", CompileState)
def test_a_transition_is_in_the_table_or_raises(state: CompileState, action: Action) -> None:
    if (state, action) in TRANSITIONS:
        assert isinstance(next_state(state, action), CompileState)
    else:
        with pytest.raises(IllegalTransition, match=f"{state.value} does not allow '{action.value}'"):
            next_state(state, action)


def test_only_recompile_and_giving_up_lead_back() -> None:
    back = {action for (_, action), after in TRANSITIONS.items() if after is CompileState.UNCOMPILED}
    assert back == {Action.RECOMPILE, Action.GIVE_UP}
    assert len(TRANSITIONS) == 8


def test_settling_twice_raises_and_changes_nothing(table: Table[str, int]) -> None:
    entry = table.get_or_create("a")
    flight = reserved(entry)
    entry.publish(flight, 7)
    before = entry.snapshot()
    with pytest.raises(IllegalTransition):
        entry.publish(flight, 8)
    with pytest.raises(IllegalTransition):
        entry.fail(flight, ValueError())
    assert entry.snapshot() == before
    assert flight.done.result(0) == 7


def test_a_foreign_flight_raises_and_changes_nothing(table: Table[str, int]) -> None:
    entry = table.get_or_create("a")
    flight, before = reserved(entry), entry.snapshot()
    with pytest.raises(IllegalTransition):
        entry.publish(Flight(), 8)
    assert entry.snapshot() == before
    assert before.flight is flight


def test_failed_holds_the_error_and_never_looks_in_progress(table: Table[str, int]) -> None:
    entry, error = table.get_or_create("a"), ValueError("no")
    flight = reserved(entry)
    entry.fail(flight, error)
    seen = entry.snapshot()
    assert (seen.state, seen.error, seen.flight) == (CompileState.FAILED, error, None)
    assert flight.done.exception(0) is error
    assert entry.reserve() is None


def test_error_is_reported_once(table: Table[str, int]) -> None:
    entry, error = table.get_or_create("a"), ValueError("no")
    entry.fail(reserved(entry), error)
    assert [entry.take_unreported_error() for _ in range(3)] == [error, None, None]


def test_a_refused_signature_stays_uncompiled_and_asks_again(table: Table[str, int]) -> None:
    entry, asked = table.lookup_or_create("a"), []

    def refuse(count: int) -> bool:
        asked.append(count)
        return False

    assert entry.reserve(refuse) is None
    table.lookup("a")
    assert entry.reserve(refuse) is None
    assert asked == [1, 2]
    assert entry.snapshot().state is CompileState.UNCOMPILED


def test_a_decision_that_raises_leaves_the_entry_as_it_was(table: Table[str, int]) -> None:
    entry = table.get_or_create("a")
    with pytest.raises(ZeroDivisionError):
        entry.reserve(lambda count: 1 // count > 0)
    assert entry.reserve() is not None


def test_recompile_resets_and_drops_the_overtaken_result(table: Table[str, int]) -> None:
    entry = table.lookup_or_create("a")
    old = reserved(entry)
    entry.recompile()
    assert entry.snapshot().state is CompileState.UNCOMPILED
    with pytest.raises(CancelledError):
        old.done.result(0)
    new = reserved(entry)
    assert entry.publish(old, 1) is False
    assert entry.fail(old, ValueError()) is False
    assert entry.publish(new, 2) is True
    entry.recompile()
    seen = entry.snapshot()
    assert (seen.state, seen.value, seen.request_count) == (CompileState.UNCOMPILED, None, 1)


def test_a_waiter_that_cancels_does_not_undo_the_compile(table: Table[str, int]) -> None:
    entry = table.get_or_create("a")
    flight = reserved(entry)
    flight.done.cancel()
    assert entry.publish(flight, 7)
    assert entry.snapshot().value == 7


@pytest.mark.concurrency
def test_a_waiter_hears_of_every_end_of_a_flight(table: Table[str, int]) -> None:
    ends: list[Callable[[Entry[str, int], Flight[int]], object]] = [
        lambda entry, flight: entry.publish(flight, 7),
        lambda entry, flight: entry.fail(flight, ValueError()),
        lambda entry, flight: entry.recompile(),
        lambda entry, flight: entry.seal(),
        lambda entry, flight: flight.done.cancel(),
    ]
    for number, end in enumerate(ends):
        entry, heard = table.get_or_create(str(number)), []
        flight = reserved(entry)
        assert flight.wait(0) is False
        waiter = threading.Thread(target=lambda flight=flight, heard=heard: heard.append(flight.wait(60)))
        waiter.start()
        end(entry, flight)
        waiter.join(60)
        assert heard == [flight.wait(0)] == [True]


@pytest.mark.concurrency
def test_waiters_are_called_outside_the_lock(table: Table[str, int]) -> None:
    entry, seen = table.get_or_create("a"), []
    flight = reserved(entry)
    flight.done.add_done_callback(lambda _: seen.append(entry.snapshot().value))
    entry.publish(flight, 7)
    assert seen == [7]


def test_finalize_keeps_compiled(table: Table[str, int]) -> None:
    compiled, running, idle = (table.get_or_create(k) for k in "abc")
    compiled.publish(reserved(compiled), 7)
    flight = reserved(running)
    table.finalize()
    table.finalize()
    assert (compiled.snapshot().state, compiled.snapshot().value) == (CompileState.COMPILED, 7)
    assert isinstance(running.snapshot().error, FarmClosed)
    assert isinstance(flight.done.exception(0), FarmClosed)
    assert idle.reserve() is None
    assert table.lookup_or_create("d").reserve() is None


def test_result_after_close_is_dropped(table: Table[str, int]) -> None:
    entry = table.get_or_create("a")
    flight = reserved(entry)
    table.finalize()
    assert entry.publish(flight, 7) is False
    assert entry.snapshot().value is None


@pytest.mark.concurrency
def test_racing_callers_make_one_job() -> None:
    for _ in range(ROUNDS):
        table: Table[str, int] = Table()
        profiler = Profiler(Limits.from_config(Config(), workers=1))
        jobs: list[Flight[int]] = []

        def call(table: Table[str, int] = table, profiler: Profiler = profiler, jobs: list[Flight[int]] = jobs) -> None:
            entry = table.lookup_or_create("a")
            flight = entry.reserve(lambda n: profiler.should_compile("f", CompileMode.ASYNC, n, object()).compiles)
            if flight is not None:
                jobs.append(flight)

        together(call, call)
        entry = table.get_or_create("a")
        assert len(jobs) == 1
        assert (entry.snapshot().flight, entry.snapshot().request_count) == (jobs[0], 2)
        assert profiler.ongoing == 1
        assert profiler.profile("f").execution_count == 1


@pytest.mark.concurrency
def test_publish_racing_finalize_either_counts_or_is_dropped() -> None:
    for _ in range(ROUNDS):
        table: Table[str, int] = Table()
        entry = table.get_or_create("a")
        flight, kept = reserved(entry), []

        def publish(entry: Entry[str, int] = entry, flight: Flight[int] = flight, kept: list[bool] = kept) -> None:
            kept.append(entry.publish(flight, 7))

        together(publish, table.finalize)
        assert (entry.snapshot().state is CompileState.COMPILED) is kept[0]
        assert flight.done.done()
