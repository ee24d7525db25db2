"""Plays a history: runs a program, edits it, runs it again on the same store, and says what is wrong with what came."""

import difflib
import itertools
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from edits import Edit, apply, lay_out, set_otherwise
from forms import FORMS
from programs import Program, files, numbered
from runner import Ask, Report, Runner, Said


@dataclass(frozen=True, slots=True)
class Step:
    """From one run to the next: edits with a meaning of all entries, or others.

    Parameters
    ----------
    edits
        For each entry which edit, and how far it goes; empty for none.
    layouts
        Kinds of edits without meaning.
    setting
        A setting of numba's to change.
    back
        The program is again as it was first.
    """

    edits: tuple[tuple[int, int], ...] = ()
    layouts: tuple[str, ...] = ()
    setting: str = ""
    back: bool = False


@dataclass(frozen=True, slots=True)
class History:
    """A program and what happens to it."""

    program: Program
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Wrong:
    """An entry that gave something else than it should, after this step, or -1 for the first run."""

    entry: int
    step: int
    text: str


@dataclass(slots=True)
class Row:
    """One kind of edit."""

    tried: int = 0
    seen: int = 0
    """How often a call gave something else afterwards."""
    local: int = 0
    """How often something was compiled in the front, because it cannot be kept."""
    stale: int = 0
    needless: int = 0


@dataclass(slots=True)
class Tally:
    """The table that is printed at the end, by kind."""

    rows: defaultdict[str, Row] = field(default_factory=lambda: defaultdict(Row))
    wrongs: list[str] = field(default_factory=list)
    """What went wrong, each as small as could be."""

    def __str__(self) -> str:
        rows = [("kind of edit", "tried", "seen", "local", "stale", "needless")]
        for kind, row in sorted(self.rows.items()):
            rows.append((kind, *map(str, (row.tried, row.seen, row.local, row.stale, row.needless))))
        total = [sum(getattr(row, name) for row in self.rows.values()) for name in Row.__slots__]
        rows.append(("all", *map(str, total)))
        return "\n".join(f"{kind:48}" + "".join(f"{one:>10}" for one in others) for kind, *others in rows)


@dataclass(slots=True)
class _Playing:
    """One history as it is played."""

    runner: Runner
    tally: Tally
    directory: Path
    program: Program
    report: Report
    versions: dict[object, Said] = field(default_factory=dict)
    """What each version of an entry gave, under the settings of the time."""

    def step(self, edits: list[Edit], program: Program) -> list[tuple[int, str]]:
        """Run the edited program; (entry, what is wrong with it)."""
        root = self.write(program)
        by_entry = {edit.entry: edit for edit in edits if edit.entry is not None and edit.entry >= 0}
        everywhere = [edit for edit in edits if edit.entry is None or edit.entry < 0]
        everyone = any(edit.entry is not None for edit in everywhere)
        calls = tuple(f"_{i}" for i in range(len(program.entries)) if everyone or i in by_entry)
        with ThreadPoolExecutor(1) as fresh:
            plain = (
                fresh.submit(self.runner.run, Ask(str(root), None, dict(program.settings), calls)) if calls else None
            )
            report = self.runner.run(_on_store(self, root, program))
            expected = plain.result() if plain is not None else {}
        wrongs = []
        if report["import"].result != "NoneType None":
            wrongs.append((0, f"main.py: {report['import'].result}"))
        for index, entry in enumerate(program.entries):
            name = f"_{index}"
            said, before = report[name], self.report[name]
            version = (entry, program.settings)
            known = self.versions.get(version)
            kinds = [by_entry[index]] if index in by_entry else everywhere
            wanted = expected.get(name) or known or before
            problem = self._judge(kinds, said, wanted, before, known, _has_positions(program, index))
            if problem:
                changes = _changes(self.program, program, index)
                wrongs.append((index, f"{', '.join(e.kind for e in kinds) or 'another edit'}: {problem}\n{changes}"))
            self.versions[version] = said
        self.program, self.report = program, report
        return wrongs

    def _judge(
        self, edits: list[Edit], said: Said, wanted: Said, before: Said, known: Said | None, positions: bool
    ) -> str | None:
        rows = [self.tally.rows[edit.kind] for edit in edits]
        meant = any(edit.entry is not None for edit in edits)
        compiled = said.count("compiled") + said.count("local") + said.count("failed")
        for row in rows:
            row.tried += 1
            row.seen += (wanted.result, wanted.frames) != (before.result, before.frames)
            row.local += bool(said.count("local"))
        if (said.result, said.frames) != (wanted.result, wanted.frames) or (meant and said.lines != wanted.lines):
            for row in rows:
                row.stale += 1
            return f"gave {said}, not {wanted}"
        if self.runner.cached:  # numba does not count
            return None
        if known is None and meant and not compiled and not any(edit.seen for edit in edits):
            for row in rows:
                row.stale += 1
            return f"was not compiled: {said}"
        if known is not None and not positions and edits and compiled > known.count("local") + known.count("failed"):
            for row in rows:
                row.needless += 1
            return f"was compiled: {said}"
        return None

    def write(self, program: Program) -> Path:
        """As an editor does: what is as it was keeps its time."""
        root = self.directory / f"root{program.layout.root}"
        for name, text in files(program).items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_text() != text:
                path.write_text(text)
        return root


