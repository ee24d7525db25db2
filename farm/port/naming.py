"""Names that outlive a process: `module:qualname` for functions and classes, and what must not be in a text.

A name counts only if exactly this object is found under it again. `__main__` is a name like another: who writes it
down says which program it was.
"""

import contextlib
import gc
import importlib
import pickletools
import re
import sys
import tempfile
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic

from farm.port import describe, registry

PROGRAM: Final = "__main__"
CHILD: Final = "__mp_main__"
"""What multiprocessing calls the program's module in the children that it spawns."""
_PATH: Final = re.compile(r"(?<![\w.])(?:/[\w.+@~-]+){2,}|\b[A-Za-z]:\\[\w.]")


class NoSuchName(LookupError):
    """Nothing is found under a name: the text says what is missing."""


def name_of(obj: object) -> str | None:
    """`module:qualname` under which exactly this object is found, or another name that a module holds it by."""
    return names_of([obj]).get(id(obj))


def names_of(objects: Iterable[object]) -> dict[int, str]:
    """The name of each object that has one, by its id. Modules are gone through once, for what has no other name."""
    names: dict[int, str] = {}
    nameless: dict[int, object] = {}
    for obj in objects:
        found = describe.by_name(obj) or _held_at_home(obj)
        if found is None:
            nameless[id(obj)] = obj
        else:
            names[id(obj)] = f"{_home(found[0].__name__)}:{found[1]}"
    if nameless:
        for home, module in sorted(list(sys.modules.items())):
            if isinstance(module, types.ModuleType) and home != CHILD:  # a program may put anything there
                for name, one in sorted(list(vars(module).items())):
                    if id(one) in nameless and name.isidentifier():
                        names.setdefault(id(one), f"{home}:{name}")
    return names


def _held_at_home(obj: object) -> tuple[types.ModuleType, str] | None:
    home = describe.imported(describe.home(obj))
    if not isinstance(home, types.ModuleType):
        return None
    held = sorted(name for name, one in list(vars(home).items()) if one is obj and name.isidentifier())
    return (home, held[0]) if held else None


def _home(module: str) -> str:
    return PROGRAM if module == CHILD else module


def find(name: str) -> Any:
    """What `name_of` gave this name to; its module is imported. Raises NoSuchName, and whatever the import raises."""
    home, colon, qualname = name.partition(":")
    if not (home and colon and qualname):
        raise NoSuchName(f"{name!r} is not of the form module:function")
    module = describe.imported(home)
    if module is None:
        try:
            module = importlib.import_module(home)
        except ModuleNotFoundError as error:
            if error.name is not None and (home == error.name or home.startswith(f"{error.name}.")):
                raise NoSuchName(f"there is no module {home}") from None
            raise
    found = describe.resolve(module, qualname)
    if found is None:
        raise NoSuchName(f"module {home} holds no {qualname}")
    return found


def holds_path(text: str) -> bool:
    """Whether a text seems to name a place on this machine: an absolute path, or one of its own directories."""
    return _PATH.search(text) is not None or any(place in text for place in _places())


def pickle_holds_path(pickled: bytes) -> bool:
    """Whether any string of a pickle does. The pickle is not run."""
    for _, argument, _ in pickletools.genops(pickled):
        text = argument.decode("latin-1") if isinstance(argument, (bytes, bytearray)) else argument
        if isinstance(text, str) and holds_path(text):
            return True
    return False


def _places() -> set[str]:
    """Directories of this machine that no pattern would tell from words."""
    places = {sys.prefix, sys.base_prefix, tempfile.gettempdir(), *(path for path in sys.path if Path(path).is_dir())}
    return {place for place in places if len(place) > 1 and Path(place).is_absolute()}


def program_name() -> str | None:
    """What `__main__` is in this process: a file's name without its directory, `-m module`, or None for neither."""
    main = sys.modules.get(PROGRAM)
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name not in (PROGRAM, CHILD):
        return f"-m {str(spec.name).removesuffix(f'.{PROGRAM}')}"
    file = getattr(main, "__file__", None)
    return Path(file).name if isinstance(file, str) and file else None


def take_for_program(module: types.ModuleType) -> None:
    """From now on a module that was run as CHILD is `__main__`, and what was defined in it was defined there.

    The name is in keys, and in artifacts: classes of the program are found again by it.
    """
    vars(module)["__name__"] = PROGRAM
    kinds = (types.FunctionType, type, Dispatcher, _Intrinsic, *describe.BY_NAME_ONLY)
    for one in gc.get_objects():  # also what only a closure holds
        if issubclass(type(one), kinds) and describe.home(one) == CHILD:
            with contextlib.suppress(AttributeError, TypeError):  # a class that lets nobody change it
                one.__module__ = PROGRAM
    registry.read_anew()
