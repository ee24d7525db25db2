"""Settings: what parses, what does not, and what is said about it."""

import os
import re
import subprocess
import sys
import warnings
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from farm import config
from farm.config import PARSERS, CompileMode, Config, Fallback, StartMethod
from farm.errors import ConfigError, UnknownSettingWarning


def test_every_setting_has_a_parser_and_no_other_has() -> None:
    assert [f.name for f in fields(Config)] == list(PARSERS)
    assert len(PARSERS) == 27


def test_the_defaults_are_the_protocols_numbers() -> None:
    c = Config.from_environment({})
    assert (c.lazy_threshold, c.max_ongoing) == (2, 10)
    assert (c.megamorphic_compiles, c.megamorphic_executions_per_compile) == (10, 50)
    assert c.mode is CompileMode.ASYNC and c.fallback is Fallback.AUTO
    assert (c.job_timeout_s, c.nice, c.exit_grace_s, c.cache_size_max_bytes) == (600, 10, 2, 2 << 30)


def test_a_config_cannot_be_changed_in_place() -> None:
    with pytest.raises(FrozenInstanceError):
        Config().nice = 3  # type: ignore[misc]


def test_the_environment_and_keywords_take_the_same_text() -> None:
    texts = {
        "mode": "Lazy",
        "workers": "3",
        "readonly": "on",
        "cache_size_max_bytes": "1.5GiB",
        "start_method": "spawn",
    }
    by_name = Config().with_changes(**texts)
    assert by_name == Config.from_environment({f"FARM_{name.upper()}": text for name, text in texts.items()})
    assert by_name.mode is CompileMode.LAZY and by_name.workers == 3 and by_name.readonly is True
    assert by_name.cache_size_max_bytes == 3 << 29 and by_name.start_method is StartMethod.SPAWN


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GiB", 2 << 30), ("2G", 2 << 30), ("2 gb", 2 * 10**9), ("500MB", 5 * 10**8), ("7", 7), ("1k", 1024)],
)
def test_sizes_parse(text: str, size: int) -> None:
    assert Config().with_changes(cache_size_max_bytes=text).cache_size_max_bytes == size


@pytest.mark.parametrize(
    ("setting", "value", "legal"),
    [
        ("mode", "eager", "'strict', 'lazy', 'async'"),
        ("fallback", "numba", "'auto', 'python', 'wait'"),
        ("on_error", "ignore", "'warn', 'raise'"),
        ("on_degraded", "warn", "'count', 'raise'"),
        ("start_method", "forkserver", "'fork', 'spawn'"),
        ("log_level", "loud", "'debug'"),
        ("workers", "0", "at least 1, or 'auto'"),
        ("workers", True, "a whole number"),
        ("workers", "2.5", "a whole number"),
        ("nice", "20", "from 0 to 19"),
        ("readonly", "maybe", "true"),
        ("enabled", 2, "true"),
        ("job_timeout_s", "0", "more than zero"),
        ("job_timeout_s", "nan", "finite"),
        ("exit_grace_s", "-1", "zero or more"),
        ("cache_size_max_bytes", "2 apples", "'2GiB'"),
        ("cache_size_max_bytes", "0", "above zero"),
        ("worker_memory_max_bytes", "lots", "'auto'"),
        ("cache_dir", 3, "a path"),
        ("lower_cache_dirs", 3, "a list of paths"),
        ("shared_group", 3, "a name"),
    ],
)
def test_a_wrong_value_names_setting_value_and_legal_values(setting: str, value: object, legal: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config().with_changes(**{setting: value})
    assert (caught.value.setting, caught.value.value) == (setting, value)
    assert legal in caught.value.legal
    assert setting in str(caught.value) and repr(value) in str(caught.value) and legal in str(caught.value)
    if isinstance(value, str):
        with pytest.raises(ConfigError, match=re.escape(setting)):
            Config.from_environment({f"FARM_{setting.upper()}": value})


def test_an_unknown_variable_is_warned_of_with_the_nearest_name() -> None:
    with pytest.warns(UnknownSettingWarning, match="FARM_WORKER is no setting.*did you mean FARM_WORKERS"):
        assert Config.from_environment({"FARM_WORKER": "3"}).workers is None
    with pytest.warns(UnknownSettingWarning, match="FARM_XYZZY is no setting of the farm$"):
        Config.from_environment({"FARM_XYZZY": "1"})


def test_an_unknown_keyword_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean megamorphic_compiles"):
        Config().with_changes(megamorfic_compiles=3)


def test_empty_and_foreign_variables_are_passed_over() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Config.from_environment({"FARM_WORKERS": "", "FARMER": "x", "PATH": "/bin"}) == Config()


def test_paths_are_absolute_because_workers_run_in_the_root_directory() -> None:
    c = Config().with_changes(cache_dir="here", lower_cache_dirs=f"a{os.pathsep}/b{os.pathsep}")
    assert c.cache_dir == Path.cwd() / "here"
    assert c.lower_cache_dirs == (Path.cwd() / "a", Path("/b"))


def test_words_for_none_are_understood() -> None:
    c = Config().with_changes(workers="auto", worker_memory_max_bytes="auto", shared_group="none")
    assert (c.workers, c.worker_memory_max_bytes, c.shared_group) == (None, None, None)


def test_the_ongoing_limit_is_never_below_the_number_of_workers() -> None:
    assert [Config().ongoing_limit(n) for n in (1, 10, 32)] == [10, 10, 32]


def test_memory_limit_is_the_setting_or_a_quarter_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "machine_memory_bytes", lambda: 8 << 30)
    assert Config().worker_memory_limit_bytes() == 2 << 30
    assert Config(worker_memory_max_bytes=5).worker_memory_limit_bytes() == 5


def test_the_smallest_control_group_limit_of_the_ancestors_counts(tmp_path: Path) -> None:
    group = tmp_path / "sys/fs/cgroup/a/b"
    group.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/a/b\n")
    (group / "memory.max").write_text("max\n")
    assert config.cgroup_memory_bytes(tmp_path) is None
    (group.parent / "memory.max").write_text("1000\n")
    assert config.cgroup_memory_bytes(tmp_path) == 1000
    assert config.cgroup_memory_bytes(tmp_path / "nowhere") is None


def test_importing_config_imports_neither_platformdirs_nor_psutil() -> None:
    code = "import sys, farm.config; print(sorted({'platformdirs', 'psutil'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert out.stdout.strip() == "[]"
