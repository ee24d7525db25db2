"""Forms in which code of the user runs when numba compiles."""

from typing import Final

from form import Form, overloaded, returns

EXTENSIONS: Final = {
    "an overload's constant": Form(overloaded("return lambda x: x + $v")),
    "what an overload reads": Form(overloaded("k = K$n\nreturn lambda x: x + k", setup="K$n = $v")),
    "what an overload reads of a module": Form(overloaded("k = there.K$n\nreturn lambda x: x + k"), "K$n = $v\n"),
    "a class attribute": Form(overloaded("k = C$n.K\nreturn lambda x: x + k", setup="class C$n:\n    K = $v\n")),
    "a base's attribute": Form(
        overloaded("k = C$n.K\nreturn lambda x: x + k", setup="class B$n:\n    K = $v\nclass C$n(B$n):\n    J = 1\n")
    ),
    "an attribute of a metaclass": Form(
        overloaded(
            "k = C$n.K\nreturn lambda x: x + k",
            setup="class M$n(type):\n    K = $v\nclass C$n(metaclass=M$n):\n    pass\n",
        )
    ),
    "a descriptor in a class": Form(
        overloaded(
            "k = C$n().K\nreturn lambda x: x + k",
            setup="class D$n:\n    def __get__(self, held, cls):\n        return $v\nclass C$n:\n    K = D$n()\n",
        )
    ),
    "a static method": Form(
        overloaded(
            "k = C$n.get()\nreturn lambda x: x + k",
            setup="class C$n:\n    @staticmethod\n    def get():\n        return $v\n",
        )
    ),
    "what a static method reads": Form(
        overloaded(
            "k = C$n.get()\nreturn lambda x: x + k",
            setup="K$n = $v\nclass C$n:\n    @staticmethod\n    def get():\n        return K$n\n",
        )
    ),
    "what a class method calls": Form(
        overloaded(
            "k = C$n.get()\nreturn lambda x: x + k",
            setup="def get$n():\n    return $v\n"
            "class C$n:\n    @classmethod\n    def get(cls):\n        return get$n()\n",
        )
    ),
    "a property of an instance": Form(
        overloaded(
            "k = C$n().get\nreturn lambda x: x + k",
            setup="class C$n:\n    @property\n    def get(self):\n        return $v\n",
        )
    ),
    "a default of a method": Form(
        overloaded(
            "k = C$n().get()\nreturn lambda x: x + k",
            setup="class C$n:\n    def get(self, k=$v):\n        return k\n",
        )
    ),
    "a list in a class": Form(overloaded("k = C$n.K[0]\nreturn lambda x: x + k", setup="class C$n:\n    K = [$v]\n")),
    "a dictionary in a class": Form(
        overloaded("k = C$n.K['a']\nreturn lambda x: x + k", setup="class C$n:\n    K = {'a': $v}\n")
    ),
    "an attribute of a function": Form(
        overloaded("k = get$n.K\nreturn lambda x: x + k", setup="def get$n():\n    pass\nget$n.K = $v\n")
    ),
    "a dictionary": Form(overloaded("k = D$n['a']\nreturn lambda x: x + k", setup="D$n = {'a': $v, 'b': 1}")),
    "the order of a dictionary": Form(
        overloaded("k = next(iter(D$n.values()))\nreturn lambda x: x + k", setup="D$n = {$c}"),
        choices=("'a': 1, 'b': 2", "'b': 2, 'a': 1"),
    ),
    "a list": Form(overloaded("k = L$n[-1]\nreturn lambda x: x + k", setup="L$n = [1, [2], $v]")),
    "what an import in an overload brings": Form(
        overloaded("from $there import K$n\nk = K$n\nreturn lambda x: x + k"), "K$n = $v\n"
    ),
    "what an import in an overload names": Form(
        overloaded("import $there as m\nk = m.K$n\nreturn lambda x: x + k"), "K$n = $v\n"
    ),
    "what an import in a method brings": Form(
        overloaded(
            "k = C$n.get()\nreturn lambda x: x + k",
            setup="class C$n:\n    @staticmethod\n    def get():\n        from $there import K$n\n        return K$n\n",
        ),
        "K$n = $v\n",
    ),
    "a plain function at compile time": Form(
        overloaded("k = there.get()\nreturn lambda x: x + k".replace("get", "get$n")),
        "K$n = $v\ndef get$n():\n    return K$n\n",
    ),
    "a wrapped function at compile time": Form(
        overloaded(
            "k = get$n()\nreturn lambda x: x + k",
            setup="K$n = $v\ndef plain$n():\n    return K$n\nget$n = functools.wraps(plain$n)(lambda: plain$n())\n",
        )
    ),
    "a partial at compile time": Form(
        overloaded(
            "k = get$n()\nreturn lambda x: x + k",
            setup="def plain$n(k):\n    return k\nget$n = functools.partial(plain$n, $v)\n",
        )
    ),
    "an enum's method": Form(
        overloaded(
            "k = C$n.A.get() if hasattr(C$n.A, 'get') else 50\nreturn lambda x: x + k",
            setup="class C$n(enum.Enum):\n    A = 1\n    def get(self):\n        return $v\n",
        )
    ),
    "an enum's text": Form(
        overloaded(
            "k = len(str(C$n.A))\nreturn lambda x: x + k",
            setup="class C$n(enum.Enum):\n    A = 1\n    def __str__(self):\n        return 'a' * $v\n",
        )
    ),
    "an exception's attribute": Form(
        overloaded("k = getattr(E$n, 'K', 50)\nreturn lambda x: x + k", setup="class E$n(Exception):\n    K = $v\n")
    ),
    "a named tuple's method": Form(
        overloaded(
            "k = P$n(1, 2).get() if hasattr(P$n, 'get') else 50\nreturn lambda x: x + k",
            setup="class P$n(collections.namedtuple('P$n', 'a b')):\n    def get(self):\n        return $v\n",
        )
    ),
    "a named tuple's defaults": Form(
        overloaded(
            "k = P$n(1)[1]\nreturn lambda x: x + k",
            setup="P$n = collections.namedtuple('P$n', 'a b', defaults=($v,))\n",
        )
    ),
    "which types an overload is for": Form(
        overloaded("if isinstance(x, types.$c):\n    return lambda x: x + 1\nreturn lambda x: x + 2"),
        choices=("Integer", "Float"),
    ),
    "an overload's options": Form(
        overloaded("return lambda x: x + 1", options=", $c"),
        choices=("inline='always'", "inline='never'", "jit_options={'fastmath': True}", "strict=False"),
        unseen=True,
    ),
    "whether an overload gets literals": Form(
        overloaded(
            "k = 1 if isinstance(x, types.Literal) else 2\nreturn lambda x: x + k",
            options=", prefer_literal=$c",
            call="x + stub$n(7)",
        ),
        choices=("True", "False"),
    ),
    "a literal argument": Form(
        overloaded(
            "k = x.literal_value if isinstance(x, types.Literal) else -1\nreturn lambda x: k",
            options=", prefer_literal=True",
            call="x + stub$n($v)",
        )
    ),
    "literally": Form(
        "@njit\ndef g$n(k, x):\n    return stub$n(numba.literally(k)) + x\n"
        + overloaded(
            "k = x.literal_value if isinstance(x, types.Literal) else -1\nreturn lambda x: k",
            options=", prefer_literal=True",
            call="g$n($v, x)",
        )
    ),
    "the order of overloads": Form(
        overloaded("return lambda x: x + $c", setup="").replace(
            "@njit", "@overload(stub$n)\ndef more$n(x):\n    return lambda x: x + 3 - $c\n\n@njit"
        ),
        choices=("1", "2"),
    ),
    "an overloaded attribute": Form(
        "@overload_attribute(types.Integer, 'up$n')\ndef ov$n(x):\n    return lambda x: x + $v\n\n" + returns("x.up$n")
    ),
    "an overloaded method": Form(
        "K$n = $v\n@overload_method(types.Integer, 'go$n')\ndef ov$n(x):\n    return lambda x: x + K$n\n\n"
        + returns("x.go$n()")
    ),
    "an intrinsic": Form(
        "K$n = $v\n@intrinsic\ndef g$n(context, x):\n    def make(context, builder, signature, arguments):\n"
        "        return builder.add(arguments[0], context.get_constant(types.int64, K$n))\n"
        "    return types.int64(types.int64), make\n\n" + returns("g$n(x)")
    ),
    "what an intrinsic's code reads of a module": Form(
        "@intrinsic\ndef g$n(context, x):\n    def make(context, builder, signature, arguments):\n"
        "        k = getattr(there, 'K' + '$n')\n"
        "        return builder.add(arguments[0], context.get_constant(types.int64, k))\n"
        "    return types.int64(types.int64), make\n\n" + returns("g$n(x)"),
        "K$n = $v\n",
    ),
    "an intrinsic's type": Form(
        "@intrinsic\ndef g$n(context, x):\n    def make(context, builder, signature, arguments):\n"
        "        return context.get_constant(types.$c, 5)\n"
        "    return types.$c(types.int64), make\n\n" + returns("g$n(x) / 2"),
        choices=("int64", "float32"),
        unseen=True,
    ),
    "a jitclass": Form(
        "K$n = $v\n@jitclass([('a', types.int64)])\nclass J$n:\n    def __init__(self, a):\n        self.a = a\n"
        "    def get(self):\n        return self.a + K$n\n\n" + returns("J$n(x).get()"),
        weight=4,
    ),
    "the fields of a jitclass": Form(
        "@jitclass([('a', types.$c)])\nclass J$n:\n    def __init__(self, a):\n        self.a = a\n\n"
        + returns("J$n(x + 300).a"),
        choices=("int64", "int8", "float64"),
        weight=4,
    ),
    "a property of a jitclass": Form(
        "@jitclass([('a', types.int64)])\nclass J$n:\n    def __init__(self, a):\n        self.a = a\n"
        "    @property\n    def get(self):\n        return self.a + $v\n\n" + returns("J$n(x).get"),
        weight=4,
    ),
    "an instance of a jitclass": Form(
        "@jitclass([('a', types.int64)])\nclass J$n:\n    def __init__(self, a):\n        self.a = a\n"
        "    def get(self):\n        return self.a + $v\n\n" + returns("j.get()", parameters="j"),
        argument="J$n(2)",
        weight=4,
    ),
    "a type of the user": Form(
        "class T$n(types.Type):\n    K = $v\n    def __init__(self):\n        super().__init__('T$n')\n"
        "class V$n:\n    pass\nt$n = T$n()\ntypeof_impl.register(V$n)(lambda value, context: t$n)\n"
        "register_model(T$n)(models.OpaqueModel)\n"
        "unbox(T$n)(lambda kind, obj, c: NativeValue(c.context.get_dummy_value()))\n"
        + overloaded("k = x.K\nreturn lambda x: k").replace("$child", ""),
        argument="V$n()",
    ),
    "an unboxer": Form(
        "K$n = $v\nclass T$n(types.Type):\n    def __init__(self):\n        super().__init__('T$n')\n"
        "class V$n:\n    pass\nt$n = T$n()\ntypeof_impl.register(V$n)(lambda value, context: t$n)\n"
        "@register_model(T$n)\nclass Model$n(models.PrimitiveModel):\n    def __init__(self, manager, kind):\n"
        "        super().__init__(manager, kind, ir.IntType(64))\n"
        "@unbox(T$n)\ndef unbox$n(kind, obj, c):\n    return NativeValue(c.context.get_constant(types.int64, K$n))\n"
        "@intrinsic\ndef g$n(context, x):\n    return types.int64(x), lambda c, b, s, arguments: arguments[0]\n"
        "@njit\ndef f$n(x):\n    return g$n(x)\n",
        argument="V$n()",
    ),
    "an attribute of a user's type": Form(
        "class T$n(types.Type):\n    def __init__(self, k):\n        super().__init__('T$n')\n        self.k = k\n"
        "class V$n:\n    pass\nt$n = T$n($v)\ntypeof_impl.register(V$n)(lambda value, context: t$n)\n"
        "register_model(T$n)(models.OpaqueModel)\n"
        "unbox(T$n)(lambda kind, obj, c: NativeValue(c.context.get_dummy_value()))\n"
        + overloaded("k = x.k\nreturn lambda x: k").replace("$child", ""),
        argument="V$n()",
    ),
    "what a method of a user's type reads": Form(
        "K$n = $v\nclass T$n(types.Type):\n    def __init__(self):\n        super().__init__('T$n')\n"
        "    def get(self):\n        return K$n\n"
        "class V$n:\n    pass\nt$n = T$n()\ntypeof_impl.register(V$n)(lambda value, context: t$n)\n"
        "register_model(T$n)(models.OpaqueModel)\n"
        "unbox(T$n)(lambda kind, obj, c: NativeValue(c.context.get_dummy_value()))\n"
        + overloaded("k = x.get()\nreturn lambda x: k").replace("$child", ""),
        argument="V$n()",
    ),
}
