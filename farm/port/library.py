"""Where a compile in a worker takes its callees from: a library that all workers share.

numba compiles a jitted callee inside its caller's compile, through the callee's dispatcher. Here every
dispatcher of a worker (`LibraryDispatcher`, see `take_over`) asks the library of the running job first
(`serving`), and hands over what it had to compile. Guarantees:

- A callee is asked for, and published, under the flags that its compile has: those of the compile that
  is running in this thread are its caller's, at the asking as well as at the handing over.
- A caller links a callee with its own flags. numba keeps one overload for each argument types, made
  under the flags of whoever came first; here there is one for each flags as well. Otherwise what is
  published for one caller would depend on who was compiled before it.
- Nothing compiled in an earlier job is linked into a later one, because globals may have changed. numba's
  own functions stay, as long as the settings do.
- What cannot leave the process is not published, with the reason. The compile goes on: its own
  `take_apart` decides about the whole.

numba's own library functions are callees like others: np.sort for float64 is compiled once for all workers.
For worker processes; what is loaded for linking cannot be called.
"""

import io
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from numba.core import registry, serialize, sigutils, types, utils
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import _Cache
from numba.core.compiler import Compiler, CompileResult
from numba.core.registry import CPUDispatcher
from numba.core.target_extension import dispatcher_registry, target_registry
from numba.core.typing.templates import make_concrete_template

from farm.errors import NotShippable, told
from farm.port import target
from farm.port.compile import Parts, take_apart
from farm.port.dispatch import Signature
from farm.port.load import LoadRefused, load_for_linking
from farm.port.target import caller_flags, effective_flags, renew_symbol_names
from farm.reasons import MissReason, RefusalReason

Types = tuple[Any, ...]

EQUAL_BY_IDENTITY: Final = (
    types.Dispatcher,
    types.ClassType,
    types.BaseFunction,
    types.BoundFunction,
    types.DeferredType,
)
"""Types that are equal only to themselves: what comes out of a pickle in another process is another type."""


@dataclass(frozen=True, slots=True)
class Request:
    """A callee that the running compile needs."""

    dispatcher: Any
    arguments: Types
    return_type: Any | None
    caller_flags: Any | None


class Place(Protocol):
    """A callee's place in the library, from the asking until `close`. None of its methods raises."""

    parts: Parts | None
    """What the library has, bitcode included."""

    symbol_base: int | None
    """The base of an earlier compile, which the callee's repeats; None for a fresh one."""

    def loaded(self) -> None:
        """The parts serve."""

    def unusable(self, reason: MissReason, detail: str) -> None:
        """The parts could not be loaded: the callee is compiled, as if there had been none."""

    def publish(self, parts: Parts) -> None:
        """The callee was compiled."""

    def withhold(self, refusal: NotShippable) -> None:
        """The callee was compiled, and the result cannot leave this process."""

    def close(self) -> None:
        """Let go of the place; the only call after a compile that failed."""


Library = Callable[[Request], Place]


@dataclass(slots=True)
class _Open:
    """A callee that is being compiled."""

    request: Request
    place: Place
    outer_names: Any
    """The symbol counter of the compile that asked for it."""
    symbol_base: int


@dataclass(slots=True)
class _Job:
    """One top-level compile and the callees it asks for, innermost last. Used by one thread only."""

    ask: Library
    number: int
    open: list[_Open] = field(default_factory=list)
    entangled: bool = False
    """Whether a callee called back into a function whose compile had not ended: see `save`."""

    def load(self, dispatcher: Any, sig: Any) -> CompileResult | None:
        arguments, return_type = sigutils.normalize_signature(sig)
        request = Request(dispatcher, tuple(arguments), return_type, caller_flags())
        place = self.ask(request)
        if place.parts is not None:
            try:
                result = load_for_linking(place.parts, request.arguments, dispatcher.py_func.__globals__)
            except LoadRefused as refusal:
                place.unusable(refusal.reason, refusal.detail)
            else:
                place.loaded()
                place.close()
                return result
        # A base of its own, so that the bytes of caller and callee do not depend on which of them was compiled here.
        outer_names = FunctionIdentity._unique_ids
        self.open.append(_Open(request, place, outer_names, renew_symbol_names(place.symbol_base)))
        return None

    def save(self, dispatcher: Any, arguments: Types, result: CompileResult) -> None:
        opened = self._take(dispatcher, arguments)
        if opened is None:
            return
        FunctionIdentity._unique_ids = opened.outer_names
        # A callee that calls back into an unfinished compile was typed with what was known of that one so far.
        # Asked for alone it may come out different, and so may whatever is compiled with it from now on.
        self.entangled = self.entangled or _calls_back(result, dispatcher)
        try:
            if self.entangled:
                raise NotShippable(RefusalReason.UNRESOLVED_SYMBOLS, "recursion through a function that is unfinished")
            _refuse_a_type_that_does_not_travel(result.signature.return_type)
            opened.place.publish(take_apart(result, opened.symbol_base))
        except NotShippable as refusal:
            opened.place.withhold(refusal)
        finally:
            opened.place.close()

    def _take(self, dispatcher: Any, arguments: Types) -> _Open | None:
        for index in reversed(range(len(self.open))):
            opened = self.open[index]
            if opened.request.dispatcher is dispatcher and opened.request.arguments == arguments:
                self.close(index + 1)
                return self.open.pop()
        return None

    def close(self, first: int = 0) -> None:
        """Let go of the callees from `first` on: their compiles failed."""
        while len(self.open) > first:
            self.open.pop().place.close()


