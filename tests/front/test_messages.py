"""numba's own words: an error from a worker reads as it would without the farm."""

from pathlib import Path

from test_farm import run_script


def test_a_typing_error_from_a_worker_reads_as_numbas_own(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        """
        import os, re, numba, farm
        os.chdir(os.path.dirname(os.path.abspath(__file__)))
        def helper(a):
            return a.no_such_attribute
        def bad(a):
            return inner(a) + 1
        def text(decorate):
            global inner
            inner = decorate(helper)
            try:
                decorate(bad)(1)
            except numba.TypingError as error:
                # The only word that may differ: how numba prints a dispatcher, its class and an address.
                return re.sub(r"\\w+Dispatcher\\(<function (\\w+) at 0x\\w+>\\)", r"dispatcher of \\1", str(error))
        numbas = text(numba.njit)
        ours = text(farm.njit(mode="strict"))
        assert farm.stats().local == 0, farm.stats()
        print(ours)
        assert ours == numbas and "dispatcher of helper" in ours, numbas
        """,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'File "script.py", line' in done.stdout


def test_a_module_on_a_path_that_was_added_later_is_found(tmp_path: Path) -> None:
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "late_module.py").write_text("class Gain(Exception): pass\nVALUE = 3\n")
    done = run_script(
        tmp_path,
        """
        import sys, farm
        farm.njit(lambda a: a, mode="strict")(1)
        sys.path.append(sys.path[0] + "/late")
        import late_module
        @farm.njit(mode="strict")
        def f(a):
            if a < 0:
                raise late_module.Gain("low")
            return a * late_module.VALUE
        assert f(2) == 6
        assert farm.stats().local == 0, farm.stats()
        """,
    )
    assert done.returncode == 0, done.stdout + done.stderr
