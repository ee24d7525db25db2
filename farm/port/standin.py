"""Stands in, on the side that compiles, for classes that exist in the front: enums, named tuples and exceptions.

Pickled by value, a class comes back as a copy: a returned enum is != the front's member, `except MyError` does not
catch. Pickled by name, it makes the worker import the user's module, and `__main__` is another module there. So the
worker gets a stand-in with what numba reads of the class (bases, members, fields), and numba's pickler writes the
stand-in as a name: in environments and in the pickles frozen into machine code. The front turns the name back into
the very class.

- A name carries the stand-in's shape: what has the name but another shape is refused, not used.
- `pin` ties the names in an artifact to the classes that are there when it is loaded. The same artifact loaded
  again, when its name means another class, is refused: LLVM would run the code of the first load.

Methods do not travel: numba compiles none of them, and calls an exception class only when the code raises.
"""

import hashlib
import importlib
import re
import secrets
import sys
import types
import weakref
from collections import namedtuple
from enum import Enum, EnumMeta
from typing import Any, Final

from numba.core import serialize

from farm.port import describe

REFERENCE: Final = re.compile(rb"farm-class\n([^\n]+)\n([^\n]+)\n([0-9a-f]{16})\n[0-9a-f]{16}\n")
"""How a class is written into an artifact: module, qualified name, shape, and a number of the stand-in's own."""

WITHOUT_MEANING: Final = frozenset(
    {"__annotations__", "__annotate__", "__doc__", "__firstlineno__", "__static_attributes__", "__orig_bases__"}
    | {"__annotations_cache__", "__annotate_func__"}
)
"""Attributes that Python gives to a class or not, whatever it is for."""

# In the worker: the stand-ins of the job at hand by (module, qualified name), and how each is written. Only the thread
# that does the job touches them.
_standing: dict[tuple[str, str], type] = {}
_written_as: "weakref.WeakKeyDictionary[type, str]" = weakref.WeakKeyDictionary()
# In the front: what each reference in a loaded artifact means for good. Guarded by numba's compiler lock.
_pinned: dict[str, type] = {}


def has_standin(cls: type) -> bool:
    """Whether a stand-in serves numba as well as the class itself."""
    if issubclass(cls, Enum):
        return type(cls) is EnumMeta
    if type(cls) is not type:
        return False
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):  # numba reads the signature of `__new__`
        return "_fields" in vars(cls) or "__new__" not in vars(cls)
    return issubclass(cls, BaseException)


def content(cls: type) -> tuple[Any, ...]:
    """What a stand-in repeats of a class, its bases apart: members of an enum, fields of a named tuple."""
    if issubclass(cls, Enum):
        return tuple((name, member.value) for name, member in cls.__members__.items())
    if "_fields" in vars(cls):
        return tuple(cls._fields), len(cls._field_defaults)  # type: ignore[attr-defined]
    return ()


def shape(cls: type) -> str:
    """A short digest of a class's bases and content; equal for a class and its stand-in."""
    bases = [(base.__module__, base.__qualname__) for base in cls.__bases__]
    return hashlib.sha256(repr((bases, content(cls))).encode()).hexdigest()[:16]


def additions(cls: type) -> dict[str, object]:
    """What a class holds that a stand-in would not: methods, properties, other attributes, defaults of fields."""
    more = {name: value for name, value in vars(cls).items() if name not in WITHOUT_MEANING}
    try:
        bare = vars(_new(cls.__module__, cls.__qualname__, cls.__bases__, content(cls)))
    except Exception:  # a base that asks more of those who derive from it
        return more
    defaults = getattr(cls, "_field_defaults", None) if "_fields" in more else None
    more = {name: value for name, value in more.items() if name not in bare or _code(value) != _code(bare[name])}
    return {**more, "_field_defaults": defaults} if defaults else more


