"""A pytest plugin: one store for all tests of a run, and a look at what they compiled.

    pytest -p farm.testing                       # or, in pytest's configuration: addopts = "-p farm.testing"
    pytest -p farm.testing --farm-no-compile     # what compiles fails: in CI, after a prewarm

The store lies in pytest's cache directory, or where `--farm-cache` says, and is kept for the next run; processes of
pytest-xdist share it. FARM_CACHE_DIR, if it is set, comes before pytest's cache directory.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from farm.config import default_cache_dir
from farm.front import ends
from farm.front.default import default_farm
from farm.front.farm import Farm
from farm.observe.events import CompiledLocally, CompileFailed, CompileFinished, Event

WAIT_S: Final = 120.0
"""How long `--farm-no-compile` waits for what a test left compiling, so that no other test is blamed. A guess."""
OUTPUT: Final = "farm_compiles"


@dataclass(slots=True)
class Compiles:
    """What the farms of a process did. Heard from their threads; appending and adding need no lock of ours."""

    loaded: int = 0
    saved_s: float = 0.0
    failed: int = 0
    made: list[tuple[str, float]] = field(default_factory=list)
    """(what was compiled and where, seconds)."""
    local: set[tuple[str, str]] = field(default_factory=set)

    def on_event(self, event: Event) -> None:
        """Hear of one event, of any farm."""
        match event:
            case CompiledLocally(function=function, signature=signature):
                self.local.add((function, signature))
            case CompileFinished(used_persistent_cache=True):
                self.loaded += 1
                self.saved_s += event.saved_s
            case CompileFinished():
                where = "in this process" if (event.function, event.signature) in self.local else "in a worker"
                text = f"{event.function}({event.signature}) {where}, {event.compile_time_s:.2f} s"
                self.made.append((text, event.compile_time_s))
            case CompileFailed():
                self.failed += 1

    def sums(self) -> dict[str, float]:
        """What a worker of pytest-xdist tells its master."""
        return {
            "loaded": self.loaded,
            "saved_s": self.saved_s,
            "failed": self.failed,
            "compiled": len(self.made),
            "compile_s": sum(seconds for _, seconds in self.made),
        }


class Plugin:
    """The hooks of one run."""

    def __init__(self, config: pytest.Config, store: Path, *, no_compile: bool) -> None:
        self.config, self.store, self.no_compile = config, store, no_compile
        self.compiles = Compiles()
        self.sums = Compiles().sums()
        self._stop_watching = ends.watch(self._listen)

    def _listen(self, farm: Farm) -> None:
        farm.add_listener(self.compiles)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        return (yield from self._watched())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        return (yield from self._watched())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        return (yield from self._watched())

    def _watched(self) -> Generator[None, object, object]:
        """One phase of a test. What it compiles is its own: at its end nothing is on its way any more."""
        if not self.no_compile:
            return (yield)
        before = len(self.compiles.made)
        result = yield
        for farm in ends.farms():
            if isinstance(farm, Farm) and not farm.closed and not farm.wait(WAIT_S):
                pytest.fail(f"a compile of this test has not ended within {WAIT_S:g} s: {farm!r}", pytrace=False)
            if isinstance(farm, Farm):
                farm.requests.wait_until_told(WAIT_S)
                farm.record.listeners.flush()
        compiled = [text for text, _ in self.compiles.made[before:]]
        if compiled:
            lines = "\n".join(f"  {text}" for text in compiled)
            pytest.fail(
                f"--farm-no-compile: not in the store {self.store}, and so compiled:\n{lines}\n"
                "Run the tests once without the option, or fill the store with `farm prewarm`.",
                pytrace=False,
            )
        return result

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell the master of pytest-xdist what this process did, or add it to the sum."""
        for farm in ends.farms():
            if isinstance(farm, Farm) and not farm.closed:
                farm.wait(WAIT_S)
                farm.requests.wait_until_told(WAIT_S)
                farm.record.listeners.flush()
        self._stop_watching()
        output = getattr(self.config, "workeroutput", None)
        if output is not None:
            output[OUTPUT] = self.compiles.sums()
        else:
            self._add(self.compiles.sums())

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Hear from a worker of pytest-xdist; one that crashed says nothing."""
        self._add(getattr(node, "workeroutput", {}).get(OUTPUT, {}))

    def _add(self, sums: dict[str, float]) -> None:
        for name, number in sums.items():
            self.sums[name] += number

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """One line: what was loaded and saved, what was compiled."""
        sums = self.sums
        if not any(sums.values()):
            return
        failed = f", {sums['failed']:g} failed" if sums["failed"] else ""
        terminalreporter.write_line(
            f"farm: {sums['loaded']:g} loaded ({sums['saved_s']:.1f} s of compiling saved), "
            f"{sums['compiled']:g} compiled ({sums['compile_s']:.1f} s){failed}; store: {self.store}"
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options and the setting of the plugin."""
    group = parser.getgroup("farm", "functions compiled by farm")
    group.addoption(
        "--farm-cache", metavar="DIR", help="the store of compiled functions; by default in pytest's cache directory"
    )
    group.addoption(
        "--farm-no-compile",
        action="store_true",
        help="fail every test that compiles a function: what it needs is to be in the store",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Have every farm of this run, and of programs that its tests start, use one store."""
    store = _store(config)
    environment = pytest.MonkeyPatch()
    config.add_cleanup(environment.undo)
    environment.setenv("FARM_CACHE_DIR", str(store))
    default_farm().configure(cache_dir=store)
    plugin = Plugin(config, store, no_compile=bool(config.getoption("--farm-no-compile")))
    config.pluginmanager.register(plugin, "farm-run")


def _store(config: pytest.Config) -> Path:
    chosen, cache = config.getoption("--farm-cache"), getattr(config, "cache", None)
    if chosen:
        return Path(chosen).absolute()
    known = default_farm().config.cache_dir
    if known != default_cache_dir() or cache is None:  # pytest runs without its cache directory
        return known
    return Path(cache.mkdir("farm")) / "store"  # which the farm makes, private as it wants it
