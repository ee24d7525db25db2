"""Signals that wait: what a handler raises in the middle of linking leaves llvmlite's objects half made.

Freeing such an object later ends the process (seen: Ctrl-C while numba compiled, a segmentation fault at the next
collection). Python runs signal handlers in the main thread, between any two steps of the interpreter, so the handlers
are what has to wait.
"""

import signal
import threading
from _signal import getsignal  # type: ignore[import-not-found]  # signal's own makes enums of the answers: 0.15 ms
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Final, TypeVar

T = TypeVar("T")

SIGNALS: Final = tuple(sorted(signal.valid_signals()))


def with_signals_waiting(work: Callable[[], T]) -> T:
    """What `work` gives; in the main thread, a signal with a handler in Python is handled once it is over.

    The first one of each kind. The second is handled at once, as the work may be a compile that never ends.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    handlers: dict[int, Any] = {number: one for number in SIGNALS if callable(one := getsignal(number))}
    heard: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if number in heard:
            handlers[number](number, frame)
        else:
            heard.append(number)

    try:
        with suppress(ValueError):  # Python is a guest in this process, and its main thread is not the process's
            for number in handlers:
                signal.signal(number, note)
        return work()
    finally:
        raised = _put_back(handlers, note)
        for number in heard:  # all of them, though one may raise
            try:
                handlers[number](number, None)
            except BaseException as error:
                raised = error
        if raised is not None:
            raise raised


def _put_back(handlers: dict[int, Any], note: Callable[..., None]) -> BaseException | None:
    """All of them, whatever a handler raises that is back already: that is returned."""
    raised: BaseException | None = None
    left = list(handlers)
    while left:
        try:
            while left:
                # A program that has set another one meanwhile keeps that.
                if getsignal(left[-1]) is note:
                    signal.signal(left[-1], handlers[left[-1]])
                left.pop()
        except BaseException as error:
            raised = error
    return raised
