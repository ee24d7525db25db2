"""Every exception and warning of the farm, as one tree.

    FarmError
    |-- ConfigError           (ValueError)  yours: a setting does not parse
    |-- CpuError              (ValueError)  yours: not the name of a CPU that LLVM knows, or not its features
    |-- DecorationError       (TypeError)   yours: not a function, a wrong mode or fallback
    |-- SignatureError        (TypeError)   yours: a signature does not parse
    |-- CompileFailed                       yours: numba refused the function, and its error did not travel
    |-- NotShippable                        nobody's: the function compiles in the front instead
    |-- StoreRefused                        the machine's: the cache directory is not private
    |   `-- SigningKeyRefused               the machine's: the key file is not private, or is no key
    |-- BundleRefused                       yours: a file of artifacts is none, or is damaged
    |-- PoolUnavailable                     ours or the machine's: no worker processes
    |-- FarmClosed                          yours: used after close()
    |-- ManifestError         (ValueError)  yours: a file that is no manifest, or of a newer version
    |-- Degraded                            raised only with on_degraded="raise"
    |-- VerifyFailed                        raised only with verify=True: a stored artifact is not the function's
    `-- JobLost                             a compile's own doing killed or outlasted its workers
        |-- WorkerDied
        |-- TimedOut
        `-- OutOfMemory
    FarmWarning (UserWarning)
    |-- CompileFailedWarning
    |-- UnknownSettingWarning
    `-- StoreVersionWarning

numba's own errors (TypingError and its kin) are raised as numba's own classes. All of these survive
pickling: their arguments are the structured fields, the sentence is made in `__str__`.
"""

import signal as signals

from farm.reasons import DegradedReason, RefusalReason


def words_of(error: object) -> str:
    """The message of an exception or a warning that foreign code raised: its own `__str__` may raise as well."""
    try:
        return str(error)
    except Exception as failure:
        return f"(its message cannot be told: {type(failure).__name__})"


def told(error: object) -> str:
    """`Class: message` of an exception that foreign code raised."""
    return f"{type(error).__name__}: {words_of(error)}"


class FarmError(Exception):
    """Base of everything the farm raises itself."""


class ConfigError(FarmError, ValueError):
    """A setting does not parse: names the setting, the value and the legal values."""

    def __init__(self, setting: str, value: object, legal: str) -> None:
        super().__init__(setting, value, legal)
        self.setting, self.value, self.legal = setting, value, legal

    def __str__(self) -> str:
        return f"setting {self.setting!r} cannot be {self.value!r}: use {self.legal}"


class CpuError(FarmError, ValueError):
    """No code can be generated for a CPU of this name: `text` is what was given, `near` names what is nearest to it."""

    def __init__(self, text: str, problem: str, near: tuple[str, ...]) -> None:
        super().__init__(text, problem, near)
        self.text, self.problem, self.near = text, problem, near

    def __str__(self) -> str:
        meant = f" (did you mean {' or '.join(self.near)}?)" if self.near else ""
        return (
            f"{self.text!r} is no CPU to compile for, as {self.problem}{meant}: write host, generic, a level from "
            "x86-64-v2 to x86-64-v4, or another name of LLVM's, with features after it if need be: x86-64-v3,+avx512f"
        )


class DecorationError(FarmError, TypeError):
    """`farm.jit` was given something it cannot decorate, or an unknown mode or fallback."""


class SignatureError(FarmError, TypeError):
    """A signature does not parse: `text` is what was given, `detail` what is wrong with it."""

    def __init__(self, text: str, detail: str) -> None:
        super().__init__(text, detail)
        self.text, self.detail = text, detail

    def __str__(self) -> str:
        return (
            f"{self.text!r} is not a signature ({self.detail}): "
            "write 'float64(float64[::1], int64)', a tuple of numba types, or a numba signature"
        )


class CompileFailed(FarmError):
    """numba could not compile the function, and numba's own exception could not be rebuilt here."""

    def __init__(self, function: str, kind: str, text: str) -> None:
        super().__init__(function, kind, text)
        self.function, self.kind, self.text = function, kind, text

    def __str__(self) -> str:
        return f"{self.function} does not compile: {self.kind}: {self.text}"