def _on_store(playing: _Playing, root: Path, program: Program) -> Ask:
    store = str(playing.directory / "store")
    return Ask(str(root), store, dict(program.settings), cached=playing.runner.cached)


def _has_positions(program: Program, entry: int) -> bool:
    forms = [FORMS[piece.form] for index, _, piece in numbered(program) if index == entry]
    return any(form.positions for form in forms) or ("NUMBA_DEBUGINFO", "1") in program.settings


def _changes(before: Program, after: Program, entry: int) -> str:
    """The edit of one entry, alone in its program, as a diff."""
    first, second = (files(Program((one.entries[entry],), one.layout, one.settings)) for one in (before, after))
    lines = [f"settings {before.settings} -> {after.settings}, root {before.layout.root} -> {after.layout.root}"]
    for name in first:
        lines += difflib.unified_diff(first[name].splitlines(), second[name].splitlines(), name, name, "", "", 30, "")
    return "\n".join(lines)


def play(history: History, directory: Path, runner: Runner, tally: Tally) -> list[Wrong]:
    """Play a history on a store of its own; what went wrong."""
    program = history.program
    playing = _Playing(runner, tally, directory, program, {})
    root = playing.write(program)
    playing.report = runner.run(_on_store(playing, root, program))
    for index, entry in enumerate(program.entries):
        if f"_{index}" not in playing.report:
            return [Wrong(index, -1, f"main.py: {playing.report['import'].result}")]
        playing.versions[entry, program.settings] = playing.report[f"_{index}"]
    wrongs = []
    for number, step in enumerate(history.steps):
        edits, program = _edits(step, history, playing.program)
        wrongs += [Wrong(entry, number, text) for entry, text in playing.step(edits, program)]
    return wrongs


def narrowed(history: History, wrong: Wrong, directory: Path, runner: Runner) -> Wrong:
    """The same with less around it, as far as it goes wrong then too.

    Hypothesis can find the smallest of all, and took over five minutes, as each of its attempts is several runs. Here
    it is known which entry it was, and after which step: what is tried is that one alone.
    """
    entry = history.program.entries[wrong.entry]
    steps = tuple(
        replace(step, edits=step.edits[wrong.entry : wrong.entry + 1]) for step in history.steps[: wrong.step + 1]
    )
    small, places = History(Program((entry,)), steps), itertools.count()
    for attempt in (lambda one: one, _without_callee, _in_one_module, _with_last_step):
        tried = attempt(small)
        found = play(tried, directory / str(next(places)), runner, Tally())
        if found:
            small, wrong = tried, found[-1]
    return replace(wrong, text=f"{wrong.text}\n{small}")


def _without_callee(history: History) -> History:
    return replace(history, program=Program((replace(history.program.entries[0], child=None),)))


def _in_one_module(history: History) -> History:
    return replace(history, program=Program((replace(history.program.entries[0], home=1),)))


def _with_last_step(history: History) -> History:
    return replace(history, steps=history.steps[-1:])


def _edits(step: Step, history: History, program: Program) -> tuple[list[Edit], Program]:
    edits = []
    for entry, (which, by) in enumerate(step.edits):
        edits.append(apply(program, entry, which, by))
        program = edits[-1].program
    for kind in step.layouts:
        edits.append(lay_out(program, kind))
        program = edits[-1].program
    if step.setting:
        edits.append(set_otherwise(program, step.setting))
        program = edits[-1].program
    if step.back:
        program = history.program
        edits.append(Edit("taken back", None, False, program))
    return edits, program
