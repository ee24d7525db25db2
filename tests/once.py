"""What several tests need and nobody changes is made once in a run of the tests, by whichever process comes first."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from filelock import FileLock

T = TypeVar("T")

PATIENCE_S = 240


def once(places: pytest.TempPathFactory, name: str, make: Callable[[Path], T]) -> T:
    """What `make` gives, which is handed an empty directory; it must survive being pickled."""
    place = places.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent  # that of the whole run
    kept = place / f"{name}.pickle"
    with FileLock(place / f"{name}.lock", timeout=PATIENCE_S):
        if not kept.exists():
            directory = place / name
            directory.mkdir()
            kept.write_bytes(pickle.dumps(make(directory)))
        found: T = pickle.loads(kept.read_bytes())
        return found
