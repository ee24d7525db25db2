"""Reports of real farms: what is in them, and that they are written however the recording ends."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import farm
from farm.errors import FarmWarning

large = np.arange(10.0**6)


def spans(path: Path) -> list[dict[str, Any]]:
    """The complete events of a trace."""
    return [one for one in json.loads(path.read_text())["traceEvents"] if one["ph"] == "X"]


def kinds(path: Path) -> set[tuple[str, str]]:
    """(function, category) of what is in a trace."""
    return {(one["name"].split(".")[-1].split("(")[0].split(" ")[0], one["cat"]) for one in spans(path)}


def in_python(path: Path) -> set[str]:
    """The functions whose fallback ran. Spans are joined, and have the name of the first."""
    own = json.loads(path.read_text())["otherData"]["fallback_own_s"]
    return {one.split(".")[-1] for one in own}


def plain(x):
    return x * x + 1


def local(x):
    return large[0] + x


def bad(x):
    return x.nothing_of_the_kind


def outer(x):
    return plain(x) + 1


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, farm.Stats]:
    """A program's first run and its second, each with a report; and what was counted in the first."""
    folder = tmp_path_factory.mktemp("reports")
    counted = None
    for name in ("first", "second"):
        with farm.Farm(cache_dir=folder / "cache", workers=1) as barn:
            recording = farm.report(folder / f"{name}.html", folder / f"{name}.json", farm=barn)
            functions = [farm.njit(one, farm=barn) for one in (plain, local)]
            failing = farm.njit(bad, farm=barn)
            with recording:
                for function in functions:
                    assert function(3) == function.py_func(3)
                with pytest.raises(AttributeError):
                    failing(3)
                assert barn.wait(60)
            recording.stop()
            counted = counted or barn.stats()
            assert "written" in repr(recording) and not len(barn.record.listeners) and not barn.record.watches
    assert counted is not None
    return folder, counted


def test_every_compile_load_and_fallback_is_in_the_trace(recorded: tuple[Path, farm.Stats]) -> None:
    folder, counted = recorded
    assert (counted.compiled, counted.local, counted.failed) == (1, 1, 1)
    always = {("local", "local"), ("bad", "failed")}
    first = kinds(folder / "first.json")
    assert first >= {("plain", "compiled"), ("plain", "loaded"), *always}
    assert in_python(folder / "first.json") >= {"plain", "local"}
    second = kinds(folder / "second.json")
    assert second >= {("plain", "loaded"), *always} and ("plain", "compiled") not in second


def test_spans_are_where_and_when_they_happened(recorded: tuple[Path, farm.Stats]) -> None:
    folder, counted = recorded
    found = spans(folder / "first.json")
    (compiled,) = (one for one in found if one["cat"] == "compiled")
    (loaded,) = (one for one in found if one["cat"] == "loaded")
    assert compiled["pid"] != os.getpid() == loaded["pid"]
    assert loaded["ts"] + loaded["dur"] >= compiled["ts"] + compiled["dur"] > 0
    assert compiled["dur"] / 1e6 >= counted.per_function[f"{__name__}.plain"].compile_s
    assert compiled["args"]["queued_s"] > 0 and loaded["args"]["detail"].endswith("KiB")
    assert all(one["ts"] >= 0 and one["dur"] >= 0 for one in found)


def test_the_page_has_the_spans_of_the_trace(recorded: tuple[Path, farm.Stats]) -> None:
    folder, _ = recorded
    page = (folder / "first.html").read_text()
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert len(data["spans"]) == len(spans(folder / "first.json"))
    assert f"{__name__}.plain" in page and list(folder.glob("*.new")) == []


def test_only_what_comes_after_the_beginning_is_counted(tmp_path: Path) -> None:
    with farm.Farm(cache_dir=tmp_path / "cache", workers=1) as barn:
        function = farm.njit(plain, farm=barn)
        function(3)
        assert barn.wait(60)
        with farm.report(tmp_path / "out.json", farm=barn):
            pass
    other = json.loads((tmp_path / "out.json").read_text())
    assert other["otherData"]["counters"]["compiled"] == 0 and spans(tmp_path / "out.json") == []


