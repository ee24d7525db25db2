"""`farm why`: hit or miss, the differences in words, what is never stored, and what is wrong usage."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from command_session import Done, run_session
from test_cache_list import put

FARM = Path(sys.executable).with_name("farm")

KERNELS: Final = """
import farm
GAIN = 2.5

@farm.njit
def helper(x):
    return x * 3 + GAIN

@farm.njit
def score(x, w):
    s = 0.0
    for i in range(len(w)):
        s += w[i] * helper(x)
    return s

@farm.njit("float64(int64)")
def declared(n):
    return n + 0.5

@farm.jit(forceobj=True)
def in_python(n):
    return n

HANDLE = object()

@farm.njit
def unkeyable(n):
    return HANDLE is None

def plain(n):
    return n

def work():
    import numpy
    score(2.0, numpy.ones(3))
    declared(1)

class Box:
    @staticmethod
    @farm.njit
    def inside(n):
        return n
"""
SCRIPT: Final = """
import sys
import numba
if __name__ == "__main__":
    sys.exit("this must not run")

@numba.njit
def run(n):
    return n + 1
"""
STRICT: Final = """
import farm
@farm.njit("float64(int64)", mode="strict")
def declared(n):
    return n + 0.5
assert not declared.overloads and farm.stats().local == 0, "nothing was compiled"
"""
OTHERS: Final = {
    "script.py": SCRIPT,
    "strict.py": STRICT,
    "raises.py": "1/0",
    "exits.py": "raise SystemExit(3)",
}
WHY: Final = ["why", "kernels:score", "(float64,float64[::1])"]


def edited(*pairs: tuple[str, str]) -> dict[str, str]:
    text = KERNELS
    for before, after in pairs:
        assert before in text
        text = text.replace(before, after)
    return {"kernels.py": text}


ORIGINAL: Final = {"kernels.py": KERNELS}
STEPS: Final[dict[str, tuple[dict[str, str], list[str]]]] = {
    "empty": (
        ORIGINAL | {"script.py": SCRIPT, "raises.py": "1/0", "exits.py": "raise SystemExit(3)", "strict.py": STRICT},
        WHY,
    ),
    "compile": ({}, ["compile"]),
    "hit": ({}, WHY),
    "hit for machines": ({}, [*WHY, "--json"]),
    "with its return type": ({}, ["why", "kernels:score", "float64(float64, float64[::1])"]),
    "declared": ({}, ["why", "kernels:declared", "float64(int64)"]),
    "declared otherwise": ({}, ["why", "kernels:declared", "float64(unicode_type)"]),
    "other types": ({}, ["why", "kernels:score", "(int64, float64[::1])"]),
    "constant": (edited(("x * 3", "x * 4"), ("GAIN = 2.5", "GAIN = 3.0")), WHY),
    "constant for machines": ({}, [*WHY, "--json"]),
    "bytecode": (edited(("w[i] *", "w[i] -")), WHY),
    "renamed": (edited(("def score", "def points")), ["why", "kernels:points", "(float64, float64[::1])"]),
    "damage": (ORIGINAL, ["damage", "kernels.score"]),
    "damaged": ({}, WHY),
    "object mode": ({}, ["why", "kernels:in_python", "(int64,)"]),
    "unkeyable": ({}, ["why", "kernels:unkeyable", "(int64,)"]),
    "unkeyable for machines": ({}, ["why", "kernels:unkeyable", "(int64,)", "--json"]),
    "method": ({}, ["why", "kernels:Box.inside", "(int64,)"]),
    "not there": ({}, ["why", "kernels:none", "(int64,)"]),
    "not jitted": ({}, ["why", "kernels:plain", "(int64,)"]),
    "no module": ({}, ["why", "no_such_module:f", "(int64,)"]),
    "raises": ({}, ["why", "raises:f", "(int64,)"]),
    "exits": ({}, ["why", "exits:f", "(int64,)"]),
    "no signature": ({}, ["why", "kernels:score", "nonsense("]),
    "failing script": ({}, ["why", "__main__:run", "(int64,)", "--script", "raises.py"]),
    "strict": ({}, ["why", "strict:declared", "(int64,)"]),
    "script": ({}, ["why", "__main__:run", "(int64,)", "--script", "script.py"]),
}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    """All of it in one process, on one store that a real worker has filled."""
    return run_session(tmp_path_factory.mktemp("why"), STEPS)


def test_an_empty_store_has_nothing_to_compare_with(session: dict[str, Done]) -> None:
    done = session["empty"]
    assert (done.exit_code, done.stderr) == (1, "")
    assert done.stdout.startswith("miss: kernels.score(float64, array(float64, 1d, C)) is not in the store\n")
    assert "there is no artifact to compare it with" in done.stdout


@pytest.mark.parametrize("name", ["hit", "with its return type", "declared"])
def test_what_a_program_compiled_is_a_hit(session: dict[str, Done], name: str) -> None:
    done = session[name]
    assert done.exit_code == 0 and done.stdout.startswith("hit: kernels."), done
    assert " s of compiling\n" in done.stdout and "  toolchain   " in done.stdout


def test_a_hit_for_machines(session: dict[str, Done]) -> None:
    found = json.loads(session["hit for machines"].stdout)
    assert found["hit"] is True and found["nearest"] is None and found["refusal"] is None
    assert len(found["key"]) == 64 and found["key"] in session["hit"].stdout and "function" in found["parts"]


def test_other_argument_types_are_a_miss_that_says_so(session: dict[str, Done]) -> None:
    done = session["other types"]
    assert done.exit_code == 1
    assert "differs in  signature\n  argument 1: float64 -> int64\n" in done.stdout
    assert "signature   " in done.stdout and done.stdout.count("<- differs") == 1


def test_an_edited_callee_and_global_are_named(session: dict[str, Done]) -> None:
    done = session["constant"]
    assert done.exit_code == 1
    assert "differs in  function\n" in done.stdout
    assert "  callee `helper` changed: constant 3 -> 4\n" in done.stdout
    assert "  global GAIN of callee `helper`: 2.5 -> 3.0\n" in done.stdout
    found = json.loads(session["constant for machines"].stdout)
    assert found["miss"] == {"reason": "ABSENT", "detail": ""}
    assert found["nearest"]["function"] == "kernels.score" and found["nearest"]["parts_that_differ"] == ["function"]
    texts = [one["text"] for one in found["nearest"]["differences"]]
    assert sorted(texts) == ["callee `helper` changed: constant 3 -> 4", "global GAIN of callee `helper`: 2.5 -> 3.0"]


def test_edited_code_is_named(session: dict[str, Done]) -> None:
    assert "the bytecode of `score` changed\n" in session["bytecode"].stdout


def test_a_renamed_function_is_compared_with_what_is_most_like_it(session: dict[str, Done]) -> None:
    done = session["renamed"]
    assert done.exit_code == 1 and "the store has nothing of kernels.points" in done.stdout
    assert "nearest     kernels.score(float64, array(float64, 1d, C))" in done.stdout


def test_what_is_there_and_cannot_be_used_is_a_miss_with_its_reason(session: dict[str, Done]) -> None:
    done = session["damaged"]
    assert done.exit_code == 1 and "is in the store and cannot be used" in done.stdout
    assert "the file is shorter than its header says" in done.stdout


def test_what_is_never_stored_says_why(session: dict[str, Done]) -> None:
    done = session["object mode"]
    assert done.exit_code == 1 and done.stdout.startswith("never stored: kernels.in_python(int64)")
    assert "object mode" in done.stdout
    done = session["unkeyable"]
    assert done.exit_code == 1 and "kernels.HANDLE is a builtins.object object" in done.stdout
    found = json.loads(session["unkeyable for machines"].stdout)
    assert found["hit"] is False and found["refusal"]["reason"] == "UNKEYABLE" and found["key"] is None


def test_a_function_in_a_class_is_found(session: dict[str, Done]) -> None:
    assert session["method"].exit_code == 1 and "kernels.Box.inside(int64)" in session["method"].stdout


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("not there", "module kernels holds no none"),
        ("not jitted", "kernels:plain is not jitted"),
        ("no module", "there is no module no_such_module"),
        ("raises", "importing what raises:f names ended in ZeroDivisionError"),
        ("exits", "importing what exits:f names ended the program: sys.exit(3)"),
        ("failing script", "raises.py: running its main module ended in ZeroDivisionError"),
        ("no signature", "'nonsense(' is not a signature"),
        ("declared otherwise", "is not a signature"),
    ],
)
def test_what_cannot_be_found_is_wrong_usage(session: dict[str, Done], name: str, text: str) -> None:
    done = session[name]
    assert done.exit_code == 2 and text in done.stderr and done.stdout == "", done


def test_a_script_is_main_without_what_it_does_when_it_is_run(session: dict[str, Done]) -> None:
    done = session["script"]
    assert done.exit_code == 1 and done.stdout.startswith("miss: __main__.run(int64)"), done


def test_what_waits_for_its_code_when_it_is_declared_is_not_compiled_either(session: dict[str, Done]) -> None:
    done = session["strict"]
    assert done.exit_code == 0, "it is what kernels:declared is, under another name of its module"
    assert done.stdout.startswith("hit: strict.declared(int64)")


def test_two_keys_are_compared_and_one_is_shown(shell) -> None:
    from farm.job.outline import pack

    root = shell.cache_dir
    one = put(root, "f", outline=pack((("constant 1", "3"), ("global GAIN", "2.5"))))
    other = put(root, "g", outline=pack((("constant 1", "4"), ("global GAIN", "2.5"))), target={"cpu": "skylake"})
    result = shell.run("why", one.hex[:8], other.hex[:8])
    assert result.exit_code == 0
    assert "first       pkg.f(int64)" in result.stdout and "second      pkg.g(int64)" in result.stdout
    found = json.loads(shell.run("why", one.hex, other.hex, "--json").stdout)
    assert found["first"]["key"] == one.hex and found["parts_that_differ"] == ["name"]
    shown = shell.run("why", one.hex[:8])
    assert shown.exit_code == 0 and shown.stdout == shell.run("cache", "show", one.hex[:8]).stdout
    assert json.loads(shell.run("why", one.hex, "--json").stdout)["key"] == one.hex


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["12345"], "6 to 64 hexadecimal digits"),
        (["123456", "123456", "123456"], "one key, or two"),
        (["m:f"], "a function needs its signature"),
        (["__main__:f", "(int64,)"], "--script FILE"),
        (["m:f", "(int64,)", "--script", "none.py"], "does not exist"),
        ([], "Missing argument"),
    ],
)
def test_wrong_usage_is_told(shell, arguments: list[str], text: str) -> None:
    result = shell.run("why", *arguments)
    assert result.exit_code == 2 and text in result.stderr and result.stdout == ""


def test_an_absent_key_and_a_refused_directory_are_failures(shell) -> None:
    assert shell.run("why", "123456").exit_code == 1
    put(shell.cache_dir, "f")
    shell.cache_dir.chmod(0o777)
    result = shell.run("why", "123456")
    assert result.exit_code == 1 and "chmod 700" in result.stderr


def test_the_help_says_the_exit_codes_and_an_example(shell) -> None:
    text = shell.run("why", "--help").output
    assert "Exit codes:" in text and "Example:" in text and "--script" in text


@pytest.mark.skipif(not FARM.exists(), reason="the command is not installed beside this Python")
def test_the_installed_command_says_why(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS.replace("import farm", "import numba as farm", 1))
    command = [str(FARM), "why", "kernels:helper", "(int64,)", "--json", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert done.returncode == 1 and done.stderr == "", done.stderr
    assert json.loads(done.stdout)["miss"]["reason"] == "ABSENT"
