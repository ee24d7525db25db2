"""Loading one artifact in the front, beside `CompileResult._rebuild` on the same result in the same process.

    python tests/bench/bench_load.py [ROUNDS] [--json]

Prints the artifact's size and, as medians of alternating rounds: numba's rebuild (without its unpickling), ours
(with it), their ratio, and what reading the artifact from disk with its digest checks costs besides. Every round
links the code anew. Times are this thread's CPU time: on a busy machine the longer contender loses its CPU more often.
The bar: a quarter of the rebuild at 85 KB.
"""

import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numba import float64, njit
from numba.core import registry, serialize
from numba.core.compiler import CompileResult

from farm.job.key import CompileKey
from farm.port.compile import compile_signature, take_apart
from farm.port.load import load
from farm.store.artifact import Artifact, Stored
from farm.store.disk import DiskStore

ROUNDS: Final = 100
"""Each leaves two modules in LLVM's engine, which finalises every new one 0.4 us slower per module it holds: with
2,000 of them both contenders pay 0.6 ms more, which is neither's doing and blurs the ratio."""
WARM_UP: Final = 5
KEY: Final = CompileKey("0" * 64)


@njit
def ranked_energy(x, w, out):
    """Loops, a library function (argsort) and an exception: about 85 KB as an artifact."""
    for i in range(x.size):
        near = 0.0
        for j in range(max(0, i - 8), min(x.size, i + 8)):
            near += np.sqrt(x[j] * x[j] + w[j]) * np.exp(-w[j])
        out[i] = near
    total = 0.0
    for k in np.argsort(out):
        if out[k] < 0:
            raise ValueError("negative", k)
        total += out[k] * x[k]
    return total


def measure(rounds: int) -> dict[str, float]:
    """Sizes in bytes, and medians in milliseconds."""
    array = float64[::1]
    result, base = compile_signature(ranked_energy, (array, array, array), None, None)
    parts = take_apart(result, base)
    context = registry.cpu_target.target_context
    reduced = serialize.loads(serialize.dumps(result._reduce()))
    own_globals = ranked_energy.py_func.__globals__
    alive: list[Any] = []  # unloading must not be timed

    with tempfile.TemporaryDirectory() as directory:
        store = DiskStore(Path(directory) / "store")
        store.put(Artifact(KEY, parts.meta, parts.code, parts.bitcode, parts.environment))
        size_bytes = next(Path(directory).rglob("*.farm")).stat().st_size

        def read() -> None:
            assert isinstance(store.get(KEY), Stored)

        contenders: dict[str, Callable[[], object]] = {
            "rebuild": lambda: alive.append(CompileResult._rebuild(context, *reduced)),
            "load": lambda: alive.append(load(parts, own_globals)),
            "read": read,
        }
        taken_s: dict[str, list[float]] = {name: [] for name in contenders}
        gc.disable()
        for _ in range(WARM_UP + rounds):
            for name, run in contenders.items():
                started = time.thread_time()
                run()
                taken_s[name].append(time.thread_time() - started)
        gc.enable()
    median_ms = {name: statistics.median(each[WARM_UP:]) * 1e3 for name, each in taken_s.items()}
    return {
        "size_bytes": size_bytes,
        "code_bytes": len(parts.code),
        "bitcode_bytes": len(parts.bitcode),
        **{f"{name}_ms": median for name, median in median_ms.items()},
        "ratio": median_ms["load"] / median_ms["rebuild"],
    }


def main(rounds: int) -> None:
    found = measure(rounds)
    sizes = f"(code {found['code_bytes']}, bitcode {found['bitcode_bytes']} bytes)"
    print(f"artifact          {found['size_bytes'] / 1e3:8.1f} KB  {sizes}")
    print(f"numba's rebuild   {found['rebuild_ms']:8.3f} ms")
    print(f"load              {found['load_ms']:8.3f} ms  ratio {found['ratio']:.3f}")
    print(f"read from disk    {found['read_ms']:8.3f} ms  {rounds} rounds")


if __name__ == "__main__":
    numbers = [int(one) for one in sys.argv[1:] if one != "--json"] or [ROUNDS]
    if "--json" in sys.argv:
        print(json.dumps(measure(numbers[0])))
    else:
        main(numbers[0])
