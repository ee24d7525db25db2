"""Functions that cannot be done again, and what `restart_of` must say of them."""

import random
import time

import numba
import numpy as np
from bodies import (
    NAMES,
    RNG,
    TABLE,
    Box,
    Logged,
    callback,
    kernel,
    other_fallback,
    says,
    settings,
    stock,
    ufunc,
)
from numba import objmode
from numba.typed import Dict, List

# ruff: noqa: E722, UP028
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


counter = 0


@says("it calls print")
def prints(a):
    print(a)


@says("it calls helps_by_printing, which calls print")
def prints_below(a):
    helps_by_printing(a)


@says("it calls print")
def helps_by_printing(a):
    print(a)


@says("it draws random numbers (np.random.normal)")
def draws(a):
    return a + np.random.normal()


@says("it draws random numbers (np.random.seed)")
def seeds(n):
    np.random.seed(n)


@says("it draws random numbers (random.random)")
def draws_in_python(a):
    return a + random.random()


@says("it draws random numbers (RNG.normal)")
def draws_from_a_global(a):
    return a + RNG.normal()


@says("it calls the method standard_normal, which is not known to be pure")
def draws_from_a_parameter(rng):
    return rng.standard_normal()


@says("it yields", loops=True)
def generates(n):
    for i in range(n):
        yield i


@says("it has a handler or a finally that may stop any exception")
def leaves_for_objects(a):
    with objmode(b="int64"):
        b = a
    return b


@says("it writes to the global TABLE")
def writes_to_a_global(a):
    TABLE[0] = a


@says("it writes to the global NAMES")
def appends_to_a_global(a):
    NAMES.append(a)


@says("it writes to the global settings.table")
def writes_to_a_global_of_a_module(a):
    settings.table[0] = a


@says("it calls keeps_what_it_got, which writes to the default value of found")
def calls_one_with_a_default(a):
    keeps_what_it_got(a)


@says("it writes to the default value of found", writes=[1])
def keeps_what_it_got(a, found=[]):  # noqa: B006
    found.append(a)


@says("it sets the variable counter of an outer scope", writes=[0], loops=True)
def sets_a_global(a):
    global counter
    counter = a


@says("it writes to the global np")
def sets_in_a_module(a):
    np.thing = a


@says("it calls what f holds")
def calls_a_parameter(f, x):
    return f(x)


@says("it calls map with a function that cannot be followed", loops=True)
def maps_a_parameter(f, x):
    return list(map(f, x))


@says("it calls the method run, which is not known to be pure")
def calls_an_unknown_method(a):
    return a.run()


@says("it calls time.time, which is not known to be pure")
def reads_a_clock(a):
    return a + time.time()


@says("it calls open, which is not known to be pure")
def opens(a):
    return open(a)


@says("it calls stock, which numba compiles in the calling thread")
def calls_stock(a):
    return stock(a)


@says("it calls other_fallback, which has a fallback of its own")
def calls_one_with_a_fallback(a):
    return other_fallback(a)


@says("it calls ufunc, which numba compiles in the calling thread")
def calls_a_ufunc(a):
    return ufunc(a)


@says("it calls kernel, which numba compiles in the calling thread")
def calls_a_stencil(a):
    return kernel(a)


@says("it calls callback, which numba compiles in the calling thread")
def calls_a_callback(a):
    return callback(a)


@says("it calls Box, which numba compiles in the calling thread")
def makes_a_box(a):
    return Box().x + a


@says("it makes a typed container (List), whose operations numba compiles in the calling thread")
def makes_a_typed_list(a):
    found = List()
    found.append(a)
    return found


@says("it makes a typed container (Dict.empty), whose operations numba compiles in the calling thread")
def makes_a_typed_dictionary(a):
    return Dict.empty(numba.types.int64, numba.types.int64)


@says("it has a handler or a finally that may stop any exception", writes=[0])
def catches_everything(a):
    try:
        a[0] = 1
    except:
        a[0] = 2


@says("it has a handler for BaseException", writes=[0])
def catches_base_exceptions(a):
    try:
        a[0] = 1
    except BaseException:
        a[0] = 2


@says("it has a handler or a finally that may stop any exception", writes=[0])
def tidies_up(a):
    try:
        a[0] = 1
    finally:
        a[0] = 2


@says("it calls Logged, which is not known to be pure")
def raises_with_effects(a):
    raise Logged(a)


@says("it raises Logged, and nothing is known of what making that does")
def raises_a_class_with_effects(a):
    raise Logged


@says("it cannot be read by numba", writes=[0], loops=True)
def deletes_a_variable_while_importing(a):
    import os

    return os, a


@says("it cannot be read by numba", writes=[0, 1], loops=True)
def takes_apart(a, b):
    first, *others = a
    return first, others


@says("it writes to the default value of a", writes=[0])
def writes_to_a_default(a=TABLE):
    a[0] = 1


@says("it writes to the global TABLE")
def writes_to_what_a_callee_returns(n):
    gives_a_global()[n] = 1


@says()
def gives_a_global():
    return TABLE


@says("it calls inner, which sets the variable n of an outer scope")
def sets_from_inside(n):
    def inner():
        nonlocal n
        n = 4

    inner()
    return n


@says("it calls the missing global missing_function, which is not known to be pure")
def calls_what_is_not_there(a):
    return missing_function(a)  # noqa: F821


@says(writes=[0], loops=True)
def goes_through_a_generator(a):
    total = 0.0
    for row in rows(a):
        row[0] = 1
        total += 1
    return total


@says("it yields", loops=True)
def rows(a):
    for i in range(3):
        yield a[i]


@says("it calls prints_and_yields, which calls print", loops=True)
def goes_through_a_loud_generator(a):
    return list(prints_and_yields(a))


@says("it yields")
def prints_and_yields(a):
    print(a)
    yield 1


@says(writes=[0], nested=[], loops=False)
def writes_in_a_generator(a):
    for _ in marks(a[1:]):
        break


@says("it yields", writes=[0])
def marks(a):
    a[0] = 1
    yield 1
    a[1] = 1
