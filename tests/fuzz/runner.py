"""Runs a tree of files in a process of its own: with the farm on a store, or with numba alone.

Starting Python and importing numba takes 0.66 s, a fork of a process that has done so 0.15 s. So there are templates,
which never compile, start no thread and have no pool, and every run is a fork of one:

    cold    numba and the farm imported: becomes a front
    plain   the same, and numba's contexts refreshed: becomes a program without the farm
    warm    what the farm's foreman is: becomes a worker

A front has the real store, keys, functors and loads; its worker does what a worker does with a job
(`farm.pool.task.perform`). What is replaced is the way between the two, which is tested elsewhere: in place of a pool
there is one connection to a worker, and the front waits at it.

    python runner.py DIRECTORY PID      is the cold template, which forks the other two and ends with process PID
"""

import contextlib
import functools
import json
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

LENGTH: Final = struct.Struct(">Q")
START_MAX_S: Final = 30.0
RUN_MAX_S: Final = 60.0
COUNTED: Final = ("compiled", "loaded", "local", "failed")


@dataclass(frozen=True, slots=True)
class Ask:
    """One run.

    Parameters
    ----------
    root
        The directory with `main.py`, which is run as `__main__` and holds CALLS: name -> function to call.
    store
        The farm's cache directory; None for numba alone.
    environment
        NUMBA_* variables.
    calls
        Which of CALLS to call, in order; None for all.
    cached
        With numba's own cache in place of the farm: `njit` has `cache=True`, and the store is its directory.
    """

    root: str
    store: str | None
    environment: Mapping[str, str] = field(default_factory=dict)
    calls: tuple[str, ...] | None = None
    cached: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """What one call gave.

    Parameters
    ----------
    result
        The value or the exception as text: with types, with whether each class is the one that its module holds.
    frames
        Of a traceback, what lies in the tree: (file, function, text of the line), the file relative to the root.
    lines
        The line numbers of the same.
    counts
        By how much each of COUNTED went up, if the farm ran it.
    refusals
        Why something was compiled locally.
    """

    result: str
    frames: tuple[tuple[str, str, str], ...] = ()
    lines: tuple[int, ...] = ()
    counts: tuple[int, ...] = (0,) * len(COUNTED)
    refusals: tuple[str, ...] = ()

    def count(self, name: str) -> int:
        return self.counts[COUNTED.index(name)]


Report = dict[str, Said]
"""By name of the call; "import" is what running main.py gave, if it failed or compiled."""


# -- the side of the test -----------------------------------------------------------------------------------------


class Runner:
    """The templates, for the block; `run` may be called from several threads. What has a store is `cached`, or not."""

    def __init__(self, directory: Path, *, cached: bool = False) -> None:
        self._directory = directory
        self.cached = cached

    def __enter__(self) -> "Runner":
        self._directory.mkdir(parents=True, exist_ok=True)
        self._log = open(self._directory / "log", "ab")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "FARM_"))}
        environment |= {"PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, str(self._directory), str(os.getpid())]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._log
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line == b"ready\n", (line, (self._directory / "log").read_text())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # the kernel ends the others with it
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()

    def run(self, ask: Ask) -> Report:
        """Raises RuntimeError with the end of the log if the run gave no report."""
        template = "cold" if ask.store is not None or ask.environment else "plain"
        with _connect(self._directory, template) as connection:
            connection.settimeout(RUN_MAX_S)
            _send(connection, ("front", str(self._directory), ask))
            try:
                report: Report = _receive(connection)
            except (EOFError, OSError) as error:
                end = (self._directory / "log").read_text(errors="replace")[-3000:]
                raise RuntimeError(f"{ask}: {error!r}\n{end}") from error
        return report


def _connect(directory: Path, template: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(directory / f"{template}.socket"))
    return connection


def _send(connection: socket.socket, message: object) -> None:
    body = pickle.dumps(message)
    connection.sendall(LENGTH.pack(len(body)) + body)


def _receive(connection: socket.socket) -> Any:
    (length,) = LENGTH.unpack(_exactly(connection, LENGTH.size))
    return pickle.loads(_exactly(connection, length))


def _exactly(connection: socket.socket, size: int) -> bytes:
    body = b""
    while len(body) < size:
        more = connection.recv(size - len(body))
        if not more:
            raise EOFError("the other side has ended")
        body += more
    return body


# -- templates ----------------------------------------------------------------------------------------------------


def main(directory: Path, parent_pid: int) -> None:
    """Be the cold template; the others are forked from it."""
    import farm
    import farm.enable
    import farm.front.farm
    import farm.job.functor
    import farm.pool.task  # noqa: F401  # these are what runs will need
    from farm.pool import launch
    from farm.port import target, warm

    launch.on_parent_death(signal.SIGKILL)
    if os.getppid() != parent_pid:  # it ended before the line above
        return
    foundation = json.dumps(target.foundation(target.settings()))
    listeners = {name: _listen(directory, name) for name in ("cold", "plain", "warm")}
    _fork(lambda: _template(listeners["plain"], _refresh))
    _fork(lambda: _template(listeners["warm"], lambda: warm.warm(foundation)))
    print("ready", flush=True)
    _serve(listeners["cold"])


def _listen(directory: Path, name: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(directory / f"{name}.socket"))
    listener.listen(64)
    return listener


def _fork(child: Callable[[], object]) -> None:
    """Have a child do that and end; it ends with this process."""
    from farm.pool import launch

    parent = os.getpid()
    if os.fork():
        return
    try:
        launch.on_parent_death(signal.SIGKILL)
        if os.getppid() == parent:
            child()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)


