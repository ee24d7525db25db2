"""The flags of a compile that asked for another one, as plain values that a text file can hold, and back.

Only what numba hands down to a callee is written: fastmath, error_model, nrt and forceinline. Whoever writes compares
the effective flags before and after, so that a flag which a later numba hands down is noticed.
"""

from collections.abc import Mapping
from typing import Any, Final

from numba.core import compiler, cpu

HANDED_DOWN: Final = ("error_model", "fastmath", "forceinline", "nrt")
Plain = bool | str | list[str]


def to_plain(flags: Any) -> dict[str, Plain]:
    """What numba hands down of these flags."""
    held = flags.values()
    return {name: _plain(held[name]) for name in HANDED_DOWN if name in held and flags.is_set(name)}


def _plain(value: Any) -> Plain:
    chosen = getattr(value, "flags", None)
    if isinstance(chosen, (set, frozenset)):
        return sorted(map(str, chosen))
    return value if isinstance(value, (bool, str)) else str(value)


def from_plain(values: Mapping[str, object]) -> Any:
    """Flags that hand the same down. Raises ValueError for what are none."""
    flags = compiler.Flags()
    for name, value in values.items():
        if name == "fastmath" and isinstance(value, list) and all(isinstance(one, str) for one in value):
            flags.fastmath = cpu.FastMathOptions(set(value))
        elif name == "error_model" and value in ("python", "numpy"):
            flags.error_model = value
        elif name in ("forceinline", "nrt") and isinstance(value, bool):
            setattr(flags, name, value)
        else:
            raise ValueError(f"{name}={value!r} is no flag that a caller hands down")
    return flags
