"""`farm prewarm` and `farm manifest`: what they take, say and answer. Nothing is compiled here but one function."""

import json
import platform
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from farm.ahead.manifest import ManifestEntry, read, write
from farm.ahead.prewarm import PrewarmProgress
from farm.tools.prewarm import _display

LIBRARY = {
    "__init__.py": "",
    "prices.py": """
        import farm
        from numba import njit
        print("imported")
        @njit(["int64(int64)", "float64(float64)"])
        def twice(x):
            return x + x
        @farm.njit("float64(float64)", mode="strict")
        def half(x):
            return x / 2
        @njit
        def plain(x):
            return x
        @njit(forceobj=False)
        def wrong(x):
            return x.nothing
        at_import = plain(3)
        compiled = plain.compile("float32(float32)")
        """,
    "broken.py": "raise RuntimeError('\\nthis one is broken\\nget a driver\\n')",
    "optional.py": "import a_module_that_nobody_has",
    "__main__.py": "raise SystemExit('the program was started')",
    "farm-manifest.jsonl": '{"farm-manifest": 1}\n{"function": "NAME.prices:plain", "signature": "(boolean)"}\n',
}


@pytest.fixture
def library(shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[str]:
    """A package in the current directory, of a name that no other test uses."""
    name = f"goods_{abs(hash(request.node.name))}"
    for file, text in LIBRARY.items():
        path = tmp_path / name / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text).replace("NAME", name))
    monkeypatch.chdir(tmp_path)
    yield name
    for module in [one for one in sys.modules if one.partition(".")[0] == name]:
        del sys.modules[module]


def rows(output: str) -> dict[tuple[str, str], tuple[str, str]]:
    return {(row["function"], row["signature"]): (row["outcome"], row["detail"]) for row in json.loads(output)["rows"]}


def test_a_package_gives_its_explicit_signatures_what_it_asks_for_and_its_manifest(shell, library: str) -> None:
    result = shell.run("prewarm", library, "--dry-run", "--json")
    found = rows(result.stdout)
    assert {key for key, value in found.items() if value[0] == "absent"} == {
        (f"{library}.prices:twice", "(int64)"),
        (f"{library}.prices:twice", "(float64)"),
        (f"{library}.prices:half", "(float64)"),
        (f"{library}.prices:plain", "(int64)"),
        (f"{library}.prices:plain", "(float32)"),
        (f"{library}.prices:plain", "(boolean)"),
    }
    broken, optional = found.pop((f"{library}.broken", "")), found.pop((f"{library}.optional", ""))
    assert broken == ("failed", "importing it ended in RuntimeError: this one is broken")
    assert optional == ("skipped", "No module named 'a_module_that_nobody_has'")
    assert result.exit_code == 1 and "imported" in result.stderr
    assert not shell.cache_dir.exists(), "a dry run makes nothing"


def test_nothing_is_compiled_or_started_by_importing_for_a_prewarm(shell, library: str) -> None:
    shell.run("prewarm", library, "--dry-run")
    module = sys.modules[f"{library}.prices"]
    for function in (module.twice, module.half, module.plain):
        assert function.overloads == {} and repr(function.farm()).endswith("| 0 pending | no pool yet]>")
    assert module.at_import == 3 and module.compiled is module.plain.py_func


