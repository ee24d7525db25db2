"""`farm doctor`: a healthy machine, and what it says of each thing that is broken."""

import subprocess
import sys
from pathlib import Path

import numba
import pytest

from farm.port.cpu import host, level, runnable_for
from farm.tools import doctor as doctoring
from farm.tools import trial
from farm.tools.trial import TrialFailed, try_compile, try_lock

FARM = Path(sys.executable).with_name("farm")


def test_a_healthy_machine_is_described_and_exit_code_is_0(shell) -> None:
    result = shell.run("doctor")
    assert result.exit_code == 0, result.output
    assert result.output.endswith("\nEverything works.\n")
    assert f"numba {numba.__version__}," in result.output and sys.executable in result.output
    for said in (
        "compiled, loaded, same result",
        "a second process was kept out",
        f"{shell.cache_dir}: does not exist",
    ):
        assert said in result.output
    assert not shell.cache_dir.exists()


@pytest.mark.skipif(level() is None, reason="levels are those of x86-64")
def test_the_level_of_this_cpu_is_told_and_whose_code_runs_here(shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.set("FARM_READONLY", "1")
    monkeypatch.setattr(doctoring, "try_compile", lambda *_: "not tried")
    others = ", ".join(str(cpu) for cpu in runnable_for(host()))
    assert f"{host()}, level {level()}; code that runs here: its own, else {others}\n" in shell.run("doctor").output
    monkeypatch.setattr(numba.config, "CPU_NAME", "generic")
    monkeypatch.setattr(numba.config, "CPU_FEATURES", "")
    assert f"level {level()}; code that runs here: its own, else x86-64\n" in shell.run("doctor").output


def test_the_trial_leaves_an_existing_cache_as_it_is(shell) -> None:
    shell.cache_dir.mkdir(0o700)
    result = shell.run("doctor")
    assert result.exit_code == 0 and "exists, mode 0700, writable" in result.output
    assert list(shell.cache_dir.iterdir()) == []


def test_settings_are_shown_and_do_not_keep_the_trial_from_compiling(shell, tmp_path: Path) -> None:
    for name, value in {
        "FARM_WORKERS": "1",
        "FARM_WORKER_MEMORY_MAX_BYTES": "3GiB",
        "FARM_ENABLED": "no",
        "FARM_MODE": "lazy",
        "FARM_READONLY": "1",
        "FARM_CAHCE_DIR": "/tmp",
    }.items():
        shell.set(name, value)
    result = shell.run("doctor")
    assert result.exit_code == 0, result.output
    for said in (
        "1: the setting workers",
        "3.0 GiB for each worker\n",
        "the farm is switched off",
        "read-only by setting",
        "FARM_CAHCE_DIR is no setting of the farm: did you mean FARM_CACHE_DIR?",
        "not tried: nothing is written",
        "compiled, loaded, same result",
    ):
        assert said in result.output


def test_a_refused_directory_is_a_problem_with_what_to_run_and_nothing_is_written_there(shell) -> None:
    shell.cache_dir.mkdir()
    shell.cache_dir.chmod(0o770)
    result = shell.run("doctor")
    assert result.exit_code == 1
    assert "1 problem:" in result.output and f"-> run: chmod 700 {shell.cache_dir}\n" in result.output
    assert "compiled, loaded, same result" in result.output
    assert list(shell.cache_dir.iterdir()) == []


def test_a_refused_lower_directory_is_a_problem_with_what_to_run(shell, tmp_path: Path) -> None:
    lower = tmp_path / "lower"
    lower.mkdir()
    lower.chmod(0o757)
    shell.set("FARM_LOWER_CACHE_DIRS", str(lower))
    result = shell.run("doctor")
    assert result.exit_code == 1 and f"-> run: chmod go-w {lower}\n" in result.output


def test_a_cache_written_by_a_newer_farm_is_noted(shell) -> None:
    (shell.cache_dir / "v999").mkdir(parents=True)
    shell.cache_dir.chmod(0o700)
    result = shell.run("doctor")
    assert result.exit_code == 0 and "newer farm (v999)" in result.output


def test_the_signing_key_is_named_and_its_bytes_are_not(shell, tmp_path: Path) -> None:
    assert "signing" in shell.run("doctor").output
    key_file = tmp_path / "key"
    key_file.write_bytes(b"0123456789abcdef")
    key_file.chmod(0o400)
    shell.set("FARM_SIGNING_KEY_FILE", str(key_file))
    result = shell.run("doctor")
    assert result.exit_code == 0, result.output
    assert f"{key_file}, mode 0400" in result.output and "0123456789abcdef" not in result.output


def test_a_refused_signing_key_is_a_problem_with_what_to_run(shell, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    shell.set("FARM_SIGNING_KEY_FILE", str(key_file))
    result = shell.run("doctor")
    assert result.exit_code == 1 and "/dev/urandom" in result.output and "it does not exist" in result.output
    key_file.write_bytes(b"0123456789abcdef")
    key_file.chmod(0o604)
    result = shell.run("doctor")
    assert result.exit_code == 1 and f"-> run: chmod 600 {key_file}\n" in result.output
    assert "compiled, loaded, same result" in result.output, "the trial needs no key"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a directory in which nobody can make another")
def test_a_directory_that_cannot_be_made_is_a_problem(shell) -> None:
    result = shell.run("doctor", "--cache-dir", "/proc/farm")
    assert result.exit_code == 1
    assert "/proc cannot be written: " in result.output and "FARM_CACHE_DIR" in result.output


def test_a_lock_that_keeps_nobody_out_is_a_problem(shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "OTHER_PROCESS", "print('acquired')")
    result = shell.run("doctor")
    assert result.exit_code == 1 and "keeps nobody out (a second process: acquired)" in result.output


def test_a_directory_without_locks_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(TrialFailed) as failed:
        try_lock(tmp_path / "missing")
    assert "cannot be locked" in failed.value.problem


def test_workers_that_cannot_be_started_are_a_problem(shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.spawn._python_exe", None)
    result = shell.run("doctor")
    assert result.exit_code == 1
    assert "no worker compiled it: worker processes could not be started" in result.output


def test_a_compile_that_is_ended_is_a_problem(shell) -> None:
    shell.set("FARM_JOB_TIMEOUT_S", "0.001")
    result = shell.run("doctor")
    assert result.exit_code == 1 and "TimedOut: compiling " in result.output and "FARM_JOB_TIMEOUT_S" in result.output


@pytest.mark.usefixtures("shell")
def test_an_answer_that_does_not_come_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "COMPILE_S", 0.0)
    with pytest.raises(TrialFailed, match="no worker answered within 0 s"):
        try_compile(tmp_path, 1)


@pytest.mark.usefixtures("shell")
def test_machine_code_with_another_result_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def overflowing(count: int) -> int:
        return count * 10**18

    monkeypatch.setattr(trial, "sum_of_inverse_squares", overflowing)
    with pytest.raises(TrialFailed) as failed:
        try_compile(tmp_path, 1)
    assert f"Python {10**21}" in failed.value.problem


@pytest.mark.skipif(not FARM.exists(), reason="the command is not installed beside this Python")
def test_the_installed_command_works_in_a_pipe(tmp_path: Path) -> None:
    command = [str(FARM), "doctor", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("\nEverything works.\n") and "\x1b" not in done.stdout
