"""Machine code that was made for another CPU: who finds it, who is given it, and who must not run it."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from these import These, fill

import farm
from farm.ahead.prewarm import Outcome, prewarm
from farm.front.pending import Source
from farm.job.functor import make_functor, other_keys
from farm.job.key import CompileKey
from farm.port import cpu
from farm.port.cpu import LEVELS, Cpu, host, level, parse
from farm.port.dispatch import parse_signature
from farm.port.target import own_cpu, settings
from farm.reasons import MissReason, RefusalReason
from farm.store.artifact import Artifact, Stored
from farm.store.disk import DiskStore

pytestmark = pytest.mark.skipif(
    level() not in ("x86-64-v3", "x86-64-v4"), reason="a CPU of level 3 is wanted: the code is run"
)
V2, V3 = Cpu("x86-64-v2"), Cpu("x86-64-v3")
HERE = Path(__file__).parent
SIGNATURE = "(float64,)"
LEVELS_MADE = ("x86-64-v3", "x86-64-v2")
RESTRICTED = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": ""}


def program(cache: Path, *words: str, **environment: str) -> Any:
    """What a new process reports."""
    done = subprocess.run(
        [sys.executable, str(HERE / "target_program.py"), *words],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "FARM_CACHE_DIR": str(cache), "FARM_WORKERS": "1", **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# -- programs ----------------------------------------------------------------------------------------------


def test_a_store_filled_for_a_level_serves_whoever_can_run_it(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert program(cache, "fill", "x86-64-v3") == {"x86-64-v3": ["COMPILED", "COMPILED"]}

    restricted = program(cache, "compare", **RESTRICTED)
    assert (restricted["compiled"], restricted["loaded"], restricted["misses"]) == (0, 3, {})
    assert restricted["cpus"] == ["x86-64-v3"] * 3 and restricted["bits"] == restricted["numbas"]
    assert all("loaded from the store: made for x86-64-v3;" in text for text in restricted["explained"])

    free = program(cache)
    assert (free["compiled"], free["loaded"], free["bits"]) == (0, 2, restricted["bits"])
    assert free["misses"] == {"ABSENT": 2}, "a miss for the own key of each, and none for the others"
    assert free["cpus"] == ["x86-64-v3"] * 2
    words = f"loaded from the store: made for x86-64-v3, as there was none for this CPU ({host()});"
    assert all(words in text for text in free["explained"])

    assert program(cache, "fill", "x86-64-v3", "host") == {"x86-64-v3": ["THERE"] * 2, "host": ["COMPILED"] * 2}
    own = program(cache)
    assert (own["compiled"], own["loaded"], own["bits"], own["misses"]) == (0, 2, restricted["bits"], {})
    assert own["cpus"] == [str(host())] * 2
    assert all(f"made for this CPU ({host()});" in text for text in own["explained"])


# -- in this process ---------------------------------------------------------------------------------------


def inner(x):
    return x * 2.5


def functions(barn: farm.Farm) -> tuple[Any, Any]:
    """A function and its callee, the same ones for every farm."""

    def outer(x):
        return callee(x) + 1.0

    callee = farm.njit(inner, farm=barn)
    return farm.njit(outer, farm=barn), callee


def asked(function: Any, one: Cpu | None) -> CompileKey:
    return make_functor(function, *parse_signature(SIGNATURE), one).key


def made_for(cache: Path) -> Counter[str]:
    """How many artifacts the store has for each CPU."""
    store = DiskStore(cache)
    found = [store.get(key) for key in store.stored_keys()]
    return Counter(one.meta["target"]["cpu"] for one in found if isinstance(one, Stored))  # type: ignore[call-overload, index]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with what `functions` are on two levels, which nothing was loaded from."""
    cache = tmp_path_factory.mktemp("filled") / "cache"
    with farm.Farm(cache_dir=cache, workers=1) as barn:
        outer, callee = functions(barn)
        for outcome in (Outcome.COMPILED, Outcome.THERE):
            assert fill({outer: SIGNATURE}, str(V3), str(V2)) == {str(V3): [outcome], str(V2): [outcome]}
        stats, wanted = barn.stats(), {asked(outer, one) for one in (V2, V3)}
    assert (stats.compiled, stats.loaded, stats.local, outer.overloads, callee.overloads) == (0, 0, 0, {}, {})
    assert set(DiskStore(cache).stored_keys()) > wanted
    assert made_for(cache) == {"x86-64-v3": 2, "x86-64-v2": 2}, "the callee too"
    return cache


