"""Recheck: compile stored artifacts again, in a worker, and compare them with what is stored.

Which function an artifact is of, it says itself: the function is found by import, and the argument types lie in the
artifact. Only if the function has the artifact's very key today can the two be compared; then a fresh worker does
what it does under the setting `verify`. What cannot be compared is told with the reason.
"""

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from farm.ahead.find import NotFound, find
from farm.errors import NotShippable, VerifyFailed, told
from farm.front.answers import verify_failed
from farm.front.dispatcher import FarmDispatcher
from farm.front.farm import Farm
from farm.job import messages as wire
from farm.job.functor import CompileFunctor, make_functor
from farm.job.key import CompileKey
from farm.pool.nested import key_told
from farm.pool.task import Order
from farm.port.compile import Parts
from farm.port.load import LoadRefused, unpack
from farm.store.artifact import Miss, Stored
from farm.store.catalog import Entry
from farm.store.disk import DiskStore, StoreSettings


@dataclass(frozen=True, slots=True)
class Rechecked:
    """One artifact: compared and the same, compared and different, or not to be compared."""

    entry: Entry
    compared: bool
    differs: VerifyFailed | None = None
    bad: CompileKey | None = None
    """The artifact that is not what compiling it again gives: this one's, or a callee's."""
    why_not: str = ""


def recheck(
    farm: Farm, store: DiskStore, entries: Iterator[Entry], number: int, told_of: Callable[[Rechecked], None]
) -> None:
    """Compare so many of these artifacts, in their order. The farm gives settings and workers; it is to be closed.

    Parameters
    ----------
    told_of
        Is called with each, also with those that cannot be compared.
    """
    left = number
    for one in entries:
        if left <= 0:
            return
        done = _recheck(farm, store, one)
        left -= done.compared
        told_of(done)


def _recheck(farm: Farm, store: DiskStore, one: Entry) -> Rechecked:
    try:
        functor = _functor(store, one)
    except (NotFound, NotShippable, LoadRefused) as refusal:
        why_not = refusal.detail if isinstance(refusal, (NotShippable, LoadRefused)) else str(refusal)
        return Rechecked(one, False, why_not=why_not)
    except Exception as error:  # the user's objects take part, and may raise anything
        return Rechecked(one, False, why_not=told(error))
    config = farm.config
    order = Order(functor, StoreSettings.of(config, store.root), verify=True)
    label = one.function + one.signature
    job = wire.Job(functor.key, label, pickle.dumps(order), config.job_timeout_s, fresh=True)
    # The pool answers every job, by its deadline or by its end.
    answer = farm.settler().supply.pool(config, functor.settings).submit(job, waited=True, batch=False).future.result()
    match answer:
        case wire.Built(origin=wire.Origin.STORE, verified=verified) if verified:
            return Rechecked(one, True)
        case wire.Differs():
            return Rechecked(one, True, verify_failed(answer), answer.key)
        case wire.Rejected(_, detail) | wire.Cancelled(detail):
            return Rechecked(one, False, why_not=detail)
        case wire.Failed(kind, text):
            return Rechecked(one, False, why_not=f"{kind}: {text.splitlines()[0] if text else ''}")
        case wire.Built():
            return Rechecked(one, False, why_not="it has gone from the store, or is damaged")
    return Rechecked(one, False, why_not=f"its compile was lost ({type(answer).__name__})")


def _functor(store: DiskStore, one: Entry) -> CompileFunctor:
    """What compiles this artifact again. Raises NotFound if no function here has its key, and what others raise."""
    module, qualname = one.meta.get("module"), one.function
    if not isinstance(module, str) or not qualname.startswith(f"{module}."):
        raise NotFound("it does not say which function it is of")
    qualname = qualname.removeprefix(f"{module}.")
    if "<locals>" in qualname:
        raise NotFound("its function is made inside another one: no name leads to it")
    if module == "__main__":
        raise NotFound("its function is of a script: no import leads to it")
    found = find(f"{module}:{qualname}")
    stored = store.peek(one.key)
    if isinstance(stored, Miss):
        raise NotFound(stored.reason.value)
    arguments, returned = _types(stored)
    first: CompileFunctor | None = None
    for return_type in (found.declared.returns(arguments), None, returned):
        functor = make_functor(found, arguments, return_type)
        if functor.key == one.key:
            return functor
        first = first or functor
    assert first is not None
    raise NotFound(_difference(found, stored, first.key))


def _types(stored: Stored) -> tuple[tuple[Any, ...], Any]:
    signature = unpack(Parts(dict(stored.meta), stored.code, b"", stored.environment)).state["signature"]
    return tuple(signature.args), signature.return_type


def _difference(found: FarmDispatcher, stored: Stored, key: CompileKey) -> str:
    was = key_told(stored.meta)
    label = None if was is None else was.first_difference(key)
    return f"{found.label} has another key here" + ("" if label is None else f": its part {label!r} differs")
