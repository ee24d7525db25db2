"""Why: whether the store has a signature of a function, and if not, in what it differs from what the store has.

The key is computed here, as a call would; nothing is compiled, and nothing in the store is touched or counted. The
nearest artifact is one of the same function if there is one, then the one whose key has the most equal parts, then
the newest. In what the two differ comes from their outlines: this side's is made on the spot.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from farm.errors import NotShippable, SignatureError, told
from farm.front.dispatcher import FarmDispatcher
from farm.job.functor import key_parts, make_functor, other_keys
from farm.job.key import CompileKey
from farm.job.outline import OUTLINE, Outline, outline, type_text, unpack
from farm.job.sentences import Difference, differences, surroundings
from farm.pool.nested import key_told
from farm.port import target
from farm.port.dispatch import parse_signature
from farm.port.load import LoadRefused, require_cpu
from farm.reasons import MissReason, RefusalReason
from farm.store.artifact import Miss, Stored
from farm.store.catalog import Entry, Unreadable
from farm.store.disk import DiskStore

TOLD_MAX: Final = 20
"""A guess: who reads twenty differences has seen that it is another function."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One signature of one function, as a call would ask for it."""

    function: str
    signature: str
    key: CompileKey
    outline: Outline
    """With target and toolchain."""
    others: tuple[CompileKey, ...] = ()
    """Under which code for lesser CPUs lies, that this one can run."""


@dataclass(frozen=True, slots=True)
class Near:
    """What the store has that is nearest, and in what it differs."""

    entry: Entry
    same_function: bool
    parts: tuple[str, ...]
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """Hit or miss, and why.

    Parameters
    ----------
    asked
        None for what has no key; then `refusal` says why it is compiled in the program, each time.
    stored
        The artifact, if it is a hit: made for this CPU, or for a lesser one.
    miss
        Why it is none: absent, or there and not to be used.
    near
        The nearest artifact, for what is absent.
    """

    function: str
    signature: str
    asked: Asked | None = None
    stored: Stored | None = None
    miss: Miss | None = None
    near: Near | None = None
    refusal: NotShippable | None = field(default=None, compare=False)

    @property
    def hit(self) -> bool:
        """Whether a call would load it."""
        return self.stored is not None

    @property
    def made_for(self) -> str | None:
        """The lesser CPU that a hit was made for; None for this one."""
        if self.stored is None or self.asked is None or self.stored.key == self.asked.key:
            return None
        return str(_target_of(self.stored.meta).get("cpu", "another CPU"))


def ask(dispatcher: FarmDispatcher, signature: Any) -> tuple[Asked, ...]:
    """How this signature may be asked for: by a call, and by name with the return type that was written.

    Raises SignatureError, and NotShippable for what is never stored.
    """
    arguments, return_type = parse_signature(signature)
    if dispatcher.declared:
        try:
            arguments = dispatcher.declared.choose(arguments)
        except TypeError as error:
            raise SignatureError(str(signature), str(error)) from None
        return (_asked(dispatcher, arguments, dict(dispatcher.declared.signatures)[arguments]),)
    asked = [_asked(dispatcher, arguments, None)]
    if return_type is not None:
        asked.append(_asked(dispatcher, arguments, return_type))
    return tuple(asked)


def why(store: DiskStore, dispatcher: FarmDispatcher, signature: Any, entries: Iterable[Entry | Unreadable]) -> Answer:
    """Whether a call with this signature would load an artifact, and why not.

    Parameters
    ----------
    entries
        What the store has (`farm.store.catalog`); gone through only if there is no artifact.

    Raises
    ------
    SignatureError
        If it is no signature, or none of those that the function was declared with.
    """
    arguments, _ = parse_signature(signature)
    text = _signature_text(arguments)
    try:
        all_asked = ask(dispatcher, signature)
    except SignatureError:
        raise
    except NotShippable as refusal:
        return Answer(_label(dispatcher), text, refusal=refusal)
    except Exception as error:  # the walk meets the user's objects, and what they do when they are looked at
        return Answer(_label(dispatcher), text, refusal=NotShippable(RefusalReason.HAND_OVER_FAILED, told(error)))
    first: Answer | None = None
    for asked in all_asked:
        found = _look(store, asked)
        if isinstance(found, Stored):
            return Answer(asked.function, asked.signature, asked, stored=found)
        first = first or Answer(asked.function, asked.signature, asked, miss=found)
    assert first is not None and first.asked is not None and first.miss is not None
    if first.miss.reason is not MissReason.ABSENT:
        return first
    near = nearest(first.asked, entries)
    return Answer(first.function, first.signature, first.asked, miss=first.miss, near=near)


