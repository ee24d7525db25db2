"""A pytest plugin: one store for all tests of a run, and a look at what they compiled.

    pytest -p farm.testing                       # or, in pytest's configuration: addopts = "-p farm.testing"
    pytest -p farm.testing --farm-no-compile     # what compiles fails: in CI, after a prewarm

The store lies in pytest's cache directory, or where `--farm-cache` says, and is kept for the next run; processes of
pytest-xdist share it. FARM_CACHE_DIR, if it is set, comes before pytest's cache directory.
"""

from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

from farm.config import default_cache_dir
from farm.front import ends
from farm.front.default import default_farm
from farm.front.farm import Farm
from farm.observe.stats import Counters

WAIT_S: Final = 120.0
"""How long `--farm-no-compile` waits for what a test left compiling, so that no other test is blamed. A guess."""
SUMMED: Final = ("loaded", "compiled", "local", "failed", "saved_s", "compile_s")
OUTPUT: Final = "farm_compiles"
"""Under this name a worker of pytest-xdist tells its sums."""


class Plugin:
    """The hooks of one run. Counters are right as soon as a wait has ended; events would come a little later."""

    def __init__(self, config: pytest.Config, store: Path, *, no_compile: bool) -> None:
        self.config, self.store, self.no_compile = config, store, no_compile
        self._counters: list[Counters] = []
        """Of every farm there was: a farm that a test has made and dropped did its compiles all the same."""
        self._elsewhere: list[dict[str, float]] = []
        self._stop_watching = ends.watch(lambda farm: self._counters.append(farm.record.counters))

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
        before = self._compiles()
        result = yield
        self._wait()
        compiled = self._compiles() - before
        if compiled:
            lines = "\n".join(f"  {function} {where}" for function, where in sorted(compiled))
            pytest.fail(
                f"--farm-no-compile: not in the store {self.store}, and so compiled:\n{lines}\n"
                "Run the tests once without the option, or fill the store with `farm prewarm`.",
                pytrace=False,
            )
        return result

    def _wait(self) -> None:
        for farm in ends.farms():
            if isinstance(farm, Farm) and not farm.closed and not farm.wait(WAIT_S):
                pytest.fail(f"a compile of this test has not ended within {WAIT_S:g} s: {farm!r}", pytrace=False)

    def _compiles(self) -> Counter[tuple[str, str]]:
        """How often each function was compiled, and where."""
        found: Counter[tuple[str, str]] = Counter()
        for counters in self._counters:
            for name, one in counters.stats().per_function.items():
                found[name, "in a worker"] += one.compiled
                found[name, "in this process"] += one.local
        return found

    def _sums(self) -> dict[str, float]:
        all_stats = [counters.stats() for counters in self._counters]
        return {name: sum(getattr(stats, name) for stats in all_stats) for name in SUMMED}

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell the master of pytest-xdist what this process did."""
        for farm in ends.farms():
            if isinstance(farm, Farm) and not farm.closed:
                farm.wait(WAIT_S)
        self._stop_watching()
        output = getattr(self.config, "workeroutput", None)
        if output is not None:
            output[OUTPUT] = self._sums()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Hear from a worker of pytest-xdist; one that crashed says nothing."""
        self._elsewhere.append(getattr(node, "workeroutput", {}).get(OUTPUT, {}))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """One line: what was loaded and saved, what was compiled."""
        parts = (self._sums(), *self._elsewhere)
        sums = {name: sum(part.get(name, 0) for part in parts) for name in SUMMED}
        if not any(sums.values()):
            return
        failed = f", {sums['failed']} failed" if sums["failed"] else ""
        terminalreporter.write_line(
            f"farm: {sums['loaded']} loaded ({sums['saved_s']:.1f} s of compiling saved), "
            f"{sums['compiled'] + sums['local']} compiled ({sums['compile_s']:.1f} s){failed}; store: {self.store}"
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
