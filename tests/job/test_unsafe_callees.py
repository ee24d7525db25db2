"""Functions whose compiled callees make sense inside machine code only: their bodies are not run."""

import subprocess
import sys
import textwrap

PROGRAM = """
    from numba import njit, types
    from numba.extending import intrinsic, overload, register_jitable
    import farm
    from farm.job.differs import differs_in_python

    @intrinsic
    def address(typingctx, x):
        return types.int64(x), lambda context, builder, sig, args: args[0]

    @register_jitable
    def helper(x): return address(x)
    @njit
    def inner(x): return helper(x)
    @farm.njit
    def middle(x): return inner(x)
    def outer(x): return middle(x) + 1
    @njit
    def plain(x): return x + 1
    def harmless(x): return plain(x) + 1
    def stub(x): pass
    @overload(stub)
    def _(x): return lambda x: x + 1
    @farm.njit
    def waits_itself(x): return stub(x)
    def calls_one_that_waits(x): return waits_itself(x)

    print(differs_in_python(inner.py_func))
    print(differs_in_python(middle))
    print(differs_in_python(outer))
    print(differs_in_python(harmless))
    print(differs_in_python(waits_itself))
    print(differs_in_python(calls_one_that_waits))
"""


def test_an_intrinsic_is_found_behind_compiled_callees() -> None:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == [
        "address is an intrinsic",
        "address, which inner reaches, makes sense in machine code only",
        "address, which middle reaches, makes sense in machine code only",
        "None",
        "__main__.stub has an @overload",
        "None",
    ], done.stderr
