"""What runs the pages' examples: it fails where a page is wrong."""

from pathlib import Path

import pytest
from page_blocks import anchors_of, blocks_of, commands_of, difference, hidden_in, links_of
from page_runner import Wrong, run_page

FENCE = "```"


def fenced(language: str, text: str) -> str:
    return f"\nsome words\n\n{FENCE}{language}\n{text}\n{FENCE}\n"


def test_examples_that_are_right_pass_and_are_counted(tmp_path: Path) -> None:
    page = (
        fenced("python", "# one.py\nimport os\nprint('one', os.environ['FARM_MODE'])")
        + fenced("python", "x = 1")
        + fenced("python", "import one\nprint(x + 1)\n").replace("import one\n", "")
        + fenced("output", "2").replace("\nsome words\n", "")
        + fenced("console", "$ export FARM_MODE=lazy\n$ python one.py\none lazy\n$ echo a; \\\necho b\na\nb")
        + fenced("text", "anything")
    )
    assert run_page(page, tmp_path) == 5


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (fenced("console", "$ echo 1\n2"), "page:5: the page says\n\n    2\n\nand this came out\n\n    1"),
        (fenced("console", "$ echo 1"), r"\(nothing\)"),
        (fenced("console", "$ true\n1"), r"\(nothing\)"),
        (fenced("console", "$ echo 1; false\n1"), "exit code 1"),
        (fenced("console", "$ echo oh >&2"), "oh"),
        (fenced("console", "$ echo 1\n..."), "only `...` says nothing"),
        (fenced("console", "$ no-such-command\nno"), "exit code 127"),
        (fenced("python", "print(1)"), "this came out\n\n    1"),
        (fenced("python", "print(1)") + fenced("output", "2"), "the page says\n\n    2"),
        (fenced("python", "1 / 0"), "(?s)page:5: Traceback.*page:5.*ZeroDivisionError"),
        (fenced("python", "exit(0)"), "SystemExit"),
        (fenced("python", "import os; os._exit(3)"), "has ended, exit code 3"),
        (fenced("python", "import atexit, os; atexit.register(os._exit, 4)"), "ended with exit code 4"),
    ],
)
def test_an_example_that_is_wrong_fails(page: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(Wrong, match=said):
        run_page(page, tmp_path)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ("", ""),
        ("one", "one  \n"),
        ("took ... s", "took 1.5 s\n"),
        ("... and ...", "x and y"),
        ("first\n...\nlast", "first\nlast"),
        ("first\n...\nlast", "first\na\nb\nlast"),
        ("a.b*c", "a.b*c"),
    ],
)
def test_what_changes_is_written_as_dots(expected: str, got: str) -> None:
    assert difference(expected, got) is None


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ("one", "one\ntwo"),
        ("one\ntwo", "one"),
        ("took ... s", "took 1\n2 s"),
        ("a.b", "axb"),
        ("  one", "one"),
        ("first\n...\nlast", "first\na\nb"),
    ],
)
def test_dots_stand_for_no_more_than_that(expected: str, got: str) -> None:
    assert difference(expected, got) is not None


def test_commands_are_told_from_what_they_print() -> None:
    (block,) = blocks_of(fenced("console", "$ a \\\n  b\n1\n2\n$ c\n\n$ d"))
    assert [(one.text, one.output, one.line) for one in commands_of(block)] == [
        ("a \\\n  b", "1\n2\n", 5),
        ("c", "\n", 9),
        ("d", "", 11),
    ]


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (fenced("py", "print(1)"), "language 'py'"),
        (fenced("bash", "ls"), "language 'bash'"),
        (fenced("", "ls"), "language ''"),
        (fenced("{code-block} python", "print(1)"), "language '{code-block} python'"),
        (fenced("text", "$ ls"), "'$' in a block"),
        (fenced("text", "from farm import njit"), "'from farm' in a block"),
        (fenced("{eval-rst}", ".. code-block:: python\n\n   1 / 0"), "code-block"),
        ("````text\n```python\n1 / 0\n```\n````\n", "'```' in a block"),
        ("words\n\n    1 / 0\n", "by indentation"),
        ("<pre>\n1 / 0\n</pre>\n", "HTML"),
        (f"<!--\n{FENCE}python\n1 / 0\n{FENCE}\n-->\n", "HTML"),
        ("% ```python\n", "a comment of MyST"),
        (fenced("output", "1"), "output of no python block"),
        (fenced("python", "# one.py\n1 / 0"), "one.py is run by nothing"),
        (
            fenced("python", "# one.py\n1 / 0") + fenced("console", "$ python another_one.py"),
            "one.py is run by nothing",
        ),
        (fenced("python", ""), "an empty block"),
    ],
)
def test_an_example_that_would_not_be_run_is_found(page: str, said: str) -> None:
    (found,) = hidden_in(page)
    assert said in found


def test_blocks_in_lists_and_notes_are_found() -> None:
    page = "- a list\n\n  ```python\n  1 / 0\n  ```\n\n:::{note}\n```console\n$ false\n```\n:::\n"
    assert [(one.language, one.text) for one in blocks_of(page)] == [("python", "1 / 0\n"), ("console", "$ false\n")]


def test_links_and_anchors_are_found() -> None:
    page = (
        "# Why `a`, not B?\n\nsee [one](one.md#x), [here](#why-a-not-b), <https://a.org>, [b](https://b.org) `[c](d)`\n"
    )
    assert links_of(page) == ["one.md#x", "#why-a-not-b"]
    assert anchors_of(page) == {"why-a-not-b"}
