"""What kind of numba's own a value is: those that Python code meets as arguments."""

from typing import Any

from numba.core.ccallback import CFunc
from numba.core.dispatcher import Dispatcher
from numba.core.types import Type
from numba.experimental.jitclass import _box
from numba.experimental.structref import StructRefProxy
from numba.np.ufunc.dufunc import DUFunc
from numba.typed import Dict, List


def compiled_kind(value: Any) -> str | None:
    """What a value is that numba compiles code for when Python uses it, as people call it. None: it is none of them."""
    if isinstance(value, List):
        return "typed list"
    if isinstance(value, Dict):
        return "typed dictionary"
    if isinstance(value, _box.Box):
        return "jitclass instance"
    if isinstance(value, StructRefProxy):
        return "structref"
    return None


def is_code_or_type(value: Any) -> bool:
    """Whether it is a dispatcher, a ufunc, a C callback or a type of numba's: nothing that holds a caller's data."""
    return isinstance(value, (Dispatcher, DUFunc, CFunc, Type))
