"""Compiling for another CPU, or ahead of time: the store is filled, and nothing is loaded or installed here.

For a machine to come, or for an image that runs on many. What cannot be compiled in a worker cannot be made for another
CPU at all: then the answer is Rejected, and the program compiles it where it runs.
"""

import pickle
from concurrent.futures import Future
from typing import Any

from farm.errors import NotShippable, told
from farm.front.dispatcher import FarmDispatcher
from farm.front.farm import Farm
from farm.job.functor import CompileFunctor, make_functor
from farm.job.messages import Built, FinalAnswer, Job, Origin, Rejected
from farm.pool.task import Order
from farm.port.cpu import Cpu
from farm.port.futures import SteadyFuture
from farm.reasons import RefusalReason
from farm.store.artifact import Stored


def compile_for(
    farm: Farm, function: FarmDispatcher, arguments: tuple[Any, ...], return_type: Any | None, cpu: Cpu | None
) -> "Future[FinalAnswer]":
    """See to it that the store has the machine code of one signature for a CPU; returns at once.

    Parameters
    ----------
    arguments, return_type
        As `farm.port.dispatch.parse_signature` gives them.
    cpu
        As `farm.port.cpu.parse` gives it; None for what numba compiles for in this process. What the store has for
        another CPU does not count, also where this process would load it.

    Returns
    -------
    A future of the answer, which never raises. `Built` says where it comes from: `Origin.STORE` or `Origin.COMPILED`,
    and if its `inline` is set it is NOT in the store, for the reason in its `degraded`. `Failed` with `literal_args`
    wants literal types at these positions. All else means that there is no machine code.
    """
    try:
        return _ask(farm, function, arguments, return_type, cpu)
    except NotShippable as refusal:
        return _answered(Rejected(refusal.reason, refusal.detail))
    except Exception as error:  # user objects take part in capturing, and what they raise is no reason to end a batch
        return _answered(Rejected(RefusalReason.HAND_OVER_FAILED, told(error)))


def functor_for(
    function: FarmDispatcher, arguments: tuple[Any, ...], return_type: Any | None, cpu: Cpu | None
) -> CompileFunctor:
    """The compile of one signature for a CPU, as data: the store has it under its key. Raises NotShippable."""
    if function.targetoptions.get("forceobj"):
        raise NotShippable(RefusalReason.OBJECT_MODE, function.label)
    return make_functor(function, arguments, return_type, cpu)


def _ask(
    farm: Farm, function: FarmDispatcher, arguments: tuple[Any, ...], return_type: Any | None, cpu: Cpu | None
) -> "Future[FinalAnswer]":
    if not farm.works:
        raise NotShippable(RefusalReason.NO_POOL, "the farm is switched off, or closed")
    config, supply = farm.config, farm.settler().supply
    functor = functor_for(function, arguments, return_type, cpu)
    if not config.verify:
        found = supply.look_up(config, functor.key)
        if isinstance(found, Stored):
            return _answered(Built(found.key, Origin.STORE, 0.0, found.size_bytes))
    order = Order(functor, supply.store_settings(config), dead=supply.take_dead(), verify=config.verify)
    label = function.signature_label(arguments) + (f" for {cpu}" if cpu else "")
    job = Job(functor.key, label, pickle.dumps(order), config.job_timeout_s, order.verify)
    future = supply.pool(config, functor.settings).submit(job, waited=False, batch=True).future
    future.add_done_callback(lambda done: _note(farm, done.result()))
    return future


def _note(farm: Farm, answer: FinalAnswer) -> None:
    """In the pool's thread: what the worker met is counted, and the store kept under its limit."""
    if not isinstance(answer, Built):
        return
    for miss, times in answer.misses:
        farm.record.missed(miss, times)
    supply = farm.settler().supply
    for reason, detail in answer.degraded:
        supply.note_degraded(reason, detail)
    if answer.origin is Origin.COMPILED and answer.inline is None:
        nested = sum(one.artifact_bytes for one in answer.nested)
        supply.note_published(farm.config, answer.artifact_bytes + nested)


def _answered(answer: FinalAnswer) -> "Future[FinalAnswer]":
    future: SteadyFuture[FinalAnswer] = SteadyFuture()
    future.set_result(answer)
    return future