def _template(listener: socket.socket, prepare: Callable[[], object]) -> NoReturn:
    prepare()
    _serve(listener)


def _refresh() -> None:
    from numba.core import registry

    registry.cpu_target.typing_context.refresh()
    registry.cpu_target.target_context.refresh()


def _serve(listener: socket.socket) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that the kernel clears away what has ended
    while True:
        connection, _ = listener.accept()
        _fork(lambda connection=connection: _answer(connection))  # type: ignore[misc]
        connection.close()


def _answer(connection: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    kind, *rest = _receive(connection)
    if kind == "front":
        directory, ask = rest
        _send(connection, _front(Path(directory), ask))
    else:
        _work(connection, *rest)


# -- a worker -----------------------------------------------------------------------------------------------------


def _work(connection: socket.socket, foundation: str, is_warm: bool) -> None:
    from farm.pool.task import perform
    from farm.port import target, warm

    if not is_warm:
        warm.warm(foundation)
    target.renew_symbol_names()
    while True:
        try:
            payload, label = _receive(connection)
        except EOFError:
            return
        _send(connection, perform(payload, label))


class Line:
    """Stands in for the pool of a front: a connection to a worker, a fresh one if the worker's answer asks for it."""

    directory: Path
    usual: str
    """The foundation of the warm template."""
    ready = True

    def __init__(self, *, preload_with: str, **_: object) -> None:
        self._foundation = preload_with
        self._connection: socket.socket | None = None

    def submit(self, job: Any, *, waited: bool, batch: bool) -> Any:
        from farm.job.messages import Rejected
        from farm.pool.ticket import Ticket
        from farm.reasons import RefusalReason

        ticket = Ticket(1, job, lambda _: None)
        answer = self._ask(job)
        if isinstance(answer, Rejected) and answer.reason is RefusalReason.KEY_MISMATCH:
            self.close()
            answer = self._ask(job)
        ticket.finish(answer)
        return ticket

    def _ask(self, job: Any) -> Any:
        if self._connection is None:
            is_warm = self._foundation == self.usual
            self._connection = _connect(self.directory, "warm" if is_warm else "cold")
            _send(self._connection, ("worker", self._foundation, is_warm))
        _send(self._connection, (job.payload, job.label))
        return _receive(self._connection)

    def close(self, grace_s: float = 0.0) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


# -- a front ------------------------------------------------------------------------------------------------------


def _front(directory: Path, ask: Ask) -> Report:
    import numba

    counts: Callable[[], tuple[tuple[int, ...], list[str]]] = lambda: ((0,) * len(COUNTED), [])  # noqa: E731
    Line.directory, Line.usual = directory, _foundation()
    os.environ.update(ask.environment)
    numba.config.reload_config()
    if ask.cached and ask.store is not None:
        os.environ["NUMBA_CACHE_DIR"] = ask.store
        numba.config.reload_config()
        numba.njit = functools.partial(numba.njit, cache=True)
    elif ask.store is not None:
        counts = _with_farm(ask.store)
    os.chdir(ask.root)
    sys.path.insert(0, ask.root)
    report: Report = {}
    with _told(report, "import", ask.root, counts) as tell:
        main = type(sys)("__main__")
        main.__file__ = os.path.join(ask.root, "main.py")
        sys.modules["__main__"] = main
        exec(compile(Path(main.__file__).read_text(), main.__file__, "exec"), vars(main))
        tell(None)
    calls = getattr(main, "CALLS", {})
    for name in calls if ask.calls is None else ask.calls:
        with _told(report, name, ask.root, counts) as tell:
            tell(calls[name]())
    return report


def _foundation() -> str:
    from farm.port import target

    return json.dumps(target.foundation(target.settings()))


def _with_farm(store: str) -> Callable[[], tuple[tuple[int, ...], list[str]]]:
    import farm
    from farm.front import pools
    from farm.observe.events import CompiledLocally

    pools.Pool = Line  # type: ignore[assignment, misc, unused-ignore]
    farm.configure(cache_dir=store, mode="strict", workers=1, on_error="raise")
    farm.enable()
    refusals: list[str] = []

    class Listener:
        def on_event(self, event: object) -> None:
            if isinstance(event, CompiledLocally):
                refusals.append(f"{event.reason.name}: {event.detail}")

    farm.add_listener(Listener())

    def counts() -> tuple[tuple[int, ...], list[str]]:
        stats = farm.stats()
        said, refusals[:] = refusals[:], []
        return tuple(getattr(stats, name) for name in COUNTED), said

    return counts


@contextlib.contextmanager
def _told(
    report: Report, name: str, root: str, counts: Callable[[], tuple[tuple[int, ...], list[str]]]
) -> Iterator[Callable[[object], None]]:
    before, _ = counts()
    results: list[object] = []
    frames: list[tuple[str, str, str]] = []
    lines: list[int] = []
    try:
        yield results.append
        result = shown(results[0])
    except Exception as error:
        result = _shown_error(error)
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename.startswith(root + os.sep):
                frames.append((os.path.relpath(frame.filename, root), frame.name, str(frame.line)))
                lines.append(frame.lineno or 0)
        if name == "import":
            traceback.print_exc()
    after, refusals = counts()
    rise = tuple(a - b for a, b in zip(after, before, strict=True))
    report[name] = Said(result, tuple(frames), tuple(lines), rise, tuple(refusals))


def _shown_error(error: Exception) -> str:
    name = _class(type(error))
    if type(error).__module__.startswith("numba."):  # its text names paths and lines
        return f"{name}: {str(error).splitlines()[:1]}"
    held = {key: value for key, value in sorted(vars(error).items()) if key != "__notes__"}
    return f"{name}: {error} {shown(error.args)} {shown(tuple(held.items()))}"


def shown(value: object) -> str:
    """A value as text that tells apart what a program can tell apart."""
    import enum

    import numpy

    if isinstance(value, enum.Enum):
        there = getattr(type(value), value.name, None) is value
        return f"{_class(type(value))}.{value.name}{'' if there else ' (not the member)'}"
    if isinstance(value, numpy.ndarray):
        return f"array {value.dtype.descr} {value.shape} {value.tobytes().hex()}"
    if isinstance(value, (tuple, list)):
        return f"{_class(type(value))}({', '.join(map(shown, value))})"
    if isinstance(value, (int, float, complex, str, bytes, numpy.generic, type(None))):
        return f"{type(value).__name__} {value!r}"
    return _class(type(value))


def _class(cls: type) -> str:
    found: object = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    return f"{cls.__module__}.{cls.__qualname__}{'' if found is cls else ' (a copy)'}"


if __name__ == "__main__":
    # Under its own name, so that what is pickled here can be unpickled there.
    sys.path.insert(0, str(Path(__file__).parent))
    import runner

    runner.main(Path(sys.argv[1]), int(sys.argv[2]))
