"""Wanted: one compile by name, with its key. All that a look into the store takes.

What a worker needs beyond that is captured when it turns out that there has to be one: see `farm.job.functor`. So a
function that the store has is walked, and never pickled.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from farm.errors import NotShippable
from farm.job.canonical import encode
from farm.job.key import CompileKey
from farm.job.reach import Reached, reach
from farm.port import places, target
from farm.port.cpu import Cpu, runnable_for
from farm.reasons import RefusalReason


@dataclass(frozen=True, slots=True)
class Wanted:
    """One signature of a function, as it stood when its key was made.

    Parameters
    ----------
    settings
        numba's settings that change code.
    caller_flags
        The flags of the compile that asked for this one, or None for a call from Python.
    """

    dispatcher: Any
    arguments: tuple[Any, ...]
    return_type: Any | None
    caller_flags: Any | None
    settings: dict[str, target.Plain]
    reached: Reached
    key: CompileKey


def want(dispatcher: Any, arguments: tuple[Any, ...], return_type: Any | None, cpu: Cpu | None = None) -> Wanted:
    """The key of a signature and what it was made of; with `cpu`, for that one. Raises NotShippable with the reason.

    What is loaded under the key tells positions in these functions, as they are here and now.
    """
    if dispatcher.targetoptions.get("forceobj"):
        body = dispatcher.py_func
        raise NotShippable(RefusalReason.OBJECT_MODE, f"{body.__module__}.{body.__qualname__}")
    caller_flags, settings = target.caller_flags(), target.settings()
    if cpu is not None:
        settings = target.settings_for(settings, cpu)
    reached = reach(dispatcher, (arguments, return_type))
    compiling = target.functions_being_compiled()
    for function in reached.functions:
        if any(function is one for one in compiling):
            raise NotShippable(RefusalReason.UNRESOLVED_SYMBOLS, f"{function.__qualname__} is being compiled here")
        places.remember(function.__code__)
    key = CompileKey.from_parts(parts_of(reached, dispatcher, settings, caller_flags))
    return Wanted(dispatcher, arguments, return_type, caller_flags, settings, reached, key)


class Keyed(Protocol):
    """What has a key and the settings that it was made under."""

    @property
    def key(self) -> CompileKey:
        """The key."""

    @property
    def settings(self) -> dict[str, target.Plain]:
        """numba's settings that change code."""


def other_keys(wanted: Keyed) -> Iterator[CompileKey]:
    """The keys under which code lies that this process may run instead of its own, the best first.

    Only the target differs, so nothing is walked again: some microseconds each.
    """
    parts = dict(wanted.key.parts)
    for cpu in runnable_for(target.own_cpu(wanted.settings)):
        yield CompileKey.from_digests(parts | {"target": CompileKey.digest(_target_part(cpu))})


def compute_key(
    dispatcher: Any, arguments: tuple[Any, ...], return_type: Any | None, caller_flags: Any | None
) -> CompileKey:
    """The key of one signature, from what is in this process's memory."""
    return CompileKey.from_parts(key_parts(dispatcher, arguments, return_type, caller_flags))


def key_parts(
    dispatcher: Any, arguments: tuple[Any, ...], return_type: Any | None, caller_flags: Any | None
) -> dict[str, bytes]:
    """What the key of one signature covers, by label."""
    return parts_of(reach(dispatcher, (arguments, return_type)), dispatcher, target.settings(), caller_flags)


def parts_of(
    reached: Reached, dispatcher: Any, settings: dict[str, target.Plain], caller_flags: Any | None
) -> dict[str, bytes]:
    """What the key covers, by label, of what was walked."""
    return {
        "function": reached.description,
        "signature": reached.values,
        "extensions": reached.extensions,
        "flags": target.effective_flags(dispatcher.targetoptions, caller_flags).encode(),
        # The names of the types keep True, 1 and 1.0 apart, which are equal and have one hash.
        "settings": _settings_part(tuple((name, type(value).__name__, value) for name, value in settings.items())),
        "target": _target_part(target.own_cpu(settings)),
        "toolchain": encode(target.toolchain()),
    }


@lru_cache(maxsize=16)
def _settings_part(settings: tuple[tuple[str, str, target.Plain], ...]) -> bytes:
    """Hardly ever another one, and a tenth of what a key takes."""
    return encode({name: value for name, _, value in settings if name not in target.ACT_THROUGH_THE_TARGET})


@lru_cache(maxsize=16)
def _target_part(cpu: Cpu) -> bytes:
    return encode(target.target(cpu))
