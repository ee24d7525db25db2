"""Run as a program: fills the store for other CPUs, or runs what the store has, and reports as JSON.

python target_program.py [run | compare | fill CPU ...]
"""

import json
import sys
from typing import Any

import numba
import numpy as np

import farm
from farm.observe import events


@farm.njit
def weight(x):
    return x * 0.1 + 1.0 / (x + 3.0)


@farm.njit
def total(a):
    s = 0.0
    for i in range(a.size):
        s += weight(a[i]) * a[i]
    return s


@farm.njit
def scaled(a):
    return a * 1.1 + weight(a[0])


FUNCTIONS = {total: "float64(float64[::1])", scaled: "float64[::1](float64[::1])"}
VALUES = np.linspace(0.1, 7.0, 103)


def run(*, compare: bool) -> dict[str, Any]:
    """The bits of what comes out, on demand beside numba's own, and how the code was obtained."""
    bits, numbas, explained, cpus = [], [], [], []

    class Listens:
        def on_event(self, event: object) -> None:
            if isinstance(event, events.LoadFinished):
                cpus.append(event.cpu)

    farm.add_listener(Listens())
    for function, signature in FUNCTIONS.items():
        function.compile(signature)
        bits.append(np.asarray(function(VALUES)).tobytes().hex())
        explained.append(farm.explain(function, VALUES))
        if compare:
            numbas.append(np.asarray(numba.njit(function.py_func)(VALUES)).tobytes().hex())
    assert farm.wait(60)
    stats = farm.stats()
    return {
        "bits": bits,
        "numbas": numbas,
        "explained": explained,
        "compiled": stats.compiled + stats.local + stats.failed,
        "loaded": stats.loaded,
        "misses": {reason.name: number for reason, number in stats.misses.items()},
        "cpus": cpus,
    }


if __name__ == "__main__":
    word, *texts = sys.argv[1:] or ["run"]
    if word == "fill":
        from these import fill

        print(json.dumps({text: [one.name for one in made] for text, made in fill(FUNCTIONS, *texts).items()}))
    else:
        print(json.dumps(run(compare=word == "compare")))
