"""What a compile can do to its worker. numba runs the body of an overload while it types a call of it.

`doing(deed, ...)` makes a function of its own each time: a + 1, in Python and compiled. The deed is done where a
worker compiles it, and nowhere else: in the process that calls, the same overload gives its implementation only.
"""

import ctypes
import os
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress

from llvmlite import ir
from numba.core.errors import NumbaWarning
from numba.extending import intrinsic, overload

from farm.port.role import compiles_for_others

MIB = 1 << 20
kept: list[bytearray] = []


def doing(deed: Callable[..., object], *arguments: object) -> Callable[[int], int]:
    """A function whose compile does the deed in a worker. The arguments are part of its key."""

    def act(a):
        return a + 1

    @overload(act)
    def _act(a):
        if compiles_for_others():
            deed(*arguments)
        if deed is emit_what_llvm_gives_up_at:
            return lambda a: no_such_instruction(a) + 1
        return lambda a: a + 1

    def done(a):
        return act(a)

    return done


@intrinsic
def no_such_instruction(context, a):
    def generate(context, builder, signature, arguments):
        if compiles_for_others():
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.asm(kind, "no instruction of any machine", "", [], side_effect=True)
        return arguments[0]

    return a(a), generate


def nothing(*_):
    """So that it is another function each time."""


def pass_the_gate(path):
    """Wait until somebody has opened the other end and closed it."""
    with open(path, "rb") as pipe:
        pipe.read()


def segfault():
    ctypes.string_at(0)


def leave_at_once():
    os.write(2, b"leaving now\n")
    os._exit(3)


def leave_politely():
    sys.exit("no more of this")


def kill_itself():
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def emit_what_llvm_gives_up_at():
    """The instruction does it, when machine code is made of it."""


def compute_for_ever():
    while True:
        pass


def hold_the_interpreter():
    ctypes.PyDLL(None).sleep(600)  # PyDLL: the call keeps the GIL, no other thread runs


def eat_memory(mib):
    kept.append(bytearray(os.urandom(MIB)) * mib)
    while True:
        time.sleep(0.01)


def kill_the_foreman():
    os.kill(os.getppid(), signal.SIGKILL)
    signal.pause()


def leave_unless_mended(path):
    if not os.path.exists(path):
        os._exit(5)


def keep_memory(mib, *_):
    kept.append(bytearray(os.urandom(MIB)) * mib)


def write_for_ever():
    while True:
        os.write(1, b"x" * 99 + b"\n")


def write_a_lot():
    for _ in range(20_000):
        os.write(1, b"x" * 99 + b"\n")


def warn_a_lot():
    for number in range(1000):
        warnings.warn(NumbaWarning(f"warning {number}"), stacklevel=1)


def warn_by_a_class_of_its_own():
    class Local(NumbaWarning):
        pass

    warnings.warn(Local("nobody can import my class"), stacklevel=1)


def warn_by_a_class_that_only_the_worker_has():
    module = type(sys)("only_in_the_worker")
    module.Ghost = type("Ghost", (NumbaWarning,), {"__module__": "only_in_the_worker"})
    sys.modules["only_in_the_worker"] = module
    warnings.warn(module.Ghost("nobody else can import my class"), stacklevel=1)


def take_stdout_away():
    sys.stdout = None


def raise_an_error():
    raise ValueError("an error of the extension")


def find_no_memory():
    raise MemoryError("no room for this function")


def raise_a_long_story():
    raise ValueError("and then " * (8 << 20))


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def raise_what_has_no_words():
    raise Mute


def sockets() -> Iterator[socket.socket]:
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(name))) as one:
            if one.family == socket.AF_UNIX:
                yield one


def talk_nonsense():
    for one in sockets():
        one.sendall(b"\0\0\0\4oops")
    signal.pause()


def die_before_the_rename():
    os.replace = lambda *_, **__: os._exit(9)
