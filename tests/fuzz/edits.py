"""Edits as values: what changes, of which kind it is, and whether it means something."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from forms import FORMS
from programs import Layout, Piece, Program, numbered


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit.

    Parameters
    ----------
    kind
        Its name in the table.
    entry
        The entry whose meaning it changes; None if it has none, -1 for all.
    seen
        Whether a call must give something else after it.
    program
        What comes out.
    """

    kind: str
    entry: int | None
    seen: bool
    program: Program


LAYOUTS: Final[dict[str, dict[str, Any]]] = {
    "a comment": {"comments": 1},
    "a blank line": {"blanks": 1},
    "a docstring": {"docstrings": 1},
    "something unused": {"unused": 1},
    "a broken line": {"broken": True},
    "an annotation": {"annotated": True},
    "definitions in another order": {"turned": True},
    "imports in another order": {"imports_turned": True},
    "a copy in another directory": {"root": 1},
}
SETTINGS: Final[dict[str, tuple[str, ...]]] = {
    "NUMBA_BOUNDSCHECK": ("0", "1"),
    "NUMBA_OPT": ("3", "1"),
    "NUMBA_LOOP_VECTORIZE": ("1", "0"),
    "NUMBA_SLP_VECTORIZE": ("0", "1"),
    "NUMBA_DEBUGINFO": ("0", "1"),
    "NUMBA_ENABLE_AVX": ("1", "0"),
    "NUMBA_LLVM_REFPRUNE_PASS": ("1", "0"),
}


def meaning(program: Program, entry: int) -> Iterator[tuple[str, bool, Any]]:
    """(kind, seen, how) for each edit that changes the entry's meaning; `how` is for `apply`."""
    found = [(number, piece) for index, number, piece in numbered(program) if index == entry]
    for number, piece in reversed(found):  # the entry itself first
        form = FORMS[piece.form]
        if form.has_value:
            yield piece.form if not form.choices else f"{piece.form}: value", True, (number, "value")
        if form.choices:
            yield piece.form, not form.unseen, (number, "choice")


def every_kind(*, seen: bool = False) -> list[str]:
    """All kinds of edit; with `seen`, those alone after which a call must give something else."""
    forms = [(kind, shows) for name in FORMS for kind, shows, _ in meaning(Program((Piece(name),)), 0)]
    if seen:
        return [kind for kind, shows in forms if shows]
    return [*(kind for kind, _ in forms), *LAYOUTS, *SETTINGS]


def apply(program: Program, entry: int, which: int, by: int) -> Edit:
    """The `which`-th edit of the entry, as far as `by` says."""
    found = list(meaning(program, entry))
    kind, seen, (number, what) = found[which % len(found)]
    entries = list(program.entries)
    entries[entry] = _changed(entries[entry], f"_{entry}", number, what, by)
    return Edit(kind, entry, seen, replace(program, entries=tuple(entries)))


def _changed(piece: Piece, here: str, number: str, what: str, by: int) -> Piece:
    if here != number:
        assert piece.child is not None
        return replace(piece, child=_changed(piece.child, here + "c", number, what, by))
    if what == "value":
        return replace(piece, value=1 + (piece.value + by % 8) % 9)
    choices = len(FORMS[piece.form].choices)
    return replace(piece, choice=(piece.choice + 1 + by % (choices - 1)) % choices)


def lay_out(program: Program, kind: str) -> Edit:
    """An edit without meaning, or back to what was there before it."""
    (name, value), *_ = LAYOUTS[kind].items()
    before = getattr(program.layout, name)
    after = getattr(Layout(), name) if before == value else value
    return Edit(kind, None, False, replace(program, layout=replace(program.layout, **{name: after})))


def set_otherwise(program: Program, name: str) -> Edit:
    """Another value of one of numba's settings: it means something to every function."""
    held = dict(program.settings)
    first, second = SETTINGS[name]
    held[name] = second if held.get(name, first) == first else first
    return Edit(name, -1, False, replace(program, settings=tuple(sorted(held.items()))))