@pytest.fixture
def barn(filled: Path, tmp_path: Path) -> Iterator[farm.Farm]:
    """With a copy of that store."""
    shutil.copytree(filled, tmp_path / "cache")
    with farm.Farm(cache_dir=tmp_path / "cache", workers=1) as one:
        yield one


def artifact(barn: farm.Farm, key: CompileKey) -> Artifact:
    found = DiskStore(barn.config.cache_dir).get(key)
    assert isinstance(found, Stored)
    whole = found.artifact()
    assert isinstance(whole, Artifact)
    return whole


def file_of(barn: farm.Farm, key: CompileKey) -> Path:
    return barn.config.cache_dir / "v1" / key.hex[:2] / f"{key.hex}.farm"


def needs_more(barn: farm.Farm, key: CompileKey) -> None:
    """What lies under a key says now that it needs what no CPU has."""
    whole = artifact(barn, key)
    target = dict(whole.meta["target"], features="+warp-drive")  # type: ignore[call-overload]
    DiskStore(barn.config.cache_dir).put(replace(whole, meta={**whole.meta, "target": target}))


def is_cut(barn: farm.Farm, key: CompileKey) -> None:
    os.truncate(file_of(barn, key), 1000)


def restrict(monkeypatch: pytest.MonkeyPatch, to: Cpu) -> None:
    monkeypatch.setattr(numba.config, "CPU_NAME", to.name)
    monkeypatch.setattr(numba.config, "CPU_FEATURES", to.features)
    assert own_cpu() == to


def test_an_artifact_says_what_it_was_made_for(barn: farm.Farm) -> None:
    outer, _ = functions(barn)
    for one in (V3, V2):
        told = artifact(barn, asked(outer, one)).meta["target"]
        assert told == {"triple": cpu.triple(), "cpu": one.name, "features": ""}


@pytest.mark.parametrize("avx", [0, 1])
def test_a_program_that_is_restricted_and_one_that_compiles_for_others_come_to_the_same_key(
    barn: farm.Farm, monkeypatch: pytest.MonkeyPatch, avx: int
) -> None:
    outer, _ = functions(barn)
    from_outside, own = asked(outer, V3), asked(outer, None)
    restrict(monkeypatch, V3)
    monkeypatch.setattr(numba.config, "ENABLE_AVX", avx)
    restricted = make_functor(outer, *parse_signature(SIGNATURE))
    assert restricted.key == from_outside != own and restricted.key.parts == from_outside.parts
    assert own.first_difference(from_outside) == "target"
    monkeypatch.undo()
    restrict(monkeypatch, V2)
    assert asked(outer, parse("host")) == own
    assert {label for label, digest in own.parts if digest != dict(from_outside.parts)[label]} == {"target"}


def test_the_other_keys_are_those_that_a_walk_for_each_cpu_would_give(barn: farm.Farm) -> None:
    outer, _ = functions(barn)
    functor = make_functor(outer, *parse_signature(SIGNATURE))
    levels = [Cpu(name) for name in LEVELS]
    wanted = [asked(outer, one) for one in levels[levels.index(Cpu(str(level()))) :]]
    assert [*other_keys(functor)] == wanted and functor.key not in wanted


@pytest.mark.parametrize(
    ("spoil", "reason"), [(needs_more, MissReason.CPU_LACKS_FEATURE), (is_cut, MissReason.TRUNCATED)]
)
def test_an_artifact_for_another_cpu_that_does_not_serve_is_counted_and_the_next_is_taken(
    barn: farm.Farm, spoil: Any, reason: MissReason
) -> None:
    outer, _ = functions(barn)
    spoil(barn, asked(outer, V3))
    assert outer.compile(SIGNATURE)(4.0) == 11.0
    origin = outer.status(SIGNATURE).origin
    assert (origin.source, origin.cpu, origin.instead_of) == (Source.STORE, "x86-64-v2", str(host()))
    assert barn.stats().misses == {MissReason.ABSENT: 1, reason: 1} and barn.stats().local == 0


