"""What comes out of machine code that a worker made is the front's own class: enums, exceptions, named tuples.

Each script runs twice, in fresh processes with one store: compiled by a worker, then loaded from the store.
"""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HEAD = """
import collections, enum, typing, farm

def raised(function, *arguments):
    try:
        result = function(*arguments)
    except BaseException as error:
        return error
    raise AssertionError(f"returned {result!r}")

def check_stats(*, local=0):
    stats = farm.stats()
    assert stats.local == local, stats
    assert (stats.compiled, stats.loaded)[RUN] and not stats.failed, stats
"""

ENUM = """
class Color(enum.Enum):
    RED = 1
    GREEN = 2
    CRIMSON = 1

class Level(enum.IntEnum):
    LOW = 1
    HIGH = 20
"""

ERRORS = """
class Failure(ValueError):
    pass

class Precise(Failure):
    def __init__(self, text, code):
        super().__init__(f"{text} {code}")
        self.code = code
"""

TUPLES = """
Pair = collections.namedtuple("Pair", "a b", defaults=(1,))

class Point(typing.NamedTuple):
    x: int
    y: float

class Rich(collections.namedtuple("Rich", "a b")):
    def sum(self):
        return self.a + self.b
"""

CASES = {
    "an enum member is the member": (
        ENUM,
        """
        @farm.njit(mode="strict")
        def other(c):
            return Color.GREEN if c == Color.CRIMSON else c

        assert other(Color.RED) is Color.GREEN
        assert other(Color.GREEN) is Color.GREEN
        """,
    ),
    "an IntEnum member is the member": (
        ENUM,
        """
        @farm.njit(mode="strict")
        def higher(n):
            return Level.HIGH if n < Level.HIGH else n

        assert higher(Level.LOW) is Level.HIGH
        """,
    ),
    "a constant exception is caught by its class": (
        ERRORS,
        """
        @farm.njit(mode="strict")
        def check(n):
            if n < 0:
                raise Failure("negative", 3)
            if n > 9:
                raise Precise("large", 7)
            return n

        assert check(1) == 1
        error = raised(check, -1)
        assert type(error) is Failure and error.args == ("negative", 3)
        error = raised(check, 10)
        assert type(error) is Precise and isinstance(error, Failure) and error.code == 7
        assert str(error) == "large 7"
        """,
    ),
    "an exception with runtime arguments is caught by its class": (
        ERRORS,
        """
        @farm.njit(mode="strict")
        def check(n):
            if n < 0:
                raise Precise("negative", n)
            return n

        error = raised(check, -4)
        assert type(error) is Precise and error.code == -4, error
        """,
    ),
    "an exception of a callee is caught by its class": (
        ERRORS,
        """
        @farm.njit(mode="strict")
        def inner(n):
            if n < 0:
                raise Failure("inner", n)
            return n

        @farm.njit(mode="strict")
        def outer(n):
            return inner(n) + 1

        assert type(raised(outer, -1)) is Failure
        """,
    ),
    "named tuples are arguments and results": (
        TUPLES,
        """
        @farm.njit(mode="strict")
        def moved(p):
            return Point(p.x + 1, p.y * 2), Pair(p.x, 0)

        point, pair = moved(Point(1, 2.0))
        assert type(point) is Point and point == (2, 4.0)
        assert type(pair) is Pair and pair == (1, 0)
        """,
    ),
    "a named tuple with a base that has no name": (
        TUPLES,
        """
        @farm.njit(mode="strict")
        def swapped(p):
            return Rich(p.b, p.a)

        assert type(swapped(Rich(1, 2))) is Rich and swapped(Rich(1, 2)).sum() == 3
        """,
    ),
}


