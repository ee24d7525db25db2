"""How many workers this machine allows, and why."""

import contextlib
import os
from pathlib import Path
from typing import Final

WORKER_BYTES: Final = 1 << 30
WORKERS_MAX: Final = 32
CGROUP: Final = Path("/sys/fs/cgroup")


def workers_allowed(cgroup: Path = CGROUP) -> tuple[int, str]:
    """The number of workers, at least 1, and a sentence that says which limit gave it."""
    limits = {"CPUs by affinity": len(os.sched_getaffinity(0)), "the fixed maximum": WORKERS_MAX}
    with contextlib.suppress(OSError, ValueError):
        quota, period = (cgroup / "cpu.max").read_text().split()
        limits["CPUs by cgroup quota"] = int(quota) // int(period)
    limits["free memory / 1 GiB"] = _memory_free_bytes(cgroup) // WORKER_BYTES
    name = min(limits, key=lambda key: limits[key])
    number = max(1, limits[name])
    return number, f"{number}: " + ", ".join(f"{key} {value}" for key, value in limits.items()) + f"; least: {name}"


def _memory_free_bytes(cgroup: Path) -> int:
    import psutil  # 27 ms: only for a pool that is in use

    free = int(psutil.virtual_memory().available)
    with contextlib.suppress(OSError, ValueError):
        limit = int((cgroup / "memory.max").read_text())
        free = min(free, limit - int((cgroup / "memory.current").read_text()))
    return free
