"""InertDispatcher: what `farm.jit` makes in a worker, when a module that a job imports is decorated there.

Jitted callers compile it as any other of the worker's dispatchers. Asked for anything else it agrees and does nothing:
a module that calls `f.wait()` at import must come through.
"""

from concurrent.futures import Future
from typing import Any

from farm.front.status import Status
from farm.front.table import CompileState
from farm.port.library import LibraryDispatcher


class InertDispatcher(LibraryDispatcher):
    """A worker's dispatcher with the methods that users of a FarmDispatcher call."""

    def submit(self, sig: Any) -> "Future[Status]":
        """A completed future: nothing is compiled."""
        future: Future[Status] = Future()
        future.set_result(self.status(sig))
        return future

    def wait(self, timeout: float | None = None) -> bool:
        """True: nothing is pending."""
        return True

    def status(self, sig: Any) -> Status:
        """UNCOMPILED."""
        return Status(state=CompileState.UNCOMPILED)

    def recompile(self) -> None:
        """Nothing."""
