"""Recording: what this process asked its farms for, written into a manifest.

It is read off the dispatchers' tables when it is written, so that a program pays nothing while it runs, and what came
before the recording began is in it too. A function that is gone by then, as a closure may be, is left out: it could
not be found by a name anyway.

Guarantees: the file is written whole, also after an exception or `sys.exit`, and by children of `multiprocessing` that
were forked; several processes that write one file lose nothing of each other. A process that is killed writes nothing.
"""

import atexit
import warnings
from collections.abc import Iterator
from multiprocessing import util
from pathlib import Path
from types import TracebackType
from typing import Any

from farm.ahead import manifest
from farm.ahead.manifest import ManifestEntry
from farm.errors import CompileFailed, FarmError, FarmWarning, ManifestError
from farm.front import ends
from farm.front.dispatcher import FarmDispatcher
from farm.front.farm import Farm
from farm.front.pending import Asked, LiteralsWanted
from farm.front.table import Entry
from farm.port import flagtext
from farm.port.dispatch import Types
from farm.port.failure import headline
from farm.port.naming import CHILD, PROGRAM, holds_path, names_of, program_name
from farm.port.role import collects, compiles_for_others
from farm.port.target import effective_flags
from farm.port.typetext import NotWritable, write_signature

AFTER_FINALIZERS: Any = -100
"""After what multiprocessing itself ends in a child."""


class Recording:
    """Writes a manifest when it is stopped, or when the process ends. Begins at once; use it as a context manager too.

    Raises ManifestError if there is a file that is no manifest, or if it could not be written where it belongs.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._active = False
        self._program: str | None = None
        self.start()

    def __enter__(self) -> "Recording":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Have what this process asks for written when it ends. Harmless when repeated.

        In a worker, and while modules are only looked at, nothing is recorded: that is not the program.
        """
        if self._active or compiles_for_others() or collects():
            return
        if self.path.exists():
            manifest.read(self.path)
        manifest.require_writable(self.path)
        self._active = True
        self._program = program_name()  # Python takes `__file__` out of a script's module before it calls `atexit`
        atexit.register(self._write_at_end)
        util.register_after_fork(self, Recording._begin_in_child)

    def stop(self) -> None:
        """Write now, and no more at the end. Harmless when repeated. Raises ManifestError."""
        if self._active:
            self._active = False
            atexit.unregister(self._write_at_end)
            self.write()

    def write(self) -> None:
        """Add what was asked for so far to the file. Raises ManifestError."""
        manifest.add(self.path, entries(program_name() or self._program))

    def _write_at_end(self) -> None:
        if self._active:
            try:
                self.write()
            except ManifestError as error:
                warnings.warn(f"nothing was recorded: {error}", FarmWarning, stacklevel=1)

    def _begin_in_child(self) -> None:
        """In a forked child of multiprocessing, which ends without `atexit`."""
        if self._active:
            util.Finalize(None, self._write_at_end, exitpriority=AFTER_FINALIZERS)


def entries(program: str | None) -> tuple[ManifestEntry, ...]:
    """Everything that the farms of this process were asked for; `program` is what `__main__` is in it."""
    everything = list(asked())
    names = names_of(dispatcher for dispatcher, _ in everything)
    return manifest.merged(
        entry
        for dispatcher, one in everything
        for entry in _written(dispatcher, one, names.get(id(dispatcher)), program)
    )


def asked() -> Iterator[tuple[FarmDispatcher, Entry[Types, Any]]]:
    """Every dispatcher of this process's farms with everything that it was asked for."""
    for farm in ends.farms():
        if isinstance(farm, Farm):
            for dispatcher in farm.dispatchers():
                for entry in dispatcher.table.entries():
                    yield dispatcher, entry


def _written(
    dispatcher: FarmDispatcher, entry: Entry[Types, Any], found: str | None, program: str | None
) -> Iterator[ManifestEntry]:
    error = entry.snapshot().error
    if isinstance(error, LiteralsWanted):  # each combination of values has an entry of its own
        return
    how = entry.asked if isinstance(entry.asked, Asked) else Asked(None, None)
    name, reason = (found, None) if found is not None else _nameless(dispatcher)
    if reason is None and error is not None and (not isinstance(error, FarmError) or isinstance(error, CompileFailed)):
        text = headline(error)
        reason = f"it does not compile: {type(error).__name__ if holds_path(text) else text}"
    flags = None
    try:
        signature, returns, pickles = write_signature(entry.key, how.return_type)
        if how.caller_flags is not None:
            flags = _flags(dispatcher, how.caller_flags)
    except NotWritable as refusal:
        reason = reason or str(refusal)
        signature, returns, pickles = _for_people(dispatcher, entry.key), None, []
    if not any(f"{PROGRAM}:" in text for text in (name, signature, returns or "")):
        program = None
    elif program is None:
        reason = reason or "it belongs to an interactive session, or to a program without a file"
    yield ManifestEntry(
        function=name,
        signature=signature,
        returns=returns,
        flags=flags,
        program=program,
        pickles=tuple(pickles),
        reason=reason,
    )


def _nameless(dispatcher: FarmDispatcher) -> tuple[str, str]:
    """What a function calls itself, and why nothing is found under that."""
    body = dispatcher.py_func
    home = PROGRAM if body.__module__ == CHILD else body.__module__
    name = f"{home}:{body.__qualname__}"
    if "<lambda>" in name:
        return name, "it is a lambda that no module holds by a name"
    if "<locals>" in name:
        return name, "it is made inside a function, and no module holds it by a name"
    return name, "no module holds it by a name"


def _flags(dispatcher: FarmDispatcher, flags: Any) -> str:
    plain = flagtext.to_plain(flags)
    options = dispatcher.targetoptions
    if effective_flags(options, flagtext.from_plain(plain)) != effective_flags(options, flags):
        raise NotWritable("its caller hands down flags that a manifest does not hold")
    return manifest.flags_text(plain)


def _for_people(dispatcher: FarmDispatcher, arguments: Types) -> str:
    text = dispatcher.types_label(arguments)
    return "(types that hold a path of a machine)" if holds_path(text) else f"({text})"
