"""The flags of a compile that asked for another one, as plain values that a text file can hold, and back.

Only what numba hands down to a callee is written: fastmath, error_model, nrt and forceinline. Whoever writes compares
the effective flags before and after, so that a flag which a later numba hands down is noticed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from numba.core import compiler, cpu, registry

from farm.port.target import inherited_flags

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


@dataclass(frozen=True, slots=True)
class HandedDown:
    """What a function hands down to numba's library, as far as it is not what every function does: the key of a pack.

    Parameters
    ----------
    fastmath
        Names of what LLVM may do; sorted, empty for none of it.
    error_model
        "python" or "numpy".
    """

    fastmath: tuple[str, ...] = ()
    error_model: str = "python"

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> "HandedDown":
        """Of a decorator's options. Raises ValueError for what is none that is handed down."""
        unknown = sorted(set(options) - {"fastmath", "error_model"})
        if unknown:
            raise ValueError(f"{unknown[0]!r} is no flag that a function hands down to numba's own")
        try:
            fastmath = cpu.FastMathOptions(options.get("fastmath", False)).flags
        except (ValueError, TypeError) as error:
            raise ValueError(str(error)) from None
        error_model = options.get("error_model", "python")
        if error_model not in ("python", "numpy"):
            raise ValueError(f"error_model is python or numpy, not {error_model!r}")
        return cls(tuple(sorted(map(str, fastmath))), error_model)

    @classmethod
    def of_function(cls, options: Mapping[str, Any], flags_of_caller: Any | None) -> "tuple[HandedDown, ...]":
        """Of a function with these options, compiled by itself or for a caller.

        With parallel=True there are two: numba compiles parallel loops under error_model="numpy", and what they call.
        """
        flags = compiler.Flags()
        with inherited_flags(flags_of_caller):
            registry.cpu_target.options.parse_as_flags(flags, dict(options))
        fastmath = tuple(sorted(map(str, flags.fastmath.flags)))
        models = [str(flags.error_model), *(["numpy"] if flags.auto_parallel.enabled else [])]
        return tuple(cls(fastmath, one) for one in dict.fromkeys(models))

    def options(self) -> dict[str, Any]:
        """As a decorator takes them."""
        found: dict[str, Any] = {"fastmath": set(self.fastmath)} if self.fastmath else {}
        return found if self.error_model == "python" else {**found, "error_model": self.error_model}

    def __str__(self) -> str:
        """As people write them; empty for those of every function."""
        fast = "" if not self.fastmath else "fastmath"
        if fast and self.fastmath != ("fast",):
            fast = f"fastmath={'+'.join(self.fastmath)}"
        model = "" if self.error_model == "python" else f"error_model={self.error_model}"
        return ",".join(filter(None, (fast, model)))
