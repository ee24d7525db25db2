"""The record of use: its lines, its sums, its bound, and that nothing about it can hurt."""

import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from farm.reasons import MissReason
from farm.store import usage
from farm.store.artifact import Artifact
from farm.store.disk import DiskStore
from farm.store.places import Places
from farm.store.usage import LINE_MAX_BYTES, SHORTEN_AT_BYTES, Usage

Make = Callable[..., Artifact]
ONE = Usage(programs=1, loaded=3, saved_s=1.5, misses={MissReason.ABSENT: 2})


@pytest.fixture
def places(root: Path, make: Make) -> Places:
    store = DiskStore(root)
    store.put(make())
    assert store.places is not None
    return store.places


def file_of(root: Path) -> Path:
    return root / "v1" / "usage.jsonl"


def test_what_programs_add_is_summed(root: Path, places: Places) -> None:
    assert usage.total(places) == Usage()
    assert usage.add(places, ONE, 100.0)
    assert usage.add(places, Usage(loaded=1, compiled=2, misses={MissReason.EMPTY: 1}), 50.0)
    found = usage.total(places)
    assert (found.programs, found.loaded, found.compiled, found.saved_s, found.since) == (1, 4, 2, 1.5, 50.0)
    assert found.misses == {MissReason.ABSENT: 2, MissReason.EMPTY: 1}
    assert file_of(root).stat().st_mode & 0o777 == 0o600


def test_in_a_shared_store_every_member_can_add(root: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farm.store.disk.group_id", lambda root, group: os.getgid())
    store = DiskStore(root, group="of its own")
    store.put(make())
    assert store.places is not None and usage.add(store.places, ONE, 1.0)
    status = file_of(root).stat()
    assert (status.st_mode & 0o777, status.st_gid) == (0o660, os.getgid())
    usage.add(store.places, ONE, 1.0)
    usage.shorten(store.places)
    assert file_of(root).stat().st_mode & 0o777 == 0o660 and usage.total(store.places).programs == 2


def test_nothing_is_made_where_there_is_no_store(root: Path) -> None:
    places = Places(root, "v1", DiskStore(root)._rule)
    assert not usage.add(places, ONE, 1.0)
    assert not root.exists()


def test_every_line_has_its_bound() -> None:
    most = Usage(**dict.fromkeys(usage.COUNTED, 10**15), **dict.fromkeys(usage.SPENT, 1e15 + 0.123))  # type: ignore[arg-type]
    most += Usage(misses=dict.fromkeys(MissReason, 10**15))
    assert len(most.line(1e10)) < LINE_MAX_BYTES / 3


def test_a_damaged_line_costs_itself_and_no_other(root: Path, places: Places) -> None:
    usage.add(places, ONE, 1.0)
    with file_of(root).open("ab") as file:
        file.write(b'{"at":1,"loaded":7\n[1]\nnull\n{"loaded":9}\n{"at":1,"loaded":-1}\n{"at":1,"misses":{"NONE":1}}\n')
        file.write(b'{"at":1,"loaded":NaN}\n{"at":1e999}\n\xff\xfe\n' + b"[" * 100_000 + b'\n{"at":1,"loa')  # torn
    usage.add(places, ONE, 1.0)
    found = usage.total(places)
    assert (found.programs, found.loaded) == (2, 6)


@given(some.binary(max_size=300))
def test_no_content_raises(content: bytes) -> None:
    usage._sum(content)


def test_a_trim_puts_one_line_in_the_place_of_many(root: Path, places: Places) -> None:
    for at in range(100):
        usage.add(places, ONE, 1000.0 + at)
    before = usage.total(places)
    DiskStore(root).trim()
    assert file_of(root).read_bytes().count(b'{"at"') == 1
    assert usage.total(places) == before and before.programs == 100 and before.since == 1000.0
    usage.add(places, ONE, 5.0)
    assert usage.total(places).programs == 101


def test_the_file_is_bounded_without_a_trim(root: Path, places: Places) -> None:
    usage.add(places, ONE, 1.0)
    line = file_of(root).read_bytes()
    file_of(root).write_bytes(line * (SHORTEN_AT_BYTES // len(line) + 1))
    number = usage.total(places).programs
    usage.add(places, ONE, 1.0)
    assert file_of(root).stat().st_size < 1000 and usage.total(places).programs == number + 1


def test_what_is_written_while_the_file_is_shortened_stays(
    root: Path, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        usage.add(places, ONE, 1.0)
    real = Places.write

    def write(self: Places, *what: object, **how: object) -> None:
        real(self, *what, **how)  # type: ignore[arg-type]
        with file_of(root).open("ab") as file:
            file.write(ONE.line(1.0))

    monkeypatch.setattr(Places, "write", write)
    usage.shorten(places)
    monkeypatch.undo()
    assert usage.total(places).programs == 4
    assert os.listdir(root / "v1" / "tmp") == []


@pytest.mark.parametrize("kind", ["a link", "a directory", "a pipe", "a full disk"])
def test_what_is_in_the_way_is_left_alone(
    root: Path, places: Places, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    if kind == "a link":
        file_of(root).symlink_to(target)
    elif kind == "a directory":
        file_of(root).mkdir()
    elif kind == "a pipe":
        os.mkfifo(file_of(root))
    else:

        def write(*_: object) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "write", write)
    assert not usage.add(places, ONE, 1.0)
    assert target.read_text() == "mine"
    if kind != "a directory":
        assert usage.total(places) == Usage()
    usage.shorten(places)


def _add_many(root: Path, number: int) -> None:
    places = DiskStore(root).places
    assert places is not None
    for _ in range(number):
        assert usage.add(places, ONE, 1.0)


@pytest.mark.concurrency
def test_lines_of_many_processes_do_not_mix(root: Path, places: Places) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_add_many, args=(root, 50)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0] * 4
    lines = [line for line in file_of(root).read_bytes().split(b"\n") if line]
    assert len(lines) == 200 and all(json.loads(line)["programs"] == 1 for line in lines)
    assert usage.total(places).programs == 200


def test_what_was_counted_since_is_a_difference() -> None:
    before = Usage(loaded=2, saved_s=1.0, misses={MissReason.ABSENT: 1})
    after = Usage(loaded=5, saved_s=1.5, misses={MissReason.ABSENT: 1, MissReason.EMPTY: 2})
    news = after.since_then(before)
    assert (news.loaded, news.saved_s, news.misses) == (3, 0.5, {MissReason.EMPTY: 2})
    assert news and not after.since_then(after)
