"""A report is written however a program ends, but for a kill; and once."""

import json
from pathlib import Path

import pytest
from sessions import run

PROGRAM = """
recording = farm.report("out.html", "out.json")
f = farm.njit(power(1))
assert f(2) == 33 and f.wait(60)
os.chdir("/")
"""
ENDS = {
    "at its last line": ("", 0),
    "by sys.exit": ("sys.exit(3)", 3),
    "by an exception": ("raise ValueError('mine')", 1),
    "in a block that raises": ("with recording: raise ValueError('mine')", 1),
    "after a child has ended": ("if os.fork() == 0:\n    f(3), sys.exit(0)\nassert os.wait()[1] == 0", 0),
    "with a job running": ("g = farm.njit(slow(1)); g(np.ones(3)); eventually(busy)", 0),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One for all these programs: the first fills it."""
    return str(tmp_path_factory.mktemp("store") / "cache")


@pytest.mark.concurrency
@pytest.mark.parametrize("how", ENDS)
def test_a_report_is_written_when_a_program_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, store: str
) -> None:
    monkeypatch.chdir(tmp_path)
    end, code = ENDS[how]
    done = run(tmp_path, PROGRAM + end, FARM_EXIT_GRACE_S="0", FARM_CACHE_DIR=store)
    assert done.code == code and done.err.count("Traceback") == (code == 1), done
    trace = json.loads((tmp_path / "out.json").read_text())
    names = {one["cat"] for one in trace["traceEvents"] if one["ph"] == "X" and "fifth" in one["name"]}
    assert "loaded" in names and names <= {"compiled", "fallback", "loaded"}
    assert (tmp_path / "out.html").read_text().endswith("</html>\n")
    if how == "with a job running":
        assert [one["cat"] for one in trace["traceEvents"] if "measure" in one["name"] and one["cat"] != "fallback"]


@pytest.mark.concurrency
def test_a_program_that_leaves_without_a_goodbye_writes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(tmp_path, PROGRAM + "os._exit(0)", FARM_CACHE_DIR=store).code == 0
    assert not list(tmp_path.glob("out.*"))
