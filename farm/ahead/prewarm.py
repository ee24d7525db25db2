"""Prewarm: compile into a store what programs are going to ask for, before they run.

    sources -> requests -> functors, with their keys -> in the store already? -> else a job for the pool

Nothing is loaded, and nothing is compiled in this process. Modules are imported to find functions by their names, and
while that is done the farm only notes what is asked for. Each artifact is in the store when its row is done: what is
interrupted, or killed, goes on where it stopped when it is run again.

A manifest names modules, which are imported, and may hold pickles: it is to be trusted like a program.
"""

import queue
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import chain
from typing import Any, Final

from farm.ahead import library as pack
from farm.ahead.manifest import ManifestEntry
from farm.ahead.program import Program, as_main
from farm.ahead.sources import Problem, ProgramSource, Request, Source, request_of
from farm.config import Config
from farm.enable import enable
from farm.errors import CompileFailed, ConfigError, NotShippable, StoreRefused, told
from farm.front.answers import loss
from farm.front.default import default_farm
from farm.front.dispatcher import FarmDispatcher
from farm.front.policy import Limits
from farm.front.record import Record
from farm.front.supply import Supply
from farm.job import messages as wire
from farm.job.functor import CompileFunctor, make_functor, other_keys
from farm.pool.ticket import Ticket
from farm.port import failure
from farm.port.cpu import Cpu, parse
from farm.port.flagtext import HandedDown
from farm.port.load import made_for_cpu
from farm.port.role import collecting, collects, compiles_for_others
from farm.port.target import inherited_flags
from farm.store.artifact import Stored
from farm.store.disk import DiskStore, StoreSettings

HOST: Final = "host"
TICK_S: Final = 0.25
"""How often progress is told while nothing gets done."""


class Outcome(Enum):
    """What became of one function with one signature for one CPU."""

    COMPILED = "compiled"
    THERE = "in the store already"
    ABSENT = "not in the store"
    REFUSED = "cannot be stored: compiled by each program"
    FAILED = "failed"
    NOT_FOUND = "not found"
    NOT_REPLAYABLE = "cannot be asked for"
    SKIPPED = "skipped"
    NOT_DONE = "not done"


