"""CompileFunctor: one compile as data. Every field is a value; running it needs nothing of the front.

Never in it: a lock, a file, a live dispatcher, a closure over farm state. The key names everything
that determines the result. Whoever runs the functor computes the key anew from what was unpickled and
refuses on a difference: the code on that side's disk may be newer than the code in the front's memory.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from farm.errors import NotShippable
from farm.job.canonical import encode
from farm.job.key import CompileKey
from farm.job.reach import Reached, describe_values, reach
from farm.port import capture, extensions, registry, target
from farm.port.compile import Parts, compile_signature, take_apart
from farm.port.cpu import Cpu, runnable_for
from farm.port.load import missing_symbols
from farm.reasons import RefusalReason

_general_at_first: int | None = None
"""How many registrations any function may reach there were at this process's first compile. numba keeps what it
compiled of its own library, so a later one would change some calls and not others."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A functor's function on the side that compiles: an ordinary dispatcher, with its key checked."""

    dispatcher: Any
    arguments: tuple[Any, ...]
    return_type: Any | None
    caller_flags: Any | None
    with_extensions: bool
    """Whether numba extensions of others can take part: then a failure here may be this side's alone."""
    parts: Mapping[str, bytes]
    """What the key covers, by label."""

    @property
    def function(self) -> str:
        """`module.function`, for people."""
        body = self.dispatcher.py_func
        return f"{body.__module__}.{body.__qualname__}"

    @property
    def signature(self) -> str:
        """`(types)`, for people."""
        return f"({', '.join(map(str, self.arguments))})"

    def __call__(self, symbol_base: int | None = None) -> Parts:
        """Compile, under names of its own or again under those of an earlier compile.

        numba's errors pass through; NotShippable if the result cannot travel.
        """
        result, symbol_base = compile_signature(
            self.dispatcher, self.arguments, self.return_type, self.caller_flags, symbol_base
        )
        return take_apart(result, symbol_base)


@dataclass(frozen=True, slots=True)
class CompileFunctor:
    """What a worker needs to compile one signature of one function.

    Parameters
    ----------
    key
        The key this job must have.
    subject
        The function, its options and the signature, captured by value.
    settings
        numba's settings that change code, as the front has them.
    caller_flags
        The flags of the compile that asked for this one, or None for a call from Python.
    paths
        The front's `sys.path`, for the modules that restoring imports.
    directory
        The front's working directory: the paths in numba's messages are relative to it.
    """

    key: CompileKey
    subject: bytes
    settings: dict[str, target.Plain]
    caller_flags: Any | None
    paths: tuple[str, ...] = ()
    directory: str | None = None

    def rebuild(self) -> Rebuilt:
        """Apply the settings, restore the function, check the key. Raises NotShippable."""
        if not target.is_built_for(self.settings):
            raise NotShippable(RefusalReason.KEY_MISMATCH, "this process was built with other settings of numba")
        target.apply_settings(self.settings)
        dispatcher, arguments, return_type, repeated = capture.restore(self.subject)
        for kind, content in repeated:
            _repeat(kind, content)
        _require_one_set_of_extensions()
        reached = reach(dispatcher, (arguments, return_type))
        parts = _parts(reached, dispatcher, target.settings(), self.caller_flags)
        found = CompileKey.from_parts(parts)
        if found != self.key:
            raise NotShippable(RefusalReason.KEY_MISMATCH, f"part {found.first_difference(self.key)!r} differs")
        unknown = missing_symbols(list(reached.symbols))
        if unknown:  # LLVM ends the process that links an unknown symbol
            raise NotShippable(RefusalReason.EXTENSION_NOT_SHIPPABLE, f"external function {unknown[0]}")
        return Rebuilt(dispatcher, arguments, return_type, self.caller_flags, bool(reached.registrations), parts)

    def __call__(self) -> Parts:
        """Rebuild and compile."""
        return self.rebuild()()


def make_functor(
    dispatcher: Any, arguments: tuple[Any, ...], return_type: Any | None, cpu: Cpu | None = None
) -> CompileFunctor:
    """Capture a signature of a dispatcher as it stands now: numba reads globals at each signature's compile.

    With `cpu` it is compiled for that one, by workers of their own: `Supply.pool(config, functor.settings)`. Raises
    NotShippable with the reason.
    """
    if dispatcher.targetoptions.get("forceobj"):
        body = dispatcher.py_func
        raise NotShippable(RefusalReason.OBJECT_MODE, f"{body.__module__}.{body.__qualname__}")
    caller_flags, settings = target.caller_flags(), target.settings()
    if cpu is not None:
        settings = target.settings_for(settings, cpu)
    reached = reach(dispatcher, (arguments, return_type))
    plan = extensions.plan(reached.registrations)
    subject = capture.dump(
        (dispatcher, arguments, return_type, plan.repeated),
        reached.modules,
        (*plan.imports, *reached.imports),
        plan.named,
    )
    key = CompileKey.from_parts(_parts(reached, dispatcher, settings, caller_flags))
    return CompileFunctor(key, subject, settings, caller_flags, front_paths(), _directory())


def other_keys(functor: CompileFunctor) -> Iterator[CompileKey]:
    """The keys under which code lies that this process may run instead of its own, the best first.

    Only the target differs, so nothing is walked again: some microseconds each.
    """
    parts = dict(functor.key.parts)
    for cpu in runnable_for(target.own_cpu(functor.settings)):
        yield CompileKey.from_digests(parts | {"target": CompileKey.digest(_target_part(cpu))})


def front_paths() -> tuple[str, ...]:
    """`sys.path` of this process, absolute."""
    here = _directory()  # "" in sys.path means this one
    paths = [path for path in sys.path if isinstance(path, str)]
    if here is None:
        return tuple(path for path in paths if os.path.isabs(path))
    return tuple(os.path.join(here, path) for path in paths)


def _directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


def compute_key(
    dispatcher: Any, arguments: tuple[Any, ...], return_type: Any | None, caller_flags: Any | None
) -> CompileKey:
    """The key of one signature, from what is in this process's memory."""
    return CompileKey.from_parts(key_parts(dispatcher, arguments, return_type, caller_flags))


def key_parts(
    dispatcher: Any, arguments: tuple[Any, ...], return_type: Any | None, caller_flags: Any | None
) -> dict[str, bytes]:
    """What the key of one signature covers, by label."""
    return _parts(reach(dispatcher, (arguments, return_type)), dispatcher, target.settings(), caller_flags)


def _parts(
    reached: Reached, dispatcher: Any, settings: dict[str, target.Plain], caller_flags: Any | None
) -> dict[str, bytes]:
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


def _repeat(kind: str, content: tuple[Any, ...]) -> None:
    """Register an extension again, unless an import or an earlier job did so already, for the same object."""
    there = [one.content for one in registry.registrations() if one.kind.value == kind and one.content[0] is content[0]]
    if not there or describe_values(content) not in map(describe_values, there):
        registry.repeat(kind, content)


def _require_one_set_of_extensions() -> None:
    """Raises NotShippable(KEY_MISMATCH), which sends the job to a fresh process."""
    global _general_at_first
    general = sum(not one.subjects for one in registry.registrations())
    if _general_at_first is None:
        _general_at_first = general
    if general != _general_at_first:
        raise NotShippable(RefusalReason.KEY_MISMATCH, "numba extensions came after this process began to compile")
