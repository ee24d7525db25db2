"""What an attack is, and what several of them need: a directory for a round, a program run once more on one store."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from children import Child, Outcome, Subject, right_results, together, write_package

SEED: Final = 20_250_101


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack.

    Parameters
    ----------
    run
        Does it to a subject in an empty directory, with so many rounds.
    rounds, rounds_long
        For a quick table and the tests, and for the stress run.
    subjects
        Whom it applies to.
    """

    run: Callable[[Subject, Path, int], Outcome]
    rounds: int
    rounds_long: int
    subjects: tuple[Subject, ...] = (Subject.FARM, Subject.NUMBA)


@contextmanager
def empty(base: str | None, directory: Path) -> Iterator[Path]:
    """A directory for one round, on the file system that `base` is on."""
    place = Path(tempfile.mkdtemp(dir=base or directory))
    try:
        yield place
    finally:
        shutil.rmtree(place)


def lone_runs(subject: Subject, directory: Path, files: dict[str, str]) -> Callable[[], Outcome]:
    """What runs the package once more, in one process, on the store in `directory`."""
    right = right_results(directory / "right", files, [0])
    write_package(directory / "package", subject, files)
    return lambda: together([Child(subject, directory / "package", directory / "cache")], right)