def test_fallback_time_is_each_functions_own_also_by_shortcuts_and_with_a_declared_signature(tmp_path: Path) -> None:
    with farm.Farm(cache_dir=tmp_path / "cache", workers=1) as barn:
        inner = farm.njit(plain, farm=barn)

        def calls_it(x):
            return inner(x) + 1

        caller = farm.njit(calls_it, farm=barn)
        declared = farm.njit("int64(int64)", farm=barn)(lambda x: x + 2)
        caller(3)
        caller(3)  # by a shortcut that knew of no recording
        with farm.report(tmp_path / "out.json", farm=barn):
            counted = barn.stats().fallback_calls
            for _ in range(5):
                caller(3), declared(3)
            made = barn.stats().fallback_calls - counted
        assert not any(one.shortcuts for one in (caller, inner))
    own = json.loads((tmp_path / "out.json").read_text())["otherData"]["fallback_own_s"]
    calls = sum(
        int(one["args"]["detail"].split()[0]) for one in spans(tmp_path / "out.json") if one["cat"] == "fallback"
    )
    assert 0 < calls <= made
    assert all(seconds >= 0 for seconds in own.values()) and own


def test_two_recordings_at_once_are_whole(tmp_path: Path) -> None:
    with farm.Farm(cache_dir=tmp_path / "cache", workers=1) as barn, farm.report(tmp_path / "long.json", farm=barn):
        farm.njit(plain, farm=barn)(3)
        with farm.report(tmp_path / "short.json", farm=barn):
            farm.njit(local, farm=barn)(3)
            assert barn.wait(60)
    for name, functions in {"long": {"plain", "local"}, "short": {"local"}}.items():
        path = tmp_path / f"{name}.json"
        assert in_python(path) == functions and ("local", "local") in kinds(path)


def test_what_is_not_over_at_the_end_says_so(tmp_path: Path) -> None:
    begun = threading.Event()

    class Hears:
        def on_event(self, event: farm.observe.events.Event) -> None:
            begun.set()

    with farm.Farm(cache_dir=tmp_path / "cache", workers=1) as barn, farm.report(tmp_path / "out.json", farm=barn):
        function = farm.njit(lambda x: np.median(x) + np.std(x), farm=barn)
        function(np.ones(3))
        pending = barn.requests.all()
        end = 60_000
        while pending and not pending[0].ticket.attempts and (end := end - 1):
            begun.wait(0.001)
    (found,) = (one for one in spans(tmp_path / "out.json") if one["cat"] not in ("fallback", "loaded"))
    assert found["cat"] == "cancelled" and "not over" in found["args"]["detail"]


def test_a_closed_farm_has_written_its_report(tmp_path: Path) -> None:
    barn = farm.Farm(cache_dir=tmp_path / "cache", workers=1)
    farm.report(tmp_path / "out.json", farm=barn)
    barn.close()
    assert spans(tmp_path / "out.json") == []


def test_a_directory_that_is_not_there_is_an_error_at_the_beginning(tmp_path: Path) -> None:
    with farm.Farm(cache_dir=tmp_path / "cache") as barn:
        with pytest.raises(FileNotFoundError, match="missing"):
            farm.report(tmp_path / "missing" / "out.html", farm=barn)
        assert not len(barn.record.listeners)


def test_a_report_that_cannot_be_written_is_an_error_of_stop_and_a_warning_at_close(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    for end in ("stop", "close"):
        barn = farm.Farm(cache_dir=tmp_path / "cache")
        folder = tmp_path / "gone"
        folder.mkdir(exist_ok=True)
        recording = farm.report(folder / "out.html", farm=barn)
        folder.rmdir()
        if end == "stop":
            with pytest.raises(FileNotFoundError):
                recording.stop()
            recording.stop()
            barn.close()
        else:
            with pytest.warns(FarmWarning, match="the report was not written"):
                barn.close()


def test_a_report_goes_into_a_device_as_it_is(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    try:
        with farm.Farm(cache_dir=tmp_path / "cache") as barn, farm.report(f"/proc/self/fd/{writer}", farm=barn):
            pass
        assert os.read(reader, 15) == b"<!doctype html>"
    finally:
        os.close(reader)
        os.close(writer)
