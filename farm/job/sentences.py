"""Sentences: in what two outlines differ, as people say it. What is stored comes first, what there is now second.

    `score` changed: constant 3 -> 4
    the bytecode of callee `helper` changed
    global GAIN: 2.5 -> 3.0
    argument 2: int64 -> float64
    numba 0.68.1 -> 0.68.2

Every part of the key that differs is mentioned: one whose difference the outlines do not hold is named as a part.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from farm.job.outline import WEAK, Outline

NOTHING: Final = "nothing"
SIGNATURE: Final = ("argument ", "return type")
OUTSIDE: Final = {
    "argument ": "signature",
    "return type": "signature",
    "flag ": "flags",
    "setting ": "settings",
    "extension ": "extensions",
    "target ": "target",
    "toolchain ": "toolchain",
}
"""How the names of entries begin that do not belong to the part "function"."""
OF_WHOLE_PART: Final = {"signature", "extensions", "flags", "settings", "target", "toolchain", "function"}
ORDER: Final = ("signature", "function", "extensions", "flags", "settings", "target", "toolchain")


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that differs: the part of the key that it belongs to, and the sentence."""

    part: str
    text: str


def surroundings(target: Mapping[str, object], versions: Mapping[str, object]) -> Outline:
    """Target and toolchain as entries of an outline."""
    entries = [(f"target {name}", str(value)) for name, value in target.items()]
    return tuple(sorted(entries + [(f"toolchain {name}", str(value)) for name, value in versions.items()]))


def differences(
    stored: Outline, now: Outline, function: str, parts: Iterable[str] | None = None
) -> tuple[Difference, ...]:
    """In what two outlines differ, what is nearest to the user's code first.

    Parameters
    ----------
    function
        What to call the function itself.
    parts
        The parts of the key that differ; None if that is not known. What is found in others is not told: it is the
        outline's doing, made by another version.
    """
    found = _differences(stored, now, function)
    if parts is not None:
        wanted = set(parts)
        found = [one for one in found if one.part in wanted]
        told = {one.part for one in found}
        for label in sorted(wanted - told):
            found.append(Difference(label, f"the part {label!r} of the key differs, in what its outline does not hold"))
    return tuple(sorted(found, key=lambda one: ORDER.index(one.part) if one.part in ORDER else len(ORDER)))


def _differences(stored: Outline, now: Outline, function: str) -> list[Difference]:
    here, there = dict(stored), dict(now)
    found: list[Difference] = []
    weak: list[Difference] = []
    owners = ({_split(name)[0] for name in side} for side in (here, there))
    before, after = owners
    for owner in sorted(before ^ after):
        if not any(owner.startswith(f"{other}/") for other in before ^ after):
            verb = "is new" if owner in after else "is gone"
            found.append(Difference("function", f"{_callee(owner)} {verb}"))
    names = {name for name in here.keys() | there.keys() if _split(name)[0] in before & after}
    names = {name for name in names if here.get(name) != there.get(name)}
    constants: dict[str, list[str]] = {}
    for name in sorted(names):
        owner, what = _split(name)
        if what.startswith("constant ") and _part(name) == "function":
            constants.setdefault(owner, []).append(name)
            continue
        mine, other = here.get(name, NOTHING), there.get(name, NOTHING)
        one = Difference(_part(name), _sentence(owner, what, mine, other, function))
        is_weak = mine.startswith(WEAK) or other.startswith(WEAK)
        (weak if is_weak else found).append(one)
    for owner, changed in sorted(constants.items()):
        found.append(Difference("function", _constants(owner, changed, here, there, function)))
    return found or weak


def _constants(owner: str, names: list[str], here: dict[str, str], there: dict[str, str], function: str) -> str:
    """Constants have numbers: one more of them moves the others."""
    mine = Counter(here[name] for name in names if name in here)
    other = Counter(there[name] for name in names if name in there)
    gone, new = mine - other, other - mine
    if not gone and not new:
        return f"{_named(owner, function)} changed: its constants are in another order"
    texts = [", ".join(sorted(side.elements())) or NOTHING for side in (gone, new)]
    plural = "s" if max(gone.total(), new.total()) > 1 else ""
    return f"{_named(owner, function)} changed: constant{plural} {texts[0]} -> {texts[1]}"


def _sentence(owner: str, what: str, mine: str, other: str, function: str) -> str:
    whose = f" of {_named(owner, function)}"
    if what in ("bytecode", "position", "order of constants", "content"):
        words = {"position": "the position in its file (debug=True)"}.get(what, f"the {what}")
        return f"{words}{whose} changed"
    if what.startswith("toolchain "):
        return f"{what.removeprefix('toolchain ')} {mine} -> {other}"
    if what == "target features":
        return _features(mine, other)
    if what.startswith("setting "):
        return f"numba's {what}: {mine} -> {other}"
    if owner or not (what.startswith("global ") or _part(what) != "function"):
        what += whose
    if _is_digest(mine) and _is_digest(other):
        return f"{what} changed"
    return f"{what}: {mine} -> {other}"


def _features(mine: str, other: str) -> str:
    had, has = ({word[1:] for word in side.split(",") if word.startswith("+")} for side in (mine, other))
    sides = (("only what is stored uses", had - has), ("only what is asked for uses", has - had))
    told = [f"{words} {', '.join(sorted(names))}" for words, names in sides if names]
    return f"target features: {'; '.join(told) or 'written differently'}"


def _split(name: str) -> tuple[str, str]:
    """(owner, what): "" owns what is the function's own, or nobody's."""
    if name.startswith(tuple(OUTSIDE)) and not name.startswith(SIGNATURE):
        return "", name
    owner, colon, what = name.partition(": ")
    return (owner, what) if colon else ("", name)


def _part(name: str) -> str:
    if ": " in name and name.startswith(SIGNATURE):
        return "signature"
    if name in OF_WHOLE_PART:
        return name
    return next((part for begins, part in OUTSIDE.items() if name.startswith(begins)), "function")


def _named(owner: str, function: str) -> str:
    return _callee(owner) if owner else f"`{function}`"


def _callee(owner: str) -> str:
    if owner.startswith(SIGNATURE):
        return f"the function in {owner}"
    callers, _, name = owner.rpartition("/")
    return f"callee `{name}`" + (f" (of `{callers}`)" if callers else "")


def _is_digest(text: str) -> bool:
    return len(text) == 8 and not set(text) - set("0123456789abcdef")