class NotShippable(FarmError):
    """The function cannot be compiled in another process: `reason` says why, `detail` names the culprit."""

    def __init__(self, reason: RefusalReason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail

    def __str__(self) -> str:
        return f"{self.reason.value}: {self.detail}"


class StoreRefused(FarmError):
    """A cache directory is not trusted: loading an artifact runs it, so others must not be able to write one."""

    def __init__(self, path: str, problem: str, remedy: str) -> None:
        super().__init__(path, problem, remedy)
        self.path, self.problem, self.remedy = path, problem, remedy

    def __str__(self) -> str:
        return f"cache directory {self.path} refused: {self.problem}; {self.remedy}"


class SigningKeyRefused(StoreRefused):
    """The file of the signing key is not to be used. Without it nothing is loaded from a store, and nothing stored."""

    def __str__(self) -> str:
        return f"signing key file {self.path} refused: {self.problem}; {self.remedy}"


class BundleRefused(FarmError):
    """A bundle of artifacts cannot be read, from here on: `problem` says why. What was read before it is good."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return self.problem


class PoolUnavailable(FarmError):
    """No worker process can be had; `detail` says why."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    def __str__(self) -> str:
        return f"no worker processes: {self.detail}"


class FarmClosed(FarmError):
    """The farm was closed before, or while, the job was waiting."""

    def __str__(self) -> str:
        return "the farm is closed: make a new farm.Farm(), or use the default farm"


class ManifestError(FarmError, ValueError):
    """A manifest cannot be used: `where` is the file, `problem` what is wrong with it."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(where, problem)
        self.where, self.problem = where, problem

    def __str__(self) -> str:
        return f"manifest {self.where}: {self.problem}"


class Degraded(FarmError):
    """The farm works below its best, and the setting on_degraded="raise" asked to hear of it."""

    def __init__(self, reason: DegradedReason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail

    def __str__(self) -> str:
        return f"{self.reason.value}: {self.detail}"


class VerifyFailed(FarmError):
    """A stored artifact is not what compiling the same function again gives. Every call of the signature raises it.

    Parameters
    ----------
    function, signature
        Whose artifact it is: the function that was asked for, or one that it calls.
    key
        What the artifact is stored under.
    made_under
        The key that it says it was made under; "" if it does not say.
    parts
        (label, SHA-256 in the artifact, SHA-256 now) of each part of the key; "" for what is not there.
    differences
        (where, in the artifact, compiled again).
    others
        Functions of the same compile that differ too: usually because this one is in them.
    """

    def __init__(
        self,
        function: str,
        signature: str,
        key: str,
        made_under: str,
        parts: tuple[tuple[str, str, str], ...],
        differences: tuple[tuple[str, str, str], ...],
        others: tuple[str, ...] = (),
    ) -> None:
        super().__init__(function, signature, key, made_under, parts, differences, others)
        self.function, self.signature, self.key, self.made_under = function, signature, key, made_under
        self.parts, self.differences, self.others = parts, differences, others

    def __str__(self) -> str:
        lines = [f"the stored artifact of {self.function}{self.signature} is not what compiling it again gives"]
        lines.append(f"  stored under  {self.key}")
        lines.append(f"  made under    {self.made_under or 'a key that it does not tell'}")
        for label, stored, now in self.parts:
            mark = "" if stored == now else "  <- differs"
            lines.append(f"    {label:<11} stored {stored[:16] or '-':<16}  now {now[:16] or '-':<16}{mark}")
        for where, stored, now in self.differences:
            lines += [f"  {where}", f"    stored          {stored}", f"    compiled again  {now}"]
        if self.others:
            lines.append(f"  different too, probably as it is in them: {', '.join(self.others)}")
        lines.append("  The file was left where it is: move it away, or run `farm cache clear`")
        return "\n".join(lines)


class JobLost(FarmError):
    """A compile was given up because of what it did to its worker processes. It is never retried in the front."""


class WorkerDied(JobLost):
    """The compile ended its worker, and then others: a second one, or five in all if they were ended from outside.

    Neither an exit code nor a signal: its connection was closed or carried nonsense, or its foreman ended with it.
    """

    def __init__(self, function: str, exit_code: int | None, signal: int | None, last_lines: str) -> None:
        super().__init__(function, exit_code, signal, last_lines)
        self.function, self.exit_code, self.signal, self.last_lines = function, exit_code, signal, last_lines

    def __str__(self) -> str:
        tail = f"; its last output:\n{self.last_lines}" if self.last_lines else ""
        return (
            f"compiling {self.function} ended the worker process ({self._how()}), each time it was tried: it is not "
            f"compiled in this process, which might end like that; recompile() of the function tries again{tail}"
        )

    def _how(self) -> str:
        if self.signal is None:
            return "its connection ended" if self.exit_code is None else f"exit code {self.exit_code}"
        try:
            name = signals.Signals(self.signal).name
        except ValueError:  # a real-time signal
            name = f"signal {self.signal}"
        return f"{name}, from outside or for want of memory" if self.signal == signals.SIGKILL else name


class TimedOut(JobLost):
    """The compile took longer than `job_timeout_s`."""

    def __init__(self, function: str, limit_s: float) -> None:
        super().__init__(function, limit_s)
        self.function, self.limit_s = function, limit_s

    def __str__(self) -> str:
        return f"compiling {self.function} took over {self.limit_s:g} s: raise job_timeout_s (FARM_JOB_TIMEOUT_S)"


class OutOfMemory(JobLost):
    """The compile needed more memory than `worker_memory_max_bytes`."""

    def __init__(self, function: str, limit_bytes: int, used_bytes: int) -> None:
        super().__init__(function, limit_bytes, used_bytes)
        self.function, self.limit_bytes, self.used_bytes = function, limit_bytes, used_bytes

    def __str__(self) -> str:
        return (
            f"compiling {self.function} used {self.used_bytes >> 20} MiB of the {self.limit_bytes >> 20} MiB "
            "allowed: raise worker_memory_max_bytes (FARM_WORKER_MEMORY_MAX_BYTES)"
        )


class FarmWarning(UserWarning):
    """Base of the farm's warnings."""


class CompileFailedWarning(FarmWarning):
    """A function stays on its fallback because numba cannot compile it."""


class UnknownSettingWarning(FarmWarning):
    """The environment holds a FARM_* variable that is no setting."""


class StoreVersionWarning(FarmWarning):
    """The store was written by a newer format version and counts as empty."""
