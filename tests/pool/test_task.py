"""What a worker does with its jobs: callees from the library, locks, and a store that does not do as it should.

The workers and the fresh fronts are processes of their own, as `task_worker` and `task_front` describe.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numba
import pytest
import task_subjects as subjects
from numba import float64, int64

from farm.job.functor import CompileFunctor, make_functor
from farm.job.key import CompileKey
from farm.job.messages import Built, Busy, Differs, Failed, Nested, Origin, Rejected, StoreTrimmed, WorkerAnswer
from farm.pool.task import Order, TrimOrder
from farm.reasons import DegradedReason, MissReason, RefusalReason
from farm.store.artifact import Artifact, Stored, encode
from farm.store.disk import DiskStore, StoreSettings
from farm.store.lock import LockOutcome

HERE = Path(__file__).parent
TWO_FLOATS = (float64, float64)


class Workers:
    """Starts worker processes and fronts over one cache directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self.functors: dict[str, CompileFunctor] = {}

    def functor(self, name: str, arguments: tuple[object, ...] = TWO_FLOATS) -> CompileFunctor:
        self.functors[name] = make_functor(getattr(subjects, name), arguments, None)
        return self.functors[name]

    def perform(self, *jobs: object, patience_s: float | None = None) -> list[WorkerAnswer]:
        """One fresh worker does the jobs: names (of functions of two floats), functors, or orders."""
        path, answers = self.folder / "jobs", self.folder / "answers"
        path.write_bytes(pickle.dumps([pickle.dumps(self.order(job)) for job in jobs]))
        patience = [] if patience_s is None else [str(patience_s)]
        self.run("task_worker.py", str(path), str(answers), *patience)
        found: list[WorkerAnswer] = pickle.loads(answers.read_bytes())
        return found

    def order(self, job: object, **changes: object) -> object:
        if isinstance(job, str):
            job = self.functor(job)
        if not isinstance(job, CompileFunctor):
            return job
        verify = bool(changes.pop("verify", False))
        return Order(job, StoreSettings(self.cache, **changes), verify=verify)  # type: ignore[arg-type]

    def call(self, *calls: tuple[str, tuple[object, ...]]) -> list[str]:
        """What calls in a fresh front give, all artifacts loaded before the first call."""
        words = [w for name, arguments in calls for w in (self.functors[name].key.hex, name, repr(arguments))]
        return self.run("task_front.py", str(self.cache), *words).splitlines()

    def run(self, script: str, *words: str) -> str:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(
            [sys.executable, str(HERE / script), *words], capture_output=True, text=True, timeout=100, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def stored(self) -> set[str]:
        return {path.stem for path in self.cache.rglob("v1/??/*.farm")}


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    yield Workers(tmp_path)


def built(answer: WorkerAnswer) -> Built:
    assert isinstance(answer, Built), answer
    return answer


def origins(answer: WorkerAnswer) -> dict[str, Origin]:
    return {one.function.rpartition(".")[2]: one.origin for one in built(answer).nested}


def test_a_callee_is_compiled_once_for_two_callers_and_for_itself(workers: Workers) -> None:
    one, two = workers.perform("divide_plus_one", "divide_plus_two")
    (other,) = workers.perform(workers.functor("divide_plus_two", (float64, int64)))
    (itself,) = workers.perform("divide")
    assert origins(one) == {"divide": Origin.COMPILED}
    assert built(one).misses == ((MissReason.ABSENT, 1),)
    assert origins(two) == {"divide": Origin.STORE}
    assert built(two).misses == ()
    assert origins(other) == {"divide": Origin.COMPILED}, "other types are another callee"
    assert built(itself).origin is Origin.STORE


def test_what_is_told_of_a_callee(workers: Workers) -> None:
    (answer,) = workers.perform("divide_plus_one")
    (nested,) = built(answer).nested
    assert nested.artifact_bytes > 1000
    expected = Nested("task_subjects.divide", "(float64, float64)", Origin.COMPILED, None, nested.artifact_bytes)
    assert nested == expected


def test_another_worker_loads_the_callee_and_its_caller_is_whole(workers: Workers) -> None:
    """The front that calls it has never loaded the callee."""
    workers.perform("divide_plus_one")
    (answer,) = workers.perform("divide_plus_two")
    assert origins(answer) == {"divide": Origin.STORE}
    assert workers.call(("divide_plus_two", (1.0, 2.0))) == ["2.5"]


@pytest.mark.parametrize("order", [1, -1])
def test_callers_and_callee_live_together_in_one_front(workers: Workers, order: int) -> None:
    workers.perform("divide_plus_one", "divide_plus_two", "divide")
    calls = [("divide_plus_one", (1.0, 2.0)), ("divide_plus_two", (1.0, 2.0)), ("divide", (1.0, 2.0))]
    expected = ["1.5", "2.5", "0.5"]
    assert workers.call(*calls[::order]) == expected[::order]


def test_a_callee_has_its_callers_flags_and_serves_no_other_caller(workers: Workers) -> None:
    careless, fast, careful, itself = workers.perform("careless", "fast", "careful", "divide")
    assert [origins(one) for one in (careless, fast, careful)] == [{"divide": Origin.COMPILED}] * 3
    assert built(itself).origin is Origin.STORE, "the careful caller's flags are those of a call from Python"
    zero = (1.0, 0.0)
    assert workers.call(("careless", zero), ("careful", zero), ("divide", zero)) == [
        "inf",
        "ZeroDivisionError('division by zero')",
        "ZeroDivisionError('division by zero')",
    ]


def test_a_callee_of_two_callers_in_one_job_is_compiled_for_each_of_them(workers: Workers) -> None:
    """numba has one overload, made for whoever came first: the careful caller would be published with it."""
    (answer,) = workers.perform("careless_then_careful")
    names = [one.function.rpartition(".")[2] for one in built(answer).nested]
    assert names == ["divide", "careless", "divide", "careful"]
    (careful,) = workers.perform("careful")
    assert built(careful).origin is Origin.STORE
    zero = (1.0, 0.0)
    expected = "ZeroDivisionError('division by zero')"
    assert workers.call(("careful", zero), ("careless_then_careful", zero)) == [expected, expected]


def library_origins(answer: WorkerAnswer) -> list[Origin]:
    """Where numba's own functions came from."""
    return [one.origin for one in built(answer).nested if one.function.startswith("numba.")]


def test_numbas_own_functions_are_compiled_once_for_all_workers(workers: Workers) -> None:
    array = (float64[::1],)
    (first,) = workers.perform(workers.functor("first_difference", array))
    assert Origin.COMPILED in library_origins(first)
    (last,) = workers.perform(workers.functor("last_difference", array))
    assert set(library_origins(last)) == {Origin.STORE}
    assert workers.call(("last_difference", ([1.0, 3.0, 4.0],))) == ["1.0"]


def test_what_goes_through_dictionaries_and_lists_is_loaded_by_the_next_worker(workers: Workers) -> None:
    """Their types hold themselves: until they were pickled in a way of our own, nothing that names them could be."""
    (first,) = workers.perform(workers.functor("sum_of_parts", (int64,)))
    assert Origin.COMPILED in library_origins(first)
    (last,) = workers.perform(workers.functor("sum_of_parts_again", (int64,)))
    shipped = {one.origin for one in built(last).nested if one.withheld is None}
    assert shipped == {Origin.STORE} and set(dict(built(last).misses)) <= {MissReason.ABSENT}
    assert workers.call(("sum_of_parts_again", (2,))) == ["26"]


def test_numbas_own_functions_are_asked_for_again_when_the_settings_change(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = (float64[::1],)
    before, same = workers.functor("first_difference", array), workers.functor("last_difference", array)
    monkeypatch.setattr(numba.config, "LOOP_VECTORIZE", 0)
    changed = workers.functor("last_difference", array)
    answers = workers.perform(before, same, changed)
    assert library_origins(answers[1]) == [], "they are in memory"
    assert Origin.COMPILED in library_origins(answers[2])
    assert Origin.STORE not in library_origins(answers[2])


def test_closures_of_one_factory_keep_their_constants(workers: Workers) -> None:
    workers.perform(workers.functor("both_adders", (int64,)))
    assert len(workers.stored()) == 3
    for _ in range(2):
        again = workers.functor("both_adders", (int64,))
        assert workers.call(("both_adders", (1,))) == ["(2, 101)"]
        (workers.cache / "v1" / again.key.hex[:2] / f"{again.key.hex}.farm").unlink()
        (answer,) = workers.perform(again)
        assert [one.origin for one in built(answer).nested] == [Origin.STORE, Origin.STORE]
    workers.functor("add_1", (int64,)), workers.functor("add_100", (int64,))
    assert workers.call(("add_1", (1,)), ("both_adders", (1,)), ("add_100", (1,))) == ["2", "(2, 101)", "101"]


def test_a_callee_that_calls_itself_is_published(workers: Workers) -> None:
    workers.perform(workers.functor("fact_plus_one", (int64,)))
    both, itself = workers.perform(workers.functor("fact_of_both", (int64,)), workers.functor("fact", (int64,)))
    assert [one.origin for one in built(both).nested][:1] == [Origin.STORE]
    assert built(itself).origin is Origin.STORE
    assert workers.call(("fact_of_both", (4,)), ("fact", (4,))) == ["48.0", "24"]


def test_mutual_recursion_is_published_by_nobody(workers: Workers) -> None:
    answers = workers.perform(workers.functor("calls_ping", (int64,)), workers.functor("pong", (int64,)))
    for answer in answers:
        assert isinstance(answer, Rejected)
        assert answer.reason is RefusalReason.UNRESOLVED_SYMBOLS
    assert not workers.stored()


def test_a_callee_that_does_not_compile_fails_its_caller_as_before(workers: Workers) -> None:
    failing, twice, alone = workers.perform(
        *[workers.functor("calls_attributeless", (float64,))] * 2, workers.functor("attributeless", (float64,))
    )
    for answer in (failing, twice, alone):  # alone is not Busy: the lock of the failed callee is free again
        assert isinstance(answer, Failed)
        assert answer.kind == "TypingError"
        assert "no_such_attribute" in answer.text
    assert workers.stored() == {make_functor(subjects.divide, TWO_FLOATS, None).key.hex}


@pytest.mark.parametrize(
    ("first", "second", "argument", "expected"),
    [
        ("sum_counted", "list_counted", 4, "[0, 1, 4, 9]"),
        ("more_small_numbers", "more_small_numbers", 2, "array([0, 1, 2], dtype=int32)"),
        ("calls_refuses", "calls_refuses", -1, "ValueError('negative', -1)"),
        ("calls_in_python", "calls_in_python_again", 1, "15"),
    ],
)
def test_kinds_of_callees_that_were_loaded(
    workers: Workers, first: str, second: str, argument: int, expected: str
) -> None:
    workers.perform(workers.functor(first, (int64,)))
    key = workers.functor(second, (int64,)).key.hex
    (workers.cache / "v1" / key[:2] / f"{key}.farm").unlink(missing_ok=True)
    (answer,) = workers.perform(workers.functors[second])
    assert [one.origin for one in built(answer).nested] == [Origin.STORE]
    assert workers.call((second, (argument,))) == [expected]


def test_a_callee_that_takes_a_function(workers: Workers) -> None:
    """The type that travelled holds a copy of the function; the caller's own type has to match."""
    workers.perform("apply_divide")
    (answer,) = workers.perform("apply_divide_again")
    assert origins(answer) == {"apply": Origin.STORE}
    assert workers.call(("apply_divide_again", (1.0, 2.0))) == ["1.0"]


def test_a_callee_that_makes_an_instance_is_compiled_by_every_worker(workers: Workers) -> None:
    """Its type would come back as a copy, which is another type; one that takes an instance is shared."""
    workers.perform(workers.functor("x_of_moved", (float64,)))
    (answer,) = workers.perform(workers.functor("x_of_moved_twice", (float64,)))
    found = {one.function.rpartition(".")[2]: one for one in built(answer).nested}
    assert found["make_point"].withheld is RefusalReason.NOT_SERIALISABLE
    assert found["x_of"].origin is Origin.STORE
    assert workers.call(("x_of_moved_twice", (1.0,))) == ["3.0"]


def test_a_taken_lock_of_a_callee_is_not_waited_for(workers: Workers) -> None:
    callee = workers.functor("divide").key
    with DiskStore(workers.cache).lock(callee, 0) as outcome:
        assert outcome is LockOutcome.ACQUIRED
        (answer,) = workers.perform("divide_plus_one", patience_s=1000)
    assert origins(answer) == {"divide": Origin.COMPILED}
    assert callee.hex in workers.stored()


def test_a_taken_lock_of_the_job_is_busy_and_after_the_bound_no_reason_to_wait(workers: Workers) -> None:
    functor = workers.functor("divide_plus_one")
    with DiskStore(workers.cache).lock(functor.key, 0):
        assert workers.perform(functor, functor, patience_s=1000) == [Busy(functor.key)] * 2
        (answer,) = workers.perform(functor, patience_s=0)
    assert built(answer).degraded == ((DegradedReason.LOCK_TIMED_OUT, functor.key.hex),)
    assert functor.key.hex in workers.stored()


def test_a_damaged_callee_is_compiled_again_and_counted(workers: Workers) -> None:
    workers.perform("divide")
    (path,) = workers.cache.rglob("v1/??/*.farm")
    path.write_bytes(path.read_bytes()[:-1])
    (answer,) = workers.perform("divide_plus_one")
    assert origins(answer) == {"divide": Origin.COMPILED}
    assert built(answer).misses == ((MissReason.TRUNCATED, 1),)
    assert isinstance(DiskStore(workers.cache).get(workers.functors["divide"].key), Stored)


def store_under_anothers_key(workers: Workers, wrong: CompileKey, key: CompileKey) -> None:
    store = DiskStore(workers.cache)
    stored = store.get(wrong)
    assert isinstance(stored, Stored)
    artifact = stored.artifact()
    assert isinstance(artifact, Artifact)
    store.put(replace(artifact, key=key))


def test_a_caller_that_fails_with_a_loaded_callee_is_tried_without_the_library(workers: Workers) -> None:
    """Whatever may be wrong with an artifact that loads: no function fails because of it."""
    wrong, callee = workers.functor("as_text"), workers.functor("divide")
    workers.perform(wrong)
    store_under_anothers_key(workers, wrong.key, callee.key)
    (answer,) = workers.perform("divide_plus_one")
    assert built(answer).inline is not None
    assert (MissReason.LOAD_FAILED, 1) in built(answer).misses
    assert origins(answer) == {"divide": Origin.COMPILED}


def test_a_callee_in_a_lower_store_is_found(workers: Workers, tmp_path: Path) -> None:
    workers.perform("divide")
    baked = workers.cache
    workers.cache = tmp_path / "upper"
    (answer,) = workers.perform(workers.order("divide_plus_one", lower=(baked,)))
    assert origins(answer) == {"divide": Origin.STORE}


def test_a_readonly_store_gives_callees_and_gets_nothing(workers: Workers) -> None:
    workers.perform("divide")
    before = workers.stored()
    answer, other = workers.perform(
        workers.order("divide_plus_one", readonly=True),
        workers.order("careless", readonly=True),
    )
    assert origins(answer) == {"divide": Origin.STORE}
    assert origins(other) == {"divide": Origin.COMPILED}
    assert built(answer).inline is not None
    assert workers.stored() == before


def test_a_store_that_is_open_to_others_is_refused_and_told(workers: Workers) -> None:
    workers.cache.mkdir(mode=0o755)
    workers.cache.chmod(0o755)
    (answer,) = workers.perform("divide_plus_one")
    reasons = [reason for reason, _ in built(answer).degraded]
    assert reasons == [DegradedReason.STORE_REFUSED, DegradedReason.DELIVERED_INLINE]
    assert built(answer).inline is not None
    assert origins(answer) == {"divide": Origin.COMPILED}


def test_a_store_that_cannot_be_written_delivers_the_caller_and_is_told(workers: Workers) -> None:
    (workers.cache / "v1").mkdir(mode=0o700, parents=True)
    workers.cache.chmod(0o700)
    (workers.cache / "v1" / "tmp").write_text("in the way")
    (answer,) = workers.perform("divide_plus_one")
    reasons = [reason for reason, _ in built(answer).degraded]
    of_callee, of_caller = [DegradedReason.STORE_UNWRITABLE], [DegradedReason.STORE_UNWRITABLE]
    assert reasons == [*of_callee, *of_caller, DegradedReason.DELIVERED_INLINE]
    assert built(answer).inline is not None
    (nested,) = built(answer).nested
    assert (nested.origin, nested.artifact_bytes) == (Origin.COMPILED, 0)


def test_a_store_whose_place_is_taken_delivers_the_caller_and_is_told(workers: Workers) -> None:
    workers.cache.write_text("in the way")
    (answer,) = workers.perform("divide_plus_one")
    reasons = [reason for reason, _ in built(answer).degraded]
    assert reasons[-1] is DegradedReason.DELIVERED_INLINE
    assert len(reasons) > 1
    assert built(answer).inline is not None


def test_a_worker_signs_what_it_publishes_its_callees_too(workers: Workers, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_bytes(b"k" * 16)
    key_file.chmod(0o600)
    workers.perform("divide")
    (answer,) = workers.perform(workers.order("divide_plus_one", signing_key_file=key_file))
    assert origins(answer) == {"divide": Origin.COMPILED}
    assert built(answer).misses == ((MissReason.UNSIGNED, 1),)
    store = DiskStore(workers.cache, signing_key_file=key_file)
    for name in ("divide", "divide_plus_one"):
        assert isinstance(store.get(workers.functors[name].key), Stored), name
    again, other = workers.perform(
        workers.order("divide_plus_one", signing_key_file=key_file),
        workers.order("divide_plus_two", signing_key_file=key_file),
    )
    assert built(again).origin is Origin.STORE and origins(other) == {"divide": Origin.STORE}


def test_a_worker_whose_key_file_is_refused_publishes_nothing_and_delivers(workers: Workers, tmp_path: Path) -> None:
    (answer,) = workers.perform(workers.order("divide_plus_one", signing_key_file=tmp_path / "missing"))
    reasons = [reason for reason, _ in built(answer).degraded]
    assert reasons == [DegradedReason.STORE_REFUSED, DegradedReason.DELIVERED_INLINE]
    assert built(answer).inline is not None
    assert not workers.stored()


# -- verifying --------------------------------------------------------------------------------------------


def test_to_verify_what_is_stored_is_compiled_again_and_comes_over_the_pipe(workers: Workers) -> None:
    workers.perform("divide_plus_one")
    before = {path: path.stat().st_mtime_ns for path in workers.cache.rglob("v1/??/*.farm")}
    (answer,) = workers.perform(workers.order("divide_plus_one", verify=True))
    assert built(answer).origin is Origin.STORE and built(answer).verified == 2
    assert origins(answer) == {"divide": Origin.STORE} and built(answer).degraded == ()
    store = DiskStore(workers.cache)
    found, sent = store.get(workers.functors["divide_plus_one"].key), built(answer).inline
    assert isinstance(found, Stored) and sent is not None
    assert sent == encode(found.artifact())  # type: ignore[arg-type]
    assert {path: path.stat().st_mtime_ns for path in workers.cache.rglob("v1/??/*.farm")} == before


def test_to_verify_a_callee_that_is_asked_for_twice_is_compiled_once(workers: Workers) -> None:
    """numba keeps one environment for each name: a second compile under the same names would write into it."""
    array = (float64[::1],)
    workers.perform(workers.functor("first_difference", array))
    (answer,) = workers.perform(workers.order(workers.functors["first_difference"], verify=True))
    assert built(answer).verified > 1, answer


def test_a_stored_artifact_that_differs_is_told_with_the_key_it_was_made_under(workers: Workers) -> None:
    wrong, callee = workers.functor("as_text"), workers.functor("divide")
    workers.perform(wrong, callee)
    store_under_anothers_key(workers, wrong.key, callee.key)
    (answer,) = workers.perform(workers.order("divide_plus_one", verify=True))
    assert isinstance(answer, Differs)
    assert answer.function == "task_subjects.divide" and answer.key == callee.key and answer.made_under == wrong.key
    assert answer.made_under.first_difference(answer.key) == "function"
    assert pickle.loads(pickle.dumps(answer)) == answer


def test_an_artifact_that_does_not_say_what_it_was_made_under_is_told_without(workers: Workers) -> None:
    functor = workers.functor("divide")
    workers.perform(functor)
    store = DiskStore(workers.cache)
    stored = store.get(functor.key)
    assert isinstance(stored, Stored)
    artifact = stored.artifact()
    assert isinstance(artifact, Artifact)
    for meta in ({}, {**artifact.meta, "key_parts": {"function": "not hexadecimal"}}, {"key_parts": 3}):
        store.put(replace(artifact, meta=meta, code=b"\x7fELF"))  # type: ignore[arg-type]
        (answer,) = workers.perform(workers.order("divide", verify=True))
        assert isinstance(answer, Differs) and answer.made_under is None


def test_a_trim_is_a_job(workers: Workers) -> None:
    workers.perform("divide_plus_one")
    for path in workers.cache.rglob("v1/??/*.farm"):
        os.utime(path, (1e9, 1e9))
    (answer, nothing) = workers.perform(
        TrimOrder(StoreSettings(workers.cache, size_max_bytes=1)),
        TrimOrder(StoreSettings(workers.cache, size_max_bytes=1)),
    )
    assert isinstance(answer, StoreTrimmed)
    assert answer.entries_removed == 2
    assert answer.bytes_removed > 2000
    assert nothing == StoreTrimmed(0, 0)
    assert not workers.stored()


def test_a_trim_of_a_refused_store_says_so(workers: Workers) -> None:
    workers.cache.mkdir(mode=0o755)
    workers.cache.chmod(0o755)
    (answer,) = workers.perform(TrimOrder(StoreSettings(workers.cache, size_max_bytes=1)))
    assert isinstance(answer, StoreTrimmed)
    assert [reason for reason, _ in answer.degraded] == [DegradedReason.STORE_REFUSED]
