"""Everything of a class that Python code can read or call: what counts where code of the user runs at compile time.

That code is the body of an `@overload`, an intrinsic, a method of a numba type, a pass of a pipeline. It may call a
method that reads a global of another module, or read a list in a class. A class as machine code alone sees it is less:
`farm.job.reach`.
"""

import collections
import types
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

Node = tuple[Any, ...]

NAMES_IGNORED: Final = frozenset(
    {"__annotations__", "__annotate__", "__dict__", "__doc__", "__firstlineno__", "__module__", "__qualname__"}
    | {"__static_attributes__", "__weakref__", "_abc_impl", "__annotations_cache__", "__annotate_func__"}
)
METHODS: Final = (types.FunctionType, property, classmethod, staticmethod)
SLOTS: Final = (
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    type(vars(collections.namedtuple("_", "a"))["a"]),
)
"""What Python puts into a class for its slots and fields."""


def whole_class(cls: type, path: str, node: Callable[[Any, str], Node]) -> Node:
    """What the class adds to its bases; `node` describes each thing, and raises NotShippable for what it cannot."""
    members = getattr(cls, "__members__", {}) if issubclass(cls, Enum) else {}
    content = [(name, node(member.value, f"{path}.{name}")) for name, member in members.items()]
    for name, value in sorted(vars(cls).items()):
        if name in NAMES_IGNORED or name in members or isinstance(value, SLOTS):
            continue
        if members and name.startswith("_") and not isinstance(value, METHODS):  # what an enum keeps of its members
            continue
        content.append((name, _attribute(value, f"{path}.{name}", node)))
    return tuple(content)


def _attribute(value: Any, path: str, node: Callable[[Any, str], Node]) -> Node:
    if isinstance(value, property):
        return ("property", node((value.fget, value.fset, value.fdel), path))
    if isinstance(value, (classmethod, staticmethod)):
        return (type(value).__name__, node(value.__func__, path))
    return node(value, path)
