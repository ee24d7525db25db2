"""Minutes of everything at once: programs that call functions at random, on one small store, while their workers and
foremen are killed, their files are flipped, cut and removed, and they themselves come and go.

Two programs stay for the whole time: one does nothing new once it has all its machine code, so that what it holds
(memory, threads, files, processes) must stay as it is; the other has functions compiled again all the time. Two more
come and go, half of them by SIGKILL. What they count is compared value by value with plain Python.
"""

import argparse
import contextlib
import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
from attack import SEED, Attack
from children import LEFT_S, MARK, ROOT, Outcome, Subject, left_behind
from soak_user import write

FRONT: Final = Path(__file__).parent / "soak_front.py"
STORE_MAX_BYTES: Final = 20 << 20
SILENT_MAX_S: Final = 90.0
"""A program that has said nothing for so long is stuck; it says something every second."""
END_MAX_S: Final = 60.0
"""One that is told to end must have ended by then. Running compiles get its exit grace, which is 2 s."""
LEAVES_S: Final = (5.0, 20.0)
"""A program that comes and goes leaves after so long."""
STEP_S: Final = (0.05, 0.4)
"""Something happens so often."""
WARM_SHARE: Final = 0.5
"""What the steady program holds is looked at from this share of the time on."""
GROWTH_MAX_MB: Final = 16
"""What the steady program may grow by after that. A guess: measured 0 to 5."""
LINKED_MAX_MB: Final = 0.4
"""What a loaded signature may cost: numba frees no machine code. Measured: 0.13."""
LOCAL_MAX_MB: Final = 4.0
"""What one that the program compiled itself may cost: the first ones load all of numba. Measured: 2.5."""
ROUND_S: Final = 20.0


@dataclass(slots=True)
class Seen:
    """What a program said, newest last."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    heard_at: float = field(default_factory=time.monotonic)


class Front:
    """One program in the soak."""

    def __init__(self, subject: Subject, place: Path, seed: int, recompiles: int) -> None:
        self.mark: Final = secrets.token_hex(8)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **subject.environment(place / "cache"), MARK: self.mark}
        if subject is Subject.FARM:
            environment |= {"FARM_CACHE_SIZE_MAX_BYTES": str(STORE_MAX_BYTES), "FARM_EXIT_GRACE_S": "2"}
        self.process: Final = subprocess.Popen(
            [sys.executable, str(FRONT), str(seed), str(recompiles)],
            cwd=place / "package",
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.seen: Final = Seen()
        self._had = 0
        self._readers = [threading.Thread(target=read) for read in (self._read_lines, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read_lines(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(json.JSONDecodeError):  # killed in the middle of it
                self.seen.lines.append(json.loads(line))
            self.seen.heard_at = time.monotonic()

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.seen.errors += self.process.stderr

    def tree(self) -> list[psutil.Process]:
        """The processes that it has started, nearest first."""
        with contextlib.suppress(psutil.Error):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def got_on(self) -> bool:
        """Whether machine code has come since this was last answered with yes, or nothing is being compiled.

        A program whose workers are killed faster than they compile is told of it by design: after five such ends of
        one job, its calls that wait raise.
        """
        farm = self.seen.lines[-1]["farm"] if self.seen.lines else {}
        come = sum(farm.get(name, 0) for name in ("compiled", "local"))
        if come <= self._had and farm.get("pending", 1):
            return False
        self._had = come
        return True

    def silent(self) -> bool:
        """Whether it must be taken for stuck."""
        return time.monotonic() - self.seen.heard_at > SILENT_MAX_S

    def kill(self) -> Outcome:
        """End it with SIGKILL: only what it leaves behind and what it said before count."""
        self.process.kill()
        return self._over(Outcome())

    def end(self) -> Outcome:
        """Have it end by itself."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            code = self.process.wait(END_MAX_S)
        except subprocess.TimeoutExpired:
            return self.stuck()
        return self._over(Outcome(killed=code < 0, raised=code > 0))

    def gone(self) -> Outcome:
        """It has ended though nobody told it to."""
        return self._over(Outcome(killed=self.process.wait() < 0, raised=self.process.wait() >= 0))

    def stuck(self) -> Outcome:
        """Have it say where its threads are, and end it."""
        self.process.send_signal(signal.SIGUSR1)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(LEFT_S)
        self.process.kill()
        return self._over(Outcome(stuck=1))

    def _over(self, outcome: Outcome) -> Outcome:
        self.process.wait()
        left = left_behind(self.mark)
        for reader in self._readers:
            reader.join(END_MAX_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]
        last = self.seen.lines[-1] if self.seen.lines else {}
        said = Outcome(tries=last.get("calls", 0), wrong=last.get("wrong", 0), raised=last.get("raised", 0))
        outcome += said + Outcome(left=left)
        if not outcome.clean:
            print(*last.get("tracebacks", ()), *self.seen.errors[-60:], sep="\n", file=sys.stderr)
        return outcome