def _code(value: object) -> bytes | None:
    inner: Any = getattr(value, "__func__", getattr(value, "fget", value))
    return inner.__code__.co_code if isinstance(inner, types.FunctionType) else None


def make(
    module: str, qualname: str, bases: tuple[type, ...], parts: tuple[Any, ...], shape_of_original: str | None
) -> type:
    """The stand-in, written as a name from now on. A base that has no name of its own comes without a shape.

    If the job has imported the class's module, the class itself: what else the module holds refers to that one.
    """
    made = _imported(module, qualname) if shape_of_original is not None else None
    if made is None:
        made = _new(module, qualname, bases, parts)
    if shape_of_original is not None:
        if shape(made) != shape_of_original:
            raise TypeError(f"{module}.{qualname} cannot be stood in for")
        _standing[module, qualname] = made
        mark = secrets.token_hex(8)
        _written_as[made] = f"farm-class\n{module}\n{qualname}\n{shape_of_original}\n{mark}\n"
    return made


def _imported(module: str, qualname: str) -> type | None:
    home = sys.modules.get(module)
    if home is None or module == "__main__" or describe.STUB_MARK in vars(home):
        return None
    found = describe.resolve(home, qualname)
    return found if isinstance(found, type) else None


def _new(module: str, qualname: str, bases: tuple[type, ...], parts: tuple[Any, ...]) -> type:
    name = qualname.rpartition(".")[2]
    made: type
    if bases == (tuple,) and parts:
        fields, default_count = parts
        make_tuple_class: Any = namedtuple  # the type checker knows it with constants only
        made = make_tuple_class(name, fields, rename=True, defaults=(None,) * default_count)
    else:

        def fill(space: dict[str, Any]) -> None:
            if any(issubclass(base, Enum) for base in bases):
                for member, value in parts:
                    space[member] = value

        made = types.new_class(name, bases, exec_body=fill)
    made.__module__, made.__qualname__ = module, qualname
    return made


def begin_job() -> None:
    """Forget the stand-ins of the last job, and make sure that numba's pickler knows about stand-ins."""
    _standing.clear()
    if serialize.NumbaPickler.reducer_override is not _reduce:
        serialize.NumbaPickler.reducer_override = _reduce


_numbas_reduce: Final = serialize.NumbaPickler.reducer_override


def _reduce(pickler: Any, obj: Any) -> Any:
    if isinstance(obj, type):
        reference = _written_as.get(obj)
        if reference is not None:
            return find, (reference,)
    return _numbas_reduce(pickler, obj)


def find(reference: str) -> type:
    """The class of this process that a reference means: unpickling calls it. Raises LookupError."""
    return _pinned.get(reference) or _look_up(reference, imports=True)


def references(*data: bytes) -> list[str]:
    """Every reference in machine code and pickles: a pickle's text lies in them as it was written, callees' too."""
    return sorted({match[0].decode() for each in data for match in REFERENCE.finditer(each)})


def pin(references: list[str]) -> None:
    """Tie the references of an artifact to the classes that are there now. Raises LookupError if that cannot be."""
    now = {reference: _look_up(reference, imports=False) for reference in references}
    for reference, found in now.items():
        if _pinned.get(reference, found) is not found:
            raise LookupError(f"{found.__module__}.{found.__qualname__} is not the class that is linked already")
    # In a worker the names mean stand-ins, and the next job has others.
    _pinned.update((reference, found) for reference, found in now.items() if found not in _written_as)


def _look_up(reference: str, *, imports: bool) -> type:
    _, module_name, qualname, wanted, _, _ = reference.split("\n")
    found: object = _standing.get((module_name, qualname))
    if found is None:
        module = sys.modules.get(module_name)
        if module is None and imports:
            module = importlib.import_module(module_name)
        found = None if module is None else describe.resolve(module, qualname)
    if not isinstance(found, type) or shape(found) != wanted:
        raise LookupError(f"{module_name}.{qualname} is not the class that the code was compiled for")
    return found
