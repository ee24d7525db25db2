"""The default farm, for decorators that name none: made on first need, never at import."""

import os
import threading

from farm.front.ends import farms
from farm.front.farm import Farm
from farm.front.switch import stopper
from farm.port import dispatch, forking

# Guards _default. Making a Farm starts nothing and calls nothing back.
_lock = threading.RLock()
_default: Farm | None = None


def default_farm() -> Farm:
    """The farm of decorators that name none."""
    global _default
    with _lock:
        if _default is None:
            made = Farm()
            _default = _default or made  # a signal handler or a finalizer may have come in between
        return _default


def _after_fork_in_child() -> None:
    """The pool belongs to the parent: every farm here makes its own on first need, and keeps the code it has."""
    global _lock
    _lock = threading.RLock()
    dispatch.reset_in_child()
    stopper.reset_in_child()
    for one in farms():
        one.reset_in_child(unlocked=forking.forked_unlocked())


os.register_at_fork(after_in_child=_after_fork_in_child)
