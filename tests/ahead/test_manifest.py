"""The manifest: one form for one content, merged without loss, refused with a sentence where it is not understood."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from farm.ahead import manifest
from farm.ahead.manifest import ManifestEntry, add, merged, parse, read, text_of, write
from farm.errors import ManifestError

PLAIN = ManifestEntry(function="shop:total", signature="(float64[::1], int64)")
FULL = ManifestEntry(
    function="__main__:run",
    signature="(pickled(0, 'Money(EUR)'))",
    returns="float64",
    flags=manifest.flags_text({"nrt": True, "fastmath": ["fast"]}),
    program="shop.py",
    pickles=("gASV",),
)
LOST = ManifestEntry(function="shop:<lambda>", signature="(int64)", reason="it is a lambda")


def test_a_file_is_its_entries_one_a_line_and_sorted() -> None:
    assert text_of([PLAIN, FULL, LOST, PLAIN]).splitlines() == [
        '{"farm-manifest": 1}',
        '{"function": "__main__:run", "signature": "(pickled(0, \'Money(EUR)\'))", "returns": "float64", '
        '"flags": {"fastmath": ["fast"], "nrt": true}, "program": "shop.py", "pickles": ["gASV"]}',
        '{"function": "shop:<lambda>", "signature": "(int64)", "reason": "it is a lambda"}',
        '{"function": "shop:total", "signature": "(float64[::1], int64)"}',
    ]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    write(path, [PLAIN, FULL, LOST])
    assert read(path) == merged([FULL, LOST, PLAIN])
    assert os.listdir(tmp_path) == ["m.jsonl"]


def test_merging_keeps_each_entry_once_in_any_order() -> None:
    assert merged([PLAIN, FULL], [FULL, LOST]) == merged([LOST], [FULL], [PLAIN]) == (FULL, LOST, PLAIN)


def test_what_one_manifest_can_ask_for_counts_before_what_another_cannot() -> None:
    failed = ManifestEntry(function="shop:total", signature=PLAIN.signature, reason="it does not compile")
    assert merged([failed], [PLAIN]) == merged([PLAIN], [failed]) == (PLAIN,)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is no manifest"),
        ("hello\n", "it is no manifest"),
        ("[]\n", "it is no manifest"),
        ('{"function": "a:b", "signature": "()"}\n', "it is no manifest"),
        ('{"farm-manifest": true}\n', "it is no manifest"),
        ('{"farm-manifest": 2}\n{"anything": 1}\n', "it has version 2, and this farm reads up to 1: use a newer farm"),
        (
            '{"farm-manifest": 1}\n\n{"function": "a:b"}\n',
            "line 3 is no entry: an entry has a function and a signature",
        ),
        ('{"farm-manifest": 1}\n{"function": "a:b", "signature": 3}\n', "line 2 is no entry: an entry has a function"),
        ('{"farm-manifest": 1}\n{"function": "a:b", "signature": "()", "cpu": "x"}\n', "'cpu' means nothing here"),
        ('{"farm-manifest": 1}\n{"function": "a:b", "signature": "()", "flags": []}\n', "flags are an object"),
        ('{"farm-manifest": 1}\n{"function": "a:b", "signature": "()", "pickles": [1]}\n', "pickles are a list"),
        ('{"farm-manifest": 1}\n{"function"\n', "line 2 is no entry"),
        ('{"farm-manifest": 1}\n' + "[" * 100_000, "line 2 is no entry"),
    ],
)
def test_what_is_not_understood_is_refused_with_a_sentence(text: str, problem: str) -> None:
    with pytest.raises(ManifestError) as refused:
        parse(text, "m.jsonl")
    assert str(refused.value).startswith("manifest m.jsonl: ") and problem in str(refused.value)


def test_a_file_that_cannot_be_read_or_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="cannot be read: No such file"):
        read(tmp_path / "none.jsonl")
    (tmp_path / "latin").write_bytes(b"\xff\xfe")
    with pytest.raises(ManifestError, match="not text in UTF-8"):
        read(tmp_path / "latin")
    with pytest.raises(ManifestError, match="cannot be written"):
        write(tmp_path / "none" / "m.jsonl", [PLAIN])


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.jsonl"
    write(path, [PLAIN])

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ManifestError, match="No space left"):
        add(path, [FULL])
    assert read(path) == (PLAIN,) and os.listdir(tmp_path) == ["m.jsonl"]


def test_adding_nothing_new_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    add(path, [PLAIN, FULL])
    before = path.stat().st_ino
    add(path, [FULL])
    assert path.stat().st_ino == before


ADDERS = """
import os, sys
from pathlib import Path
from farm.ahead.manifest import ManifestEntry, add
begin, go = os.pipe()
children = []
for which in range(4):
    children.append(os.fork())
    if children[-1] == 0:
        os.close(go)
        os.read(begin, 1)  # ends for all at once, when the parent closes it
        for number in range(20):
            add(Path(sys.argv[1]), [ManifestEntry(function=f"m:f{which}_{number}", signature="()")])
        os._exit(0)
os.close(go)
assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0, 0]
"""


@pytest.mark.concurrency
def test_processes_that_add_at_once_lose_nothing_of_each_other(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    subprocess.run([sys.executable, "-c", ADDERS, str(path)], check=True, timeout=100)
    assert len(read(path)) == 80
    assert os.listdir(tmp_path) == ["m.jsonl"]


@pytest.mark.concurrency
def test_threads_that_add_at_once_lose_nothing_of_each_other(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"

    def add_some(which: int) -> None:
        for number in range(20):
            add(path, [ManifestEntry(function=f"m:f{which}_{number}", signature="()")])

    threads = [threading.Thread(target=add_some, args=(which,)) for which in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(read(path)) == 60
