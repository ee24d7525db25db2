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