def run(path: Path, script: str, *, number: int) -> None:
    (path / "script.py").write_text(f"RUN = {number}\n{HEAD}\n{script}")
    env = {**os.environ, "FARM_CACHE_DIR": str(path / "cache"), "FARM_WORKERS": "1", "NUMBA_CACHE_DIR": str(path / "n")}
    command = [sys.executable, str(path / "script.py")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", CASES)
def test_classes_of_the_script(name: str, tmp_path: Path) -> None:
    classes, body = CASES[name]
    for number in (0, 1):
        run(tmp_path, classes + textwrap.dedent(body) + "\ncheck_stats()\n", number=number)


def test_classes_of_a_module_that_no_worker_imports(tmp_path: Path) -> None:
    guard = "import collections, enum, sys, typing\nassert sys.argv[0].endswith('script.py'), sys.argv\n"
    (tmp_path / "classes_of_user.py").write_text(guard + ENUM + ERRORS + TUPLES)
    script = "from classes_of_user import *\n" + "\n".join(textwrap.dedent(body) for _, body in CASES.values())
    for number in (0, 1):
        run(tmp_path, script + "\ncheck_stats()\n", number=number)


def test_what_else_an_imported_module_holds_means_the_same_class(tmp_path: Path) -> None:
    """A jitclass is found by name only, so the worker imports its module, and with it the enum itself."""
    module = """
    import enum
    from numba import int64
    from numba.experimental import jitclass

    class Mode(enum.Enum):
        A = 1
        B = 2

    @jitclass([("v", int64)])
    class Box:
        def __init__(self, v):
            self.v = v

        def mode(self):
            return Mode.B if self.v > 1 else Mode.A
    """
    (tmp_path / "boxes_of_user.py").write_text(textwrap.dedent(module))
    body = """
    from boxes_of_user import Box, Mode

    @farm.njit(mode="strict")
    def other(n):
        return Mode.A if n < 0 else Box(n).mode()

    assert other(-1) is Mode.A and other(2) is Mode.B
    check_stats()
    """
    for number in (0, 1):
        run(tmp_path, textwrap.dedent(body), number=number)


def test_a_stale_class_is_not_shipped_and_the_new_one_is(tmp_path: Path) -> None:
    """As in a notebook: the cell with the class runs again, the cell with the function does not."""
    body = """
    from farm.errors import NotShippable
    from farm.job.functor import make_functor
    from farm.reasons import RefusalReason

    def define():
        global Failure
        class Failure(ValueError):
            pass
        Failure.__qualname__ = "Failure"
        return Failure

    old = define()

    def make(error):
        @farm.njit(mode="strict")
        def check(n):
            raise error("no", n)
        return check

    stale = make(old)
    new = define()
    assert type(raised(make(new), 1)) is new
    check_stats()
    assert type(raised(stale, 1)) is old
    check_stats(local=1)
    try:
        make_functor(stale, (farm_int,), None)
    except NotShippable as refusal:
        assert refusal.reason is RefusalReason.CLASS_NOT_BY_NAME, refusal
    else:
        raise AssertionError("shipped")
    """
    for number in (0, 1):
        run(tmp_path, "from numba import int64 as farm_int\n" + textwrap.dedent(body), number=number)


def test_an_artifact_linked_for_a_class_is_not_used_for_the_next_of_its_name(tmp_path: Path) -> None:
    """The class and the function are defined again, equal to the last letter: one key, one artifact, two classes."""
    body = """
    CELL = '''
    class Color(enum.Enum):
        RED = 1
        GREEN = 2

    @farm.njit(mode="strict")
    def other(c):
        return Color.GREEN if c == Color.RED else Color.RED
    '''
    import textwrap
    for local in (0, 1):
        exec(textwrap.dedent(CELL))
        assert other(Color.RED) is Color.GREEN
        check_stats(local=local)
    """
    for number in (0, 1):
        run(tmp_path, textwrap.dedent(body), number=number)


def test_a_local_class_is_refused_and_compiled_here(tmp_path: Path) -> None:
    body = """
    from farm.errors import NotShippable
    from farm.job.functor import make_functor
    from farm.reasons import RefusalReason
    from numba import int64

    def make():
        class Local(ValueError):
            pass

        @farm.njit(mode="strict")
        def check(n):
            raise Local("no", n)

        return Local, check

    Local, check = make()
    assert type(raised(check, 1)) is Local
    assert farm.stats().local == 1 and not farm.stats().compiled
    try:
        make_functor(check, (int64,), None)
    except NotShippable as refusal:
        assert refusal.reason is RefusalReason.CLASS_NOT_BY_NAME
        assert "Local" in refusal.detail
    else:
        raise AssertionError("shipped")
    """
    run(tmp_path, textwrap.dedent(body), number=0)


def test_a_changed_enum_is_another_key(tmp_path: Path) -> None:
    body = """
    @farm.njit(mode="strict")
    def value(n):
        return n * Level.HIGH

    assert value(2) == 2 * Level.HIGH.value
    """
    run(tmp_path, ENUM + textwrap.dedent(body) + "check_stats()\n", number=0)
    run(tmp_path, ENUM.replace("20", "30") + textwrap.dedent(body) + "assert farm.stats().compiled == 1\n", number=0)
