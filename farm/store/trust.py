"""Who may write where we load from: loading an artifact runs it.

- The writable store: owned by this user, 0700. With a group: of that group, and closed to all others.
- A store that is only read: owned by this user or root, not writable by group or others.
- A file: the same owners and the same bits as for a store that is only read.

Directories and files are opened without following a symbolic link, then looked at through the descriptor, so that
what was judged is what is used (`places`). A path's parents are not judged. Whoever can rename them can put another
directory in our place, but cannot make one that belongs to us.
"""

import errno
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from farm.errors import StoreRefused
from farm.reasons import MissReason
from farm.store.artifact import Miss, close

FILE: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""O_NONBLOCK: opening a named pipe must not wait for its writer."""
UNMARKED: Final = getattr(os, "O_NOATIME", 0)
"""Reading marks a file as used once a day, on most file systems. Here a use is what the store says: whoever only looks
at what there is would else keep all of it from being trimmed. Refused for files of others."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How one store directory is judged.

    Parameters
    ----------
    private
        Whether the directory must be closed to everyone else: true for the one that is written.
    gid
        The group that is admitted to it, or None.
    """

    private: bool
    gid: int | None = None

    @property
    def directory_mode(self) -> int:
        """Permissions of a new directory; with a group, what is made inside belongs to the group."""
        return 0o700 if self.gid is None else 0o2770

    @property
    def file_mode(self) -> int:
        """Permissions of a new artifact."""
        return 0o600 if self.gid is None else 0o640

    @property
    def lock_mode(self) -> int:
        """Permissions of a new lock file, which all members must be able to open for writing."""
        return 0o600 if self.gid is None else 0o660

    def judge(self, path: Path, status: os.stat_result) -> None:
        """Raise StoreRefused if a directory is not to be trusted. `status` is that of its descriptor."""
        mode = stat.S_IMODE(status.st_mode)
        if not self._owner_is_fine(status, self.private):
            remedy = _remedy(path, f"chown {os.getuid()} {path}")
            raise StoreRefused(str(path), f"it belongs to user {status.st_uid}", remedy)
        if self.private and self.gid is None and mode & 0o077:
            raise StoreRefused(str(path), f"its mode is {mode:04o}, not 0700", _remedy(path, f"chmod 700 {path}"))
        if self.private and self.gid is not None and (mode & 0o007 or status.st_gid != self.gid):
            remedy = _remedy(path, f"chgrp {self.gid} {path} && chmod 2770 {path}")
            raise StoreRefused(str(path), f"its group is {status.st_gid} and its mode {mode:04o}", remedy)
        if not self.private and mode & 0o022:
            remedy = _remedy(path, f"chmod go-w {path}")
            raise StoreRefused(str(path), f"its mode is {mode:04o}: others can write to it", remedy)

    def open_file(self, name: str, directory: int) -> int | Miss:
        """An open descriptor of a file that is trusted, in an opened directory, or why there is none."""
        try:
            try:
                descriptor = os.open(name, FILE | UNMARKED, dir_fd=directory)
            except PermissionError:
                descriptor = os.open(name, FILE, dir_fd=directory)
        except FileNotFoundError:
            return Miss(MissReason.ABSENT)
        except OSError as error:
            if error.errno == errno.ELOOP:
                return Miss(MissReason.UNTRUSTED, f"{name} is a symbolic link")
            return Miss(MissReason.UNREADABLE, f"{name}: {error.strerror}")
        try:
            problem = self._problem_of_file(os.fstat(descriptor))
        except OSError as error:  # a file server that has let the file go: ESTALE
            close(descriptor)
            return Miss(MissReason.UNREADABLE, f"{name}: {error.strerror}")
        if problem is None:
            return descriptor
        close(descriptor)
        return Miss(MissReason.UNTRUSTED, f"{name} {problem}")

    def _problem_of_file(self, status: os.stat_result) -> str | None:
        if not stat.S_ISREG(status.st_mode):
            return "is not a regular file"
        if not self._owner_is_fine(status, False):
            return f"belongs to user {status.st_uid}"
        if status.st_mode & 0o022:
            return f"has mode {stat.S_IMODE(status.st_mode):04o}: others can write to it"
        return None

    def _owner_is_fine(self, status: os.stat_result, strictly_own: bool) -> bool:
        own = os.geteuid()
        if self.gid is not None:
            return status.st_gid == self.gid or status.st_uid == own
        return status.st_uid == own or (status.st_uid == 0 and not strictly_own)


def group_id(root: Path, group: str | None) -> int | None:
    """The number of a group that shares a store, or None for no group. Raises StoreRefused if there is none."""
    if group is None:
        return None
    import grp

    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise StoreRefused(str(root), f"there is no group {group!r}", "set an existing group, or none") from None


def _remedy(path: Path, command: str) -> str:
    """What to do about a refused directory. Nobody should be told to change the modes of /etc or /tmp."""
    try:
        names = os.listdir(path)
    except OSError:
        names = ["?"]
    if names and not any(re.fullmatch(r"v\d+", name) for name in names):
        return "it holds other things than a cache: set FARM_CACHE_DIR to a directory of your own"
    return f"run: {command}"
