"""Run as a program: loads artifacts from a store into a fresh process, in order, and prints what calls of them give.

python task_front.py STORE KEY FUNCTION ARGUMENTS [KEY FUNCTION ARGUMENTS ...]

A list among the arguments stands for an array.
"""

import ast
import sys
from pathlib import Path

import numpy as np
import task_subjects

from farm.job.key import CompileKey
from farm.port.compile import Parts
from farm.port.load import load
from farm.store.artifact import Stored
from farm.store.disk import DiskStore


def main(directory: str, *words: str) -> None:
    store = DiskStore(Path(directory))
    calls = []
    for key, name, arguments in zip(words[::3], words[1::3], words[2::3], strict=True):
        stored = store.get(CompileKey(key))
        assert isinstance(stored, Stored), (name, stored)
        parts = Parts(dict(stored.meta), stored.code, b"", stored.environment)
        function = getattr(task_subjects, name).py_func
        values = [np.array(v) if isinstance(v, list) else v for v in ast.literal_eval(arguments)]
        calls.append((load(parts, function.__globals__), values))
    for result, arguments in calls:
        try:
            print(repr(result.entry_point(*arguments)))
        except Exception as error:
            print(repr(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
