"""Running a program in this process as Python itself would: it is `__main__`, and nothing of us shows.

`sys.modules["__main__"]` is a module of its own, filled as the interpreter fills it, so that pickles, multiprocessing
and whoever looks up `__main__` find the program. What it raises is told by its `sys.excepthook`, without our frames.
"""

import builtins
import os
import pkgutil
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from types import ModuleType, TracebackType
from typing import Any, Final

import click

from farm.port.naming import CHILD

OURS_ALONE: Final = frozenset({"click", "rich", "markdown_it", "mdurl", "pygments"})
"""What only the command line needs: the program may have modules of these names."""
_kept: list[ModuleType] = []
"""Our own `__main__`, whose code is still running."""


class ProgramInterrupted(BaseException):
    """The program ended by Ctrl-C, and it has been told."""


@contextmanager
def own_directory_on_path() -> Iterator[None]:
    """Modules are found from the current directory, as by `python -m`."""
    before = list(sys.path)
    sys.path.insert(0, os.getcwd())
    try:
        yield
    finally:
        sys.path[:] = before


class Commands(click.Group):
    """The `farm` command. A program that Ctrl-C ended ends this process as Ctrl-C ends Python: by the signal."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        try:
            return super().main(*arguments, **options)
        except ProgramInterrupted:
            pass
        sys.excepthook = lambda *_: None  # it has been told
        raise KeyboardInterrupt


def run_script(path: str, arguments: Sequence[str]) -> None:
    """As `python path arguments`. Raises OSError if there is no such file."""
    if pkgutil.get_importer(path) is not None:  # a directory, or a zip file, with a __main__ in it
        _begin([path, *arguments], os.path.join(os.getcwd(), path))
        _as_main(lambda: runpy._run_module_as_main("__main__", alter_argv=False))  # type: ignore[attr-defined]
        return
    file = os.path.join(os.getcwd(), path)  # not made shorter: Python does not
    with open(file, "rb") as opened:
        source = opened.read()
    main = _begin([path, *arguments], os.path.dirname(os.path.realpath(path)))
    compiled = path.endswith(".pyc")
    loader = (SourcelessFileLoader if compiled else SourceFileLoader)("__main__", file)
    vars(main).update(__file__=file, __cached__=None, __loader__=loader)

    def run() -> None:
        code = loader.get_code("__main__") if compiled else compile(source, file, "exec", dont_inherit=True)
        exec(code, vars(main))  # type: ignore[arg-type]

    _as_main(run)


def run_module(name: str, arguments: Sequence[str]) -> None:
    """As `python -m name arguments`."""
    _begin(["-m", *arguments], os.getcwd())
    _as_main(lambda: runpy._run_module_as_main(name))  # type: ignore[attr-defined]


def _begin(argv: list[str], directory: str) -> ModuleType:
    """A fresh `__main__`, and `sys.argv` and `sys.path` as Python has them when a program begins."""
    ours = os.path.dirname(os.path.realpath(sys.argv[0]))
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        if sys.path and os.path.realpath(sys.path[0] or ".") == ours:
            del sys.path[0]
        sys.path.insert(0, directory)
    sys.argv[:] = argv
    _kept.append(sys.modules["__main__"])
    main = sys.modules["__main__"] = ModuleType("__main__")
    if CHILD in sys.modules:  # multiprocessing's other name for it, under which children send what they pickle
        sys.modules[CHILD] = main
    vars(main)["__builtins__"] = builtins
    if sys.version_info < (3, 14):
        vars(main)["__annotations__"] = {}
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS_ALONE]:
        del sys.modules[name]
    return main


def _as_main(run: Callable[[], None]) -> None:
    """Run it to its end. What it raises, SystemExit apart, is told here, and ends this process as it would end Python.

    Raises SystemExit, and ProgramInterrupted.
    """
    raised: BaseException | None = None
    try:
        run()
    except SystemExit:
        raise
    except BaseException as error:
        raised = error
    if raised is not None:  # told out here, where nothing is being handled, as nothing is then in Python
        _tell(raised, _without_our_frames(raised.__traceback__))
        if type(raised) is KeyboardInterrupt:
            raise ProgramInterrupted
        sys.exit(1)


def _without_our_frames(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return traceback


def _tell(error: BaseException, traceback: TracebackType | None) -> None:
    error.__traceback__ = traceback
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, traceback
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    try:
        sys.excepthook(type(error), error, traceback)
    except SystemExit:
        raise
    except BaseException as failure:
        failure.__traceback__ = _without_our_frames(failure.__traceback__)
        print("Error in sys.excepthook:", file=sys.stderr)
        sys.__excepthook__(type(failure), failure, failure.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, traceback)
