"""Run as a program: damages an artifact in every way it is told, and loads and calls what the store then gives.

    python torn_program.py CACHE KEY FIRST STEP

The artifact of `one` lies in the store under KEY. Of the damages with the numbers FIRST, FIRST + STEP, ... each is
done to the file; then the store is asked, and whatever it gives is linked and called, its bitcode too. What it did is
printed as JSON. A death shows as an exit code.
"""

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numba

from farm.job.key import CompileKey
from farm.port.compile import Parts
from farm.port.load import load
from farm.store.artifact import HEADER_BYTES, Miss, Stored, encode
from farm.store.disk import DiskStore

SEED: Final = 20_250_101
FLIPS: Final = 2000
"""Places of the body, at random; every byte of the header is flipped besides."""
RIGHT: Final = 1


def damages(data: bytes) -> Iterator[tuple[str, bytes]]:
    """(what was done, what is left) of an artifact: cut at every length, flipped in the header and in the body."""
    for length in range(len(data)):
        yield "cut", data[:length]
    chance = random.Random(SEED)
    places = [*range(HEADER_BYTES), *(chance.randrange(HEADER_BYTES, len(data)) for _ in range(FLIPS))]
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1 << chance.randrange(8)
        yield ("header" if place < HEADER_BYTES else "body"), bytes(changed)


def number_of_damages(size: int) -> int:
    return size + HEADER_BYTES + FLIPS


def call(stored: Stored) -> Any:
    """What the stored function returns, called from Python and from another compiled function."""
    bitcode = stored.bitcode()
    assert isinstance(bitcode, bytes), bitcode
    parts = Parts(dict(stored.meta), stored.code, bitcode, stored.environment)
    result = load(parts, {})
    result.library.get_llvm_str()  # parses the bitcode, as whoever links it does
    return result.entry_point()


def main(cache: str, key_hex: str, first: int, step: int) -> None:
    store, key = DiskStore(Path(cache)), CompileKey(key_hex)
    good = store.get(key)
    assert isinstance(good, Stored)
    artifact = good.artifact()
    assert not isinstance(artifact, Miss)
    data, path = encode(artifact), Path(cache) / "v1" / key_hex[:2] / f"{key_hex}.farm"
    assert data == path.read_bytes()
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for number, (what, left) in enumerate(damages(data)):
        if number % step != first:
            continue
        counts[what] += 1
        path.write_bytes(left)
        found = store.get(key)
        if isinstance(found, Stored):
            counts["read as good"] += 1
            counts["wrong"] += call(found) != RIGHT
        else:
            reasons[found.reason.name] += 1
        counts["left lying"] += path.exists()
        counts["quarantine over its bound"] += store.stats().quarantined > 16 if number % 100 == first else 0
        store.put(artifact)
        counts["not healed"] += path.read_bytes() != data
    again = store.get(key)
    assert isinstance(again, Stored)
    counts["right in the end"] += call(again) == RIGHT
    print(json.dumps({"size": len(data), "reasons": reasons, **counts}), flush=True)


if __name__ == "__main__":
    assert numba
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
