"""A farm with a signing key: what it loads, what it does not, and where the key does not come out."""

import logging
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numba
import pytest

import farm
from farm.errors import Degraded, FarmWarning
from farm.front.supply import Supply
from farm.pool.pool import Pool
from farm.reasons import DegradedReason, MissReason
from farm.store.artifact import Artifact, Stored
from farm.store.disk import DiskStore

SECRET = b"a-key-that-nobody-should-ever-meet"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return write_key(tmp_path / "signing.key", SECRET)


def write_key(path: Path, secret: bytes) -> Path:
    path.write_bytes(secret)
    path.chmod(0o600)
    return path


def double(a):
    return a + a


def make_caller():
    inner = numba.njit(double)

    def twice_doubled(a):
        return inner(inner(a))

    return twice_doubled


def run_once(cache: Path, **settings: object) -> farm.Stats:
    """A program that compiles a function with a jitted callee, in a farm of its own."""
    with farm.Farm(cache_dir=cache, workers=1, **settings) as one:
        assert farm.njit(make_caller(), farm=one).compile("(int64,)")(3) == 12
        return one.stats()


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "cache"


def stored_with(cache: Path, key_file: Path | None) -> list[bool]:
    """Of every artifact in the store, whether it can be read with this key."""
    store = DiskStore(cache, signing_key_file=key_file)
    return [isinstance(store.get(key), Stored) for key in list(store.stored_keys())]


def test_a_function_and_its_callee_are_signed_by_the_worker_and_loaded_with_the_key(
    cache: Path, key_file: Path
) -> None:
    first = run_once(cache, signing_key_file=key_file)
    assert (first.compiled, first.loaded, first.local) == (1, 0, 0)
    assert stored_with(cache, key_file) == [True, True]
    second = run_once(cache, signing_key_file=key_file)
    assert (second.compiled, second.loaded, dict(second.misses)) == (0, 1, {})


def test_a_signed_store_serves_a_program_without_the_key(cache: Path, key_file: Path) -> None:
    run_once(cache, signing_key_file=key_file)
    assert run_once(cache).loaded == 1


@pytest.mark.parametrize("before", [None, b"another key of at least 16 bytes"], ids=["unsigned", "wrongly signed"])
def test_what_is_not_signed_with_the_key_is_compiled_again_and_rewritten(
    cache: Path, key_file: Path, tmp_path: Path, before: bytes | None
) -> None:
    other = None if before is None else write_key(tmp_path / "other", before)
    run_once(cache, signing_key_file=other)
    assert stored_with(cache, key_file) == [False, False]
    again = run_once(cache, signing_key_file=key_file)
    reason = MissReason.UNSIGNED if before is None else MissReason.WRONGLY_SIGNED
    # The function's is met by the front and by the worker, the callee's by the worker.
    assert (again.compiled, again.loaded, dict(again.misses)) == (1, 0, {reason: 3})
    assert stored_with(cache, key_file) == [True, True]


def test_a_refused_key_file_costs_the_store_and_not_the_program(cache: Path, key_file: Path) -> None:
    key_file.chmod(0o644)
    with pytest.warns(FarmWarning, match=f"chmod 600 {key_file}"):
        stats = run_once(cache, signing_key_file=key_file)
    assert stats.compiled == 1 and stats.degraded[DegradedReason.STORE_REFUSED] == 1
    assert not cache.exists()


def test_a_refused_key_file_is_an_error_where_degradations_are(cache: Path, key_file: Path) -> None:
    key_file.chmod(0o644)
    with pytest.raises(Degraded, match="chmod 600"):
        run_once(cache, signing_key_file=key_file, on_degraded="raise")


def test_a_key_file_that_is_refused_later_in_the_worker_delivers_over_the_pipe(
    cache: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Supply.look_up

    def look_up(supply, config, key):
        found = real(supply, config, key)
        key_file.chmod(0o644)
        return found

    monkeypatch.setattr(Supply, "look_up", look_up)
    stats = run_once(cache, signing_key_file=key_file)
    assert (stats.compiled, stats.local) == (1, 0)
    assert stats.degraded[DegradedReason.STORE_REFUSED] == stats.degraded[DegradedReason.DELIVERED_INLINE] == 1
    assert not cache.exists()


def test_a_key_that_another_replaced_meanwhile_costs_one_delivery_over_the_pipe(
    cache: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The front has the old key, the worker signs with the new one."""
    real = Supply.look_up

    def look_up(supply, config, key):
        found = real(supply, config, key)
        key_file.write_bytes(SECRET[::-1])
        return found

    monkeypatch.setattr(Supply, "look_up", look_up)
    stats = run_once(cache, signing_key_file=key_file)
    assert (stats.compiled, stats.local) == (1, 0)
    assert stats.misses[MissReason.WRONGLY_SIGNED] >= 1  # the waiter and the installer may both look
    assert stats.degraded[DegradedReason.DELIVERED_INLINE] == 1


def test_the_key_is_in_no_file_no_message_no_log_and_no_repr(
    cache: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    payloads: list[bytes] = []
    submit = Pool.submit

    def watched(pool, job, **how):
        payloads.append(job.payload)
        return submit(pool, job, **how)

    monkeypatch.setattr(Pool, "submit", watched)
    told: list[str] = []

    class Ear:
        def on_event(self, event: object) -> None:
            told.append(repr(event))

    with caplog.at_level(logging.DEBUG), farm.Farm(cache_dir=cache, workers=1, signing_key_file=key_file) as one:
        one.add_listener(Ear())
        function = farm.njit(make_caller(), farm=one)
        assert function.compile("(int64,)")(3) == 12
        texts = [repr(one), repr(one.config), repr(one.stats()), farm.explain(function, 3), *told, caplog.text]
    assert payloads and len(told) > 3
    files = [path for path in cache.rglob("*") if path.is_file()]
    assert len(files) > 3
    written = [*payloads, *(path.read_bytes() for path in files), *(text.encode() for text in texts)]
    for form in (SECRET, SECRET.hex().encode()):
        assert not [one for one in written if form in one]
    assert all(key_file.name.encode() in payload for payload in payloads), "the path travels instead"


UNPICKLED: list[str] = []


class Evil:
    """Unpickling it runs code."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return run_by_unpickling, ("evil",)


def run_by_unpickling(what: str) -> None:
    UNPICKLED.append(what)


@pytest.mark.parametrize("signed", [True, False], ids=["with a key", "without"])
def test_what_is_unpickled_was_signed(cache: Path, key_file: Path, signed: bool) -> None:
    """Whoever can write into the store can make digests fit: an environment runs what it likes when it is read."""
    settings = {"signing_key_file": key_file} if signed else {}
    run_once(cache, **settings)
    store = DiskStore(cache)
    for key in list(store.stored_keys()):
        stored = store.get(key)
        assert isinstance(stored, Stored)
        artifact = stored.artifact()
        assert isinstance(artifact, Artifact)
        store.put(replace(artifact, environment=pickle.dumps(Evil())))
    UNPICKLED.clear()
    stats = run_once(cache, **settings)
    assert bool(UNPICKLED) is not signed
    # Without a key it is loaded, as whoever writes into the store is us, and costs a local compile.
    assert (stats.compiled, stats.local, stats.failed) == ((1, 0, 0) if signed else (0, 1, 0))
    assert bool(stats.misses.get(MissReason.UNSIGNED)) is signed