class Chaos:
    """What happens to programs and files, chosen at random. Each method does one thing, if there is anything to do."""

    def __init__(self, subject: Subject, cache: Path, chance: random.Random) -> None:
        self._subject, self._cache, self._chance = subject, cache, chance
        self.done: Final[Counter[str]] = Counter()

    def step(self, fronts: list[Front]) -> None:
        """One thing."""
        ways: list[Callable[[list[Front]], bool]] = [self.flip, self.cut, self.remove, self.remove_directory]
        weights = [8, 8, 8, 1]
        if self._subject is Subject.FARM:
            ways += [self.kill_worker, self.kill_foreman, self.stop_foreman, self.leave_temporary]
            weights += [12, 2, 1, 2]
        way = self._chance.choices(ways, weights)[0]
        # What is chosen may be gone a moment later: others are at work.
        with contextlib.suppress(OSError, psutil.Error):
            self.done[way.__name__] += way(fronts)

    def flip(self, fronts: list[Front]) -> bool:
        file = self._file()
        if file is None or not (size := file.stat().st_size):
            return False
        with file.open("r+b") as stream:
            stream.seek(self._chance.randrange(size))
            byte = stream.read(1)
            stream.seek(-1, os.SEEK_CUR)
            stream.write(bytes([byte[0] ^ 1 << self._chance.randrange(8)]))
        return True

    def cut(self, fronts: list[Front]) -> bool:
        file = self._file()
        if file is None or not (size := file.stat().st_size):
            return False
        os.truncate(file, self._chance.randrange(size))
        return True

    def remove(self, fronts: list[Front]) -> bool:
        file = self._file()
        if file is None:
            return False
        file.unlink()
        return True

    def remove_directory(self, fronts: list[Front]) -> bool:
        """One of the store's directories, its locks perhaps, or all of it."""
        places = [self._cache, *self._cache.glob("v1/*/")] if self._subject is Subject.FARM else [self._cache]
        shutil.rmtree(self._chance.choice(places), ignore_errors=True)
        return True

    def leave_temporary(self, fronts: list[Front]) -> bool:
        """What somebody did not finish writing."""
        (self._cache / "v1" / "tmp" / f"elsewhere-{self._chance.randrange(100)}-half").write_bytes(b"half")
        return True

    def kill_worker(self, fronts: list[Front]) -> bool:
        return self._signal(fronts, self._chance.choice([signal.SIGKILL, signal.SIGTERM]), workers=True)

    def kill_foreman(self, fronts: list[Front]) -> bool:
        return self._signal(fronts, self._chance.choice([signal.SIGKILL, signal.SIGSEGV]), workers=False)

    def stop_foreman(self, fronts: list[Front]) -> bool:
        return self._signal(fronts, signal.SIGSTOP, workers=False)

    def _signal(self, fronts: list[Front], number: signal.Signals, *, workers: bool) -> bool:
        front = self._chance.choice(fronts)
        if not front.got_on():
            return False
        found = [one for one in front.tree() if (one.ppid() != front.process.pid) is workers]
        if not found:
            return False
        self._chance.choice(found).send_signal(number)
        return True

    def _file(self) -> Path | None:
        files = self._subject.files(self._cache)
        return self._chance.choice(files) if files else None