def test_what_needs_more_than_this_cpu_has_is_compiled_for_it_and_its_callees_too(barn: farm.Farm) -> None:
    """Workers look for their own target alone: the callee on another level stays where it is."""
    outer, _ = functions(barn)
    for one in (V3, V2):
        needs_more(barn, asked(outer, one))
    assert outer.compile(SIGNATURE)(4.0) == 11.0
    origin, stats = outer.status(SIGNATURE).origin, barn.stats()
    assert (origin.source, origin.cpu, origin.instead_of) == (Source.WORKER, str(host()), "")
    assert f"compiled by a worker for this CPU ({host()});" in farm.explain(outer, 4.0)
    assert (stats.compiled, stats.loaded, stats.local) == (1, 0, 0)
    assert stats.misses == {MissReason.ABSENT: 2, MissReason.CPU_LACKS_FEATURE: 2}, "the callee's own key is the second"
    assert made_for(barn.config.cache_dir)[host().name] == 2


def test_an_own_artifact_for_a_level_that_this_cpu_lacks_is_never_loaded(
    barn: farm.Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key fits, and what it says of itself does not."""
    outer, _ = functions(barn)
    restrict(monkeypatch, V3)
    whole = artifact(barn, asked(outer, V3))
    target = dict(whole.meta["target"], cpu="x86-64-v4")  # type: ignore[call-overload]
    DiskStore(barn.config.cache_dir).put(replace(whole, meta={**whole.meta, "target": target}))
    small = frozenset((name, name in LEVELS["x86-64-v3"]) for name, _ in cpu._what_this_has())
    monkeypatch.setattr(cpu, "_what_this_has", lambda: small)
    assert outer.compile(SIGNATURE)(4.0) == 11.0
    origin, stats = outer.status(SIGNATURE).origin, barn.stats()
    assert (origin.source, origin.refusal) == (Source.LOCAL, RefusalReason.LOAD_FAILED)
    assert origin.detail == "avx512bw, avx512cd, avx512dq, avx512f, avx512vl" and origin.detail in farm.explain(
        outer, 4.0
    )
    own = stats.per_function[outer.label]
    assert (own.loaded, own.local, stats.misses) == (0, 1, {MissReason.CPU_LACKS_FEATURE: 1})


def test_a_restricted_program_is_not_given_what_its_cpu_could_run(
    barn: farm.Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer, _ = functions(barn)
    arguments, _ = parse_signature(SIGNATURE)
    settler = barn.settler()
    keys = {one: asked(outer, one) for one in (V3, V2)}

    def found() -> CompileKey | None:
        stored = settler.stored(outer, arguments)
        return None if stored is None else stored.key

    assert found() == keys[V3]
    restrict(monkeypatch, V2)
    assert found() == keys[V2]
    file_of(barn, keys[V2]).unlink()
    assert found() is None and file_of(barn, keys[V3]).exists()
    restrict(monkeypatch, Cpu("x86-64-v3", "-avx2"))
    assert found() is None
    restrict(monkeypatch, Cpu("x86-64-v3", "+crc32"))
    assert found() == keys[V3]


def test_to_verify_only_the_own_target_is_looked_up(barn: farm.Farm) -> None:
    barn.configure(verify=True)
    outer, _ = functions(barn)
    needs_more(barn, asked(outer, V3))  # which would be counted
    assert outer.compile(SIGNATURE)(4.0) == 11.0
    assert outer.status(SIGNATURE).origin.cpu == str(host())
    assert (barn.stats().compiled, barn.stats().loaded, barn.stats().verified) == (1, 0, 0)
    assert barn.stats().misses.keys() == {MissReason.ABSENT}


def test_for_this_cpu_the_own_pool_compiles(barn: farm.Farm) -> None:
    outer, _ = functions(barn)
    for one in (parse("host"), None):
        assert make_functor(outer, *parse_signature(SIGNATURE), one).settings == settings()


def test_what_cannot_be_made_for_another_cpu_is_a_row_and_no_exception(barn: farm.Farm) -> None:
    large = np.zeros(200_000)

    @farm.njit(farm=barn)
    def reaches(x):
        return large[0] + x

    @farm.jit(farm=barn, forceobj=True)
    def object_mode(x):
        return x

    rows = prewarm([These({reaches: SIGNATURE, object_mode: SIGNATURE})], cpus=[str(V3)]).rows
    assert [row.outcome for row in rows] == [Outcome.REFUSED] * 2
    details = " ".join(row.detail for row in rows)
    assert RefusalReason.ARRAY_TOO_LARGE.value in details and RefusalReason.OBJECT_MODE.value in details
