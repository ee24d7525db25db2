"""numba's own decorators through the farm, in processes of their own: enabling changes the numba module."""

import textwrap
from pathlib import Path

from test_farm import run_script

LIBRARY = """
from numba import jit, njit, typed, types
from numba.experimental import jitclass

@njit(cache=True)
def cube(a):
    return a * a * a

@jit(nopython=True, nogil=True)
def twice(a):
    return a + a

@njit("float64(float64)")
def half(a):
    return a / 2

@jitclass([("x", types.int64)])
class Point:
    def __init__(self, x):
        self.x = x
    def plus(self, a):
        return self.x + a
"""


def run(folder: Path, text: str) -> None:
    (folder / "library.py").write_text(LIBRARY)
    done = run_script(folder, textwrap.dedent(text))
    assert done.returncode == 0, done.stderr


def test_a_library_imported_afterwards_uses_the_farm(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import farm, numba
        numbas_own = numba.njit
        with farm.enable():
            import library
        assert numba.njit is numbas_own
        assert library.cube(10**9) == 10**27, "the first call runs in Python"
        library.twice(1), library.half(3)
        assert farm.wait(60)
        assert library.cube(10**9) != 10**27
        assert (library.twice(1), library.half(3)) == (2, 1.5)
        stats = farm.stats()
        assert (stats.compiled, stats.local) == (3, 0), stats
        """,
    )


def test_numba_itself_is_left_alone(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import farm
        farm.enable(fallback="python")
        import library
        from numba import typed
        numbers = typed.List()
        numbers.append(3)
        assert len(numbers) == 1
        table = typed.Dict()
        table[1] = 2.5
        assert table[1] == 2.5
        assert library.Point(3).plus(4) == 7
        assert farm.stats().fallback_calls == 0, farm.stats()
        """,
    )


def test_the_choices_hold_for_everything_decorated_this_way(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import farm
        farm.enable(mode="strict")
        import library
        assert library.cube(10**9) != 10**27
        assert farm.stats().fallback_calls == 0
        """,
    )


def test_disabling_gives_numba_its_decorators_back(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import farm, numba
        own = numba.jit, numba.njit
        first = farm.enable()
        second = farm.enable(mode="strict")
        second.disable()
        first.disable()
        assert (numba.jit, numba.njit) == own
        """,
    )