def _look(store: DiskStore, asked: Asked) -> Stored | Miss:
    """As a call does: its own key, then code for lesser CPUs."""
    own = store.peek(asked.key)
    if isinstance(own, Stored):
        return own
    for key in asked.others:
        found = store.peek(key)
        if isinstance(found, Stored):
            with suppress(LoadRefused):
                require_cpu(found.meta)
                return found
    return own


def nearest(asked: Asked, entries: Iterable[Entry | Unreadable]) -> Near | None:
    """The artifact that is most like what was asked for, if any tells enough to be compared."""
    best: Entry | None = None
    rank: tuple[bool, int, float] = (False, 0, 0.0)
    wanted = dict(asked.key.parts)
    for one in entries:
        if not isinstance(one, Entry):
            continue
        made_under = key_told(one.meta)
        if made_under is None:
            continue
        equal = sum(wanted.get(label) == digest for label, digest in made_under.parts)
        own = (one.function == asked.function, equal, one.made_at)
        if best is None or own > rank:
            best, rank = one, own
    if best is None:
        return None
    parts = _parts_that_differ(best, asked.key)
    told_of = differences(_outline_of(best), asked.outline, asked.function.rpartition(".")[2], parts)
    return Near(best, rank[0], parts, told_of)


def between(one: Entry, other: Entry) -> tuple[tuple[str, ...], tuple[Difference, ...]]:
    """The parts in which two artifacts' keys differ, and in what, from the first to the second."""
    key = key_told(other.meta)
    parts = None if key is None or key_told(one.meta) is None else _parts_that_differ(one, key)
    name = one.function.rpartition(".")[2]
    return parts or (), differences(_outline_of(one), _outline_of(other), name, parts)


def _asked(dispatcher: FarmDispatcher, arguments: tuple[Any, ...], return_type: Any | None) -> Asked:
    functor = make_functor(dispatcher, arguments, return_type)  # refuses what cannot travel, as a call does
    parts = key_parts(dispatcher, arguments, return_type, None)
    around = surroundings(target.target(), target.toolchain())
    outlined = (*outline(parts, arguments, return_type), *around)
    others = tuple(other_keys(functor))
    return Asked(_label(dispatcher), _signature_text(arguments), functor.key, outlined, others)


def _label(dispatcher: FarmDispatcher) -> str:
    """`module.qualname` as its artifact tells it: what a script defines gets the name of its module late."""
    return f"{dispatcher.py_func.__module__}.{dispatcher.py_func.__qualname__}"


def _signature_text(arguments: tuple[Any, ...]) -> str:
    return f"({', '.join(map(type_text, arguments))})"


def _outline_of(one: Entry) -> Outline:
    versions = one.meta.get("versions")
    around = surroundings(_target_of(one.meta), versions if isinstance(versions, dict) else {})
    return (*unpack(one.meta.get(OUTLINE)), *around)


def _target_of(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    found = meta.get("target")
    return found if isinstance(found, dict) else {}


def _parts_that_differ(one: Entry, key: CompileKey) -> tuple[str, ...]:
    made_under = key_told(one.meta)
    here, there = dict(() if made_under is None else made_under.parts), dict(key.parts)
    return tuple(label for label in sorted(here.keys() | there.keys()) if here.get(label) != there.get(label))
