"""Where a front may live: forked children, daemonic children, threads, exec, a notebook's cells."""

from pathlib import Path

from test_farm import run_script

HEAD = """
import os, sys, threading, farm
def cube(a): return a * a * a
BIG, IN_PYTHON = 10**9, 10**27
"""


def run(folder: Path, text: str) -> None:
    import textwrap

    done = run_script(folder, HEAD + textwrap.dedent(text))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_forked_child_keeps_the_code_and_compiles_in_a_pool_of_its_own(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        strict = farm.njit(cube, mode="strict")
        assert strict(BIG) != IN_PYTHON
        slow = farm.njit(lambda a: a * a * a * a)
        child = os.fork()
        if child == 0:
            ok = strict(BIG) != IN_PYTHON and slow(BIG) == BIG**4 and farm.wait(60) and slow(BIG) != BIG**4
            ok = ok and farm.njit(lambda a: a * a * a * 3, mode="strict")(BIG) != 3 * IN_PYTHON
            farm.default_farm().close()
            os._exit(0 if ok else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert strict(BIG) != IN_PYTHON
        assert farm.njit(lambda a: a * a * a * 5, mode="strict")(BIG) != 5 * IN_PYTHON
        """,
    )


def test_what_was_compiling_at_the_fork_compiles_in_the_child_and_in_the_parent(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        function = farm.njit(cube)
        assert function(BIG) == IN_PYTHON
        child = os.fork()
        if child == 0:
            ok = function(BIG) == IN_PYTHON and function.wait(60) and function(BIG) != IN_PYTHON
            farm.default_farm().close()
            os._exit(0 if ok else 1)
        assert function.wait(60) and function(BIG) != IN_PYTHON
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        """,
    )


def test_a_daemonic_child_of_multiprocessing_has_a_pool(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import multiprocessing
        def work(queue):
            queue.put(farm.njit(cube, mode="strict")(BIG))
            queue.put(farm.stats().compiled + farm.stats().loaded)
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=work, args=(queue,), daemon=True)
        child.start()
        assert queue.get(timeout=60) != IN_PYTHON
        assert queue.get(timeout=60) == 1
        child.join(30)
        """,
    )


def test_threads_share_one_compile(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        function = farm.njit(cube, mode="strict")
        start, found = threading.Barrier(8), []
        def call():
            start.wait()
            found.append(function(BIG))
        threads = [threading.Thread(target=call) for _ in range(8)]
        for one in threads: one.start()
        for one in threads: one.join()
        assert len(set(found)) == 1 and found[0] != IN_PYTHON
        assert farm.stats().compiled == 1, farm.stats()
        """,
    )


def test_functions_made_by_exec_and_in_notebook_cells(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import linecache
        space = {"__name__": "__main__", "farm": farm}
        def cell(number, source):
            name = f"/tmp/ipykernel_1/{number}.py"
            linecache.cache[name] = len(source), None, source.splitlines(True), name
            exec(compile(source, name, "exec"), space)
        cell(1, "GAIN = 2\\n@farm.njit(mode='strict')\\ndef f(a): return a * GAIN\\n")
        assert space["f"](3) == 6
        cell(2, "@farm.njit(mode='strict')\\ndef f(a): return a * GAIN + 1\\n")
        assert space["f"](3) == 7
        cell(3, "GAIN = 5\\n")
        assert space["f"](3) == 7
        space["f"].recompile()
        assert space["f"](3) == 16
        nameless = {}
        exec("def g(a): return a + 1", nameless)
        assert farm.njit(nameless["g"], mode="strict")(1) == 2
        assert farm.stats().local == 0, farm.stats()
        """,
    )


def test_a_pickled_function_works_in_another_process(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import concurrent.futures, multiprocessing
        function = farm.njit(cube, mode="strict")
        def call(f, a): return f(a)
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
            assert pool.submit(call, function, BIG).result(60) != IN_PYTHON
        """,
    )
