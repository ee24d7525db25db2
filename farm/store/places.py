"""The directories of one store, opened one below the other: what was judged is what is used.

Guarantees: the root is judged at each use, by its descriptor, and what lies in it is reached from that descriptor.
So a root that is exchanged after it was judged, by whoever may rename it, is not used; and as below it no symbolic
link is followed, nothing outside is read, written or removed. The root itself may be reached through links: its path
is resolved when the store is opened.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from farm.errors import StoreRefused
from farm.job.key import CompileKey
from farm.store.artifact import close
from farm.store.trust import Rule

SUFFIX: Final = ".farm"
TEMPORARY: Final = "tmp"
QUARANTINE: Final = "quarantine"
LOCKS: Final = "locks"

# O_PATH: a directory that may be searched and not listed is opened too.
WALK: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

README: Final = """\
This directory is a cache of numba-farm: machine code that numba compiled, one file per function and types.

It may be deleted at any time, as a whole or in part; what is missing is compiled again.
`farm cache stats` measures it, `farm cache clear` empties it.
Files are loaded as code. Keep the directory closed to everyone else (chmod 700).
"""


class Places:
    """The names inside one store, and the way to them.

    Parameters
    ----------
    root
        The directory, resolved.
    version
        The directory of a format version in it.
    rule
        How the root is judged.
    """

    def __init__(self, root: Path, version: str, rule: Rule) -> None:
        self.root = root
        self.base = root / version
        self.rule = rule

    def entry(self, key: CompileKey) -> Path:
        """The path of an artifact, for people: what opens it goes by `opened`."""
        return self.base / key.hex[:2] / file_name(key)

    def lock(self, key: CompileKey) -> Path:
        """The lock file of a key."""
        return self.base / LOCKS / f"{key.hex}.lock"

    @contextmanager
    def opened(self, *names: str, make: bool = False) -> Iterator[int]:
        """A descriptor of the directory of these names below the base, for the block.

        Parameters
        ----------
        make
            Make what is missing. Asked at every write, since a user may delete the cache at any time.

        Raises
        ------
        StoreRefused
            If the root is not to be trusted, or something below it is a symbolic link.
        OSError
            FileNotFoundError if it is not there.
        """
        way = (self.base.name, *names)
        descriptor = self._open_root(make)
        try:
            for depth in range(len(way)):
                below = self._open_below(descriptor, way[: depth + 1], make)
                close(descriptor)
                descriptor = below
                if depth == 0 and not self.rule.private:
                    self.rule.judge(self.base, os.fstat(descriptor))
            yield descriptor
        finally:
            close(descriptor)

    def check(self) -> None:
        """Judge the root, and the base of a store that is only read. Raises as `opened` does."""
        if self.rule.private:
            close(self._open_root(make=False))
        else:
            with self.opened():
                pass

    def write(self, directory: int, name: str, data: bytes, *, fsync: bool = False, mode: int | None = None) -> None:
        """Make a new file in an opened directory, open to whom the rule says; no other is touched. Raises OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(name, flags, 0o600, dir_fd=directory)
        try:
            if self.rule.gid is not None:
                os.fchown(descriptor, -1, self.rule.gid)
            os.fchmod(descriptor, self.rule.file_mode if mode is None else mode)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if fsync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def append(self, directory: int, name: str, data: bytes) -> int:
        """Add bytes to the end of a file in an opened directory, at once; make it if need be. Gives its size then.

        Nobody's bytes come between: the system appends one write as a whole. Raises OSError.
        """
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            descriptor = os.open(name, flags, dir_fd=directory)
        except FileNotFoundError:
            with suppress(FileExistsError):  # somebody else has just made it
                self.write(directory, name, b"", mode=self.rule.lock_mode)
            descriptor = os.open(name, flags, dir_fd=directory)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file", name)
            os.write(descriptor, data)
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def entries(self, base: int) -> Iterator[tuple[str, str, os.stat_result]]:
        """(directory, name, status) of every artifact file below the opened base."""
        for directory in names_in(base):
            if len(directory) == 2:
                with suppress(OSError), walk(base, directory) as descriptor:
                    for name, status in files_in(descriptor, SUFFIX):
                        yield directory, name, status

    def _open_root(self, make: bool) -> int:
        try:
            try:
                descriptor = os.open(self.root, WALK)
            except FileNotFoundError:
                if not make:
                    raise
                self.root.parent.mkdir(parents=True, exist_ok=True)
                self._make(str(self.root), None)
                descriptor = os.open(self.root, WALK)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.EEXIST, errno.ELOOP):
                raise
            status = os.lstat(self.root)  # raises where it is a parent that is no directory
            raise StoreRefused(
                str(self.root),
                "it is a symbolic link" if stat.S_ISLNK(status.st_mode) else "it is not a directory",
                "move it away or set another directory",
            ) from None
        try:
            self.rule.judge(self.root, os.fstat(descriptor))
        except BaseException:
            close(descriptor)
            raise
        return descriptor

    def _open_below(self, parent: int, way: tuple[str, ...], make: bool) -> int:
        """The last directory of a way from the root; `parent` is the one before."""
        name = way[-1]
        try:
            return os.open(name, WALK, dir_fd=parent)
        except FileNotFoundError:
            if not make:
                raise
            self._make(name, parent)
            if len(way) == 1:
                self._explain(parent)
            return os.open(name, WALK, dir_fd=parent)
        except OSError:
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                path = self.root.joinpath(*way)
                remedy = "remove it; the whole cache directory may be a link"
                raise StoreRefused(str(path), "it is a symbolic link", remedy) from None
            raise

    def _make(self, name: str, parent: int | None) -> None:
        """Make a directory, closed, and then open it as the rule says."""
        try:
            os.mkdir(name, 0o700, dir_fd=parent)
        except FileExistsError:
            return
        descriptor = os.open(name, LIST | os.O_NOFOLLOW, dir_fd=parent)
        try:
            if self.rule.gid is not None:
                os.fchown(descriptor, -1, self.rule.gid)
            os.fchmod(descriptor, self.rule.directory_mode)
        finally:
            close(descriptor)

    def _explain(self, root: int) -> None:
        """Leave a text beside a new base, for whoever finds the directory; nothing if that cannot be."""
        with suppress(OSError):
            self.write(root, "README.txt", README.encode())


def file_name(key: CompileKey) -> str:
    """An artifact's name in its directory."""
    return f"{key.hex}{SUFFIX}"


@contextmanager
def walk(parent: int, name: str) -> Iterator[int]:
    """A descriptor of a directory in an opened one, for the block. A symbolic link is an OSError."""
    descriptor = os.open(name, WALK, dir_fd=parent)
    try:
        yield descriptor
    finally:
        close(descriptor)


def names_in(directory: int) -> list[str]:
    """The names in an opened directory; none if it cannot be listed."""
    try:
        descriptor = os.open(".", LIST, dir_fd=directory)
    except OSError:
        return []
    try:
        return os.listdir(descriptor)
    except OSError:
        return []
    finally:
        close(descriptor)


def files_in(directory: int, suffix: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Regular files in an opened directory with their status; none of them is followed."""
    for name in names_in(directory):
        if name.endswith(suffix):
            with suppress(OSError):
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    yield name, status


def remove(directory: int, name: str) -> bool:
    """Remove a file from an opened directory; False if that is not possible, or somebody else did."""
    try:
        os.unlink(name, dir_fd=directory)
    except OSError:
        return False
    return True
