"""The pytest plugin, in runs of pytest of its own: one store, tests that must not compile, and the line at the end."""

import re
from pathlib import Path

import pytest

pytest_plugins = ("pytester",)

PROGRAM = """
    from farm import njit

    @njit
    def triple(x):
        return 3 * x

    def test_triple():
        assert triple(2) == 6

    def test_nothing():
        pass
"""
AGAIN = "from test_one import triple\ndef test_triple_again():\n    assert triple(3) == 9\n"


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Run pytest with the plugin in a process of its own; gives the result."""
    monkeypatch.delenv("FARM_CACHE_DIR", raising=False)
    monkeypatch.setenv("FARM_NICE", "0")
    pytester.makepyfile(test_one=PROGRAM)

    def run(*arguments: str) -> pytest.RunResult:
        return pytester.runpytest_subprocess("-p", "farm.testing", "-p", "no:randomly", *arguments, timeout=110)

    return run


def test_what_one_run_compiled_the_next_one_loads_from_a_store_in_pytests_cache(run, pytester) -> None:
    first = run("--farm-no-compile")
    first.assert_outcomes(passed=1, failed=1)
    first.stdout.fnmatch_lines(
        [
            "*test_triple*",
            "--farm-no-compile: not in the store *.pytest_cache*farm*, and so compiled:",
            "  test_one.triple in a worker",
            "Run the tests once without the option, or fill the store with `farm prewarm`.",
            "farm: 0 loaded (0.0 s of compiling saved), 1 compiled (* s); store: *",
        ]
    )
    second = run("--farm-no-compile")
    second.assert_outcomes(passed=2)
    (line,) = [line for line in second.outlines if line.startswith("farm: 1 loaded")]
    saved = re.search(r"\(([\d.]+) s of compiling saved\), 0 compiled \(0.0 s\); store: (.*)$", line)
    assert saved is not None
    assert (Path(saved[2]) / "v1").is_dir()
    assert Path(saved[2]).is_relative_to(pytester.path / ".pytest_cache")


def test_processes_of_xdist_share_the_store_that_the_option_names_and_are_added_up(run, pytester) -> None:
    pytester.makepyfile(test_two=AGAIN)
    run("--farm-cache", "kept").assert_outcomes(passed=3)
    shared = run("--farm-cache", "kept", "-n", "2", "--dist", "loadfile", "--farm-no-compile")
    shared.assert_outcomes(passed=3)
    shared.stdout.fnmatch_lines([f"farm: 2 loaded (* s of compiling saved), 0 compiled*; store: {pytester.path}/kept"])


def test_what_a_fixture_or_another_farm_compiles_fails_the_test_that_it_was_for(run, pytester, monkeypatch) -> None:
    monkeypatch.setenv("FARM_CACHE_DIR", str(pytester.path / "mine"))
    pytester.makepyfile(
        test_one="""
            import pytest
            from farm import Farm, njit

            large = __import__("numpy").zeros(10**6)

            @pytest.fixture
            def compiled():
                with Farm() as barn:
                    njit(lambda x: x + 1, farm=barn, mode="strict")(1)
                    yield

            def test_with_fixture(compiled):
                pass

            def test_in_this_process():
                njit(lambda i: large[i], mode="strict")(1)

            def test_other():
                pass
        """
    )
    result = run("--farm-no-compile")
    result.assert_outcomes(passed=1, failed=1, errors=1)
    result.stdout.fnmatch_lines(["*<lambda> in a worker*", "*<lambda> in this process*"], consecutive=False)
