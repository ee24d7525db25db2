"""What does not grow: a store's answers with its artifacts, and the front's work for a job with the jobs that wait.

    python tests/bench/bench_scale.py [--rounds N] [--json PATH]

Two stores side by side, of 100 and of 100,000 artifacts, asked in turn: a hit, a miss, a put, and a new process from
its first look at the store to its first hit. Beside it the longest lookup while the large one is trimmed by a tenth.
And farms with 10 and with 1,000 jobs in their queue: processor time of this process for one more function. Medians, and
what the large one takes of the small one; the target is 1.
"""

import argparse
import json
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench_comfort import SIGNATURE, bodies

import farm
from farm.job.key import CompileKey
from farm.store.artifact import Artifact
from farm.store.disk import DiskStore
from farm.testing import InlinePool, MemoryStore

SIZES: Final = (100, 100_000)
QUEUES: Final = (10, 1_000)
ROUNDS: Final = 5
CALLS: Final = 200
PUBLISHED: Final = 100
"""Artifacts that are put whole; the rest are names for copies of them, as only their number counts here."""
START: Final = """
import sys, time
began = time.perf_counter()
from farm.job.key import CompileKey
from farm.store.disk import DiskStore
from pathlib import Path
imported = time.perf_counter()
found = DiskStore(Path(sys.argv[1])).get(CompileKey(sys.argv[2]))
print(time.perf_counter() - imported, type(found).__name__)
"""


def artifact(number: int) -> Artifact:
    """One of usual size, with a key of its own."""
    key = CompileKey.from_parts({"number": str(number).encode()})
    return Artifact(key, {}, bytes(20_000), bytes(60_000), bytes(5_000))


def filled(directory: Path, number: int) -> DiskStore:
    """A store with so many artifacts."""
    store = DiskStore(directory, size_max_bytes=1 << 40)
    for one in range(PUBLISHED):
        store.put(artifact(one))
    content = next(directory.glob("v1/??/*.farm")).read_bytes()[:1000]
    for _ in range(number - PUBLISHED):
        name = secrets.token_hex(32)
        shard = directory / "v1" / name[:2]
        shard.mkdir(mode=0o700, exist_ok=True)
        (shard / f"{name}.farm").write_bytes(content)
    return store


def each_s(act: Callable[[int], object], calls: int = CALLS) -> float:
    """Median seconds of one call."""
    taken = []
    for number in range(calls):
        began = time.perf_counter()
        act(number)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def start_s(directory: Path) -> float:
    """A new process: from the imports to its first hit."""
    key = artifact(0).key.hex
    said = subprocess.run([sys.executable, "-c", START, directory, key], capture_output=True, text=True, check=True)
    seconds, kind = said.stdout.split()
    assert kind == "Stored", kind
    return float(seconds)


def store_rows(rounds: int) -> tuple[dict[str, list[list[float]]], float]:
    """Seconds by what was done, for both sizes; and the longest lookup during a trim."""
    rows: dict[str, list[list[float]]] = {name: [[], []] for name in ("hit", "miss", "put", "first hit of a process")}
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        stores = [filled(Path(folder) / str(size), size) for size in SIZES]
        keys = [artifact(number).key for number in range(PUBLISHED)]
        fresh = iter(range(10**6, 10**9))
        for _ in range(rounds):
            for place, store in enumerate(stores):
                absent = [artifact(next(fresh)).key for _ in range(CALLS)]
                new = [artifact(next(fresh)) for _ in range(CALLS)]
                rows["hit"][place].append(each_s(lambda n, s=store: s.get(keys[n % PUBLISHED])))  # type: ignore[misc]
                rows["miss"][place].append(each_s(lambda n, s=store, a=absent: s.get(a[n])))  # type: ignore[misc]
                rows["put"][place].append(each_s(lambda n, s=store, a=new: s.put(a[n])))  # type: ignore[misc]
                rows["first hit of a process"][place].append(start_s(Path(folder) / str(SIZES[place])))
        large = stores[1]
        large.size_max_bytes = int(large.stats().bytes * 0.99)
        trim = threading.Thread(target=large.trim)
        longest = 0.0
        trim.start()
        while trim.is_alive():
            began = time.perf_counter()
            large.get(keys[0])
            longest = max(longest, time.perf_counter() - began)
        trim.join()
    return rows, longest


def queue_rows(rounds: int) -> list[list[float]]:
    """Processor seconds of one submit, with a short and with a long queue."""
    taken: list[list[float]] = [[], []]
    first = 1
    for _ in range(rounds + 1):  # the first one imports
        for place, queued in enumerate(QUEUES):
            with farm.Farm(pool=InlinePool(held=True), store=MemoryStore()) as barn:
                functions = [farm.njit(one, farm=barn) for one in bodies(queued + QUEUES[0], first)]
                first += len(functions)
                for one in functions[:queued]:
                    one.submit(SIGNATURE)
                began = time.process_time()
                for one in functions[queued:]:
                    one.submit(SIGNATURE)
                taken[place].append((time.process_time() - began) / QUEUES[0])
    return [one[1:] for one in taken]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows, longest = store_rows(given.rounds)
    rows["submit, beside queued jobs"] = queue_rows(given.rounds)
    table = {name: [statistics.median(one) * 1e3 for one in both] for name, both in rows.items()}
    print(f"{'ms':<28}{'small':>9}{'large':>9}{'ratio':>8}")
    for name, (small, large) in table.items():
        print(f"{name:<28}{small:>9.3f}{large:>9.3f}{large / small:>8.2f}")
    print(f"the longest lookup while {SIZES[1]:,} artifacts are trimmed: {longest * 1e3:.1f} ms")
    if given.json:
        given.json.write_text(json.dumps({"ms": table, "longest_ms_in_a_trim": longest * 1e3}, indent=1))


if __name__ == "__main__":
    main()
