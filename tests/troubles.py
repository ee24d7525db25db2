"""What goes wrong around a program, for the block; and waiting for a claim to come true."""

import contextlib
import os
import resource
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from farm.observe.board import Board


def board_of_its_own(place: Path, patch: pytest.MonkeyPatch) -> Board:
    """From now on this process and its children post here, and see nobody else: neither what other programs of this
    user have posted, nor what this process posted before."""
    for variable, name in (("XDG_RUNTIME_DIR", "runtime"), ("TMPDIR", "temporary")):
        directory = place / name
        directory.mkdir(0o700)
        patch.setenv(variable, str(directory))
    patch.setattr("tempfile.tempdir", str(place / "temporary"))
    return Board.of_this_user()


def children(*, recursive: bool = False) -> list[psutil.Process]:
    """The processes below this one that are no zombies.

    Without Python's own, one for each process that has used multiprocessing: it ends with that process.
    """
    found = []
    for child in psutil.Process().children(recursive=recursive):
        with contextlib.suppress(psutil.Error):
            tracker = any("multiprocessing.resource_tracker" in word for word in child.cmdline())
            if child.status() != psutil.STATUS_ZOMBIE and not tracker:
                found.append(child)
    return found


def waiting_for(usual_s: float) -> Callable[..., None]:
    """`eventually(claim, bound_s)`, which waits until the claim is true; so long unless it is told otherwise."""

    def eventually(claim: Callable[[], object], bound_s: float = usual_s) -> None:
        end = time.monotonic() + bound_s
        while not claim():
            assert time.monotonic() < end, f"not within {bound_s} s"
            time.sleep(0.005)

    return eventually


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process can open no file any more."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, limits[1]))
    taken = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in taken:
            os.close(descriptor)


@contextmanager
def vanishing(directory: Path) -> Iterator[None]:
    """A thread removes the directory again and again."""
    over = threading.Event()

    def remove() -> None:
        while not over.is_set():
            shutil.rmtree(directory, ignore_errors=True)

    thread = threading.Thread(target=remove)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
