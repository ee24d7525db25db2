"""Everything of a class that Python code can read or call: what counts where code of the user runs at compile time.

That code is the body of an `@overload`, an intrinsic, a method of a numba type, a pass of a pipeline. It may call a
method that reads a global of another module, or read a list in a class. A class as machine code alone sees it is less:
`farm.job.reach`.
"""

import collections
import types
from collections.abc import Callable, Mapping
from typing import Any, Final

Node = tuple[Any, ...]

NAMES_IGNORED: Final = frozenset(
    {"__annotations__", "__annotate__", "__dict__", "__doc__", "__firstlineno__", "__module__", "__qualname__"}
    | {"__static_attributes__", "__weakref__", "_abc_impl", "__annotations_cache__", "__annotate_func__"}
)
SLOTS: Final = (
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    type(vars(collections.namedtuple("_", "a"))["a"]),
)
"""What Python puts into a class for its slots and fields."""


def attributes(held: Mapping[str, object], path: str, node: Callable[[Any, str], Node]) -> Node:
    """A class's attributes; `node` describes each thing, and raises NotShippable for what it cannot."""
    counted = sorted(name for name, one in held.items() if name not in NAMES_IGNORED and not isinstance(one, SLOTS))
    return tuple((name, _attribute(held[name], f"{path}.{name}", node)) for name in counted)


def _attribute(value: Any, path: str, node: Callable[[Any, str], Node]) -> Node:
    if isinstance(value, property):
        return ("property", node((value.fget, value.fset, value.fdel), path))
    if isinstance(value, (classmethod, staticmethod)):
        return (type(value).__name__, node(value.__func__, path))
    return node(value, path)
