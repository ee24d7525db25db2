"""The board: a directory in which the fronts of one user post what they do, one small file each.

    $XDG_RUNTIME_DIR/farm/<pid>-<number>.json, or else <temporary directory>/numba-farm-<uid>/<pid>-<number>.json

Guarantees: a file is replaced as a whole, so that a reader sees the old content or the new one. A directory is used
only if it belongs to this user and is closed to everyone else, which is looked at through its descriptor; no symbolic
link is followed. What cannot be posted is not: nobody is told, and nothing is raised. A reader takes no notice of the
files of processes that are gone, and removes them: a process is the same one if its start time is.

It does not know what is posted, but for the fields of `Author`.
"""

import contextlib
import json
import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from farm.config import runtime_dirs

VERSION: Final = 1
"""Of what is posted. A reader leaves other versions alone."""
SUFFIX: Final = ".json"
NEW: Final = ".new"
SIZE_MAX_BYTES: Final = 1 << 20
"""Fronts post a few kilobytes; what is larger was put there by somebody else, and is not read."""
DIRECTORY: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | os.O_CLOEXEC
FILE: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | os.O_CLOEXEC
WORKS_HERE: Final = hasattr(os, "O_NOFOLLOW") and os.open in os.supports_dir_fd
"""Elsewhere nothing is posted: a directory that cannot be judged by its descriptor is not used."""


@dataclass(frozen=True, slots=True)
class Author:
    """Who posts: a process id alone is used again by the next process.

    Parameters
    ----------
    started
        When the process began, as its system tells it: compared, and never read.
    boot, ids
        Which run of the machine, and which set of process ids (a container has its own): "" where nobody knows.
    """

    pid: int
    started: str
    boot: str = ""
    ids: str = ""

    @classmethod
    def this_process(cls) -> "Author":
        """The process that asks."""
        pid = os.getpid()
        return cls(pid, start_of(pid) or "", _boot(), _ids())

    @property
    def lives(self) -> bool | None:
        """Whether it is there; None if that cannot be seen from here, as it is in another container."""
        if self.boot != _boot():
            return False
        if self.ids != _ids():
            return None
        return start_of(self.pid) == self.started


def start_of(pid: int) -> str | None:
    """When a process began, in its system's own words; None if there is none, or nothing but its exit code."""
    if sys.platform == "linux":
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                # The name, in parentheses, may hold anything; the state is the first field after it.
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            return None
        return None if fields[0] in (b"Z", b"X") else fields[19].decode()
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else repr(process.create_time())
    except psutil.Error:
        return None


def _boot() -> str:
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
    return ""


def _ids() -> str:
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


class Board:
    """The directories of this user, the better one first.

    Parameters
    ----------
    places
        (a directory that is there, whether it must be this user's, the name of the board in it)
    """

    def __init__(self, places: Sequence[tuple[Path, bool, str]]) -> None:
        self._places = tuple(places)

    @classmethod
    def of_this_user(cls) -> "Board":
        """Where the environment says that it is."""
        if not WORKS_HERE:
            return cls(())
        own, temporary = runtime_dirs()
        # Of another user after `sudo -E`: what is made there now would be in that user's way.
        places = [] if own is None else [(own, True, "farm")]
        return cls([*places, (temporary, False, f"numba-farm-{os.geteuid()}")])

    def __repr__(self) -> str:
        return " or ".join(str(parent / name) for parent, _, name in self._places) or "nowhere"

    def post(self, name: str, author: Author, content: Mapping[str, Any]) -> bool:
        """Put the content there under this name, in place of what was there before. False if that cannot be."""
        data = json.dumps({"version": VERSION, "author": asdict(author), **content}).encode()
        with contextlib.suppress(OSError, ValueError):
            for directory in self._directories(make=True):
                self._replace(directory, name + SUFFIX, data)
                return True
        return False

    def remove(self, name: str) -> None:
        """Take it away, if it is there."""
        for directory in self._directories(make=False):
            _unlink(directory, name + SUFFIX)
            _unlink(directory, name + SUFFIX + NEW)

    def read(self) -> list[dict[str, Any]]:
        """What living processes have posted, in the order of their ids. What the dead have left is removed."""
        found = []
        for directory in self._directories(make=False):
            with contextlib.suppress(OSError):
                for name in os.listdir(directory):
                    content = self._content(directory, name)
                    if content is not None:
                        found.append(content)
        return sorted(found, key=lambda one: (one["author"]["pid"], one.get("number", 0)))

    def _content(self, directory: int, name: str) -> dict[str, Any] | None:
        if name.endswith(SUFFIX + NEW):  # of who died in the middle of a post, if there is no such process
            pid = name.partition("-")[0]
            if pid.isascii() and pid.isdigit() and start_of(int(pid)) is None:
                _unlink(directory, name)
            return None
        content = _read(directory, name) if name.endswith(SUFFIX) else None
        try:
            if not isinstance(content, dict) or content["version"] != VERSION:
                return None
            author = Author(**content["author"])
            if not isinstance(author.pid, int):
                return None
        except (KeyError, TypeError):
            return None
        if author.lives is False:
            _unlink(directory, name)
        return content if author.lives else None

    def _directories(self, *, make: bool) -> Iterator[int]:
        """Descriptors of what may be used, each for one turn of the loop."""
        for parent, own, name in self._places:
            with contextlib.suppress(OSError), _opened(parent) as above:
                if own and os.fstat(above).st_uid != os.geteuid():
                    continue
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=above)
                descriptor = os.open(name, DIRECTORY, dir_fd=above)
                try:
                    status = os.fstat(descriptor)
                    if status.st_uid == os.geteuid() and not status.st_mode & 0o077:
                        yield descriptor
                finally:
                    os.close(descriptor)

    @staticmethod
    def _replace(directory: int, name: str, data: bytes) -> None:
        new = name + NEW
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | FILE, 0o600, dir_fd=directory)
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
            finally:
                os.close(descriptor)
            os.replace(new, name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError:
            _unlink(directory, new)
            raise


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    # The parent itself may be reached through a link, as /tmp is on some systems.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read(directory: int, name: str) -> object:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        descriptor = os.open(name, os.O_RDONLY | FILE, dir_fd=directory)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and status.st_size <= SIZE_MAX_BYTES:
                return json.loads(file.read(SIZE_MAX_BYTES))
    return None


def _unlink(directory: int, name: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=directory)
