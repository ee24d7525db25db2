"""Forms by which plain Python reaches machine code: constants, and what is called."""

from typing import Final

from form import Form, returns

READS: Final = {
    "a literal": Form(returns("x * $v")),
    "a constant": Form("K$n = $v\n" + returns("x + K$n")),
    "a constant's type": Form("K$n = $c\n" + returns("(x + K$n, K$n)"), argument="3 ", choices=("1", "1.0", "True")),
    "a constant of another type": Form(
        "K$n = $c\n" + returns("(x, K$n)"),
        argument="3 ",
        choices=(
            *(
                "1 + 2j",
                "1 - 2j",
                "np.float32(1.5)",
                "1.5",
                "np.int8(3)",
                "np.int16(3)",
                "'ab'",
                "'ac'",
                "None",
                "(1,)",
            ),
            *("((1,),)", "(1.0,)", "np.datetime64('2020-01-01')", "np.timedelta64(3, 's')", "np.timedelta64(3, 'm')"),
            *("2**63", "-(2**63)", "float('inf')", "float('-inf')"),
        ),
    ),
    "a constant that is bound late": Form("K$n = 100\n" + returns("x + K$n") + "K$n = $v\n"),
    "what a module's __getattr__ gives": Form(
        returns("x + there.K$n"),
        "def get_now$n(name):\n    if name == 'K$n':\n        return $v\n    raise AttributeError(name)\n"
        "get_before$n = globals().get('__getattr__')\n"
        "def __getattr__(name):\n    try:\n        return get_now$n(name)\n    except AttributeError:\n"
        "        if get_before$n is None:\n            raise\n        return get_before$n(name)\n",
    ),
    "a named tuple as argument": Form(
        'P$n = collections.namedtuple("P$n", "$c")\n' + returns("x.a", parameters="x").replace("$child", ""),
        argument="P$n(1, 2)",
        choices=("a b", "b a"),
    ),
    "an enum's member as argument": Form(
        "class Color$n(enum.Enum):\n    RED = $v\n    BLUE = 100\n\n@njit\ndef f$n(x):\n    return x.value\n",
        argument="Color$n.RED",
        unseen=True,
    ),
    "a constant's sign": Form("K$n = $c\n" + returns("1.5 * K$n"), argument="3 ", choices=("0.0", "-0.0")),
    "an imported constant": Form("from $there import K$n\n" + returns("x + K$n"), "K$n = $v\n"),
    "a module's attribute": Form(returns("x + there.K$n"), "K$n = $v\n"),
    "a module under another name": Form(returns("x + m.K$n", "m = there"), "K$n = $v\n"),
    "a chain of attributes": Form(returns("x + tree.outer.there.K$n"), "K$n = $v\n"),
    "getattr": Form(returns('x + getattr(there, "K$n")'), "K$n = $v\n"),
    "getattr by a constant name": Form('N$n = "K$n"\n' + returns("x + getattr(there, N$n)"), "K$n = $v\n"),
    "which name getattr reads": Form(
        'N$n = "$c$n"\n' + returns("x + getattr(there, N$n)"), "A$n = 1\nB$n = 2\n", choices=("A", "B")
    ),
    "a variable put into an installed module": Form("math.K$n = $v\n" + returns("x + math.K$n")),
    "a closure": Form(
        "def make$n(k):\n    @njit\n    def f(x):\n        return x + k$child\n    return f\n\nf$n = make$n($v)\n"
    ),
    "a closure over a tuple": Form(
        "def make$n(k):\n    @njit\n    def f(x):\n        return x + k[1][0]$child\n    return f\n\n"
        "f$n = make$n((1, ($v, 2.5)))\n"
    ),
    "a closure over a dispatcher": Form(
        "@njit\ndef g$n(x):\n    return x * $v\n\n"
        "def make$n(g):\n    @njit\n    def f(x):\n        return g(x)$child\n    return f\n\nf$n = make$n(g$n)\n"
    ),
    "a default argument": Form(returns("x + k", parameters="x, k=$v")),
    "the type of a default argument": Form(
        returns("(x, k)", parameters="x, k=$c"), argument="3 ", choices=("1", "1.0", "True")
    ),
    "a default argument of a callee": Form(
        "@njit\ndef g$n(x, k=$v):\n    return x + k\n\n" + returns("g$n(x) + g$n(x, 1)")
    ),
    "a lambda": Form("f$n = njit(lambda x: x + $v$child)\n"),
    "an inner function": Form("K$n = $v\n" + returns("inner(x)", "k = K$n", "def inner(y):", "    return y + k + K$n")),
    "a tuple": Form("T$n = (1, ($v, 2.5))\n" + returns("x + T$n[1][0]")),
    "an array": Form("A$n = np.array([1, $v])\n" + returns("x + A$n[1]")),
    "an array's dtype": Form(
        "A$n = np.array([1, 200]).astype(np.$c)\n" + returns("x + A$n[1]"), choices=("int64", "int8", "float32")
    ),
    "an array's shape": Form(
        "A$n = np.arange(12).reshape($c)\n" + returns("A$n[1, 1] + x"), choices=("3, 4", "2, 6", "4, 3")
    ),
    "an array's order": Form(
        "A$n = np.arange(4).reshape(2, 2).copy(order='$c')\n" + returns("A$n[0, 1] + x"),
        choices=("C", "F"),
        unseen=True,
    ),
    "an array of another module": Form(returns("x + there.A$n[1]"), "A$n = np.array([1, $v])\n"),
    "a record": Form(
        'R$n = np.array([($v, 2.5)], dtype=[("p", np.int32), ("q", np.float64)])\n' + returns("x + R$n[0].p")
    ),
    "the fields of a record": Form(
        "R$n = np.array([(1, 2)], dtype=[$c])\n" + returns("x + R$n[0].p"),
        choices=('("p", np.int64), ("q", np.int64)', '("q", np.int64), ("p", np.int64)'),
    ),
    "the offsets of a record": Form(
        'D$n = np.dtype({"names": ["p", "q"], "formats": ["u1", "u1"], "offsets": [$c], "itemsize": 4})\n'
        "R$n = np.frombuffer(bytes([1, 2, 3, 4]), dtype=np.uint8).copy().view(D$n)\n" + returns("x + R$n[0].p"),
        choices=("0, 1", "1, 2", "2, 3"),
    ),
    "a dtype": Form("D$n = np.$c\n" + returns("D$n(x + 300)"), choices=("int64", "int8", "float64", "uint16")),
    "a type of numba": Form("D$n = types.$c\n" + returns("D$n(x + 300)"), choices=("int64", "int8", "float64")),
    "a text's length": Form('S$n = "a" * $v\n' + returns("x + len(S$n)")),
    "a range": Form(returns("x + s", "s = 0", "for i in range($v):", "    s += i + 1")),
    "membership": Form(returns("x + (1 if x in ($c) else 2)"), choices=("3, 9", "2, 9")),
    "an enum's value": Form(
        "class Color$n(enum.Enum):\n    RED = $v\n    BLUE = 100\n\n" + returns("x + Color$n.RED.value"), weight=2
    ),
    "an enum's order": Form(
        "class Color$n(enum.Enum):\n    $c\n\n" + returns("Color$n.RED if x > 0 else Color$n.BLUE"),
        argument="3 ",
        choices=("RED = 1; BLUE = 2", "BLUE = 2; RED = 1", "RED = 2; BLUE = 1"),
        unseen=True,
    ),
    "an alias in an enum": Form(
        "class Color$n(enum.Enum):\n    RED = 1\n    BLUE = 2\n    PINK = $c\n\n"
        + returns("Color$n.PINK if x > 0 else Color$n.BLUE"),
        argument="3 ",
        choices=("1", "2", "3"),
    ),
    "an IntEnum": Form(
        "class Level$n(enum.IntEnum):\n    LOW = $v\n    HIGH = 100\n\n" + returns("x + Level$n.LOW"), weight=2
    ),
    "a named tuple": Form('P$n = collections.namedtuple("P$n", "a b")\nQ$n = P$n($v, 2)\n' + returns("x + Q$n.a")),
    "the fields of a named tuple": Form(
        'P$n = collections.namedtuple("P$n", "$c")\n' + returns("P$n(x, 10).a"), choices=("a b", "b a")
    ),
    "the fields of a typed named tuple": Form(
        "class P$n(typing.NamedTuple):\n    $c\n\n" + returns("x + P$n(1, 10).a"),
        choices=("a: int; b: int", "b: int; a: int"),
    ),
}

