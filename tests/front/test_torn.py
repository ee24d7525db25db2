"""A real artifact, damaged: cut at every length, flipped in every byte of the header and at thousands of other places.

The smallest artifact of a function that returns anything has 9.9 KB. Without what a load does not need (the times of
numba's passes, the digests of the key's parts, the features that the CPU lacks) it has 7 KB: that one is damaged.
"""

import copy
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numba
import pytest
import torn_program
from numba.core import serialize

import farm
from farm.job.key import CompileKey
from farm.reasons import MissReason
from farm.store.artifact import HEADER_BYTES, Artifact, Stored, encode
from farm.store.disk import DiskStore

ROOT: Final = Path(__file__).parents[2]
SIZE_MAX_BYTES: Final = 8 << 10
BOUND_S: Final = 110
NEEDED: Final = {"classes", "defined", "library", "target", "undefined"}
IN_FRONT: Final = 40
"""How many of the damages are met by a whole front with a worker that compiles again."""


SPACE: Final[dict[str, Any]] = {"__name__": "t"}
exec("def f(): return 1", SPACE)
one: Final = SPACE["f"]
"""Its short names stand many times in the artifact."""
OPTIONS: Final[dict[str, Any]] = {"mode": "strict", "no_cfunc_wrapper": True}


def path_of(cache: Path, key: CompileKey) -> Path:
    return cache / "v1" / key.hex[:2] / f"{key.hex}.farm"


def artifact_in(cache: Path) -> Artifact:
    store = DiskStore(cache)
    (key,) = store.stored_keys()
    stored = store.get(key)
    assert isinstance(stored, Stored)
    artifact = stored.artifact()
    assert isinstance(artifact, Artifact)
    return artifact


@pytest.fixture
def cache() -> Iterator[Path]:
    """In memory, where that is possible: 10,000 files are quarantined and forgotten, at 3 ms each on a disk."""
    with tempfile.TemporaryDirectory(
        prefix="farm-torn-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None
    ) as base:
        yield Path(base) / "cache"


@pytest.fixture
def small(cache: Path) -> Artifact:
    """Of a real compile, stored without what a load does not need."""
    with farm.Farm(cache_dir=cache, workers=1) as barn:
        assert farm.njit(one, farm=barn, **OPTIONS)() == 1
    whole = artifact_in(cache)
    meta: dict[str, Any] = {name: value for name, value in whole.meta.items() if name in NEEDED}
    features = [name for name in meta["target"]["features"].split(",") if name.startswith("+")]
    small = replace(whole, meta=meta | {"target": meta["target"] | {"features": ",".join(features)}})
    DiskStore(cache).put(small)
    assert HEADER_BYTES + 4096 < len(encode(small)) <= SIZE_MAX_BYTES
    return small


def torn(cache: Path, key: CompileKey, first: int, step: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(Path(torn_program.__file__)), str(cache), key.hex, str(first), str(step)],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_every_damage_of_a_real_artifact_is_a_miss_and_the_next_publish_heals_it(cache: Path, small: Artifact) -> None:
    """In a process of its own, which would die if machine code or bitcode with one wrong bit came to LLVM."""
    size = len(encode(small))
    report = torn(cache, small.key, 0, 1)
    assert report["size"] == report["cut"] == size
    assert (report["header"], report["body"]) == (HEADER_BYTES, torn_program.FLIPS) == (284, 2000)
    for what in ("read as good", "wrong", "left lying", "quarantine over its bound", "not healed"):
        assert report.get(what, 0) == 0, (what, report)
    assert report["right in the end"] == 1
    reasons = report["reasons"]
    assert reasons.keys() == {"EMPTY", "TRUNCATED", "BAD_MAGIC", "NEWER_FORMAT", "DIGEST_MISMATCH"}
    assert sum(reasons.values()) == torn_program.number_of_damages(size) > 9000
    assert (reasons["EMPTY"], reasons["TRUNCATED"]) == (1, size - 1)


