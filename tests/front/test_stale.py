"""Edits between two runs that share a store: the second run must give what the edited source says."""

import textwrap
from pathlib import Path

import pytest
from test_farm import run_script

OVERLOAD = """
    from numba.extending import overload
    class Cfg:
        N = {n}
        @staticmethod
        def twice(x):
            return 2 * x + {n}
    def stub(x): pass
    @overload(stub)
    def _(x):
        k = {read}
        return lambda x: x + k
"""
CALL_STUB = """
    import module
    @farm.njit(mode="strict")
    def f(x): return module.stub(x)
    print(f(1))
"""
NUMBA_TYPE = """
    from numba import types
    class Base(types.Type):
        SCALE = {scale}
        def __init__(self): super().__init__(name="Base")
    from numba.extending import overload, typeof_impl, register_model, models, unbox, NativeValue
    class Thing: pass
    kind = Base()
    typeof_impl.register(Thing)(lambda value, context: kind)
    register_model(Base)(models.OpaqueModel)
    unbox(Base)(lambda typ, obj, c: NativeValue(c.context.get_dummy_value()))
    def stub(x): pass
    @overload(stub)
    def _(x):
        k = x.SCALE
        return lambda x: k
"""
EDITS: dict[str, tuple[str, str, str, tuple[str, str]]] = {
    "a class attribute that an overload reads": (
        OVERLOAD.format(n=1, read="Cfg.N"),
        OVERLOAD.format(n=7, read="Cfg.N"),
        CALL_STUB,
        ("2", "8"),
    ),
    "a static method that an overload calls": (
        OVERLOAD.format(n=1, read="Cfg.twice(1)"),
        OVERLOAD.format(n=7, read="Cfg.twice(1)"),
        CALL_STUB,
        ("4", "10"),
    ),
    "the order of a dictionary that an overload reads": (
        OVERLOAD.format(n=1, read="next(iter(TABLE.values()))") + "    TABLE = {'a': 1, 'b': 2}\n",
        OVERLOAD.format(n=1, read="next(iter(TABLE.values()))") + "    TABLE = {'b': 2, 'a': 1}\n",
        CALL_STUB,
        ("2", "3"),
    ),
    "a global that a stencil froze at its decoration": (
        "    import numba\n    N = 1\n    @numba.stencil\n    def s(a): return a[0] * N\n    N = 100\n",
        "    import numba\n    N = 2\n    @numba.stencil\n    def s(a): return a[0] * N\n    N = 100\n",
        """
        import module, numpy
        @farm.njit(mode="strict")
        def f(x): return module.s(x)[0]
        print(f(numpy.ones(3)))
        """,
        ("1.0", "2.0"),
    ),
    "a pass of a user's pipeline": (
        """
    from numba.core.compiler import CompilerBase, DefaultPassBuilder
    class Pipeline(CompilerBase):
        FACTOR = 1
        def define_pipelines(self): return [DefaultPassBuilder.define_nopython_pipeline(self.state)]
        """,
        """
    from numba.core.compiler import CompilerBase, DefaultPassBuilder
    class Pipeline(CompilerBase):
        FACTOR = 2
        def define_pipelines(self): return [DefaultPassBuilder.define_nopython_pipeline(self.state)]
        """,
        """
        import module
        @farm.njit(mode="strict", pipeline_class=module.Pipeline)
        def f(x): return x
        f(1)
        print(farm.stats().compiled)
        """,
        ("1", "1"),
    ),
    "the docstring of a module that is read": (
        '    """one"""\n',
        '    """two"""\n',
        """
        import module
        @farm.njit(mode="strict")
        def f(x): return module.__doc__
        print(f(1))
        """,
        ("one", "two"),
    ),
    "a class attribute of a numba type": (
        NUMBA_TYPE.format(scale=3),
        NUMBA_TYPE.format(scale=4),
        """
        import module
        @farm.njit(mode="strict")
        def f(x): return module.stub(x)
        print(f(module.Thing()))
        """,
        ("3", "4"),
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_between_runs_is_seen(tmp_path: Path, edit: str) -> None:
    first, second, script, expected = EDITS[edit]
    for text, wanted in zip((first, second), expected, strict=True):
        (tmp_path / "module.py").write_text(textwrap.dedent(text))
        done = run_script(tmp_path, "import farm\n" + textwrap.dedent(script))
        assert done.stdout.strip() == wanted, done.stdout + done.stderr


def test_object_mode_blocks_of_two_equal_modules_use_their_own_globals(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(
            "import farm, numba\nLOG = []\n@farm.njit(mode='strict')\ndef record(x):\n"
            "    with numba.objmode():\n        LOG.append(x)\n    return x\n"
        )
    done = run_script(tmp_path, "import one, two\none.record(1), two.record(2)\nprint(one.LOG, two.LOG)\n")
    assert done.stdout.strip() == "[1] [2]", done.stdout + done.stderr


def test_thread_functions_compile(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        """
        import farm, numba
        @farm.njit(mode="strict")
        def f():
            numba.set_num_threads(1)
            return numba.get_num_threads()
        @farm.njit(mode="strict", parallel=True)
        def g(n):
            with numba.parallel_chunksize(2):
                total = 0
                for i in numba.prange(n):
                    total += i
            return total
        print(f(), g(10))
        """,
    )
    # They hold addresses of this process, so they are compiled here; a worker must come as far as saying so.
    assert done.stdout.strip() == "1 45", done.stdout + done.stderr


def test_a_jitclass_instance_as_argument_in_a_fresh_worker(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        "from numba import types\nfrom numba.experimental import jitclass\n"
        "@jitclass([('x', types.int64)])\nclass Point:\n"
        "    def __init__(self, x): self.x = x\n    def plus(self, a): return self.x + a\n"
    )
    done = run_script(
        tmp_path,
        """
        import farm, module
        @farm.njit(mode="strict")
        def f(p): return p.plus(1) + p.x
        print(f(module.Point(3)), farm.stats().failed)
        """,
    )
    assert done.stdout.strip() == "7 0", done.stdout + done.stderr
