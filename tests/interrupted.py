"""Ctrl-C at a chosen place of this package: at each place where the interpreter would look for it.

CPython looks for signals when a function begins and when a call has come back. A profile function is called
there too (`call` and `c_return`), and what it raises comes out as what a signal handler raises would. So a place is
an instruction and one of the two, and each can be tried: the call is made once to learn the places, and then once
more for each of them. Loops that call nothing are passed over, and so are finalizers: what is raised in one of
those Python prints and drops, wherever it comes from.
"""

import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import farm

PACKAGE: Final = str(Path(farm.__file__).parent)
BEGINS: Final = "call"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the interpreter looks for signals."""

    code: CodeType
    event: str
    instruction: int

    @classmethod
    def of(cls, frame: FrameType, event: str) -> "Place | None":
        """None for what is not of this package."""
        code = frame.f_code
        if event not in (BEGINS, "c_return") or not code.co_filename.startswith(PACKAGE) or _is_finalizer(frame):
            return None
        return cls(code, event, -1 if event == BEGINS else frame.f_lasti)

    def __str__(self) -> str:
        lines = [line for start, end, line in self.code.co_lines() if start <= self.instruction < end]
        line = lines[0] if lines else self.code.co_firstlineno
        what = "begins" if self.event == BEGINS else "has called"
        return f"{Path(self.code.co_filename).name}:{line} ({self.code.co_name} {what})"


def _is_finalizer(frame: FrameType) -> bool:
    callers = frame
    while callers.f_back is not None and callers.f_code.co_filename.startswith(PACKAGE):
        if callers.f_code.co_name == "__del__":
            return True
        callers = callers.f_back
    return callers.f_code.co_filename == weakref.__file__


def places(call: Callable[[], object]) -> dict[Place, None]:
    """Where this call could be interrupted, in order."""
    found: dict[Place, None] = {}

    def note(frame: FrameType, event: str, argument: Any) -> None:
        place = Place.of(frame, event)
        if place is not None:
            found.setdefault(place)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def interrupted(call: Callable[[], object], place: Place) -> bool:
    """Make the call, with Ctrl-C at this place. False if it did not come by there; the interrupt must come out."""
    met: list[Place] = []

    def interrupt(frame: FrameType, event: str, argument: Any) -> None:
        if not met and frame.f_code is place.code and Place.of(frame, event) == place:
            met.append(place)
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        call()
    except KeyboardInterrupt:
        assert met, "somebody else interrupted it"
    else:
        sys.setprofile(None)
        assert not met, f"an interrupt at {place} did not come out"
    finally:
        sys.setprofile(None)
    return bool(met)