def test_a_front_that_meets_damage_computes_what_is_right_and_has_it_written_again(
    cache: Path, small: Artifact
) -> None:
    """With a worker that compiles it again; the function is also linked by a jitted caller."""
    path, data = path_of(cache, small.key), encode(small)
    damages = list(torn_program.damages(data))
    step = len(damages) // IN_FRONT
    tried = 0
    with farm.Farm(cache_dir=cache, workers=1) as barn:
        for what, left in damages[::step]:
            path.write_bytes(left)
            function = farm.njit(one, farm=barn, **OPTIONS)
            assert function() == 1, what
            tried += 1
            stats = barn.stats()
            assert (stats.compiled, stats.loaded, stats.local, stats.failed) == (tried, 0, 0, 0), (what, len(left))
            assert isinstance(DiskStore(cache).get(small.key), Stored), "written again"
            caller = numba.njit(lambda: function() + 1)  # noqa: B023
            assert caller() == 2
        assert sum(stats.misses.values()) >= tried and MissReason.ABSENT not in stats.misses
    assert tried >= IN_FRONT
    assert DiskStore(cache).stats().quarantined <= 16


# -- a digest that fits, and content that does not --------------------------------------------------------
#
# Digests are no secret: whoever may write into the store, which is the same user, can make them fit, and without a
# signing key what he writes is loaded. Machine code, and which of it is called, is then what he says it is. What is
# promised: metadata and environments that are not what we write cost a local compile, and never a call.


def contents(small: Artifact) -> Iterator[tuple[str, Artifact]]:
    meta = dict(small.meta)
    for name in meta:
        yield f"without {name}", replace(small, meta={key: value for key, value in meta.items() if key != name})
        for other in (None, [], {}, 0, "", [0], {"a": 1}):
            if type(other) is not type(meta[name]) or not other:
                yield f"{name} is {other!r}", replace(small, meta={**meta, name: other})
    yield "no metadata", replace(small, meta={})
    yield "environment is text", replace(small, environment=b"text " * 100)
    environment = small.environment
    for length in range(0, len(environment), 20):
        yield f"environment of {length} bytes", replace(small, environment=environment[:length])
    state = serialize.loads(environment)
    for name in state:
        if name not in {"lifted", "annotation"}:  # not used by a call
            less = serialize.dumps({key: value for key, value in state.items() if key != name})
            yield f"environment without {name}", replace(small, environment=bytes(less))
    for other in (None, 1, [], {}, "text", print, ValueError("x")):
        yield f"environment is {other!r}", replace(small, environment=bytes(serialize.dumps(other)))
    descriptor = copy.copy(state["descriptor"])
    assert "1t1f" in descriptor.mangled_name
    descriptor.mangled_name = descriptor.mangled_name.replace("1t1f", "1t1g")
    renamed = bytes(serialize.dumps({**state, "descriptor": descriptor}))
    yield "environment of another function", replace(small, environment=renamed)


FOREIGN: Final = """
import pickle, sys
from pathlib import Path
import farm
from test_torn import OPTIONS, one
from farm.store.disk import DiskStore

cache = Path(sys.argv[1])
for name, artifact in pickle.load(open(sys.argv[2], "rb")):
    print(name, flush=True)
    DiskStore(cache).put(artifact)
    with farm.Farm(cache_dir=cache, workers=1) as barn:
        assert farm.njit(one, farm=barn, **OPTIONS)() == 1, name
        stats = barn.stats()
        assert stats.failed == 0 and stats.loaded + stats.local == 1, (name, stats)
"""


def test_foreign_content_with_digests_that_fit_costs_a_local_compile_and_no_call(
    cache: Path, small: Artifact, tmp_path: Path
) -> None:
    made = list(contents(small))
    (tmp_path / "contents").write_bytes(pickle.dumps(made))
    done = subprocess.run(
        [sys.executable, "-c", FOREIGN, str(cache), str(tmp_path / "contents")],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{Path(__file__).parent}"},
    )
    assert done.returncode == 0, (done.returncode, done.stdout.splitlines()[-1:], done.stderr)
    assert len(done.stdout.splitlines()) == len(made) > 100