CALLS: Final = {
    "a callee": Form("@njit\ndef g$n(x):\n    return x $c 2\n\n" + returns("g$n(x)"), choices=("+", "*", "-")),
    "a callee's callee": Form(
        "@njit\ndef h$n(x):\n    return x * $v\n\n@njit\ndef g$n(x):\n    return h$n(x) + 1\n\n" + returns("g$n(x)")
    ),
    "a callee in a module under another name": Form(
        returns("m.g$n(x)", "m = there"), "K$n = $v\n@njit\ndef g$n(x):\n    return x + K$n\n"
    ),
    "callees in a tuple": Form(
        "@njit\ndef g$n(x):\n    return x + 1\n\n@njit\ndef h$n(x):\n    return x * 7\n\nT$n = ($c)\n"
        + returns("T$n[0](x)"),
        choices=("g$n, h$n", "h$n, g$n"),
    ),
    "a dispatcher as argument": Form(
        "@njit\ndef g$n(x):\n    return x * $v\n\n@njit\ndef h$n(g, x):\n    return g(x) + 1\n\n"
        + returns("h$n(g$n, x)")
    ),
    "a dispatcher as argument from Python": Form(
        "@njit\ndef g$n(x):\n    return x * $v\n\n" + returns("g(3)", "x = 3", parameters="g"), argument="g$n"
    ),
    "a callee with explicit signatures": Form(
        '@njit("$c(int64)")\ndef g$n(x):\n    return x + 1\n\n' + returns("g$n(x) / 2"),
        choices=("int64", "int8", "float64"),
        unseen=True,
    ),
    "which explicit signature": Form(
        '@njit(["$c"])\ndef g$n(x):\n    return x / 2\n\n' + returns("g$n(x)", "x = x + 0.1"),
        argument="3 ",
        choices=("float64(float64)", "float32(float32)"),
    ),
    "recursion": Form("@njit\ndef f$n(x):\n    if x < 1:\n        return $v$child\n    return f$n(x - 1) + 1\n"),
    "a generator": Form(
        "@njit\ndef g$n(x):\n    yield x\n    yield $v\n\n" + returns("s", "s = 0", "for y in g$n(x):", "    s += y")
    ),
    "a stencil": Form(
        "K$n = $v\n@numba.stencil\ndef s$n(a):\n    return a[0] * K$n\n\n" + returns("s$n(a)[1]", parameters="a"),
        argument="np.ones(3)",
        weight=4,
    ),
    "a vectorized callee": Form(
        "K$n = $v\n@numba.vectorize(['int64(int64)'])\ndef g$n(x):\n    return x + K$n\n\n" + returns("g$n(x)"),
        weight=2,
    ),
    "an object mode block": Form(
        "K$n = $v\n" + returns("y", "with numba.objmode(y='int64'):", "    y = x + K$n"), weight=3
    ),
    "what an object mode block calls": Form(
        "def plain$n(x):\n    return x + $v\n" + returns("y", "with numba.objmode(y='int64'):", "    y = plain$n(x)"),
        weight=3,
    ),
    "a compiled C callback": Form(
        "K$n = $v\n@numba.cfunc('int64(int64)')\ndef g$n(x):\n    return x + K$n\n\n" + returns("g$n(x)"), weight=2
    ),
    "a jitable callee": Form("K$n = $v\n@register_jitable\ndef g$n(x):\n    return x + K$n\n\n" + returns("g$n(x)")),
    "options of a jitable callee": Form(
        "@register_jitable$c\ndef g$n(x):\n    return x + 1\n\n" + returns("g$n(x)"),
        choices=("", "(inline='always')", "(fastmath=True)"),
        unseen=True,
    ),
}
