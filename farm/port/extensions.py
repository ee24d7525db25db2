"""How foreign numba registrations come into a worker: by import, or by value and registered again.

- What an installed distribution registered: its modules are imported.
- What a user's module registered: if it holds models, lowerings, converters or the like, it is imported, and the
  functions that its registrations are for travel by name, so that they are the objects that were registered.
- Else, and in `__main__`: `@overload` and kin travel by value with the function and are registered again on the copies.
- Everything else in `__main__` cannot be repeated.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import FunctionType

from farm.errors import NotShippable
from farm.port import describe
from farm.port.registry import Kind, Registration
from farm.reasons import RefusalReason

Repeated = tuple[str, tuple[object, ...]]
"""The arguments of `registry.repeat`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a capture must carry so that a worker has these registrations.

    Parameters
    ----------
    imports
        Modules to import, in the order in which this process began to.
    named
        Functions that must travel by name.
    repeated
        Registrations that are made again from their content.
    """

    imports: tuple[str, ...]
    named: tuple[object, ...]
    repeated: tuple[Repeated, ...]


def plan(registrations: Sequence[Registration]) -> Plan:
    """Raises NotShippable(EXTENSION_NOT_SHIPPABLE), naming a registration that a worker cannot repeat."""
    imports = {one.home for one in registrations if describe.distribution(one.home) is not None}
    imports |= {one.home for one in registrations if one.kind is Kind.OTHER}
    for one in registrations:
        if one.home in imports and not _importable(one.home):
            raise NotShippable(RefusalReason.EXTENSION_NOT_SHIPPABLE, one.name)
    named, repeated = [], []
    for one in registrations:
        if one.home not in imports:
            repeated.append((one.kind.value, one.content))
            continue
        for subject in one.subjects:
            if isinstance(subject, FunctionType):
                if describe.by_name(subject) is None:
                    raise NotShippable(RefusalReason.EXTENSION_NOT_SHIPPABLE, one.name)
                named.append(subject)
    order = {name: place for place, name in enumerate(list(sys.modules))}
    return Plan(tuple(sorted(imports, key=lambda name: order[name])), tuple(named), tuple(repeated))


def _importable(name: str) -> bool:
    module = describe.imported(name)
    if module is None or name == "__main__":
        return False
    return describe.installed(module) is not None or getattr(module, "__spec__", None) is not None