# The running job, how many there were, and the settings of the last. Guarded by nothing: a worker compiles in its
# main thread only.
_job: _Job | None = None
_jobs = 0
_settings: Mapping[str, object] = {}
_settings_changes = 0


@contextmanager
def serving(library: Library) -> Iterator[None]:
    """Inside, the compiles of this process ask this library for their callees."""
    global _job, _jobs, _settings, _settings_changes
    _jobs += 1
    settings = target.settings()
    if settings != _settings:
        _settings, _settings_changes = settings, _settings_changes + 1
        registry.cpu_target.target_context.cached_internal_func.clear()
    job = _job = _Job(library, _jobs)
    try:
        yield
    finally:
        _job = None
        job.close()


def forget() -> None:
    """Link nothing into the next job that is in memory now: numba's own functions are asked for anew."""
    global _settings
    _settings = {}


def take_over() -> None:
    """Make LibraryDispatcher the class of every dispatcher that is decorated in this process from now on."""
    cpu = target_registry["cpu"]
    if dispatcher_registry[cpu] is not LibraryDispatcher:
        del dispatcher_registry[cpu]
        dispatcher_registry[cpu] = LibraryDispatcher


class LibraryDispatcher(CPUDispatcher):
    """A worker's dispatcher: an overload for each argument types and flags, and the library behind it."""

    def __init__(
        self,
        py_func: Callable[..., Any],
        locals: dict[str, Any] | None = None,
        targetoptions: dict[str, Any] | None = None,
        pipeline_class: type = Compiler,
        explicit: tuple[Signature, ...] = (),
    ) -> None:
        self.explicit = explicit
        """Declared signatures: callers choose among these alone, and the one chosen is compiled then."""
        self._made: dict[tuple[Types, str], CompileResult] = {}
        self._made_in = 0
        super().__init__(py_func, locals or {}, targetoptions or {}, pipeline_class)
        self._cache = LibraryCache(self)

    def __repr__(self) -> str:
        return f"{CPUDispatcher.__name__}({self.py_func})"  # numba's messages name it, and are to be numba's own

    def enable_caching(self) -> None:
        """Nothing: numba's own cache goes stale, and what it holds would enter ours."""

    def compile(self, sig: Any) -> Any:
        slot = self._make_room(sig)
        entry_point = super().compile(sig)
        made = None if slot is None else self.overloads.get(slot[0])
        if slot is not None and made is not None:
            self._made[slot] = made
        return entry_point

    def get_call_template(self, args: Any, kws: Any) -> Any:
        if not self.explicit:
            return super().get_call_template(args, kws)
        pysig, arguments = self._compiler.fold_argument_types(args, kws)
        cases = [(return_type or types.none)(*declared) for declared, return_type in self.explicit]
        best = self.typingctx.resolve_overload(self.py_func, cases, arguments, {})
        chosen = []
        if best is not None:
            return_type = self.explicit[cases.index(best)][1]
            self.compile(tuple(best.args) if return_type is None else return_type(*best.args))
            chosen = [self.overloads[tuple(best.args)].signature]
        name = self.py_func.__name__
        return make_concrete_template(f"CallTemplate({name})", key=name, signatures=chosen), pysig, arguments, {}

    def get_overload(self, sig: Any) -> Any:
        self._turn(sig)
        return super().get_overload(sig)

    def get_compile_result(self, sig: Any) -> CompileResult:
        self._make_room(sig)  # numba's own compiles what is not there: with the declared return type from 0.68 on
        return super().get_compile_result(sig)

    def add_overload(self, cres: CompileResult) -> None:
        if caller_flags() is None:  # for a call from Python, while a module is imported
            super().add_overload(cres)
        else:  # not for numba's C table: it wants something to call
            self.overloads[tuple(cres.signature.args)] = cres

    def _make_room(self, sig: Any) -> tuple[Types, str] | None:
        """As `_turn`, but an overload that was made under other flags is out of the way."""
        slot = self._turn(sig)
        if slot is not None and slot not in self._made:
            self.overloads.pop(slot[0], None)
        return slot

    def _turn(self, sig: Any) -> tuple[Types, str] | None:
        """Put the overload for the flags of the running compile in numba's place, if there is one; its slot.

        None if this dispatcher takes declared signatures only: those are compiled for nobody.
        """
        if not self._can_compile:
            return None
        number = _settings_changes if _is_numbas(self) else 0 if _job is None else _job.number
        if number != self._made_in:
            self._make_finalizer()()
            self._made.clear()
            self._reset_overloads()
            self._made_in = number
        arguments = tuple(sigutils.normalize_signature(sig)[0])
        slot = arguments, effective_flags(self.targetoptions, caller_flags())
        made = self._made.get(slot)
        if made is not None:
            self.overloads[arguments] = made
        return slot

    def _make_finalizer(self) -> Callable[..., None]:
        made, context = self._made, self.targetctx

        def finalize(shutting_down: Callable[[], bool] = utils.shutting_down) -> None:
            if shutting_down():
                return
            for result in made.values():
                context._defns.pop(result.entry_point, None)

        return finalize

    def _reduce_class(self) -> Any:
        return CPUDispatcher  # in a pickle that the front reads it is an ordinary one


