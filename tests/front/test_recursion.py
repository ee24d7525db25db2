"""Recursion of every shape gives the right result, compiled here if its code cannot travel, twice in fresh processes.

Self-recursion of one type travels. What needs a symbol that numba resolves in the compiling process only
(`.numba.unresolved$`) is refused: loaded elsewhere it is a segfault (numba issues 6061 and 6713).
"""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SHAPES = {
    "one type": (
        "travels",
        """
        @njit
        def f(n):
            return 1 if n < 2 else n * f(n - 1)
        CALLS = [(f, (10,))]
        """,
    ),
    "a default left out": (
        "stays",
        """
        @njit
        def f(n, step=1):
            return 0 if n < 1 else n + f(n - step, step)
        CALLS = [(f, (10,))]
        """,
    ),
    "one type inside a caller": (
        "travels",
        """
        @njit
        def fact(n):
            return 1 if n < 2 else n * fact(n - 1)
        @njit
        def f(n):
            return fact(n) + fact(n - 1)
        CALLS = [(f, (10,))]
        """,
    ),
    "a closure of one type": (
        "travels",
        """
        def make(base):
            @njit
            def f(n):
                return base if n < 2 else n * f(n - 1)
            return f
        CALLS = [(make(1), (10,)), (make(3), (10,))]
        """,
    ),
    "a second type": (
        "stays",
        """
        @njit
        def f(n, x):
            if n < 1:
                return x * 1.5
            return f(n - 1, x + 0.5) + x
        CALLS = [(f, (9, 1))]
        """,
    ),
    "a second type that was loaded before": (
        "both",
        """
        @njit
        def f(n, x):
            if n < 1:
                return x * 1.5
            return f(n - 1, x + 0.5) + x
        CALLS = [(f, (9, 2.5)), (f, (9, 1))]
        """,
    ),
    "a tuple that grows": (
        "stays",
        """
        @njit
        def f(n, t):
            if n < 1:
                return t[0] * 1.0
            return f(n - 1, (t[0] + 1.0, 2.0)) + t[0]
        CALLS = [(f, (9, (1,)))]
        """,
    ),
    "two functions": (
        "stays",
        """
        @njit
        def ping(n, acc):
            if n <= 0:
                return acc
            return pong(n - 1, acc + 1)
        @njit
        def pong(n, acc):
            if n <= 0:
                return acc
            return ping(n - 1, acc + 2)
        CALLS = [(ping, (9, 0)), (pong, (9, 0))]
        """,
    ),
    "three functions": (
        "stays",
        """
        @njit
        def a(n):
            if n <= 0:
                return 1
            return b(n - 1) + 1
        @njit
        def b(n):
            if n <= 0:
                return 2
            return c(n - 1) + 2
        @njit
        def c(n):
            if n <= 0:
                return 3
            return a(n - 1) + 3
        CALLS = [(a, (20,)), (b, (20,)), (c, (20,))]
        """,
    ),
    "two functions inside a caller": (
        "stays",
        """
        @njit
        def even(n):
            if n == 0:
                return True
            return odd(n - 1)
        @njit
        def odd(n):
            if n == 0:
                return False
            return even(n - 1)
        @njit
        def f(n):
            return even(n), odd(n + 2)
        CALLS = [(f, (10,))]
        """,
    ),
    "two functions of two types each": (
        "stays",
        """
        @njit
        def up(n, x):
            if n <= 0:
                return x * 1.0
            return down(n - 1, x + 0.5)
        @njit
        def down(n, x):
            if n <= 0:
                return x * 1.0
            return up(n - 1, x + 1)
        CALLS = [(up, (9, 1)), (down, (9, 1)), (up, (9, 1.5))]
        """,
    ),
    "through a callee that is not recursive": (
        "stays",
        """
        @njit
        def step(n):
            return f(n - 1) + 1
        @njit
        def f(n):
            if n <= 0:
                return 0
            return step(n) + n
        CALLS = [(f, (10,)), (step, (10,))]
        """,
    ),
}

TAIL = """
def in_python(function, arguments):
    held = {name: getattr(value, "py_func", value) for name, value in globals().items()}
    plain = types.FunctionType(
        function.py_func.__code__, held, "plain", function.py_func.__defaults__, function.py_func.__closure__
    )
    held[function.py_func.__name__] = held.get(function.py_func.__name__, plain)
    for value in list(held.values()):
        if isinstance(value, types.FunctionType) and value.__module__ == "__main__" and value is not plain:
            name = value.__name__
            held[name] = types.FunctionType(value.__code__, held, name, value.__defaults__, value.__closure__)
    return plain(*arguments)

for function, arguments in CALLS:
    assert function(*arguments) == in_python(function, arguments), (function, arguments)
stats = farm.stats()
moved, stayed = stats.compiled + stats.loaded, stats.local
assert (bool(moved), bool(stayed)) == {"travels": (True, False), "stays": (False, True), "both": (True, True)}[WANTED]
assert stats.rejected == stayed and not stats.failed, stats
"""


@pytest.mark.parametrize("shape", SHAPES)
def test_recursion(shape: str, tmp_path: Path) -> None:
    wanted, body = SHAPES[shape]
    head = "import functools, types\nimport farm\nnjit = functools.partial(farm.njit, mode='strict')\n"
    script = tmp_path / "script.py"
    script.write_text(f"{head}WANTED = {wanted!r}\n{textwrap.dedent(body)}{TAIL}")
    env = {**os.environ, "FARM_CACHE_DIR": str(tmp_path / "cache"), "FARM_WORKERS": "1"}
    for _ in range(2):
        done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stdout + done.stderr