FAILURES: Final = frozenset({Outcome.FAILED, Outcome.NOT_FOUND, Outcome.NOT_DONE})
"""What keeps a prewarm from being a success."""
READY: Final = frozenset({Outcome.COMPILED, Outcome.THERE, Outcome.SKIPPED})
"""What a program that runs now has not to compile."""
_OUTCOMES: Final = {
    Problem.NOT_FOUND: Outcome.NOT_FOUND,
    Problem.NOT_REPLAYABLE: Outcome.NOT_REPLAYABLE,
    Problem.BROKEN: Outcome.FAILED,
    Problem.SKIPPED: Outcome.SKIPPED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PrewarmRow:
    """What became of one function with one signature for one CPU.

    Parameters
    ----------
    seconds
        What the compile took, whenever that was; None if that is not known.
    size_bytes
        Of the artifact.
    callees, callees_compiled
        How many functions the compile asked for, numba's own included, and how many of these the store had not. A
        worker that has one in memory does not ask again. None if nothing was compiled.
    detail
        Why there is none.
    """

    function: str
    signature: str
    cpu: str
    outcome: Outcome
    seconds: float | None = None
    size_bytes: int | None = None
    callees: int | None = None
    callees_compiled: int | None = None
    detail: str = ""
    key: str | None = None


@dataclass(frozen=True, slots=True)
class PrewarmReport:
    """One row for each function, signature and CPU, sorted."""

    rows: tuple[PrewarmRow, ...]

    def of(self, *outcomes: Outcome) -> tuple[PrewarmRow, ...]:
        """The rows with one of these outcomes."""
        return tuple(row for row in self.rows if row.outcome in outcomes)

    @property
    def failed(self) -> tuple[PrewarmRow, ...]:
        """What should be in the store and is not."""
        return self.of(*FAILURES)

    @property
    def to_compile(self) -> tuple[PrewarmRow, ...]:
        """What a program that runs now would have to compile."""
        return tuple(row for row in self.rows if row.outcome not in READY)

    def __str__(self) -> str:
        counts = {outcome: len(self.of(outcome)) for outcome in Outcome}
        return ", ".join(f"{number} {outcome.value}" for outcome, number in counts.items() if number) or "nothing to do"


class PrewarmInterrupted(KeyboardInterrupt):
    """Ctrl-C came in the middle of it; `report` has what is done."""

    def __init__(self, report: PrewarmReport) -> None:
        super().__init__(report)
        self.report = report


@dataclass(frozen=True, slots=True)
class PrewarmProgress:
    """How far it is. `finished` is the row that is done now, or None: then only time has passed."""

    done: int
    total: int
    running: tuple[str, ...]
    remaining_s: float | None
    """An estimate, from the compiles whose time is known."""
    finished: PrewarmRow | None = None


Tell = Callable[[PrewarmProgress], None]


def prewarm(
    sources: Iterable[Source],
    *,
    cpus: Sequence[str] = (HOST,),
    workers: int | None = None,
    program: Program | None = None,
    library: Iterable[HandedDown] | None = None,
    dry_run: bool = False,
    check: bool = False,
    progress: Tell | None = None,
) -> PrewarmReport:
    """Compile what the sources ask for into the store of the farm that each function belongs to.

    Parameters
    ----------
    cpus
        Names as `farm.port.cpu.parse` takes them.
    workers
        How many processes compile; by default as many as the farm's settings say.
    program
        Whose main module is run, under another name, for what belongs to `__main__`.
    library
        Compile the library pack too, under these flags, the default ones, and those of what the sources ask for.
    dry_run
        Look up everything and compile nothing.
    check
        The same, and what a program on this machine would load instead, code for a lesser CPU, counts as there.
    progress
        Called in this thread, when a row is done and a few times a second.

    Raises CpuError, ManifestError, SignatureError, ProgramError, StoreRefused and ConfigError before anything is
    compiled; PrewarmInterrupted at Ctrl-C. In a worker, or in a program that is itself only looked at, it does nothing.
    """
    if compiles_for_others() or collects():
        return PrewarmReport(())
    wanted = {text: None if text == HOST else parse(text) for text in dict.fromkeys(cpus)}
    run = _Run(wanted, workers, dry_run, check, progress)
    run.gather(sources, program, library)
    return run.finish()


def unresolved(
    entries: Iterable[ManifestEntry],
    program: Program | None,
) -> list[tuple[ManifestEntry, str]]:
    """The entries of a manifest whose function or types are not there any more, each with what is wrong."""
    with collecting(), enable(), nullcontext() if program is None else as_main(program):
        requests = [(entry, request_of(entry, program)) for entry in entries]
    return [(entry, request.detail) for entry, request in requests if request.problem is not None]


@dataclass(slots=True)
class _Job:
    """One functor that the store has no artifact for."""

    label: tuple[str, str, str]
    functor: CompileFunctor
    config: Config
    optional: bool = False
    ticket: Ticket | None = None


@dataclass(slots=True)
class _Run:
    cpus: dict[str, Cpu | None]
    workers: int | None
    dry_run: bool
    check: bool
    progress: Tell | None
    rows: dict[tuple[str, ...], PrewarmRow] = field(default_factory=dict)
    jobs: dict[tuple[str, ...], _Job] = field(default_factory=dict)
    supplies: dict[Config, Supply] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    """Of compiles, from the store and from this run."""
    seen: set[tuple[Config, str]] = field(default_factory=set)

    # -- before anything is compiled -------------------------------------------------------------------

    def gather(
        self, sources: Iterable[Source], program: Program | None, library: Iterable[HandedDown] | None = None
    ) -> None:
        """Find out what to compile, and which of it the store has. `__main__` is the program's meanwhile."""
        sources = list(sources)
        with ExitStack() as stack:
            stack.enter_context(collecting())
            stack.enter_context(enable())
            if program is not None:
                stack.enter_context(as_main(program))
                sources.append(ProgramSource())
            prepared = chain.from_iterable(source.prepare() for source in sources)
            flags = set(library or ())
            for one in chain(prepared, chain.from_iterable(source.requests() for source in sources)):
                self._add(one)
                if library is not None and one.problem is None:
                    flags.update(HandedDown.of_function(one.dispatcher.targetoptions, one.caller_flags))
            if library is not None:
                default = HandedDown()
                for one in pack.requests([default, *sorted(flags - {default}, key=str)]):
                    self._add(one)

    def _add(self, request: Request) -> None:
        if request.problem is not None:
            label = (request.function, request.signature, "")
            self.rows.setdefault(
                (*label, request.detail), _row(label, _OUTCOMES[request.problem], detail=request.detail)
            )
            return
        for text, cpu in self.cpus.items():
            self._add_for(request, text, cpu)

    def _add_for(self, request: Request, text: str, cpu: Cpu | None) -> None:
        label = (request.function, request.signature, text)
        try:
            functor = _functor(request, cpu)
        except NotShippable as refusal:
            self.rows[(*label, str(refusal))] = _row(label, Outcome.REFUSED, detail=str(refusal))
            return
        except Exception as error:  # user objects take part in capturing, and raise what they like
            self.rows[(*label, told(error))] = _row(label, Outcome.FAILED, detail=told(error))
            return
        config = self._config(request.dispatcher)
        key = functor.key.hex
        if (config, key) in self.seen:  # from two sources
            return
        self.seen.add((config, key))
        found: object = self._store(config).get(functor.key)
        if not isinstance(found, Stored) and self.check and cpu is None:
            found = self._supply(config).look_further(config, other_keys(functor))
        if isinstance(found, Stored):
            made_for, took = made_for_cpu(found.meta), found.compile_s
            detail = "" if found.key == functor.key else f"code for {made_for}, which runs here"
            self.seconds += [] if took is None else [took]
            self.rows[(*label, key)] = _row(
                label, Outcome.THERE, seconds=took, size_bytes=found.size_bytes, detail=detail, key=found.key.hex
            )
        elif self.dry_run or self.check:
            self.rows[(*label, key)] = _row(label, Outcome.ABSENT, key=key)
        elif config.readonly:
            raise ConfigError("readonly", True, "False: a prewarm writes into the store")
        else:
            self.jobs[(*label, key)] = _Job(label, functor, config, request.optional)

    def _config(self, dispatcher: Any) -> Config:
        """The settings of the farm that compiles this function in its program."""
        farm = dispatcher.farm() if isinstance(dispatcher, FarmDispatcher) else default_farm()
        config: Config = farm.config
        return config if self.workers is None else config.with_changes(workers=self.workers)

    def _supply(self, config: Config) -> Supply:
        supply = self.supplies.get(config)
        if supply is None:
            supply = self.supplies[config] = Supply(Record(lambda: config, Limits.from_config(config, 1)))
        return supply

    def _store(self, config: Config) -> DiskStore:
        store = self._supply(config).store(config)
        if store is not None:
            return store
        try:  # it was only warned of
            return StoreSettings.of(config, config.cache_dir).open()
        except OSError as error:
            raise StoreRefused(
                str(config.cache_dir), str(error), "set FARM_CACHE_DIR to a directory of yours"
            ) from None

    # -- compiling -------------------------------------------------------------------------------------

    def finish(self) -> PrewarmReport:
        """Compile what is missing, and wait for all of it."""
        total = len(self.rows) + len(self.jobs)
        answered: queue.SimpleQueue[tuple[str, ...]] = queue.SimpleQueue()
        grace_s = 0.0
        try:
            for number, row in enumerate(list(self.rows.values()), 1):
                self._tell(number, total, row)
            for place in list(self.jobs):
                self._submit(place, self.jobs[place], answered)
            while self.jobs:
                try:
                    place = answered.get(timeout=TICK_S)
                except queue.Empty:
                    self._tell(len(self.rows), total, None)
                    continue
                job = self.jobs.pop(place)
                row = self.rows[place] = self._answered(job)
                self._tell(len(self.rows), total, row)
            grace_s = 1.0  # for a trim that goes on
        except KeyboardInterrupt:
            for place, job in self.jobs.items():
                self.rows[place] = _row(job.label, Outcome.NOT_DONE, detail="interrupted", key=job.functor.key.hex)
            raise PrewarmInterrupted(self._report()) from None
        finally:
            for supply in self.supplies.values():
                supply.close(grace_s)
        return self._report()

    def _report(self) -> PrewarmReport:
        return PrewarmReport(tuple(self.rows[place] for place in sorted(self.rows)))

    def _submit(self, place: tuple[str, ...], job: _Job, answered: "queue.SimpleQueue[tuple[str, ...]]") -> None:
        supply, config = self._supply(job.config), job.config
        order = supply.pools.order(job.functor, supply.store_settings(config), verify=False)
        function, signature, _ = job.label
        sent = supply.pools.job(order, f"{function}{signature}", config.job_timeout_s, for_store=False)
        # Somebody waits for all of them: so they get every worker, and at full speed.
        job.ticket = supply.pool(config, job.functor.settings).submit(sent, waited=True, batch=False)
        job.ticket.future.add_done_callback(lambda _: answered.put(place))

    def _answered(self, job: _Job) -> PrewarmRow:
        assert job.ticket is not None
        answer, key = job.ticket.future.result(), job.functor.key.hex
        row = _row(job.label, Outcome.FAILED, key=key)
        match answer:
            case wire.Built(inline=bytes()):
                detail = "; ".join(f"{reason.value}: {text}" for reason, text in answer.degraded)
                return replace(row, detail=f"compiled, but not stored: {detail}")
            case wire.Built(origin=wire.Origin.COMPILED):
                nested = sum(one.artifact_bytes for one in answer.nested)
                self._supply(job.config).note_published(job.config, answer.artifact_bytes + nested)
                self.seconds.append(answer.compile_s)
                made = sum(one.origin is wire.Origin.COMPILED for one in answer.nested)
                return replace(
                    row,
                    outcome=Outcome.COMPILED,
                    seconds=answer.compile_s,
                    size_bytes=answer.artifact_bytes,
                    callees=len(answer.nested),
                    callees_compiled=made,
                )
            case wire.Built():  # as somebody else's callee, or by another process
                return self._found_later(row, job)
            case wire.Failed(literal_args=tuple() as positions):
                detail = f"compiled for each value of the arguments at positions {', '.join(map(str, positions))}"
                return replace(row, outcome=Outcome.SKIPPED, detail=detail)
            case wire.Failed(kind, text, packed):
                error = failure.unpack(packed) if packed else None
                outcome = Outcome.SKIPPED if job.optional else Outcome.FAILED
                detail = failure.headline(error or CompileFailed(job.label[0], kind, text))
                return replace(row, outcome=outcome, detail=detail)
            case wire.Rejected(reason, detail):
                return replace(row, outcome=Outcome.REFUSED, detail=f"{reason.value}: {detail}")
            case wire.Cancelled(detail):
                return replace(row, outcome=Outcome.NOT_DONE, detail=detail)
            case wire.Died() | wire.TimedOut() | wire.OutOfMemory():
                return replace(row, detail=failure.headline(loss("it", answer)))
        raise AssertionError(f"a compile is not answered by {answer}")

    def _found_later(self, row: PrewarmRow, job: _Job) -> PrewarmRow:
        found = self._store(job.config).get(job.functor.key)
        if not isinstance(found, Stored):
            return replace(row, detail="it was in the store, and is not there any more: the store may be too small")
        detail, took = "together with what calls it, or by another process", found.compile_s
        return replace(row, outcome=Outcome.COMPILED, seconds=took, size_bytes=found.size_bytes, detail=detail)

    # -- telling ---------------------------------------------------------------------------------------

    def _tell(self, done: int, total: int, row: PrewarmRow | None) -> None:
        if self.progress is None:
            return
        running = tuple(
            f"{job.label[0]}{job.label[1]}"
            for job in self.jobs.values()
            if job.ticket is not None and job.ticket.sent_at is not None and not job.ticket.future.done()
        )
        remaining_s = None
        if self.seconds and self.jobs:
            each = sum(self.seconds) / len(self.seconds)
            config = next(iter(self.jobs.values())).config
            remaining_s = each * len(self.jobs) / self._supply(config).workers_max(config)
        self.progress(PrewarmProgress(done, total, running, remaining_s, row))


def _functor(request: Request, cpu: Cpu | None) -> CompileFunctor:
    flags = request.caller_flags
    # Outside of a caller nothing is entered at all: a function that has one has other flags than one that has none.
    with nullcontext() if flags is None else inherited_flags(flags):
        return make_functor(request.dispatcher, request.arguments, request.return_type, cpu)


def _row(label: tuple[str, str, str], outcome: Outcome, **more: Any) -> PrewarmRow:
    function, signature, cpu = label
    return PrewarmRow(function=function, signature=signature, cpu=cpu, outcome=outcome, **more)