class LibraryCache(_Cache):
    """numba's view of the library, one for each dispatcher."""

    def __init__(self, dispatcher: LibraryDispatcher) -> None:
        self._dispatcher = weakref.ref(dispatcher)
        self._enabled = True

    @property
    def cache_path(self) -> None:
        """None: the library knows no path."""
        return None

    def load_overload(self, sig: Any, target_context: Any) -> CompileResult | None:
        dispatcher = self._dispatcher()
        if _job is None or dispatcher is None or not self._enabled:
            return None
        return _job.load(dispatcher, sig)

    def save_overload(self, sig: Any, data: CompileResult) -> None:
        dispatcher = self._dispatcher()
        if _job is not None and dispatcher is not None:
            _job.save(dispatcher, tuple(sigutils.normalize_signature(sig)[0]), data)

    def enable(self) -> None:
        self._enabled = True

    def disable(self) -> None:
        self._enabled = False

    def flush(self) -> None:
        """Nothing: what is in the library is right under its key for ever."""


def _is_numbas(dispatcher: Any) -> bool:
    return str(dispatcher.py_func.__module__).partition(".")[0] == "numba"


def _calls_back(result: CompileResult, dispatcher: Any) -> bool:
    """Whether the result calls a function, other than itself, whose compile has not ended."""
    for kind in (result.fndesc.typemap or {}).values():
        if isinstance(kind, types.RecursiveCall):
            callee = kind.dispatcher_type.dispatcher
            own = tuple(result.signature.args) if callee is dispatcher else None
            if any(arguments != own and arguments not in callee.overloads for arguments in kind._overloads):
                return True
    return False


class _TypeScan(serialize.NumbaPickler):
    """Pickles into nothing, and looks at what it meets on the way."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())

    def persistent_id(self, obj: object) -> None:
        if isinstance(obj, EQUAL_BY_IDENTITY):
            raise NotShippable(RefusalReason.NOT_SERIALISABLE, f"its callers would get a copy of the type {obj}")


def _refuse_a_type_that_does_not_travel(kind: object) -> None:
    """Argument types are the asking side's own (`load_for_linking`); a return type can only come from the artifact."""
    try:
        _TypeScan().dump(kind)
    except NotShippable:
        raise
    except Exception as error:  # reducers are foreign code and raise anything
        raise NotShippable(RefusalReason.NOT_SERIALISABLE, told(error)) from error
