"""FarmDispatcher: the call path, readable top to bottom.

A call reaches this module only when numba's C code has no machine code for its argument types:

    callable_for -> installed already (on probation)?   the machine code, counted
                 -> else the farm decides               compile now? wait? fail?
                 -> and unless it waited                 under fallback="auto" what `Meanwhile` decides; else the
                                                        fallback, run by `run_body`

Calls from other jitted code come through `result_for` and have no fallback: they wait. Once a call was
found pending, later ones with such arguments take a shortcut to the fallback until the code arrives.
"""

from __future__ import annotations

import itertools
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from farm.config import CompileMode, Fallback
from farm.errors import FarmClosed
from farm.front.declared import Declared
from farm.front.install import Installation
from farm.front.pending import LiteralsWanted, Pending
from farm.front.policy import choose_mode
from farm.front.status import Status, status_of
from farm.front.switch import enters, leave_if_there, passes
from farm.front.table import Table
from farm.observe.stats import Spent, Tally
from farm.port.dispatch import (
    HookedDispatcher,
    Signature,
    Types,
    are_literal,
    argument_types,
    fingerprint,
    fold,
    force_literals,
    parse_signature,
    unfold,
    with_literals,
)
from farm.port.locks import with_compiler_lock
from farm.port.role import collects
from farm.port.target import caller_flags

if TYPE_CHECKING:
    from farm.front.farm import Farm
    from farm.job.restart import Restart
    from farm.observe.fallbacks import Watch

_identities = itertools.count(1)


