"""Signals: which threads of ours leave them to others. Apart from `launch`, which many programs never need."""

import signal
from typing import Final

_FAULTS: Final = {"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS"}
_SENT: Final = {number for number in signal.valid_signals() if getattr(number, "name", "") not in _FAULTS}
"""What one process sends to another, or a terminal to all of a group."""


def leave_signals_to_others() -> None:
    """Have no signal delivered to this thread, as far as it is sent to the process and not by what the thread does.

    Python runs handlers in the main thread, and wakes it only if the kernel has chosen it: a Ctrl-C that a background
    thread was given is noticed when the main thread happens to wake. Processes that this thread starts inherit the
    mask: a Ctrl-C before they are in a group of their own does not end them, and `reset_signals` takes it away.
    """
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, _SENT)


def take_signals() -> None:
    """The end of `leave_signals_to_others`: what the thread runs now may start processes that are not ours."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SENT)
