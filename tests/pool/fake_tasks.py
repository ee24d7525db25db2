"""Tasks that a worker can be given in tests: the payload is `what:argument`."""

import contextlib
import ctypes
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator

from farm.job.key import CompileKey
from farm.job.messages import Built, Busy, Origin, Rejected, WorkerAnswer
from farm.reasons import RefusalReason

KEY = CompileKey("0" * 64)
_kept: list[bytearray] = []


def _sockets() -> Iterator[socket.socket]:
    """The worker's one, and none other."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as sock:
            yield sock


def built(data: bytes) -> Built:
    return Built(KEY, Origin.COMPILED, 0.0, len(data), inline=data)


def perform(payload: bytes, label: str) -> WorkerAnswer:
    what, _, argument = payload.decode().partition(":")
    if what == "gate":
        with open(argument, "rb") as gate:  # a FIFO: opens when the test opens it
            gate.read()
    elif what == "exit":
        print("last words", flush=True)
        os._exit(int(argument))
    elif what == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
        signal.pause()
    elif what == "stop":
        print("stopping", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    elif what == "memory":
        hoard = bytearray(os.urandom(1 << 20)) * int(argument)
        while hoard:
            time.sleep(0.1)
    elif what == "keep":
        _kept.append(bytearray(os.urandom(1 << 20)) * int(argument))
        return built(str(os.getpid()).encode())
    elif what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "deaf":
        for sock in _sockets():
            sock.shutdown(socket.SHUT_WR)  # the reader's side stays: the worker does not see an end
        signal.pause()
    elif what == "say":
        for sock in _sockets():
            sock.sendall(bytes.fromhex(argument))
    elif what == "large":
        return built(bytes(int(argument) << 20))
    elif what == "unpicklable":
        return Rejected(RefusalReason.RESTORE_FAILED, (lambda: None))  # type: ignore[arg-type]
    elif what == "flood for ever":
        while True:
            os.write(1, b"x" * 4095 + b"\n")
    elif what == "gil":
        ctypes.PyDLL(None).sleep(int(argument))  # PyDLL: the call holds the GIL, no other thread runs
    elif what == "loop":
        while True:
            pass
    elif what == "flood":
        for _ in range(20000):
            sys.stdout.write("x" * 100 + "\n")
    elif what == "raise":
        raise ValueError(argument)
    elif what == "pid":
        return built(str(os.getpid()).encode())
    elif what == "ppid":
        return built(str(os.getppid()).encode())
    elif what == "once":
        if os.path.exists(argument):
            return built(b"second")
        with open(argument, "w") as file:
            file.write(str(os.getpid()))
        os._exit(3)
    elif what == "busy":
        if not os.path.exists(argument):
            open(argument, "w").close()
            return Busy(KEY)
    elif what == "mismatch":
        return Rejected(RefusalReason.KEY_MISMATCH, str(os.getpid()))
    return built(payload)


def preload_computes(seconds: str) -> None:
    """Use the processor for so long."""
    while time.process_time() < float(seconds):
        pass


def preload_fails(_: str) -> None:
    raise RuntimeError("no preload today")
