"""CompileFunctor: one compile as data. Every field is a value; running it needs nothing of the front.

Never in it: a lock, a file, a live dispatcher, a closure over farm state. The key names everything
that determines the result. Whoever runs the functor computes the key anew from what was unpickled and
refuses on a difference: the code on that side's disk may be newer than the code in the front's memory.
"""

from dataclasses import dataclass
from typing import Any

from farm.errors import NotShippable
from farm.job.canonical import encode
from farm.job.key import CompileKey
from farm.job.reach import describe_values, reach
from farm.port import capture, target
from farm.port.compile import Parts, compile_signature, take_apart
from farm.port.registry import foreign_registrations
from farm.reasons import RefusalReason


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A functor's function on the side that compiles: an ordinary dispatcher, with its key checked."""

    dispatcher: Any
    arguments: tuple[Any, ...]
    return_type: Any | None
    caller_flags: Any | None

    def __call__(self) -> Parts:
        """Compile. numba's errors pass through; NotShippable if the result cannot travel."""
        result, symbol_base = compile_signature(self.dispatcher, self.arguments, self.return_type, self.caller_flags)
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
    """

    key: CompileKey
    subject: bytes
    settings: dict[str, target.Plain]
    caller_flags: Any | None

    def rebuild(self) -> Rebuilt:
        """Apply the settings, restore the function, check the key. Raises NotShippable."""
        target.apply_settings(self.settings)
        dispatcher, arguments, return_type = capture.restore(self.subject)
        found = compute_key(dispatcher, arguments, return_type, self.caller_flags)
        if found != self.key:
            raise NotShippable(RefusalReason.KEY_MISMATCH, f"part {found.first_difference(self.key)!r} differs")
        return Rebuilt(dispatcher, arguments, return_type, self.caller_flags)

    def __call__(self) -> Parts:
        """Rebuild and compile."""
        return self.rebuild()()


def make_functor(dispatcher: Any, arguments: tuple[Any, ...], return_type: Any | None) -> CompileFunctor:
    """Capture a signature of a dispatcher as it stands now: numba reads globals at each signature's compile.

    Raises NotShippable with the reason.
    """
    foreign = foreign_registrations()
    if foreign:
        raise NotShippable(RefusalReason.EXTENSION_NOT_SHIPPABLE, foreign[0])
    caller_flags = target.caller_flags()
    key = compute_key(dispatcher, arguments, return_type, caller_flags)
    whole = (dispatcher, arguments, return_type)
    reached = reach(whole)
    subject = capture.dump(whole, reached.modules, reached.imports)
    return CompileFunctor(key, subject, target.settings(), caller_flags)


def compute_key(
    dispatcher: Any, arguments: tuple[Any, ...], return_type: Any | None, caller_flags: Any | None
) -> CompileKey:
    """The key of one signature, from what is in this process's memory."""
    return CompileKey.from_parts(
        {
            "function": reach(dispatcher).description,
            "signature": describe_values((arguments, return_type)),
            "flags": target.effective_flags(dispatcher.targetoptions, caller_flags).encode(),
            "settings": encode(target.settings()),
            "target": encode(target.target()),
            "toolchain": encode(target.toolchain()),
        }
    )
