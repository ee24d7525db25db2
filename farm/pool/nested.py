"""The library of a worker's job, kept in the store: callees found there, compiled callees published there.

A callee's key is the one that the front computes when the callee itself is asked for with the same flags.
Never wait while holding a key: a callee's lock is tried once, and if it is taken the callee is compiled
and published all the same. Any error of the store costs a compile, never the job.

To verify, a callee that the store has is compiled all the same, under the names of the stored one, and compared: so
its callers get the names that they had, and what was stored of them can be compared too. Where the job asks for it
once more it gets what was compiled then: numba keeps one environment for each name, and a second compile under the
same names would write into it.
"""

import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from farm.errors import NotShippable
from farm.job.functor import key_parts
from farm.job.key import CompileKey
from farm.job.messages import Differs, Nested, Origin
from farm.job.outline import OUTLINE, outline, pack, type_text
from farm.port.compare import Sameness, compare
from farm.port.compile import Parts
from farm.port.library import Place, Request
from farm.port.symbolic import Difference
from farm.port.target import toolchain
from farm.reasons import DegradedReason, MissReason, RefusalReason
from farm.store.artifact import Artifact, Miss
from farm.store.disk import DiskStore, StoreUnwritable
from farm.store.lock import LockOutcome

LOCK_TIMEOUT_S: Final = 0.0
KEY_PARTS: Final = "key_parts"
SIGNATURE_MAX: Final = 400
"""Characters of a signature's text: types may hold types, and so on."""


class StoreLibrary:
    """The library of one job, over one store (None: callees are only counted), and what went through it."""

    def __init__(self, store: DiskStore | None, *, verify: bool = False) -> None:
        self.store = store
        self.verify = verify
        self.verified = 0
        self.differing: list[Differs] = []
        self._settled: dict[CompileKey, Parts | None] = {}
        """To verify: what was compared or published in this job, None for what could not be compared."""
        self.nested: list[Nested] = []
        self.misses: Counter[MissReason] = Counter()
        self._stayed: set[tuple[CompileKey, MissReason]] = set()
        self.degraded: dict[DegradedReason, str] = {}

    @property
    def served(self) -> bool:
        """Whether the job linked anything from the store."""
        return not self.verify and any(one.origin is Origin.STORE for one in self.nested)

    def __call__(self, request: Request) -> Place:
        """The callee's place, with its parts if the store has them."""
        place = _StorePlace(self, request)
        if self.store is None:
            return place
        try:
            place.described = key_parts(
                request.dispatcher, request.arguments, request.return_type, request.caller_flags
            )
            place.key = CompileKey.from_parts(place.described)
        except NotShippable as refusal:
            place.withheld = refusal.reason
        except Exception:  # the walk meets the user's objects, and what they do when they are looked at
            place.withheld = RefusalReason.UNKEYABLE
        else:
            place.take(self._settled.get(place.key) or self._found(place, self.store, place.key))
        return place

    def _found(self, place: "_StorePlace", store: DiskStore, key: CompileKey) -> Parts | None:
        return self.find(store, key) or place.claim(store, key)

    def find(self, store: DiskStore, key: CompileKey) -> Parts | None:
        """The parts under a key, bitcode included: a caller will link them."""
        found = store.get(key)
        if isinstance(found, Miss):
            self.missed(key, found.reason)
            return None
        bitcode = found.bitcode()
        if isinstance(bitcode, Miss):
            self.drop(store, key, bitcode)
            return None
        return Parts(dict(found.meta), found.code, bitcode, found.environment)

    def missed(self, key: CompileKey, reason: MissReason) -> None:
        """Count a miss: once, if a file that does not serve stays where it is and is met again with the lock held."""
        if reason is not MissReason.ABSENT:
            if (key, reason) in self._stayed:
                return
            self._stayed.add((key, reason))
        self.misses[reason] += 1

    def compared(self, function: str, signature: str, key: CompileKey, stored: Parts, again: Parts) -> None:
        """Take note of an artifact that was compiled again."""
        outcome = compare(stored, again)
        if isinstance(outcome, Sameness):
            self.verified += 1
        else:
            self.differs(function, signature, key, stored, outcome)

    def differs(
        self, function: str, signature: str, key: CompileKey, stored: Parts, differences: tuple[Difference, ...]
    ) -> None:
        """Take note of an artifact that is not what compiling it again gave."""
        made_under = key_told(stored.meta)
        self.differing.append(Differs(function, signature, key, made_under, differences))

    def settle(self, key: CompileKey, parts: Parts | None) -> None:
        """To verify: what a callee of this key is from now on, in this job."""
        if self.verify:
            self._settled[key] = parts

    def is_settled(self, key: CompileKey) -> bool:
        """Whether a callee of this key was met before in this job."""
        return key in self._settled

    def drop(self, store: DiskStore, key: CompileKey, miss: Miss) -> None:
        """Count an artifact that was found and does not serve, and set it aside if its bytes are bad."""
        self.misses[miss.reason] += 1
        store.note(key, miss)


