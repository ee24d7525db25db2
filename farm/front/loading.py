"""Loading: an artifact becomes a CompileResult that can be installed; what came with it is told again here."""

import time
import warnings
from typing import Any

from farm.front.pending import Origin, Pending, Source
from farm.job import messages as wire
from farm.port import failure
from farm.port.compile import Parts
from farm.port.load import LoadRefused, Unpacked, link, made_for_cpu, unpack
from farm.port.target import own_cpu
from farm.store.artifact import Miss, Stored


def unpacked(pending: Pending, stored: Stored) -> Unpacked:
    """The artifact ready to be linked, without the bitcode, which is read when something links the function.

    Not with the compiler lock held: it may import modules.
    """
    return unpack(Parts(dict(stored.meta), stored.code, b"", stored.environment), pending.entry.key)


def linked(pending: Pending, stored: Stored, built: wire.Built) -> tuple[Any, Origin]:
    """Machine code in this process, and how it was obtained. With the compiler lock held. Raises LoadRefused."""
    started = time.perf_counter()
    ready = pending.unpacked or unpacked(pending, stored)
    result = link(ready, pending.dispatcher.py_func.__globals__, lambda: _whole(stored.bitcode()))
    load_s = pending.look_up_s + pending.unpack_s + time.perf_counter() - started
    ended = time.monotonic()
    pending.here = ended - load_s, ended
    seconds, own, made_for = stored.compile_s, own_cpu(), made_for_cpu(stored.meta)
    return result, Origin(
        source=Source.WORKER if built.origin is wire.Origin.COMPILED else Source.STORE,
        compile_s=built.compile_s if seconds is None else seconds,
        load_s=load_s,
        artifact_bytes=stored.size_bytes,
        cpu=str(made_for),
        instead_of="" if made_for == own else str(own),
    )


def reissue(issued: tuple[wire.ReissuedWarning, ...]) -> None:
    """Warn of what numba warned of in the worker, at the place that it named."""
    for one in issued:
        warnings.warn_explicit(one.text, failure.category_of(one.category), one.filename, one.line)


def _whole(bitcode: bytes | Miss) -> bytes:
    if isinstance(bitcode, Miss):
        raise LoadRefused(bitcode.reason, bitcode.detail)
    return bitcode
