"""How many workers this machine allows, and why.

The least of: CPUs by affinity, CPUs by control group quota, free memory / 1 GiB, 32; divided among the
processes like this one that a launcher (pytest-xdist, MPI, Slurm) started beside it; at least 1.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from farm.config import siblings

WORKER_BYTES: Final = 1 << 30
"""A guess: what a worker may come to use, with room. Measured: 50 MB after sort and median."""
WORKERS_MAX: Final = 32
"""A guess: more compiles than that at once wait for the disk and for each other's memory."""


def workers_allowed(root: Path = Path("/"), processes: tuple[int, str] | None = None) -> tuple[int, str]:
    """The number of workers, and a sentence that says which limit gave it.

    Parameters
    ----------
    root
        Where `proc` and `sys` are.
    processes
        How many processes share the machine and who says so; None to ask the environment.
    """
    limits = {"CPUs by affinity": _cpus(), "the fixed maximum": WORKERS_MAX}
    quota = min(_quotas(root), default=None)
    if quota is not None:
        limits["CPUs by cgroup quota"] = quota
    limits["free memory / 1 GiB"] = _memory_free_bytes(root) // WORKER_BYTES
    name = min(limits, key=lambda key: limits[key])
    sharing, launcher = siblings() if processes is None else processes
    number = max(1, limits[name] // sharing)
    shared = f"; shared by {sharing} processes of {launcher}" if sharing > 1 else ""
    found = ", ".join(f"{key} {value}" for key, value in limits.items())
    return number, f"{number}: {found}; least: {name}{shared}"


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _quotas(root: Path) -> Iterator[int]:
    """Whole CPUs by every quota above this process, in either version of control groups."""
    for directory in _groups(root, "", "cpu"):
        with contextlib.suppress(OSError, ValueError):  # no such group here, or "max"
            quota, period = (directory / "cpu.max").read_text().split()
            yield int(quota) // int(period)
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            allowed = int((directory / "cpu.cfs_quota_us").read_text())
            if allowed >= 0:  # -1: no limit
                yield allowed // int((directory / "cpu.cfs_period_us").read_text())


def _memory_free_bytes(root: Path) -> int:
    import psutil  # 27 ms: only for a pool that is in use

    free = int(psutil.virtual_memory().available)
    for directory in _groups(root, "", "memory"):
        for limit, used, cached in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            with contextlib.suppress(OSError, ValueError):
                room = int((directory / limit).read_text()) - int((directory / used).read_text())
                free = min(free, room + _cached_bytes(directory, cached))
    return max(0, free)


def _cached_bytes(directory: Path, name: str) -> int:
    """File pages that the kernel gives back when asked: a group that has read a lot is not full."""
    with contextlib.suppress(OSError, ValueError):
        for line in (directory / "memory.stat").read_text().splitlines():
            if line.startswith(f"{name} "):
                return int(line.split()[1])
    return 0


def _groups(root: Path, *controllers: str) -> Iterator[Path]:
    """The directories of this process's control groups and their ancestors: version 2 has "" for a controller."""
    mounts = root / "sys/fs/cgroup"
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, names, group = line.split(":", 2) if line.count(":") >= 2 else ("", "?", "")
            if not set(names.split(",")) & set(controllers):
                continue
            # Version 2 beside version 1 is mounted under "unified", and has no controllers worth a look there.
            for mount in {mounts / names, *(mounts / name for name in names.split(","))}:
                place = mount / group.lstrip("/")
                # In a container the path may name a group of the host, so the mount's own root is looked at as well.
                for directory in (place, *place.parents):
                    yield directory
                    if directory == mount:
                        break
