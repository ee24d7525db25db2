"""Farms whose compiles misbehave, gates that compiles wait at, and what must not be left of them."""

import contextlib
import fcntl
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import deeds
import psutil
import troubles
from deeds import doing

import farm
from farm.config import StartMethod
from farm.observe import events

BIG: Final = (1 << 63) - 1
FALLBACK, COMPILED = BIG + 1, -BIG - 1
"""What the functions give for it in Python and as machine code, which wraps around."""
PATIENCE_S: Final = 60.0
"""How long anything may take on a machine that does other things as well; never a measured bound."""
MEMORY_MAX: Final = "400MiB"
ENDS: Final = ("failed", "rejected", "died", "timed_out", "out_of_memory")
COUNTED: Final = ("compiled", "loaded", "local", "recycled", *ENDS)
numbers = itertools.count(1)


eventually = troubles.waiting_for(PATIENCE_S)


def living(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those of them that are no zombies: orphans wait for init to reap them, which takes its time."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


class Barn:
    """A farm of two workers, and what is to be found of it from outside."""

    def __init__(self, directory: Path, method: StartMethod, **settings: object) -> None:
        self.directory, self.method = directory, method
        self.descriptors_before = descriptors_of_pools()
        given = {"cache_dir": directory / "cache", "workers": 2, "nice": 0, "exit_grace_s": 0, "start_method": method}
        self.farm = farm.Farm(**{**given, "worker_memory_max_bytes": MEMORY_MAX, **settings})
        self.finished: list[events.CompileFinished] = []
        self.farm.add_listener(self)

    def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.CompileFinished):
            self.finished.append(event)

    def njit(self, function: Callable[..., Any], **options: Any) -> Any:
        return farm.njit(function, farm=self.farm, fallback="python", **options)

    def counted(self) -> dict[str, int]:
        stats = self.farm.stats()
        counts = {name: getattr(stats, name) for name in COUNTED}
        return counts | {reason.name: number for reason, number in stats.degraded.items()}

    def worker_of(self, function: Any) -> int | None:
        """The worker that has its job, as `explain` tells."""
        told = re.search(r"worker (\d+) has it", farm.explain(function, 1))
        return int(told[1]) if told else None

    def living(self) -> list[psutil.Process]:
        """The processes below this one."""
        return troubles.children(recursive=True)

    def is_at_rest(self) -> bool:
        """No job, and no process and no socket but those of the foreman and of idle workers."""
        rest = re.search(r"<Pool \[(\d) idle, 0 busy \| 0 queued\]>", repr(self.farm))
        if not rest:
            return False
        foremen = int(self.method is StartMethod.FORK)
        # The inbox has two sockets and the selector one; the foreman and each worker a socket and a pipe.
        descriptors = self.descriptors_before + 3 + 2 * (foremen + int(rest[1]))
        return len(self.living()) == foremen + int(rest[1]) and descriptors_of_pools() == descriptors

    def held_locks(self) -> list[Path]:
        """Lock files of the store that somebody holds."""
        held = []
        for path in (self.directory / "cache" / "v1" / "locks").glob("*"):
            with open(path, "rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    held.append(path)
        return held

    def half_files(self) -> list[Path]:
        return list((self.directory / "cache" / "v1" / "tmp").glob("*"))


def descriptors_of_pools() -> int:
    names = os.listdir("/proc/self/fd")
    kinds = [os.readlink(f"/proc/self/fd/{name}") for name in names if os.path.lexists(f"/proc/self/fd/{name}")]
    return sum(kind.startswith(("socket:", "pipe:", "anon_inode:[eventpoll]")) for kind in kinds)


@dataclass(frozen=True)
class Gate:
    """A named pipe that a compile waits at, with this end held open."""

    path: Path
    descriptors: list[int] = field(default_factory=list)

    def function(self) -> Callable[[int], int]:
        return doing(deeds.pass_the_gate, str(self.path))

    def wait_for_somebody(self) -> None:
        """Until a process is there. The gate stays closed: who comes in place of one that was killed waits as well."""

        def opened() -> bool:
            try:
                self.descriptors.append(os.open(self.path, os.O_WRONLY | os.O_NONBLOCK))
            except OSError:  # nobody has the other end open
                return False
            return True

        eventually(opened)

    def open(self) -> None:
        while self.descriptors:
            os.close(self.descriptors.pop())


@contextlib.contextmanager
def gate(barn: Barn) -> Iterator[Gate]:
    path = barn.directory / f"gate{next(numbers)}"
    os.mkfifo(path)
    made = Gate(path)
    try:
        yield made
    finally:
        made.open()
        path.unlink()


@contextlib.contextmanager
def undisturbed(barn: Barn) -> Iterator[None]:
    """Another job, in the middle of its compile as long as the block lasts; afterwards it comes out of its worker."""
    with gate(barn) as its_gate:
        other = barn.njit(its_gate.function())
        assert other(BIG) == FALLBACK
        its_gate.wait_for_somebody()
        worker, told = barn.worker_of(other), len(barn.finished)
        assert worker is not None
        yield
        assert barn.worker_of(other) == worker
        its_gate.open()
        assert barn.farm.wait(PATIENCE_S)
    assert other(BIG) == COMPILED
    # Told after it is installed, by whichever thread did that, and in no order with other functions.
    eventually(lambda: (other.label, worker) in [(one.function, one.worker) for one in barn.finished[told:]])


def assert_nothing_is_left(barn: Barn) -> None:
    """After one more job, which takes away the files of the dead."""
    after = barn.njit(doing(deeds.nothing, next(numbers)))
    after(BIG)
    assert barn.farm.wait(PATIENCE_S)
    assert after(BIG) == COMPILED
    eventually(barn.is_at_rest)
    assert barn.half_files() == [] and barn.held_locks() == []
    assert barn.farm.stats().pending == 0
