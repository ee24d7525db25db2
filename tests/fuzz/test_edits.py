"""Random edits between runs that share a store: never stale, and an edit without meaning still hits.

Each program is run, edited, and run again in a new process on the same store. What an edit with a meaning leads to is
compared with what numba alone makes of the edited tree, in a process of its own; after one without meaning nothing may
be compiled, and tracebacks name the present file and line.

Here each kind of edit is tried once, in the same way each time; `many.py`, which `make stress` runs, goes on.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from edits import every_kind
from play import Tally
from runner import Runner
from search import search


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    with Runner(tmp_path_factory.mktemp("templates")) as made:
        yield made


@pytest.mark.timeout(600)  # 60 s if all is well; making failures small takes more
def test_no_edit_is_missed_and_none_without_meaning_costs_a_compile(runner: Runner, tmp_path: Path) -> None:
    tally = Tally()
    try:
        search(runner, tmp_path, tally, seed=0, edits_min=1)
    finally:
        print("", tally, *tally.wrongs, sep="\n\n")
    assert tally.wrongs == []
    assert sum(row.stale + row.needless for row in tally.rows.values()) == 0
    assert [kind for kind in every_kind() if not tally.rows[kind].tried] == []
    assert [kind for kind in every_kind(seen=True) if not tally.rows[kind].seen] == []