class FarmDispatcher(HookedDispatcher):
    """A numba dispatcher whose functions compile in worker processes. Made by `farm.jit` and `farm.njit`."""

    def __init__(
        self,
        py_func: Callable[..., Any],
        locals: dict[str, Any] | None = None,
        targetoptions: dict[str, Any] | None = None,
        *,
        farm: Callable[[], Farm],
        mode: CompileMode | None = None,
        fallback: Fallback | Callable[..., Any] | None = None,
        declared: tuple[Signature, ...] = (),
        **more: Any,
    ) -> None:
        super().__init__(py_func, locals, targetoptions, **more)
        self.farm = farm
        self.mode = mode
        self.fallback = fallback
        self.label = f"{py_func.__module__}.{py_func.__qualname__}"
        self.identity: Final = next(_identities)
        """Names this function in the farm's profiles, which must not keep it alive."""
        self.installation = Installation(self)
        self.table: Table[Types, Any] = Table()
        self.explicit = declared
        self.declared = Declared(self, declared)
        self.in_python = Spent()
        """Calls under fallback="auto" that ended in Python, not counted yet."""
        self.seconds_in_python: dict[int, float] = {}
        """What the last such call took in Python, by the magnitude of its arguments: where that decides."""
        self._differs: tuple[str | None] | None = None
        self._restart: Restart | None = None
        self._megamorphic_told = False
        self._tallies: dict[Types, list[tuple[bytes, Tally]]] = {}
        self._dropped: list[Tally] = []
        """Of shortcuts that are gone: a thread that had found one just before may count in it just after."""
        self._literal_positions: dict[Types, tuple[int, ...]] = {}
        # Guards _megamorphic_told, _tallies, _dropped and the adding to numba's `shortcuts`. Nothing is called with it
        # held.
        self._lock = threading.RLock()

    def types_label(self, arguments: Types) -> str:
        """`int64, float64`, for people."""
        return ", ".join(map(str, arguments))

    def signature_label(self, arguments: Types) -> str:
        """`module.function(types)`, for people."""
        return f"{self.label}({self.types_label(arguments)})"

    # -- the call path -----------------------------------------------------------------------------------

    def callable_for(self, folded: tuple[Any, ...]) -> Callable[..., Any]:
        """The machine code for this call, or the fallback. Raises numba's error in STRICT mode."""
        farm = self.farm()
        leave_if_there()
        arguments = self._arguments(folded)
        code = self.installation.answer(arguments, farm.record.profiler.limits.probation_calls)
        if code is not None:
            farm.record.execution(self)
            return code
        try:
            code = farm.code_for_call(self, arguments)
        except LiteralsWanted as wanted:
            if self.declared or with_literals(folded, arguments, wanted.positions) is None:
                return self._without_literals(wanted)
            self._literal_positions[arguments] = wanted.positions  # another thread may have got here first
            return self.callable_for(folded)
        if code is not None:
            return code
        pending = farm.requests.of(self.table.get_or_create(arguments))
        if pending is None:
            return self._fallback(arguments)
        watches = farm.record.watches
        body = self._meanwhile(pending, folded)
        self._add_shortcut(pending, folded, body, watches)
        return body

    def _fallback(self, arguments: Types) -> Callable[..., Any]:
        return self.declared.fallback(arguments) if self.declared else self.body

    def _meanwhile(self, pending: Pending, folded: tuple[Any, ...]) -> Callable[..., Any]:
        """What a call does whose compile is pending."""
        if self.fallback_kind is not Fallback.AUTO:
            return self._fallback(pending.entry.key)
        from farm.front.meanwhile import Meanwhile  # brings in what reads the function, so not at import

        return Meanwhile(self, pending, folded).call

    def _without_literals(self, wanted: LiteralsWanted) -> Callable[..., Any]:
        """These values cannot be literals, or the declared types are none."""
        if self.mode_now is CompileMode.STRICT:
            raise force_literals(self, wanted.positions)
        return self.body

    def _arguments(self, folded: tuple[Any, ...]) -> Types:
        """The types under which the table knows this call: declared ones, or literal ones where numba wants those."""
        arguments = argument_types(self, folded)
        if self.declared:
            return self.declared.choose(arguments)
        while (positions := self._literal_positions.get(arguments)) is not None:
            literal = with_literals(folded, arguments, positions)
            if literal is None:
                break
            arguments = literal  # and with these literals numba may want more of them
        return arguments

    def types_of_call(self, arguments: tuple[Any, ...]) -> Types:
        """The types under which the table knows a call with these positional arguments."""
        return self._arguments(fold(self, arguments))

    def result_for(self, arguments: Types, return_type: Any | None) -> Any:
        """Wait for a compile: the caller is jitted, or asked for it by name."""
        if self.declared:
            self.declared.wait_for_all()
            return self.overloads[self.declared.choose(arguments)]
        result = self.farm().result_for_caller(self, arguments, return_type)
        self.installation.end_probation(arguments)
        return result

    def compile(self, sig: Any) -> Any:
        """As numba's: block until the code is there. While the farm only notes what is asked for, the Python body."""
        if collects() and caller_flags() is None:
            self.farm().submit(self, [parse_signature(sig)])
            return self.py_func
        return super().compile(sig)

    def run_body(self, *folded: Any) -> Any:
        """Run the fallback on one call's folded arguments, to its end."""
        body = self.fallback if callable(self.fallback) else self.py_func
        return body(*(unfold(self, folded) if self.folds else folded))

    @property
    def body(self) -> Callable[..., Any]:
        """What runs the fallback: with a watch over it while somebody wants to know how long that takes."""
        return self.run_watched if self.farm().record.watches else self.run_body

    def run_watched(self, *folded: Any) -> Any:
        """`run_body`, timed for whoever wants to know."""
        from farm.observe.fallbacks import watched  # not before anybody watches

        return watched(self.farm().record.watches, self.label, self.run_body, folded)

    @staticmethod
    def warn(text: str, category: type[Warning]) -> None:
        """Warn at the caller's line: the first frame outside this package."""
        frame, level = sys._getframe(1), 2
        while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("farm."):
            frame, level = frame.f_back, level + 1
        warnings.warn(text, category, stacklevel=level)

    @property
    def fallback_kind(self) -> Fallback | None:
        """What happens while a compile is pending; None if a callable of the user runs."""
        if callable(self.fallback):
            return None
        return self.fallback or self.farm().config.fallback

    @property
    def mode_now(self) -> CompileMode:
        """The mode of a call that comes now. While the farm only notes what is asked for, nobody waits in vain."""
        if collects() and self.differs is None:
            return CompileMode.ASYNC
        return choose_mode(self.mode or self.farm().config.mode, must_compile=self.waits)

    @property
    def waits(self) -> bool:
        """Whether a call with nothing compiled waits instead of running the body."""
        kind = self.fallback_kind
        return kind is Fallback.WAIT or (kind is Fallback.AUTO and self.differs is not None)

    @property
    def restart(self) -> Restart:
        """What is known of the body: whether a call can be begun in Python and done again, compiled."""
        if self._restart is None:
            from farm.job.restart import restart_of  # as below

            self._restart = restart_of(self)
        return self._restart

    @property
    def differs(self) -> str | None:
        """What makes the Python body another function than the compiled one, or None. Looked for at the first call."""
        if self._differs is None:
            from farm.job.differs import differs_in_python  # brings in most of the farm, so not at import

            self._differs = (differs_in_python(self.py_func),)
        return self._differs[0]

    # -- shortcuts ---------------------------------------------------------------------------------------

    def _add_shortcut(
        self, pending: Pending, folded: tuple[Any, ...], body: Callable[..., Any], watches: tuple[Watch, ...]
    ) -> None:
        """While this compile is pending, calls with arguments like these go straight to what runs them meanwhile.

        `watches`: who was to be told of fallbacks when `body` was made.
        """
        mark = fingerprint(folded)
        if mark is None or self.waits or self.farm().record.profiler.may_become_megamorphic(self.identity):
            return
        arguments, tally = pending.entry.key, Tally()

        def shortcut() -> Callable[..., Any]:
            calls = tally.add()
            if not calls & (calls - 1):  # at 1, 2, 4, 8, ...: the queue hears of calls without being flooded
                pending.note_call()
            return body

        with self._lock:
            if not pending.settled and mark not in self.shortcuts:
                self._tallies.setdefault(arguments, []).append((mark, tally))
                self.shortcuts[mark] = shortcut
        if self.farm().record.watches is not watches:  # they changed meanwhile, and this one was not there yet
            self.drop_shortcuts(arguments)

    def drop_all_shortcuts(self) -> None:
        """Calls are asked about again: what they run has changed."""
        with self._lock:
            known = list(self._tallies)
        for arguments in known:
            self.drop_shortcuts(arguments)

    def drop_shortcuts(self, arguments: Types) -> None:
        """The compile of these types is over: its calls are asked about again."""
        with self._lock:
            gone = self._tallies.get(arguments, [])
            for mark, _ in gone:  # before they are forgotten: a shortcut that is left would keep its calls in Python
                self.shortcuts.pop(mark, None)
            self._dropped += [tally for _, tally in gone]
            self._tallies.pop(arguments, None)
        self.farm().record.calls_by_shortcut(self, sum(tally.drain() for _, tally in gone))

    def drain_shortcuts(self) -> int:
        """How many calls took a shortcut since this was asked last."""
        with self._lock:
            taken = [tally for marks in self._tallies.values() for _, tally in marks]
            return sum(tally.drain() for tally in (*taken, *self._dropped))

    # -- what the farm does here -------------------------------------------------------------------------

    def install(self, arguments: Types, result: Any) -> Any:
        """Install a result; explicit signatures have no probation. Gives the CompileResult that counts."""
        counted = self.installation.install(arguments, result, probation=not self.declared)
        if self.declared:
            self.declared.close_list_if_complete()
        return counted

    def take_megamorphic_news(self) -> bool:
        """True once: the event is told once per function."""
        with self._lock:
            news, self._megamorphic_told = not self._megamorphic_told, True
            return news

    def reset_in_child(self) -> None:
        """In a forked child: locks anew, nothing in progress, and the machine code stays."""
        self._lock = threading.RLock()
        self.shortcuts.clear()
        self._tallies.clear()
        self._dropped.clear()  # their locks too may have been held
        self.in_python = Spent()
        self.installation.reset_in_child()
        self.table.reset_after_fork()

    # -- what users ask ----------------------------------------------------------------------------------

    def submit(self, sig: Any) -> Future[Status]:
        """Ask for one signature without waiting.

        The future gives its Status, or numba's error. Raises SignatureError, and FarmClosed if its farm is closed.
        """
        arguments, return_type = parse_signature(sig)
        if self.farm().closed:
            raise FarmClosed()
        (entry,) = self.farm().submit(self, [(arguments, return_type)])
        return self.farm().requests.future(entry)

    def wait(self, timeout: float | None = None) -> bool:
        """Block until all that was asked for is compiled or has failed; False if `timeout` seconds passed first."""
        return self.farm().wait_for(self, timeout)

    def status(self, sig: Any) -> Status:
        """Where one signature stands: state, reason, error, seconds. Raises SignatureError."""
        arguments, _ = parse_signature(sig)
        return status_of(self.table.get(arguments))

    def recompile(self) -> None:
        """Forget all machine code and compile it again, with the globals as they are now.

        What is pending is overtaken: its result is dropped. Functions that are compiled by value wait for their calls.
        """
        had = with_compiler_lock(self._forget_machine_code) or ()
        self._differs = self._restart = None
        self.seconds_in_python.clear()
        self._literal_positions.clear()
        if self.declared:
            self.declared.wait_for_all()
            return
        for arguments in had:
            if not are_literal(arguments, tuple(range(len(arguments)))):
                self.result_for(arguments, None)

    def _forget_machine_code(self) -> tuple[Types, ...]:
        """With the compiler lock held, so that nothing is installed in between. Gives the types there were."""
        for entry in self.table.entries():
            entry.recompile()
            self.drop_shortcuts(entry.key)
        if self.declared:
            self.installation.open_list()
        return self.installation.discard()

    # -- pickling ----------------------------------------------------------------------------------------

    def _reduce_states(self) -> dict[str, Any]:
        states: dict[str, Any] = super()._reduce_states()
        states.update(mode=self.mode, fallback=self.fallback, declared=self.declared.signatures)
        return states

    @classmethod
    def _rebuild(cls, uuid: str, **states: Any) -> FarmDispatcher:
        """Once more in this process, or in another one, where it belongs to the default farm."""
        known = cls._memo.get(uuid)
        if known is not None:
            found: FarmDispatcher = known
            return found
        from farm.front.default import default_farm  # the default farm imports this module

        made = cls(
            states["py_func"],
            states["locals"],
            states["targetoptions"],
            farm=default_farm,
            mode=states["mode"],
            fallback=states["fallback"],
            declared=states["declared"],
        )
        made._set_uuid(uuid)
        adopt(made)
        made.declared.queue()
        return made


def adopt(dispatcher: FarmDispatcher) -> FarmDispatcher:
    """Make the dispatcher known to its farm, and its profile end with it."""
    farm = dispatcher.farm()
    farm.adopt(dispatcher)
    weakref.finalize(dispatcher, farm.record.profiler.forget, dispatcher.identity)
    return dispatcher


passes((FarmDispatcher.run_body, FarmDispatcher.run_watched))
enters((FarmDispatcher.callable_for, FarmDispatcher.answer, FarmDispatcher._compile_for_args))