def test_a_function_is_compiled_with_the_signatures_after_it_and_found_afterwards(shell, library: str) -> None:
    words = ("prewarm", f"{library}.prices:plain", "int64(int64)", f"{library}.prices:wrong", "int64(int64)")
    result = shell.run(*words, "--workers", "1")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["function", "signature", "cpu", "seconds", "size", "result"]
    assert lines[1].split()[:3] == [f"{library}.prices:plain", "(int64)", "host"] and lines[1].endswith("KiB  compiled")
    assert "failed: TypingError: Unknown attribute 'nothing' of type int64" in lines[2]
    assert lines[3] == "1 compiled, 1 failed"
    assert f"] {library}.prices:plain(int64): compiled\n" in result.stderr
    again = shell.run(*words[:3], "--check", "--json")
    assert again.exit_code == 0 and json.loads(again.stdout)["counts"] == {"there": 1}
    (row,) = json.loads(again.stdout)["rows"]
    assert row["seconds"] > 0 and row["size_bytes"] > 1000 and len(row["key"]) == 64
    other = shell.run(*words[:3], "--cpu", "x86-64", "--cpu", "host", "--check", "--json")
    assert other.exit_code == 1 and json.loads(other.stdout)["counts"] == {"there": 1, "absent": 1}


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names of CPUs are those of x86-64")
def test_code_for_a_lesser_cpu_is_enough_for_check_and_not_for_a_prewarm(shell, library: str) -> None:
    words = ("prewarm", f"{library}.prices:plain", "int64(int64)", "--json", "--workers", "1")
    made = json.loads(shell.run(*words, "--cpu", "x86-64").stdout)["rows"]
    assert [(row["cpu"], row["outcome"]) for row in made] == [("x86-64", "compiled")]
    (row,) = json.loads(shell.run(*words, "--check").stdout)["rows"]
    assert (row["cpu"], row["outcome"], row["detail"]) == ("host", "there", "code for x86-64, which runs here")
    assert row["key"] == made[0]["key"]
    (row,) = json.loads(shell.run(*words, "--dry-run").stdout)["rows"]
    assert row["outcome"] == "absent" and row["key"] != made[0]["key"]


def test_on_a_terminal_a_bar_shows_what_compiles_and_how_long_it_will_take(shell, capsys) -> None:
    shell.set("FORCE_COLOR", "1")  # what makes rich take its output for a terminal
    shell.set("COLUMNS", "200")
    with _display() as show:
        show(PrewarmProgress(3, 7, ("shop:total(float64[::1])",), 250.0))
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)
    assert "3/7 about 4 min left shop:total(float64[::1])" in shown


def test_without_signatures_a_function_gives_those_it_declares(shell, library: str) -> None:
    found = rows(shell.run("prewarm", f"{library}.prices:twice", "--dry-run", "--json").stdout)
    assert [signature for _, signature in found] == ["(float64)", "(int64)"]
    wrong = rows(shell.run("prewarm", f"{library}.prices:twice", "(int8,)", "--dry-run", "--json").stdout)
    (found_wrong,) = wrong.values()
    assert found_wrong == ("not_found", "it is not among the function's explicit signatures")


def entry(function: str, signature: str = "(int64)", **more: object) -> ManifestEntry:
    return ManifestEntry(function=function, signature=signature, **more)  # type: ignore[arg-type]


def test_entries_that_are_gone_are_rows_with_the_reason_and_check_finds_them(shell, library: str) -> None:
    prices = f"{library}.prices"
    gone = {
        entry("no_such_module:f"): "there is no module no_such_module",
        entry(f"{prices}:nothing"): f"module {prices} holds no nothing",
        entry(f"{prices}:at_import"): "what has this name is no jitted function",
        entry(f"{library}.broken:f"): "importing it ended in RuntimeError: this one is broken",
        entry(f"{prices}:plain", "(nonsense)"): "nonsense is no type",
        entry(f"{prices}:plain", flags='{"fastmath": 3}'): "fastmath=3 is no flag that a caller hands down",
        entry(f"{prices}:twice", "(int8)"): "it is not among the function's explicit signatures",
        entry("__main__:f", program="x.py"): "it belongs to the main module of a program: give --script x.py",
        entry("__main__:f", program="-m x"): "it belongs to the main module of a program: give -m x",
        entry("nonsense"): "'nonsense' is not of the form module:function",
    }
    here, closure = entry(f"{prices}:plain"), entry("x:<lambda>", reason="it is a lambda")
    write(Path("m.jsonl"), [*gone, here, closure])
    result = shell.run("prewarm", "m.jsonl", "--dry-run", "--json")
    found = {(row["function"], row["signature"]): row for row in json.loads(result.stdout)["rows"]}
    assert result.exit_code == 1 and len(json.loads(result.stdout)["rows"]) == len(gone) + 2
    for one, detail in gone.items():
        assert detail in result.stdout.replace('\\"', '"'), one
    assert found[(here.function, "(int64)")]["failed"] is False
    assert found[("x:<lambda>", "(int64)")]["outcome"] == "not_replayable"
    checked = shell.run("manifest", "check", "m.jsonl", "--json")
    assert checked.exit_code == 1
    assert {one["detail"] for one in json.loads(checked.stdout)["unresolved"]} == set(gone.values())
    assert checked.stderr.splitlines()[-1] == f"Error: {len(gone)} of {len(gone) + 1} entries no longer resolve"
    write(Path("good.jsonl"), [here])
    good = shell.run("manifest", "check", "good.jsonl")
    assert (good.exit_code, good.stdout) == (0, "1 entry, and each resolves\n")


