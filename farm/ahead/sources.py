"""Sources: where a prewarm learns what to compile. Each gives requests; what cannot be asked for is one with a problem.

A further kind is one more class with these two methods.
"""

import contextlib
import importlib
import json
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from farm.ahead import manifest, recording
from farm.ahead.manifest import ManifestEntry
from farm.ahead.program import Program
from farm.errors import FarmError
from farm.front.pending import Asked
from farm.port import describe, flagtext
from farm.port.dispatch import parse_signature
from farm.port.failure import headline
from farm.port.naming import PROGRAM, find, names_of, program_name
from farm.port.typetext import NotReadable, NotWritable, read_signature, write_signature

SHIPPED: Path = Path("farm-manifest.jsonl")
"""What a manifest is called that lies in a package and belongs to it."""


class Problem(Enum):
    """Why a request cannot be made."""

    NOT_FOUND = "not found"
    NOT_REPLAYABLE = "cannot be asked for"
    BROKEN = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One function with one signature, ready to be asked for unless there is a problem.

    An `optional` one is skipped if it does not compile: nobody is known to need it.
    """

    function: str
    signature: str
    dispatcher: Any = None
    arguments: tuple[Any, ...] = ()
    return_type: Any | None = None
    caller_flags: Any | None = None
    problem: Problem | None = None
    detail: str = ""
    optional: bool = False


class Source(Protocol):
    """Something that says what to compile."""

    def prepare(self) -> Sequence[Request]:
        """Import what it names. What went wrong with that is given back."""

    def requests(self) -> Iterator[Request]:
        """What is to be compiled, once everything is imported."""


@dataclass(slots=True)
class ManifestSource:
    """The entries of a manifest. Those of `__main__` belong to one program, which must be there."""

    path: Path
    program: Program | None = None
    _entries: tuple[ManifestEntry, ...] = ()

    def prepare(self) -> Sequence[Request]:
        """Raises ManifestError."""
        self._entries = manifest.read(self.path)
        return ()

    def requests(self) -> Iterator[Request]:
        for entry in self._entries:
            yield request_of(entry, self.program)


def request_of(entry: ManifestEntry, program: Program | None = None) -> Request:
    """The request that an entry stands for. Imports the modules that it names, and unpickles what it carries."""
    label = f"({entry.signature.removeprefix('(').removesuffix(')')})"

    def problem(kind: Problem, detail: str) -> Request:
        return Request(function=entry.function, signature=label, problem=kind, detail=detail)

    if entry.reason is not None:
        return problem(Problem.NOT_REPLAYABLE, entry.reason)
    if entry.program is not None:
        here = program_name() if program is None else program.name
        if here != entry.program:
            option = entry.program if entry.program.startswith("-m ") else f"--script {entry.program}"
            return problem(Problem.NOT_FOUND, f"it belongs to the main module of a program: give {option}")
    try:
        dispatcher = find(entry.function)
    except LookupError as error:
        return problem(Problem.NOT_FOUND, str(error))
    except Exception as error:  # an import runs what it likes
        return problem(Problem.BROKEN, f"importing it ended in {headline(error)}")
    if describe.dispatcher_parts(dispatcher) is None:
        return problem(Problem.NOT_FOUND, "what has this name is no jitted function")
    try:
        arguments, return_type = read_signature(entry.signature, entry.returns, entry.pickles)
        flags = None if entry.flags is None else flagtext.from_plain(json.loads(entry.flags))
    except (NotReadable, ValueError) as error:
        return problem(Problem.NOT_FOUND, str(error))
    return _checked(
        Request(
            function=entry.function,
            signature=label,
            dispatcher=dispatcher,
            arguments=arguments,
            return_type=return_type,
            caller_flags=flags,
        )
    )


def _checked(request: Request) -> Request:
    """With explicit signatures no others are compiled, and each with the return type that was declared."""
    parts = describe.dispatcher_parts(request.dispatcher)
    assert parts is not None
    declared = parts[4]
    if not declared:
        return request
    for arguments, return_type in declared:
        if arguments == request.arguments:
            return replace(request, return_type=return_type)
    return replace(request, problem=Problem.NOT_FOUND, detail="it is not among the function's explicit signatures")


@dataclass(slots=True)
class FunctionSource:
    """One function by its name, with signatures as numba takes them; without any, with those that it declares."""

    name: str
    signatures: tuple[str, ...] = ()

    def prepare(self) -> Sequence[Request]:
        return ()

    def requests(self) -> Iterator[Request]:
        """Raises SignatureError for what is no signature."""
        wanted = [parse_signature(one) for one in self.signatures]
        try:
            dispatcher = find(self.name)
        except Exception as error:  # an import runs what it likes
            detail = str(error) if isinstance(error, LookupError) else f"importing it ended in {headline(error)}"
            yield Request(function=self.name, signature="", problem=Problem.NOT_FOUND, detail=detail)
            return
        parts = describe.dispatcher_parts(dispatcher)
        if parts is None:
            detail = "what has this name is no jitted function"
            yield Request(function=self.name, signature="", problem=Problem.NOT_FOUND, detail=detail)
            return
        for arguments, return_type in wanted or parts[4]:
            yield _checked(_request(self.name, dispatcher, arguments, Asked(return_type, None)))


@dataclass(slots=True)
class PackageSource:
    """A module and all below it: explicit signatures, what it asks for when it is imported, manifests in it."""

    name: str
    program: Program | None = None
    _manifests: list[ManifestSource] = field(default_factory=list)

    def prepare(self) -> Sequence[Request]:
        problems = list[Request]()
        self._import(self.name, problems)
        for one in self._manifests:
            one.prepare()
        return problems

    def _import(self, name: str, problems: list[Request]) -> None:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing = error.name or ""
            own = missing == name if name == self.name else missing.startswith(f"{self.name}.")
            kind = Problem.NOT_FOUND if own or name == self.name else Problem.SKIPPED
            problems.append(Request(function=name, signature="", problem=kind, detail=str(error)))
            return
        except (Exception, SystemExit) as error:
            detail = f"importing it ended in {headline(error)}"
            problems.append(Request(function=name, signature="", problem=Problem.BROKEN, detail=detail))
            return
        paths = list(getattr(module, "__path__", ()))
        for path in paths:
            shipped = Path(path) / SHIPPED
            if shipped.is_file():
                self._manifests.append(ManifestSource(shipped, self.program))
        for one in sorted(pkgutil.iter_modules(paths), key=lambda found: found.name):
            if one.name != PROGRAM:
                self._import(f"{name}.{one.name}", problems)

    def requests(self) -> Iterator[Request]:
        yield from _noted(lambda module: module == self.name or module.startswith(f"{self.name}."))
        for one in self._manifests:
            yield from one.requests()


@dataclass(slots=True)
class ProgramSource:
    """The main module of a program that is run already: explicit signatures, and what it asked for."""

    def prepare(self) -> Sequence[Request]:
        return ()

    def requests(self) -> Iterator[Request]:
        yield from _noted(lambda module: module == PROGRAM)


def _noted(belongs: Callable[[str], bool]) -> Iterator[Request]:
    """What dispatchers of these modules were asked for while they were imported."""
    found = [(one, entry) for one, entry in recording.asked() if belongs(str(one.py_func.__module__))]
    names = names_of(dispatcher for dispatcher, _ in found)
    for dispatcher, entry in found:
        how = entry.asked if isinstance(entry.asked, Asked) else Asked(None, None)
        name = names.get(id(dispatcher)) or f"{dispatcher.py_func.__module__}:{dispatcher.py_func.__qualname__}"
        yield _request(name, dispatcher, entry.key, how)


def _request(name: str, dispatcher: Any, arguments: tuple[Any, ...], how: Asked) -> Request:
    text = f"({', '.join(map(str, arguments))})"
    with contextlib.suppress(NotWritable):
        text = write_signature(arguments, None)[0]
    return Request(
        function=name,
        signature=text,
        dispatcher=dispatcher,
        arguments=arguments,
        return_type=how.return_type,
        caller_flags=how.caller_flags,
    )


def source_of(text: str, signatures: Sequence[str] = (), program: Program | None = None) -> Source:
    """A source as people write it: a manifest's path, `module:function`, or a package. Raises FarmError."""
    path = Path(text)
    if path.suffix == ".jsonl" or path.is_file():
        return ManifestSource(path, program)
    if ":" in text:
        return FunctionSource(text, tuple(signatures))
    if all(part.isidentifier() for part in text.split(".")):
        return PackageSource(text, program)
    raise SourceError(text)


def sources_of(given: Any, program: Program | None = None) -> list[Source]:
    """One source or several. A function's signatures come with it: `'m:f float64(float64)'`, `('m:f', 'float64')`."""
    if isinstance(given, Path):
        return [ManifestSource(given, program)]
    if isinstance(given, str):
        name, _, signature = given.partition(" ")
        if ":" in name and signature and not Path(given).is_file():
            return [FunctionSource(name, (signature,))]
        return [source_of(given, (), program)]
    if isinstance(given, tuple) and given and all(isinstance(one, str) for one in given):
        return [source_of(given[0], given[1:], program)]
    return [one for each in given for one in sources_of(each, program)]


class SourceError(FarmError, ValueError):
    """A text that names no source."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"{self.text!r} is neither a manifest (x.jsonl), nor module:function, nor a package that can be imported"
