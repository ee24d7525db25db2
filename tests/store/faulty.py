"""A seam between the store and the operating system: what it calls is counted, and one call can be made to fail."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pytest

CALLS: Final = (
    *("open", "fstat", "stat", "lstat", "pread", "read", "write", "close", "mkdir", "fchmod", "fchown", "fsync"),
    *("replace", "rename", "unlink", "listdir", "utime"),
)
REAL: Final = {name: getattr(os, name) for name in CALLS}


class Disk:
    """Stands between the store and the operating system: counts calls, and makes one of them fail."""

    def __init__(self, failing: int, number: int) -> None:
        self.calls = 0
        self.by_name: Counter[str] = Counter()
        self.failed: str | None = None
        self._failing, self._number = failing, number

    def through(self, name: str) -> Callable[..., object]:
        def call(*arguments: object, **where: object) -> object:
            self.calls += 1
            self.by_name[name] += 1
            if self.calls != self._failing:
                return REAL[name](*arguments, **where)
            self.failed = name
            if name == "close":  # Linux frees the number whatever it says
                REAL["close"](*arguments)
            raise OSError(self._number, os.strerror(self._number))

        return call


@contextmanager
def disk(monkeypatch: pytest.MonkeyPatch, failing: int = -1, number: int = 0) -> Iterator[Disk]:
    """For the block: the call of this ordinal fails with this error."""
    one = Disk(failing, number)
    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, one.through(name))
        yield one
