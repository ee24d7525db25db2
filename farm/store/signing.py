"""The signing key: who may have written what we load, where the directory's own modes are not enough.

Guarantees: the key is read from a file that only its owner can read, and goes nowhere else. It has no repr,
does not pickle, and is no attribute of anything that does: what travels to a worker is the file's path, and
the worker reads it under the same rules. Whatever is wrong with the file is a SigningKeyRefused.

The signature is an HMAC-SHA-256. It says that somebody who has the key wrote the bytes, and nothing about
when: an older artifact of the same key, put back, is that key's artifact still.
"""

import errno
import hashlib
import hmac
import os
import stat
from pathlib import Path
from typing import Final, NoReturn

from farm.errors import SigningKeyRefused

SIGNATURE_BYTES: Final = 32
UNSIGNED: Final = bytes(SIGNATURE_BYTES)
"""What stands in the place of a signature where there is none. No key gives it: that is as likely as guessing one."""
KEY_MIN_BYTES: Final = 16
KEY_MAX_BYTES: Final = 1 << 16
"""A guess: what is larger is another file, named by mistake."""


class SigningKey:
    """A key that was read. It signs, and it compares; nothing gets it out again."""

    __slots__ = ("_keyed",)

    def __init__(self, secret: bytes) -> None:
        # The keyed state, not the bytes: each signature continues a copy of it.
        self._keyed = hmac.new(secret, digestmod=hashlib.sha256)

    def sign(self, data: bytes) -> bytes:
        """The signature of some bytes."""
        keyed = self._keyed.copy()
        keyed.update(data)
        return keyed.digest()

    def accepts(self, data: bytes, signature: bytes) -> bool:
        """Whether the signature was made with this key. The time it takes does not tell how much of it was right."""
        return hmac.compare_digest(self.sign(data), signature)

    def __repr__(self) -> str:
        return "<SigningKey>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a signing key does not travel: send the path of its file")


def read_key(path: Path) -> SigningKey:
    """The key in a file: its bytes as they are, a line end included. Raises SigningKeyRefused."""
    try:
        # O_NONBLOCK: opening a named pipe must not wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise SigningKeyRefused(str(path), "it does not exist", _making(path)) from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise SigningKeyRefused(str(path), "it is a symbolic link", "name the file itself") from None
        raise SigningKeyRefused(str(path), str(error.strerror), "name a file that you can read") from None
    try:
        status = os.fstat(descriptor)
        _check(path, status)
        secret = os.read(descriptor, status.st_size)
        if len(secret) == status.st_size:
            return SigningKey(secret)
        del secret  # cut while it was read; a traceback shows what its frames hold
    except OSError as error:
        raise SigningKeyRefused(str(path), str(error.strerror), "name a file that you can read") from None
    finally:
        os.close(descriptor)
    raise SigningKeyRefused(str(path), "it changed while it was read", "try again")


def _check(path: Path, status: os.stat_result) -> None:
    """Judge the open file, so that what was judged is what is read."""
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISREG(status.st_mode):
        raise SigningKeyRefused(str(path), "it is not a regular file", _making(path))
    if status.st_uid not in (os.geteuid(), 0):
        remedy = f"run: chown {os.geteuid()} {path}"
        raise SigningKeyRefused(str(path), f"it belongs to user {status.st_uid}", remedy)
    if mode & 0o077:
        remedy = f"run: chmod 600 {path}"
        raise SigningKeyRefused(str(path), f"its mode is {mode:04o}: it must be closed to group and others", remedy)
    if status.st_size < KEY_MIN_BYTES:
        problem = f"it has {status.st_size} bytes, a key has {KEY_MIN_BYTES} or more"
        raise SigningKeyRefused(str(path), problem, _making(path))
    if status.st_size > KEY_MAX_BYTES:
        raise SigningKeyRefused(str(path), f"it has {status.st_size} bytes: that is no key", "name the key's file")


def _making(path: Path) -> str:
    return f"run: (umask 077; head -c 32 /dev/urandom > {path})"
