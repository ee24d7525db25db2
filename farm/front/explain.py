"""Explain: why a call is, or is not, running machine code, as one paragraph for people."""

from typing import Any

from farm.config import CompileMode, Fallback
from farm.errors import DecorationError, told
from farm.front.dispatcher import FarmDispatcher
from farm.front.pending import LiteralsWanted, Origin, Source
from farm.front.status import status_of
from farm.front.table import CompileState, Entry
from farm.port.cpu import host
from farm.port.role import compiles_for_others


def explain(function: Any, *arguments: Any) -> str:
    """Why `function(*arguments)` would, or would not, run machine code now. Runs and compiles nothing.

    Raises DecorationError for a function that is not the farm's; TypeError if explicit signatures fit none.
    """
    if compiles_for_others():
        return "This is a worker: it compiles for the process that calls."
    if not isinstance(function, FarmDispatcher):
        raise DecorationError(f"explain takes a function decorated by farm.njit, not {function!r}")
    types = function.types_of_call(arguments)
    entry = function.table.get(types)
    name = function.signature_label(types)
    return " ".join(part for part in (*_state(function, entry, name), _waiting(function, entry)) if part)


def _state(function: FarmDispatcher, entry: Entry[Any, Any] | None, name: str) -> list[str]:
    status = status_of(entry)
    match status.state:
        case CompileState.COMPILED:
            return [f"{name} runs machine code.", _origin(status.origin)]
        case CompileState.COMPILING:
            until = "" if function.mode_now is CompileMode.STRICT else _until_then(function)
            return [f"{name} is being compiled: {_queue(function, entry)}.", until]
        case CompileState.FAILED if isinstance(status.error, LiteralsWanted):
            return [f"{name} is {status.error}: numba asks for literals there."]
        case CompileState.FAILED:
            how = (
                "cannot be compiled, and its calls raise"
                if _raises(function, status.error)
                else "stays on its fallback"
            )
            return [f"{name} {how}: {told(status.error)}"]
    return [f"{name} is not compiled.", _not_asked(function, status.requests)]


def _until_then(function: FarmDispatcher) -> str:
    restart = function.restart if function.fallback_kind is Fallback.AUTO else None
    if restart is None or not restart.loops:
        return "Until then its calls run the fallback."
    if restart.reason is None:
        return (
            "Until then its calls run the fallback, and one that still runs when the code comes is done again by it: "
            "the function is restartable."
        )
    return (
        "Until then its calls wait, unless such a call is known to be over sooner in Python: the function is not "
        f"restartable, because {restart.reason}."
    )


def _origin(origin: Origin | None) -> str:
    if origin is None:
        return ""
    text = f"It was {origin.source.value}{_cpu(origin)}"
    if origin.source is not Source.LOCAL:
        return f"{text}; the compile took {origin.compile_s:.2f} s."
    if origin.refusal is None:
        return f"{text} in {origin.compile_s:.2f} s."
    detail = f" ({origin.detail})" if origin.detail else ""
    return f"{text} in {origin.compile_s:.2f} s, because {origin.refusal.value}{detail}."


def _cpu(origin: Origin) -> str:
    this = str(host())

    def named(cpu: str) -> str:
        return f"this CPU ({cpu})" if cpu == this else cpu

    if not origin.cpu:
        return ""
    if origin.source is not Source.STORE:
        return f" for {named(origin.cpu)}"
    instead = f", as there was none for {named(origin.instead_of)}" if origin.instead_of else ""
    return f": made for {named(origin.cpu)}{instead}"


def _queue(function: FarmDispatcher, entry: Entry[Any, Any] | None) -> str:
    pending = None if entry is None else function.farm().requests.of(entry)
    if pending is None or pending.answer.done():
        return "the answer is there and is being installed"
    ticket = pending.ticket
    if ticket is None or ticket.sent_at is None:
        return "it waits for a worker"
    return f"worker {ticket.worker_pid} has it"


def _not_asked(function: FarmDispatcher, requests: int) -> str:
    farm = function.farm()
    config = farm.config
    if not config.enabled:
        return "The farm is switched off (setting enabled, FARM_ENABLED)."
    if not farm.works:
        return "The farm is closed."
    profiler = farm.record.profiler
    profile = profiler.profile(function.identity)
    if profile.megamorphic:
        return (
            f"The function is megamorphic: {profile.compile_count} compiles for {profile.execution_count} calls, so "
            "that new argument types stay on the fallback (settings megamorphic_*)."
        )
    if requests == 0:
        return "Nobody has called it with these types yet."
    if function.mode_now is CompileMode.LAZY and requests < profiler.limits.lazy_threshold:
        return (
            f"It was asked for {requests} time(s), and mode='lazy' compiles at the "
            f"{profiler.limits.lazy_threshold}th (setting lazy_threshold)."
        )
    running = profiler.ongoing
    if running < profiler.limits.max_ongoing:
        return "Its next call asks for it."
    return f"{running} compiles are running, and {profiler.limits.max_ongoing} may (setting max_ongoing)."


def _raises(function: FarmDispatcher, error: BaseException | None) -> bool:
    return function.mode_now is CompileMode.STRICT or function.farm().raises_for_good(error)


def _waiting(function: FarmDispatcher, entry: Entry[Any, Any] | None) -> str:
    over = status_of(entry).state in (CompileState.COMPILED, CompileState.FAILED)
    if over or function.mode_now is not CompileMode.STRICT:
        return ""
    kind = function.fallback_kind
    if kind is Fallback.AUTO and function.differs is not None:
        return f"Its calls wait for the compile, because it does not run as plain Python: {function.differs}."
    setting = "fallback='wait'" if kind is Fallback.WAIT else "mode='strict'"
    return f"Its calls wait for the compile ({setting})."
