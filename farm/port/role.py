"""What this process is for. In a worker, decorators that user modules run at import make numba's own dispatchers.

Otherwise a module that a job imports would start a pool inside the worker, or compile its explicit signatures there.

A process that fills a store ahead of time imports modules to see what they hold. Meanwhile the farm notes what is asked
for, and compiles nothing: calls run in Python.
"""

from collections.abc import Iterator
from contextlib import contextmanager

_compiles_for_others = False
_collects = 0
"""How many blocks of `collecting` this process is in."""


def compile_for_others() -> None:
    """From now on this process compiles for a front: called once, by the foreman or by a worker without one."""
    global _compiles_for_others
    _compiles_for_others = True


def compiles_for_others() -> bool:
    """Whether this is such a process."""
    return _compiles_for_others


@contextmanager
def collecting() -> Iterator[None]:
    """Inside, whatever the farm is asked for is noted and not compiled, in every thread."""
    global _collects
    _collects += 1
    try:
        yield
    finally:
        _collects -= 1


def collects() -> bool:
    """Whether this process is collecting."""
    return _collects > 0