def test_what_cannot_be_stored_counts_for_check_and_fails_no_prewarm(shell, library: str) -> None:
    words = ("prewarm", f"{library}.prices:unkeyable", "int64(int64)")
    with Path(library, "prices.py").open("a") as file:
        file.write("import ctypes\nnumber = ctypes.c_int()\n@njit\ndef unkeyable(x):\n    return x + number.value\n")
    result = shell.run(*words)
    assert result.exit_code == 0 and "cannot be stored: compiled by each program: the function reaches" in result.stdout
    checked = shell.run(*words, "--check")
    assert checked.exit_code == 1 and checked.stderr.endswith("Error: 1 of 1 would have to be compiled\n")


PROGRAM = """
import sys
from numba import njit
@njit("int64(int64)")
def seven(x):
    return 7 * x
print(__name__, sys.argv)
if __name__ == "__main__":
    raise RuntimeError("the program was started")
"""


def test_a_script_is_run_as_an_import_and_is_main_afterwards(shell, library: str, tmp_path: Path) -> None:
    before, path = sys.modules["__main__"], list(sys.path)
    Path("program.py").write_text(PROGRAM)
    result = shell.run("prewarm", "--script", "program.py", "--dry-run", "--json")
    assert rows(result.stdout) == {("__main__:seven", "(int64)"): ("absent", "")}
    assert f"__mp_main__ ['{tmp_path / 'program.py'}']" in result.stderr
    assert sys.modules["__main__"] is before and sys.path == path
    Path(library, "__main__.py").write_text(PROGRAM)
    as_module = rows(shell.run("prewarm", "-m", library, "--dry-run", "--json").stdout)
    assert ("__main__:seven", "(int64)") in as_module and (f"{library}.prices:twice", "(int64)") in as_module


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "give a manifest, a package or module:function, or --script, -m or --library"),
        (("--script", "a", "-m", "b"), 2, "not both: a process has one main module"),
        (("a/b",), 2, "Error: 'a/b' is neither a manifest (x.jsonl), nor module:function, nor a package that can be"),
        (("none.jsonl",), 1, "Error: manifest none.jsonl: it cannot be read: No such file or directory"),
        (("newer.jsonl",), 1, "it has version 2, and this farm reads up to 1: use a newer farm"),
        (("math:sin", "float64(nonsense)"), 2, "is not a signature"),
        (("math", "--cpu", "host,+magic"), 2, "'magic' is no feature"),
        (("math", "--workers", "no"), 2, "Error: setting 'workers' cannot be 'no'"),
        (("math", "--script", "none.py"), 1, "Error: none.py: it cannot be read: FileNotFoundError"),
        (("math", "--script", "bad.py"), 1, "Error: bad.py: running its main module ended in KeyError: 'x'"),
        (("math", "-m", "nothing.here"), 1, "Error: -m nothing.here: it cannot be read: ModuleNotFoundError"),
    ],
)
def test_wrong_usage_and_what_cannot_be_read_are_one_sentence(
    shell, library: str, words: tuple[str, ...], code: int, said: str
) -> None:
    Path("newer.jsonl").write_text('{"farm-manifest": 2}\n')
    Path("bad.py").write_text("{}['x']")
    result = shell.run("prewarm", *words)
    assert (result.exit_code, result.stdout) == (code, "")
    assert said in result.stderr.splitlines()[-1]


