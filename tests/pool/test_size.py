"""How many workers: every limit with a made-up /proc and /sys."""

from pathlib import Path

import pytest

from farm.config import siblings
from farm.pool import size
from farm.pool.size import workers_allowed

ALONE = (1, "")
GIB = 1 << 30


@pytest.fixture(autouse=True)
def a_large_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    class Memory:
        available = 100 * GIB

    monkeypatch.setattr("psutil.virtual_memory", lambda: Memory)
    monkeypatch.setattr(size, "_cpus", lambda: 24)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def allowed(root: Path, files: dict[str, str]) -> tuple[int, str]:
    return workers_allowed(write(root, files), ALONE)


def test_without_control_groups_the_cpus_decide(tmp_path: Path) -> None:
    number, why = allowed(tmp_path, {})
    assert number == 24
    assert why == "24: CPUs by affinity 24, the fixed maximum 32, free memory / 1 GiB 100; least: CPUs by affinity"


def test_no_machine_gets_more_than_the_maximum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "_cpus", lambda: 200)
    assert allowed(tmp_path, {})[0] == size.WORKERS_MAX


V2 = "0::/a/b\n"
V1 = "5:cpu,cpuacct:/a/b\n4:memory:/a/b\n1:name=systemd:/\n0::/\n"


@pytest.mark.parametrize(
    ("files", "number"),
    [
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/a/b/cpu.max": "300000 100000"}, 3),
        (
            {
                "proc/self/cgroup": V2,
                "sys/fs/cgroup/a/b/cpu.max": "max 100000",
                "sys/fs/cgroup/a/cpu.max": "200000 50000",
            },
            4,
        ),
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/cpu.max": "500000 100000"}, 5),
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/a/b/cpu.max": "max 100000"}, 24),
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/a/b/cpu.max": "50000 100000"}, 1),
        (
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us": "600000",
                "sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us": "100000",
            },
            6,
        ),
        (
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "700000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
                "sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us": "100000",
            },
            7,
        ),
        ({"proc/self/cgroup": "nonsense\n\n::\n", "sys/fs/cgroup/cpu.max": "max 100000"}, 24),
    ],
)
def test_the_smallest_quota_of_a_group_and_its_ancestors_counts(
    tmp_path: Path, files: dict[str, str], number: int
) -> None:
    found, why = allowed(tmp_path, files)
    assert found == number
    assert ("least: CPUs by cgroup quota" in why) == (number != 24)


@pytest.mark.parametrize(
    ("files", "number"),
    [
        (
            {
                "proc/self/cgroup": V2,
                "sys/fs/cgroup/a/memory.max": str(8 * GIB),
                "sys/fs/cgroup/a/memory.current": str(6 * GIB),
            },
            2,
        ),
        (
            {
                "proc/self/cgroup": V2,
                "sys/fs/cgroup/a/memory.max": str(8 * GIB),
                "sys/fs/cgroup/a/memory.current": str(8 * GIB),
                "sys/fs/cgroup/a/memory.stat": f"anon 1\ninactive_file {3 * GIB}\n",
            },
            3,
        ),
        (
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": str(8 * GIB),
                "sys/fs/cgroup/memory/a/b/memory.usage_in_bytes": str(5 * GIB),
                "sys/fs/cgroup/memory/a/b/memory.stat": f"inactive_file 5\ntotal_inactive_file {GIB}\n",
            },
            4,
        ),
        (
            {
                "proc/self/cgroup": V2,
                "sys/fs/cgroup/memory.max": str(2 * GIB),
                "sys/fs/cgroup/memory.current": str(3 * GIB),
            },
            1,
        ),
    ],
)
def test_free_memory_is_that_of_the_fullest_group(tmp_path: Path, files: dict[str, str], number: int) -> None:
    assert allowed(tmp_path, files)[0] == number


def test_siblings_share_and_the_sentence_says_so(tmp_path: Path) -> None:
    number, why = workers_allowed(tmp_path, (4, "pytest-xdist (PYTEST_XDIST_WORKER_COUNT)"))
    assert number == 6 and why.startswith("6: ")
    assert why.endswith("least: CPUs by affinity; shared by 4 processes of pytest-xdist (PYTEST_XDIST_WORKER_COUNT)")
    assert workers_allowed(tmp_path, (1000, "Slurm"))[0] == 1


@pytest.mark.parametrize(
    ("environ", "number"),
    [
        ({}, 1),
        ({"PYTEST_XDIST_WORKER_COUNT": "8"}, 8),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, 4),
        ({"MPI_LOCALNRANKS": "5"}, 5),
        ({"PMI_LOCAL_SIZE": "6"}, 6),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "4", "PYTEST_XDIST_WORKER_COUNT": "2"}, 4),
        ({"PYTEST_XDIST_WORKER_COUNT": "many"}, 1),
        ({"PYTEST_XDIST_WORKER_COUNT": "0"}, 1),
        ({"PYTEST_XDIST_WORKER_COUNT": ""}, 1),
        ({"SLURM_NTASKS_PER_NODE": "8"}, 1),
        ({"SLURM_NTASKS_PER_NODE": "8", "SLURM_STEP_ID": "0"}, 8),
        ({"SLURM_NTASKS_PER_NODE": "8", "SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": "1"}, 1),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x3)", "SLURM_STEP_ID": "0"}, 2),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x3),1", "SLURM_STEP_ID": "0", "SLURM_NODEID": "3"}, 1),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x3),7", "SLURM_STEP_ID": "0", "SLURM_NODEID": "3"}, 7),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x3),7", "SLURM_STEP_ID": "0", "SLURM_NODEID": "99"}, 7),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x", "SLURM_STEP_ID": "0"}, 1),
    ],
)
def test_siblings_are_what_the_launchers_say(environ: dict[str, str], number: int) -> None:
    found, name = siblings(environ)
    assert found == number and bool(name) == (number > 1)


def test_this_machine_allows_at_least_one() -> None:
    number, why = workers_allowed()
    assert number >= 1 and "least: " in why
