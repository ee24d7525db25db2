"""What the foreman does once so that none of its workers has to: numba imported, target context refreshed.

0.43 s and 150 MB resident (measured), shared by every forked worker. And what importing a user's module must not do
in a worker is taken out here: no threads are launched, no explicit signature is compiled, no pool is started.
"""

import gc
import json
from collections.abc import Callable
from typing import Any, Final

import llvmlite.binding as llvm
from numba.core import decorators, registry
from numba.experimental import jitclass as jitclass  # registers what code that takes a jitclass is lowered with
from numba.np.ufunc import parallel, workqueue

from farm.port import library, role
from farm.port.dispatch import parse_signature
from farm.port.target import build_with, renew_symbol_names


def warm(built_with: str) -> None:
    """Prepare this process for forking workers that compile under these settings, a foundation as JSON.

    Starts no thread.
    """
    build_with(tuple((name, value) for name, value in json.loads(built_with)))
    role.compile_for_others()
    # Compiling parallel code launches the threading layer, and a worker never runs what it compiles.
    parallel._launch_threads = _register_parallel_symbols
    decorators._jit = _record_signatures(decorators._jit)
    library.take_over()  # before numba's own dispatchers are made, so that theirs keep their callers' flags apart too
    registry.cpu_target.typing_context.refresh()
    registry.cpu_target.target_context.refresh()
    renew_symbol_names()
    gc.freeze()


SCHEDULING_SYMBOLS: Final = {"numba_parallel_for": "parallel_for"} | {
    name: name for name in ("do_scheduling_signed", "do_scheduling_unsigned", "allocate_sched", "deallocate_sched")
}
"""Symbols of parallel code, and their names in a threading layer. LLVM ends a process that links an unknown one."""


def _register_parallel_symbols() -> None:
    """Stands in for launching: symbols and numba's thread functions are those of the layer that every numba has.

    No thread is started.
    """
    for symbol, name in SCHEDULING_SYMBOLS.items():
        llvm.add_symbol(symbol, getattr(workqueue, name))
    parallel._load_threading_functions(workqueue)


def _record_signatures(original: Callable[..., Any]) -> Callable[..., Any]:
    """numba's decorator without the compiling: explicit signatures are noted, and compiled if a job calls them."""

    def record(sigs: Any, **options: Any) -> Callable[..., Any]:
        decorate = original(None, **options)

        def wrapper(function: Any) -> Any:
            dispatcher = decorate(function)
            if sigs and isinstance(dispatcher, library.LibraryDispatcher):
                dispatcher.explicit = tuple(parse_signature(one) for one in sigs)
            return dispatcher

        return wrapper

    return record