class _StorePlace:
    """One callee's place in the store."""

    def __init__(self, library: StoreLibrary, request: Request) -> None:
        body = request.dispatcher.py_func
        self.parts: Parts | None = None
        self.symbol_base: int | None = None
        self._stored: Parts | None = None
        """What the compile is compared with."""
        self.key: CompileKey | None = None
        self.described: Mapping[str, bytes] = {}
        """What the key covers."""
        self.withheld: RefusalReason | None = None
        self._library = library
        self._function = f"{body.__module__}.{body.__qualname__}"
        self._body = body
        self._types = request.arguments, request.return_type
        self._signature = f"({', '.join(map(str, request.arguments))})"
        self._started = time.perf_counter()
        self._lock = ExitStack()

    def take(self, parts: Parts | None) -> None:
        """Link what was found; or compile it again to compare, if it was not met in this job."""
        key = self.key
        if parts is None or key is None or not self._library.verify or self._library.is_settled(key):
            self.parts = parts
            return
        self._stored, base = parts, parts.meta.get("symbol_base")
        self.symbol_base = base if isinstance(base, int) else None
        self._library.settle(key, None)

    def claim(self, store: DiskStore, key: CompileKey) -> Parts | None:
        """Try for the lock, which a top-level job for the same key then respects; look again if it is ours."""
        if store.readonly:
            return None
        outcome = self._lock.enter_context(store.lock(key, LOCK_TIMEOUT_S))
        if outcome is LockOutcome.ACQUIRED and store.contains(key):
            return self._library.find(store, key)
        return None

    def loaded(self) -> None:
        self._note(Origin.STORE)

    def unusable(self, reason: MissReason, detail: str) -> None:
        if self._library.store is not None and self.key is not None:
            self._library.drop(self._library.store, self.key, Miss(reason, detail))

    def publish(self, parts: Parts) -> None:
        store, key = self._library.store, self.key
        if self._stored is not None and key is not None:
            self._library.compared(self._function, self._signature, key, self._stored, parts)
            self._library.settle(key, parts)
            self._note(Origin.STORE)
            return
        size = 0
        if store is not None and key is not None and not store.readonly:
            about = About(self._body, *self._types, self.described)
            artifact = as_artifact(key, parts, time.perf_counter() - self._started, about)
            try:
                store.put(artifact)
            except StoreUnwritable as problem:
                self._library.degraded.setdefault(problem.reason, str(problem))
            else:
                self._library.settle(key, parts)
                size = sum(map(len, (parts.code, parts.bitcode, parts.environment)))
        self._note(Origin.COMPILED, size)

    def withhold(self, refusal: NotShippable) -> None:
        self.withheld = refusal.reason
        self._note(Origin.COMPILED)

    def close(self) -> None:
        self._lock.close()

    def _note(self, origin: Origin, size: int = 0) -> None:
        self._library.nested.append(Nested(self._function, self._signature, origin, self.withheld, size))


@dataclass(frozen=True, slots=True)
class About:
    """What an artifact tells of itself, for people and for `farm why`: whose it is, and what its key covers."""

    body: Any
    """The Python function."""
    arguments: tuple[Any, ...]
    return_type: Any | None
    """As it was asked for, not as it came out."""
    described: Mapping[str, bytes]

    def told(self, now: float) -> dict[str, Any]:
        """As plain values. Times and texts: they enter no key, and verifying compares none of them."""
        return {
            "function": f"{self.body.__module__}.{self.body.__qualname__}",
            "module": str(self.body.__module__),
            "signature": f"({', '.join(type_text(one, SIGNATURE_MAX) for one in self.arguments)})"[:SIGNATURE_MAX],
            "package": str(self.body.__module__).partition(".")[0],
            "made_at": round(now, 3),
            "versions": toolchain(),
            OUTLINE: pack(outline(self.described, self.arguments, self.return_type)),
        }


def as_artifact(key: CompileKey, parts: Parts, compile_s: float, about: About) -> Artifact:
    """Compiled parts as the store takes them, with what the key is made of: 2 KB, for messages only."""
    meta = parts.meta | {"compile_s": compile_s, KEY_PARTS: dict(key.parts)} | about.told(time.time())
    return Artifact(key, meta, parts.code, parts.bitcode, parts.environment)


def key_told(meta: Mapping[str, Any]) -> CompileKey | None:
    """The key that an artifact says it was made under."""
    try:
        return CompileKey.from_digests(meta[KEY_PARTS]) if meta[KEY_PARTS] else None
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
