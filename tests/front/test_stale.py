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
READER = """
    import collections, enum
    from numba.extending import overload
    from constants import K
{definitions}
    def stub(x): pass
    @overload(stub)
    def _(x):
        {read}
        return lambda x: x + k
"""
"""An overload that reads something: with what there is to read, and how it does."""


def reader(read: str, definitions: str) -> tuple[str, str, str, tuple[str, str]]:
    """The edit from 1 to 7 in what an overload reads as k."""
    first, second = (
        READER.format(read=read, definitions=textwrap.indent(definitions.replace("VALUE", value), " " * 4))
        for value in ("1", "7")
    )
    return first, second, CALL_STUB, ("2", "8")


# What code that runs at compile time can read or call, beside plain values in reach of it.
COMPILE_TIME = {
    "a list in a class": reader("k = C.L[0]", "class C:\n    L = [VALUE]\n"),
    "a dictionary in a class": reader("k = C.D['a']", "class C:\n    D = {'a': VALUE}\n"),
    "a default of a method": reader("k = C().get()", "class C:\n    def get(self, k=VALUE): return k\n"),
    "a global that a static method reads": reader(
        "k = C.get()", "L = VALUE\nclass C:\n    @staticmethod\n    def get(): return L\n"
    ),
    "a function that a class method calls": reader(
        "k = C.get()", "def get(): return VALUE\nclass C:\n    @classmethod\n    def get(cls): return get()\n"
    ),
    "a method of an enum": reader(
        "k = C.A.get() if hasattr(C, 'get') else 5", "class C(enum.Enum):\n    A = 1\n    def get(self): return VALUE\n"
    ),
    "the text of an enum": reader(
        "k = len(str(C.A))", "class C(enum.Enum):\n    A = 1\n    def __str__(self): return 'a' * VALUE\n"
    ),
    "an attribute of a metaclass": reader(
        "k = C.K", "class M(type):\n    K = VALUE\nclass C(metaclass=M):\n    pass\n"
    ),
    "an attribute of an exception": reader("k = getattr(E, 'K', 5)", "class E(Exception):\n    K = VALUE\n"),
    "a method of a named tuple": reader(
        "k = P(1).get() if hasattr(P, 'get') else 5",
        "class P(collections.namedtuple('P', 'a')):\n    def get(self): return VALUE\n",
    ),
    "the defaults of a named tuple": reader(
        "k = P()[0] or 5", "P = collections.namedtuple('P', 'a', defaults=(VALUE,))\n"
    ),
    "an attribute of a function": reader("k = getattr(get, 'K', 5)", "def get(): pass\nget.K = VALUE\n"),
}
IMPORTS = {
    "an import in an overload": "import constants; k = constants.K",
    "an import in an overload by from": "from constants import K as k",
}
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
    "what a module's __getattr__ gives": (
        "def __getattr__(name): return 1 if name == 'K' else None\n",
        "def __getattr__(name): return 7 if name == 'K' else None\n",
        """
        import module
        @farm.njit(mode="strict")
        def f(x): return x + module.K
        print(f(1))
        """,
        ("2", "8"),
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
    "an attribute of a numba type that its key leaves out": (
        NUMBA_TYPE.format(scale=3).replace("SCALE = 3", "").replace('name="Base")', 'name="Base"); self.SCALE = 3'),
        NUMBA_TYPE.format(scale=4).replace("SCALE = 4", "").replace('name="Base")', 'name="Base"); self.SCALE = 4'),
        """
        import module
        @farm.njit(mode="strict")
        def f(x): return module.stub(x)
        print(f(module.Thing()))
        """,
        ("3", "4"),
    ),
    "what a method of a numba type reads": (
        NUMBA_TYPE.format(scale=3).replace("SCALE = 3", "SCALE = property(lambda self: K)") + "    K = 3\n",
        NUMBA_TYPE.format(scale=3).replace("SCALE = 3", "SCALE = property(lambda self: K)") + "    K = 4\n",
        """
        import module
        @farm.njit(mode="strict")
        def f(x): return module.stub(x)
        print(f(module.Thing()))
        """,
        ("3", "4"),
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


@pytest.mark.parametrize("edit", COMPILE_TIME)
def test_an_edit_of_what_an_overload_reads_is_seen(tmp_path: Path, edit: str) -> None:
    (tmp_path / "constants.py").write_text("K = 0\n")
    play(tmp_path, *COMPILE_TIME[edit])


@pytest.mark.parametrize("edit", IMPORTS)
def test_an_edit_of_what_an_overload_imports_when_it_runs_is_seen(tmp_path: Path, edit: str) -> None:
    module = READER.format(read=IMPORTS[edit], definitions="").replace(
        "    from constants import K\n", "    import constants as c\n"
    )
    for value, wanted in (("1", "2"), ("7", "8")):
        (tmp_path / "constants.py").write_text(f"K = {value}\n")
        play(tmp_path, module, module, CALL_STUB, (wanted, wanted))


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_between_runs_is_seen(tmp_path: Path, edit: str) -> None:
    play(tmp_path, *EDITS[edit])


def play(tmp_path: Path, first: str, second: str, script: str, expected: tuple[str, str]) -> None:
    """Run the script beside each text of the module, on one store."""
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
