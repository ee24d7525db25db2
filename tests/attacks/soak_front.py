"""A program in a soak: calls functions at random, compares what they give, and says once a second how it is.

    python soak_front.py SEED RECOMPILES

RECOMPILES is how many functions it has compiled again each second. It works in the package's directory until
its standard input ends, prints a JSON object per second, and one more when it is done.
"""

import contextlib
import faulthandler
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from typing import Any, Final

import numpy as np
import psutil

TYPES: Final = (np.int64, np.float64, np.float32, np.int32, np.int16)
TRACEBACKS_MAX: Final = 3


class Caller:
    """Calls functions of `user`, and those of `plain`, which no compiler has seen."""

    def __init__(self, seed: int, user: Any, plain: Any, functions: int) -> None:
        self._chance = random.Random(seed)
        self._user, self._plain, self._functions = user, plain, functions
        self.seen: Final[Counter[str]] = Counter()
        self.tracebacks: Final[list[str]] = []

    def call(self) -> None:
        """One call of some function with some type."""
        name = f"f{self._chance.randrange(self._functions)}"
        data = np.arange(self._chance.randrange(3), 7).astype(self._chance.choice(TYPES))
        function, body = getattr(self._user, name), getattr(self._plain, name)
        try:
            got = outcome(function, data)
        except Exception:
            self.seen["raised"] += 1
            self._note(traceback.format_exc())
            return
        want = outcome(body, data)
        self.seen["calls"] += 1
        if not same(got, want):
            self.seen["wrong"] += 1
            self._note(f"{name}({data!r}) gave {got!r}, not {want!r}")

    def _note(self, what: str) -> None:
        if len(self.tracebacks) < TRACEBACKS_MAX:
            self.tracebacks.append(what)

    def recompile(self) -> None:
        """Have some function compiled again."""
        function = getattr(self._user, f"f{self._chance.randrange(self._functions)}")
        function.recompile()
        self.seen["recompiled"] += 1


def outcome(function: Any, data: Any) -> Any:
    """What it returns, or the error that the function itself raises."""
    try:
        return function(data)
    except ValueError as error:
        return type(error), error.args


def same(got: Any, want: Any) -> bool:
    """Equal values; of arrays, all of them. Python computes small integers in their own type, machine code does not."""
    if isinstance(want, np.ndarray):
        return isinstance(got, np.ndarray) and got.shape == want.shape and bool((got == want).all())
    return bool(got == want)


def state(caller: Caller) -> dict[str, Any]:
    """How this process is."""
    own = psutil.Process()
    farm = sys.modules.get("farm")
    stats = farm.stats() if farm is not None else None
    counted = (
        "compiled",
        "loaded",
        "local",
        "failed",
        "died",
        "timed_out",
        "out_of_memory",
        "fallback_calls",
        "pending",
    )
    return {
        **caller.seen,
        "tracebacks": caller.tracebacks,
        "memory_mb": own.memory_info().rss >> 20,
        "threads": own.num_threads(),
        "files": own.num_fds(),
        "children": len(own.children(recursive=True)),
        "farm": {name: getattr(stats, name) for name in counted} if stats else {},
        "degraded": {reason.value: n for reason, n in stats.degraded.items()} if stats else {},
        "misses": {reason.value: n for reason, n in stats.misses.items()} if stats else {},
    }


def main() -> None:
    """Call until told to stop."""
    faulthandler.register(signal.SIGUSR1)
    seed, recompiles = map(int, sys.argv[1:])
    sys.path.insert(0, os.getcwd())
    import plain
    import user

    caller = Caller(seed, user, plain, user.FUNCTIONS)
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    told_at = time.monotonic()
    while not ended.is_set():
        for _ in range(50):
            caller.call()
        if time.monotonic() - told_at >= 1.0:
            told_at = time.monotonic()
            for _ in range(recompiles):
                caller.recompile()
            print(json.dumps(state(caller)), flush=True)
        # A program that does nothing but call would keep the processors from those who compile.
        ended.wait(0.005)
    print(json.dumps(state(caller)), flush=True)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
