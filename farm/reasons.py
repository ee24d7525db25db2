"""The closed sets of reasons: why a lookup missed, why a job was refused, how the farm degraded.

Nothing in the farm is silent. Whatever does not go the straight way carries a member of one of these
enums into events, `farm.stats()` and `farm.explain()`. A member's value is the text that people read.
"""

from enum import Enum


class MissReason(Enum):
    """Why a lookup in the store did not give an artifact. Each costs a compile, never a call."""

    ABSENT = "no artifact under this key"
    NEWER_FORMAT = "the store was written by a newer format version"
    BAD_MAGIC = "the file is not an artifact"
    TRUNCATED = "the file is shorter than its header says"
    EMPTY = "the file is empty"
    KEY_MISMATCH = "the file belongs to another key"
    DIGEST_MISMATCH = "a section's digest does not match its bytes"
    UNREADABLE = "the file could not be read"
    UNTRUSTED = "the file or its directory is owned or writable by someone else"
    UNSIGNED = "the artifact is not signed, and a signing key is set"
    WRONGLY_SIGNED = "the artifact is signed with another key"
    SYMBOL_MISSING = "a symbol the machine code needs has no address here"
    CPU_LACKS_FEATURE = "this CPU lacks a feature the machine code needs"
    LOAD_FAILED = "the artifact could not be turned into a function"


class RefusalReason(Enum):
    """Why a function is compiled in the front instead of in a worker."""

    UNKEYABLE = "the function reaches something without stable content"
    TOO_LARGE = "the function, or what its compile gave, is too large to be sent to another process"
    NOT_PICKLABLE = "the function reaches something that cannot be pickled"
    ARRAY_TOO_LARGE = "the function reaches a global array above numba's limit for constants"
    CLASS_NOT_BY_NAME = "the function reaches a class that its module does not hold under its name"
    EXTENSION_NOT_SHIPPABLE = "the function needs a numba extension that a worker cannot repeat"
    KEY_MISMATCH = "the worker rebuilt a function with another key: code on disk is not code in memory"
    RESTORE_FAILED = "the worker could not rebuild the function"
    TYPING_WITH_EXTENSIONS = "typing failed in the worker while numba extensions were in play"
    LIFTED_LOOPS = "the result contains lifted loops"
    OBJECT_MODE = "the result is object mode code"
    DYNAMIC_GLOBALS = "the machine code holds addresses of this process"
    UNRESOLVED_SYMBOLS = "the machine code has unresolved recursive references"
    NOT_SERIALISABLE = "the compiled result cannot be serialised"
    LOAD_FAILED = "the artifact could not be loaded in the front"
    HAND_OVER_FAILED = "preparing the job raised an error"
    NO_POOL = "no worker processes are available"
    POOL_STARTING = "the pool was still starting, and a caller waited"


class DegradedReason(Enum):
    """How the farm works below its best. The program's results are the same, only slower."""

    POOL_UNAVAILABLE = "worker processes could not be started"
    FOREMAN_LOST = "the foreman process ended and is being restarted"
    STORE_UNREADABLE = "the cache directory could not be read"
    STORE_UNWRITABLE = "the cache directory could not be written"
    STORE_REFUSED = "the cache directory, or the signing key's file, is not private"
    STORE_NEWER_FORMAT = "the store was written by a newer farm and counts as empty"
    DISK_FULL = "the disk is full"
    DELIVERED_INLINE = "an artifact came back over the pipe because it could not be stored"
    LOCK_TIMED_OUT = "a lock of the store was held for too long"
    LISTENER_DROPPED = "a listener raised and was dropped"
    FORKED_UNLOCKED = "the process forked while a compile was running"
