"""Forms for what comes out of a function, and for options."""

from typing import Final

from form import Form, returns

ERRORS: Final = {
    "an exception's argument": Form(
        "@njit\ndef f$n(x):\n    if x > 5:\n        raise ValueError('no', $v)\n    return x$child\n", argument="7"
    ),
    "an exception's argument at run time": Form(
        "@njit\ndef f$n(x):\n    if x > 5:\n        raise ValueError('no', x + $v)\n    return x$child\n", argument="7"
    ),
    "an exception's class": Form(
        "class A$n(ValueError):\n    pass\nclass B$n(KeyError):\n    pass\n"
        "@njit\ndef f$n(x):\n    if x > 5:\n        raise $c$n('no')\n    return x$child\n",
        argument="7",
        choices=("A", "B"),
    ),
    "an exception's base": Form(
        "class A$n($c):\n    pass\n@njit\ndef f$n(x):\n    try:\n        if x > 5:\n            raise A$n('no', x)\n"
        "    except Exception:\n        return 1\n    return x$child\n",
        argument="7",
        choices=("ValueError", "KeyError"),
        unseen=True,
        weight=2,
    ),
    "what an exception does when it is made": Form(
        "class A$n(ValueError):\n    def __init__(self, text, k):\n"
        "        super().__init__(text)\n        self.k = k * $v\n"
        "@njit\ndef f$n(x):\n    if x > 5:\n        raise A$n('no', 2)\n    return x$child\n",
        argument="7",
    ),
    "an exception of a callee": Form(
        "@njit\ndef g$n(x):\n    y = x * 2\n    if y > 5:\n        raise ValueError('no', $v)\n    return y\n\n"
        + returns("g$n(x)"),
        argument="7",
    ),
    "an assertion": Form("@njit\ndef f$n(x):\n    assert x < 10, 'large $v'\n    return x$child\n", argument="15"),
    "an enum that is returned": Form(
        "class Color$n(enum.Enum):\n    RED = 1\n    BLUE = 2\n\n@njit\ndef f$n(x):\n"
        "    return Color$n.$c if x > 2 else Color$n.BLUE\n",
        argument="3 ",
        choices=("RED", "BLUE"),
    ),
    "a named tuple that is returned": Form(
        'P$n = collections.namedtuple("P$n", "a b")\n@njit\ndef f$n(x):\n    return P$n(x, $v)\n', argument="3 "
    ),
}

OPTIONS: Final = {
    "fastmath": Form(
        "@njit(fastmath=$c)\ndef f$n(x):\n    return x != x\n",
        argument="float('nan')",
        choices=("False", "True", "{'nnan'}", "{'nsz'}", "{'nsz', 'arcp', 'contract'}"),
        unseen=True,
    ),
    "error_model": Form(
        "@njit(error_model='$c')\ndef f$n(x):\n    return 1.0 / x\n", argument="0.0", choices=("python", "numpy")
    ),
    "a caller's error_model": Form(
        "@njit\ndef g$n(x):\n    return 1.0 / x\n\n@njit$c\ndef f$n(x):\n    return g$n(x)\n",
        argument="0.0",
        choices=("", "(error_model='python')", "(error_model='numpy')"),
        unseen=True,
    ),
    "a caller's fastmath": Form(
        "@njit\ndef g$n(x):\n    return x != x\n\n@njit$c\ndef f$n(x):\n    return g$n(x)\n",
        argument="float('nan')",
        choices=("", "(fastmath=True)", "(fastmath={'nsz'})"),
        unseen=True,
    ),
    # numba itself links a callee as its first caller's flags made it, so the other caller is called with the farm only.
    "one callee under two callers": Form(
        "@njit\ndef g$n(x):\n    return 1.0 / x\n\n@njit(error_model='numpy', fastmath=True)\ndef before$n(x):\n"
        "    return g$n(x)\n\n@njit$c\ndef f$n(x):\n    return g$n(x)\n",
        argument="0.0",
        choices=("(error_model='numpy')", "(error_model='python', fastmath=True)", ""),
        unseen=True,
        before="before$n(2.0)",
    ),
    "boundscheck": Form(
        "@njit(boundscheck=$c)\ndef f$n(a):\n    return a[4]\n",
        argument="np.arange(8)[:3]",
        choices=("None", "False", "True"),
        unseen=True,
    ),
    "locals": Form(
        "@njit(locals={'y': types.$c})\ndef f$n(x):\n    y = x + 300\n    return y$child\n",
        argument="3 ",
        choices=("int64", "int8", "float32", "float64"),
    ),
    "locals of a callee": Form(
        "@njit(locals={'y': types.$c})\ndef g$n(x):\n    y = x + 300\n    return y\n\n" + returns("g$n(x)"),
        choices=("int64", "int8", "float32"),
    ),
    "other options": Form(
        "@njit($c)\ndef f$n(x):\n    return x + 1$child\n",
        choices=(
            "nogil=False",
            "nogil=True",
            "forceinline=True",
            "inline='always'",
            "no_rewrites=True",
            "looplift=True",
            "_nrt=False",
        ),
        unseen=True,
    ),
    "debug": Form(
        "@njit(debug=$c)\ndef f$n(x):\n    return x + $v$child\n",
        choices=("True", "False"),
        unseen=True,
        positions=True,
    ),
    "parallel": Form(
        "@njit(parallel=$c)\ndef f$n(x):\n    s = 0\n"
        "    for i in numba.prange(x):\n        s += i * $v\n    return s\n",
        choices=("False", "True"),
        unseen=True,
        weight=9,
    ),
    "object mode": Form("K$n = $v\n@numba.jit(forceobj=True)\ndef f$n(x):\n    return x + K$n\n", argument="3 "),
    "a pass of a pipeline": Form(
        "class Pipeline$n(CompilerBase):\n    K = $v\n    def define_pipelines(self):\n"
        "        return [DefaultPassBuilder.define_nopython_pipeline(self.state)]\n\n"
        "@njit(pipeline_class=Pipeline$n)\ndef f$n(x):\n    return x + $v$child\n"
    ),
}
