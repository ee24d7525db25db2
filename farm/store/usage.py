"""Usage: what programs got out of a store, as they have written it down themselves.

    v1/usage.jsonl    one JSON object a line: what one program has counted since its last line

Guarantees: a line is one append, so lines of several programs do not mix. What is damaged is skipped, and costs
nobody anything. Nothing is made where there is no store yet. The file is bounded: whoever finds it long puts one
line with all sums in its place, and so does every trim.

It is a record for people. A program that is killed takes with it what it had not written yet, and of two that
shorten the file at the same moment one may lose a line.
"""

import json
import os
import secrets
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from farm.errors import StoreRefused
from farm.reasons import MissReason
from farm.store.artifact import close
from farm.store.places import TEMPORARY, Places, remove
from farm.store.trust import FILE

NAME: Final = "usage.jsonl"
LINE_MAX_BYTES: Final = 4000
"""Below 4096, what a pipe takes at once and file systems write as one. A line has 0.3 KB."""
SHORTEN_AT_BYTES: Final = 1 << 18
"""A guess: a thousand programs."""
READ_MAX_BYTES: Final = 4 << 20
COUNTED: Final = ("programs", "loaded", "compiled", "local", "failed")
SPENT: Final = ("saved_s", "load_s", "compile_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What was counted. `loaded` are the hits; `misses` are by reason; `saved_s` what the hits would have taken."""

    programs: int = 0
    loaded: int = 0
    compiled: int = 0
    local: int = 0
    failed: int = 0
    saved_s: float = 0.0
    load_s: float = 0.0
    compile_s: float = 0.0
    misses: Mapping[MissReason, int] = field(default_factory=dict)
    since: float | None = None
    """When the first of it was written, in seconds since the epoch."""

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in (*COUNTED, *SPENT)) or any(self.misses.values())

    def __add__(self, other: "Usage") -> "Usage":
        sums = {name: getattr(self, name) + getattr(other, name) for name in (*COUNTED, *SPENT)}
        times = [at for at in (self.since, other.since) if at is not None]
        misses = Counter(self.misses) + Counter(other.misses)
        return Usage(**sums, misses=dict(misses), since=min(times, default=None))

    def since_then(self, before: "Usage") -> "Usage":
        """What was counted since `before`, which had counted from the same beginning."""
        changes = {name: max(0, getattr(self, name) - getattr(before, name)) for name in (*COUNTED, *SPENT)}
        return Usage(**changes, misses=dict(Counter(self.misses) - Counter(before.misses)))

    def line(self, now: float) -> bytes:
        """As one line of the file. It begins with a line end: the one before may be torn."""
        record: dict[str, object] = {"at": round(now if self.since is None else self.since, 3)}
        record |= {name: getattr(self, name) for name in COUNTED if getattr(self, name)}
        record |= {name: round(getattr(self, name), 3) for name in SPENT if getattr(self, name)}
        record["misses"] = {reason.name: number for reason, number in sorted(self.misses.items(), key=_by_name)}
        return b"\n" + json.dumps(record, separators=(",", ":")).encode() + b"\n"


def add(places: Places, usage: Usage, now: float) -> bool:
    """Write down what a program has counted. False if that cannot be, or there is no store. Never raises."""
    line = usage.line(now)
    if len(line) > LINE_MAX_BYTES:
        return False
    try:
        with places.opened() as base:
            size = places.append(base, NAME, line)
            if size > SHORTEN_AT_BYTES:
                _shorten(places, base)
    except (StoreRefused, OSError):
        return False
    return True


def total(places: Places) -> Usage:
    """What all programs have written down. Raises StoreRefused, or OSError if the store has gone."""
    with places.opened() as base:
        return _sum(_content(base)[0])


def shorten(places: Places) -> None:
    """Put one line in the place of many. Never raises."""
    with suppress(StoreRefused, OSError), places.opened() as base:
        _shorten(places, base)


def _shorten(places: Places, base: int) -> None:
    content, before = _content(base)
    if before is None or content.count(b"\n{") < 2:
        return
    temporary = f"usage-{os.getpid()}-{secrets.token_hex(8)}"
    with places.opened(TEMPORARY, make=True) as directory:
        try:
            places.write(directory, temporary, _sum(content).line(0.0), mode=places.rule.lock_mode)
            now = os.stat(NAME, dir_fd=base, follow_symlinks=False)
            # Somebody has written or shortened meanwhile: another time.
            if (now.st_ino, now.st_size) == (before.st_ino, before.st_size):
                os.replace(temporary, NAME, src_dir_fd=directory, dst_dir_fd=base)
                return
        except BaseException:
            remove(directory, temporary)
            raise
        remove(directory, temporary)


def _content(base: int) -> tuple[bytes, os.stat_result | None]:
    try:
        descriptor = os.open(NAME, FILE, dir_fd=base)
    except OSError:
        return b"", None
    try:
        status = os.fstat(descriptor)
        return (os.pread(descriptor, READ_MAX_BYTES, 0), status) if stat.S_ISREG(status.st_mode) else (b"", None)
    except OSError:
        return b"", None
    finally:
        close(descriptor)


def _sum(content: bytes) -> Usage:
    return sum(_records(content), Usage())


def _records(content: bytes) -> Iterator[Usage]:
    for line in content.split(b"\n"):
        if line:
            with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
                yield _record(json.loads(line))


def _record(record: "dict[str, object]") -> Usage:
    """Raises ValueError or the like for what is none."""
    misses = record.get("misses", {})
    if not isinstance(misses, dict):
        raise ValueError("misses are counted by their names")
    return Usage(
        **{name: int(_number(record.get(name, 0))) for name in COUNTED},
        **{name: float(_number(record.get(name, 0))) for name in SPENT},  # type: ignore[arg-type]
        misses={MissReason[name]: int(_number(number)) for name, number in misses.items()},
        since=float(_number(record["at"])),
    )


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
        raise ValueError(f"{value!r} is no number of things")
    return value


def _by_name(item: tuple[MissReason, int]) -> str:
    return item[0].name