class Soak:
    """The programs, what is done to them, and what came of it."""

    STEADY: Final = 2
    """So many stay; the others come and go."""
    AT_ONCE: Final = 4

    def __init__(self, subject: Subject, place: Path, seed: int = SEED) -> None:
        self._subject, self._place, self._chance = subject, place, random.Random(seed)
        self.outcome = Outcome()
        self.chaos: Final = Chaos(subject, place / "cache", self._chance)
        self.store_max_bytes = 0
        write(place / "package", subject)
        self.fronts: Final[list[Front]] = []

    def run(self, seconds: float) -> None:
        """So many seconds of it, and the end of all programs."""
        try:
            for index in range(self.AT_ONCE):
                self.fronts.append(self._new(index))
            end, leaves_at = time.monotonic() + seconds, time.monotonic() + LEAVES_S[0]
            while (now := time.monotonic()) < end:
                for index, front in enumerate(self.fronts):
                    if front.process.poll() is not None:
                        self.outcome += front.gone()
                    elif front.silent():
                        self.outcome += front.stuck()
                    elif index >= self.STEADY and now >= leaves_at:
                        self.outcome += self._chance.choice([front.kill, front.end])()
                        self.chaos.done["program ended"] += 1
                        leaves_at = now + self._chance.uniform(*LEAVES_S)
                    else:
                        continue
                    self.fronts[index] = self._new(index)
                self.chaos.step(self.fronts)
                files = self._subject.files(self._place / "cache")
                self.store_max_bytes = max(self.store_max_bytes, sum(map(size, files)))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.fronts[0].process.wait(self._chance.uniform(*STEP_S))
        finally:
            for front in self.fronts:
                self.outcome += front.end()

    def _new(self, index: int) -> Front:
        recompiles = 2 if index and self._subject is Subject.FARM else 0
        return Front(self._subject, self._place, self._chance.randrange(1 << 30), recompiles)

    def leaks(self) -> list[str]:
        """What the programs that stayed held for longer than they should; after the run."""
        found = []
        for front in self.fronts[: self.STEADY]:
            lines = front.seen.lines[int(len(front.seen.lines) * WARM_SHARE) : -1]
            if not lines or not lines[0]["farm"]:
                continue
            first, last = lines[0], lines[-1]
            since = {name: number - first["farm"][name] for name, number in last["farm"].items()}
            linked, local = since["compiled"] + since["loaded"], since["local"]
            grown_mb = last["memory_mb"] - first["memory_mb"]
            if grown_mb > GROWTH_MAX_MB + linked * LINKED_MAX_MB + local * LOCAL_MAX_MB:
                found.append(f"memory grew by {grown_mb} MB with {linked} loads and {local} local compiles")
            for what, slack in (("threads", 1), ("files", 6), ("children", 2)):
                if last[what] > first[what] + slack:
                    found.append(f"{what} grew from {first[what]} to {last[what]}")
        return found


def rounds_of_it(subject: Subject, directory: Path, rounds: int) -> Outcome:
    """As an attack; what was held for too long counts as left behind."""
    one = Soak(subject, Path(tempfile.mkdtemp(dir=directory)) / "soak")
    one.run(rounds * ROUND_S)
    leaks = one.leaks()
    print(*leaks, sep="\n", end="", file=sys.stderr)
    return one.outcome + Outcome(left=len(leaks))


ATTACKS: Final = {
    "minutes of calls, kills and damage, four programs": Attack(rounds_of_it, 1, 30),
}
"""By what is tried."""


def size(file: Path) -> int:
    """Its bytes, or 0 if it has gone."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--subject", choices=[one.name for one in (Subject.FARM, Subject.NUMBA)], default="FARM")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="farm-soak-") as directory:
        one = Soak(Subject[options.subject], Path(directory) / "soak", options.seed)
        one.run(options.seconds)
    print(one.outcome, dict(one.chaos.done), f"store up to {one.store_max_bytes >> 20} MB", sep="\n")
    for front in one.fronts:
        for line in (front.seen.lines[int(len(front.seen.lines) * WARM_SHARE)], front.seen.lines[-1]):
            print({name: value for name, value in line.items() if name != "tracebacks"})
    print(*one.leaks(), sep="\n", end="")
    return 0 if one.outcome.clean and not one.leaks() else 1


if __name__ == "__main__":
    sys.exit(main())
