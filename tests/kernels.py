"""The demo's kernels under a decorator of one's choice."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numba

sys.path.append(str(Path(__file__).parent.parent / "tools"))

import demo_compiler
from demo_compiler import Kernel
from demo_report import agree, flatten

__all__ = ["Kernel", "agree", "flatten", "kernels"]

MODULES: Final = ("demo_kernels", "demo_data_kernels")


def kernels(decorator: Callable[..., Any]) -> dict[str, Kernel]:
    """The demo's kernels under a decorator, in modules that nobody else has."""
    before = {name: sys.modules.pop(name) for name in MODULES if name in sys.modules}
    demo_compiler.use(decorator)
    try:
        found = [kernel for name in MODULES for kernel in importlib.import_module(name).KERNELS]
    finally:
        demo_compiler.use(numba.njit)
        for name in MODULES:
            sys.modules.pop(name, None)
        sys.modules.update(before)
    return {kernel.name: kernel for kernel in found}
