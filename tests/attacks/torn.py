"""Run as a program: damages a stored file in many ways, and loads and calls what becomes of each.

    python torn.py SUBJECT DIRECTORY ROUNDS

The farm does all of it in this process, with a worker that compiles again. Of numba's cache each is loaded in a fork
of its own, as many end it. Prints tries, wrong, raised, killed, stuck as a JSON list.
"""

import importlib
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from attack import SEED
from children import Subject, write_package

FORK_S: Final = 30
"""A fork that has not ended by then is stuck."""
TEXT: Final = """
@compiled
def add(a):
    return a + 1
"""
RIGHT, WRONG, RAISED = 0, 1, 2


def damages(data: bytes, rounds: int) -> Iterator[bytes]:
    """As many as there are rounds, from one end of the file to the other: a cut and a flip in turn."""
    chance = random.Random(SEED)
    for number in range(rounds):
        place = len(data) * number // rounds
        if number % 2:
            changed = bytearray(data)
            changed[place] ^= 1 << chance.randrange(8)
            yield bytes(changed)
        else:
            yield data[:place]


def one_call() -> int:
    """Import the package anew and call its function."""
    sys.modules.pop("user", None)
    try:
        return RIGHT if importlib.import_module("user").add(41) == 42 else WRONG
    except Exception:
        return RAISED


def by_farm(file: Path, rounds: int) -> list[int]:
    counts = [0] * 5
    data = file.read_bytes()
    for left in damages(data, rounds):
        file.write_bytes(left)
        how = one_call()
        counts[0] += 1
        counts[1] += how == WRONG
        counts[2] += how == RAISED or file.read_bytes() == left  # it must have been written again
    return counts


def by_numba(file: Path, rounds: int) -> list[int]:
    counts = [0] * 5
    data, index = file.read_bytes(), {path: path.read_bytes() for path in file.parent.glob("*.nbi")}
    for left in damages(data, rounds):
        for path, content in index.items():
            path.write_bytes(content)
        file.write_bytes(left)
        counts[0] += 1
        if (child := os.fork()) == 0:
            signal.alarm(FORK_S)
            os._exit(one_call())
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        counts[1] += code == WRONG
        counts[2] += code == RAISED
        counts[3] += code < 0 and code != -signal.SIGALRM
        counts[4] += code == -signal.SIGALRM
    return counts


def main(subject: Subject, directory: Path, rounds: int) -> None:
    package, cache = directory / "package", directory / "cache"
    write_package(package, subject, {"user.py": TEXT})
    sys.path.insert(0, str(package))
    if subject is Subject.NUMBA:
        import numba

        assert numba.njit(lambda a: a - 1)(1) == 0  # what a first compile brings in is there before the forks
        if (child := os.fork()) == 0:
            os._exit(one_call())
        assert os.waitpid(child, 0)[1] == 0
    else:
        assert one_call() == RIGHT
    (file,) = subject.files(cache)
    counts = (by_farm if subject is Subject.FARM else by_numba)(file, rounds)
    shutil.rmtree(cache)
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    main(Subject[sys.argv[1]], Path(sys.argv[2]), int(sys.argv[3]))
