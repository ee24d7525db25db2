"""`farm run` that comes to nothing: one sentence, before the program begins."""

import pytest


def test_a_program_that_is_not_there_is_a_sentence_and_exit_code_2(shell) -> None:
    result = shell.run("run", "none.py")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "Error: cannot open none.py: No such file or directory\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--record", "none/m.jsonl", "x.py"), "m.jsonl: it cannot be written: No such file or directory"),
        (("--report", "none/out.html", "x.py"), "Error: the report cannot be written: "),
        (("--mode", "fast", "x.py"), "'fast' is not one of 'strict', 'lazy', 'async'"),
        ((), "Missing argument 'PROGRAM'"),
    ],
)
def test_wrong_usage_ends_before_the_program_begins(shell, words: tuple[str, ...], said: str) -> None:
    result = shell.run("run", *words)
    assert (result.exit_code, result.stdout) == (2, "") and said in result.stderr


def test_a_wrong_setting_ends_before_the_program_begins(shell) -> None:
    shell.set("FARM_WORKERS", "many")
    result = shell.run("run", "none.py")
    assert result.exit_code == 2 and result.stderr.startswith("Error: setting 'workers' cannot be 'many'")


def test_help_ends_with_an_example(shell) -> None:
    result = shell.run("run", "--help")
    assert result.exit_code == 0 and "Exit codes: the program's; 2" in result.output
    assert "\nExample:\n" in result.output.replace("  Example:", "Example:")