def test_a_store_that_is_refused_or_only_read_ends_it(shell, library: str) -> None:
    words = ("prewarm", f"{library}.prices:plain", "int64(int64)")
    shell.set("FARM_READONLY", "1")
    readonly = shell.run(*words)
    assert readonly.exit_code == 2 and "setting 'readonly' cannot be True" in readonly.stderr
    shell.set("FARM_READONLY", "0")
    shell.cache_dir.mkdir(0o777)
    shell.cache_dir.chmod(0o777)
    refused = shell.run(*words)
    assert refused.exit_code == 1 and f"run: chmod 700 {shell.cache_dir}" in refused.stderr.splitlines()[-1]


def test_manifests_are_merged_and_shown(shell, library: str) -> None:
    full = entry("a:f", "(int64)", returns="int64", flags='{"nrt": true}', program="x.py", pickles=("gASV",))
    write(Path("one.jsonl"), [full, entry("a:g")])
    write(Path("two.jsonl"), [entry("a:g"), entry("a:h", reason="it is a lambda")])
    result = shell.run("manifest", "merge", "all.jsonl", "one.jsonl", "two.jsonl")
    assert (result.exit_code, result.stdout) == (0, "3 entries in all.jsonl\n")
    assert [one.function for one in read(Path("all.jsonl"))] == ["a:f", "a:g", "a:h"]
    shown = shell.run("manifest", "show", "all.jsonl").stdout.splitlines()
    assert shown == [
        "function  signature         program  notes",
        "a:f       (int64) -> int64  x.py     from a caller with nrt=True; 1 pickle",
        "a:g       (int64)",
        "a:h       (int64)                    cannot be asked for: it is a lambda",
    ]
    as_json = json.loads(shell.run("manifest", "show", "all.jsonl", "--json").stdout)
    assert [one["function"] for one in as_json["entries"]] == ["a:f", "a:g", "a:h"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("merge", "out.jsonl", "none.jsonl"), 1, "Error: manifest none.jsonl: it cannot be read"),
        (("merge", "none/out.jsonl", "m.jsonl"), 1, "Error: manifest none/out.jsonl: it cannot be written"),
        (("merge", "out.jsonl"), 2, "Missing argument 'IN...'"),
        (("show", "none.jsonl"), 1, "Error: manifest none.jsonl: it cannot be read"),
        (("check", "none.jsonl"), 1, "Error: manifest none.jsonl: it cannot be read"),
        (("check", "m.jsonl", "--script", "none.py"), 1, "Error: none.py: it cannot be read"),
        (("check", "m.jsonl", "--script", "a", "-m", "b"), 2, "not both: a process has one main module"),
    ],
)
def test_a_manifest_command_that_cannot_be_done_is_one_sentence(
    shell, library: str, words: tuple[str, ...], code: int, said: str
) -> None:
    write(Path("m.jsonl"), [])
    result = shell.run("manifest", *words)
    assert result.exit_code == code and said in result.stderr.splitlines()[-1]


@pytest.mark.parametrize("words", [("prewarm",), ("manifest", "merge"), ("manifest", "show"), ("manifest", "check")])
def test_help_says_the_exit_codes_and_ends_with_an_example(shell, words: tuple[str, ...]) -> None:
    output = shell.run(*words, "--help").output
    assert "Exit codes: 0" in output
    assert f"farm {' '.join(words)} " in output[output.index("Example:") :]
