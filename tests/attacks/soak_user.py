"""Makes the package that a soak calls: many small functions, decorated, and the same in plain Python.

The arithmetic is exact in every type that is used, so that Python and machine code agree to the last bit.
"""

from pathlib import Path
from typing import Final

from children import Subject

FUNCTIONS: Final = 200

KINDS: Final = (
    # Each makes a function `f{n}`; k is a constant of its own, so that no two have the same machine code.
    "@compiled\ndef f{n}(a):\n    return a[0] * {k} + {k}\n",
    "@compiled\ndef f{n}(a):\n    total = a[0] - a[0]\n    for x in a:\n        total += x * {k}\n    return total\n",
    "@compiled\ndef h{n}(x):\n    return x * {k}\n\n\n@compiled\ndef f{n}(a):\n    return h{n}(a[1]) + h{n}(a[2])\n",
    "def make{n}(factor):\n    @compiled\n    def f(a):\n        return a * factor\n\n    return f\n\n\n"
    "f{n} = make{n}({k})\n",
    "@compiled\ndef f{n}(a):\n    if a[3] > 2:\n        raise ValueError({k})\n    return a[3]\n",
    "@compiled\ndef f{n}(a):\n    return a[0], {k}, len(a)\n",
    "TABLE{n} = np.arange({k}, {k} + 8)\n\n\n@compiled\ndef f{n}(a):\n    return TABLE{n}[len(a)] + a[1]\n",
    "@compiled\ndef f{n}(a, step={k}):\n    out = np.zeros(len(a), a.dtype)\n"
    "    for i in range(len(a)):\n        out[i] = a[i] + step\n    return out\n",
    '@compiled\ndef f{n}(a):\n    return "x" * len(a) + "{k}"\n',
)
RARE: Final = (
    # These pull in much of numba's own library.
    "@compiled\ndef f{n}(a):\n    seen = {{1: {k}}}\n    seen[2] = len(a)\n    return seen[1] + seen[2]\n",
    "@compiled\ndef f{n}(a):\n    return np.sort(a)[0] + {k}\n",
)
RARE_EVERY: Final = 20
STRICT_EVERY: Final = 7
"""Of these the calls wait."""


def source() -> str:
    """The functions, without the lines that make `compiled` and `strict`."""
    parts = ["import numpy as np\n"]
    for n in range(FUNCTIONS):
        kinds = RARE if n % RARE_EVERY == 0 else KINDS
        text = kinds[(n // RARE_EVERY if kinds is RARE else n) % len(kinds)].format(n=n, k=n + 2)
        parts.append(text.replace("@compiled", "@strict") if n % STRICT_EVERY == 0 else text)
    return "\n\n".join(parts)


def write(package: Path, subject: Subject) -> None:
    """Put `user` and `plain` into the package."""
    strict = {Subject.FARM: "functools.partial(farm.njit, mode='strict')"}.get(subject, "compiled")
    loose = {Subject.FARM: "compiled = farm.njit\n"}.get(subject, "")
    package.mkdir(parents=True)
    (package / "user.py").write_text(
        f"{subject.decorator}{loose}strict = {strict}\nFUNCTIONS = {FUNCTIONS}\n{source()}"
    )
    (package / "plain.py").write_text(
        f"def compiled(function):\n    return function\n\n\nstrict = compiled\n{source()}"
    )
