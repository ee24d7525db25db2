"""Numba functions compile in worker processes while the program goes on."""

from farm.front.farm import Farm
from farm.jit import default_farm, jit, njit

__all__ = ["Farm", "default_farm", "jit", "njit", "stats", "wait"]


def stats() -> object:
    """The default farm's counters: prints as a small table."""
    return default_farm().stats()


def wait(timeout: float | None = None) -> bool:
    """Block until everything pending in the default farm is compiled; False if `timeout` seconds passed first."""
    return default_farm().wait_for(None, timeout)
