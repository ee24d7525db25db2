"""A lower cache: a directory of artifacts that programs only read, for images and for machines that share one.

Made from a store by copying, or from a copy of one as it is. Whatever is not an artifact goes (locks, temporary
files, quarantine, the record of use); files are 0444 and directories 0755, so that they are accepted under any user
if they belong to root, and under their owner otherwise. Made by root, all of it is given to root.
"""

import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from farm.errors import StoreRefused
from farm.store.artifact import Miss, Stored, close
from farm.store.catalog import Entry, content
from farm.store.disk import VERSION, DiskStore
from farm.store.places import LIST, LOCKS, QUARANTINE, SUFFIX, TEMPORARY, file_name, files_in, names_in, remove
from farm.store.usage import NAME as USAGE

DIRECTORY_MODE: Final = 0o755
FILE_MODE: Final = 0o444


@dataclass(frozen=True, slots=True)
class Lower:
    """What there is in a lower cache now, and (name, why) of what was left out."""

    artifacts: int
    bytes: int
    left_out: tuple[tuple[str, str], ...]


def is_store(directory: Path) -> bool:
    """Whether there is a store of this format in a directory."""
    return (directory / VERSION).is_dir()


def copy(store: DiskStore, chosen: Iterable[Entry], directory: Path, step: Callable[[], object] = bool) -> list[str]:
    """Copy artifacts into a new store there. Gives the names of those that are not whole. Raises StoreUnwritable."""
    made, places, bad = DiskStore(directory), store.places, list[str]()
    for one in chosen:
        data = None if places is None else content(places, one.key)
        if not isinstance(data, bytes) or not isinstance(store.peek(one.key), Stored):
            bad.append(file_name(one.key))
        else:
            made.put_encoded(one.key, data)
        step()
    return bad


def open_up(directory: Path) -> Lower:
    """Make a store a lower cache, and look whether the farm takes it for one. Raises StoreRefused, or OSError."""
    root = os.open(directory, LIST | os.O_NOFOLLOW)
    try:
        _adopt(root, directory, DIRECTORY_MODE)
        for name, _ in files_in(root):
            _adopt_file(root, name, directory)
        base = os.open(VERSION, LIST | os.O_NOFOLLOW, dir_fd=root)
        try:
            _adopt(base, directory / VERSION, DIRECTORY_MODE)
            remove(base, USAGE)
            for name in names_in(base):
                if name in (LOCKS, QUARANTINE, TEMPORARY):
                    _remove_directory(base, name)
                elif len(name) == 2:
                    _open_shard(base, name, directory / VERSION / name)
        finally:
            close(base)
    finally:
        close(root)
    return _judge(directory)


def _open_shard(base: int, name: str, path: Path) -> None:
    shard = os.open(name, LIST | os.O_NOFOLLOW, dir_fd=base)
    try:
        _adopt(shard, path, DIRECTORY_MODE)
        for file, _ in files_in(shard, SUFFIX):
            _adopt_file(shard, file, path)
    finally:
        close(shard)


def _adopt_file(directory: int, name: str, path: Path) -> None:
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    try:
        _adopt(descriptor, path / name, FILE_MODE)
    finally:
        close(descriptor)


def _adopt(descriptor: int, path: Path, mode: int) -> None:
    """Give it the modes, and the owner if this is root. Raises StoreRefused if it is another user's."""
    own, status = os.geteuid(), os.fstat(descriptor)
    if own == 0 and status.st_uid != 0:
        os.fchown(descriptor, 0, 0)
    elif status.st_uid not in (own, 0):
        raise StoreRefused(str(path), f"it belongs to user {status.st_uid}", f"run: chown -R {own} {path}")
    if stat.S_IMODE(status.st_mode) != mode:
        os.fchmod(descriptor, mode)


def _remove_directory(base: int, name: str) -> None:
    with suppress(OSError):
        descriptor = os.open(name, LIST | os.O_NOFOLLOW, dir_fd=base)
        try:
            for file in names_in(descriptor):
                remove(descriptor, file)
        finally:
            close(descriptor)
        os.rmdir(name, dir_fd=base)


def _judge(directory: Path) -> Lower:
    """As a farm sees it that has it as a lower cache. Each artifact is read to its last byte."""
    nowhere = directory / "none" / "none"
    seen = DiskStore(nowhere, lower=(directory,))
    for problem in seen.problems:
        raise problem
    # The rule of a store that is only read is that of a lower one, and only a root says what keys it has.
    store = DiskStore(directory, readonly=True)
    number = size = 0
    bad = list[tuple[str, str]]()
    for key in sorted(store.stored_keys(), key=lambda one: one.hex):
        found = seen.peek(key)
        if isinstance(found, Miss):
            bad.append((file_name(key), found.reason.value))
        else:
            number += 1
            size += found.size_bytes
    return Lower(number, size, tuple(bad))
