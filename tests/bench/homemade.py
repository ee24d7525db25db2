"""The obvious home-made farm: a pool of processes that compile with numba and send back what they made, pickled.

What somebody writes in an afternoon, with numba's own serialisation: the worker takes a CompileResult apart, and the
parent puts it together and adds it to its dispatcher. It keeps nothing on disk and checks nothing. The only module
here that touches numba's private parts.
"""

import functools
import inspect
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import numba
import workload as workloads
from numba.core import registry, serialize
from numba.core.compiler import CompileResult
from numba.core.typing.typeof import Purpose, typeof


def signature(function: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The argument types of a call, as a decorated function is compiled for them: `*rest` is one tuple."""
    bound = inspect.signature(function.py_func).bind(*arguments)
    return tuple(typeof(value, Purpose.argument) for value in bound.arguments.values())


@functools.lru_cache(maxsize=1)
def _decorated(workload: str) -> list[workloads.Call]:
    functions = workloads.WORKLOADS[workload].functions
    assert functions is not None
    return functions(numba.njit)


def compile_in_worker(workload: str, index: int) -> bytes:
    """In the worker: compile one function of a workload; what numba pickles of it."""
    function, arguments = _decorated(workload)[index]
    types = signature(function, arguments)
    function.compile(types)
    pickled: bytes = serialize.dumps(function.overloads[types]._reduce())
    return pickled


def compile_with(executor: Executor, workload: str, calls: list[workloads.Call]) -> None:
    """In the parent: have all functions compiled, and install what comes back."""
    futures = [executor.submit(compile_in_worker, workload, index) for index in range(len(calls))]
    context = registry.cpu_target.target_context
    context.refresh()
    for (function, _), future in zip(calls, futures, strict=True):
        result = CompileResult._rebuild(context, *serialize.loads(future.result()))
        function.add_overload(result)


def stop_compiling(function: Callable[..., Any]) -> None:
    """From now on a call of what was not installed raises: it would be compiled here, and nobody would notice."""
    function.disable_compile()  # type: ignore[attr-defined]
