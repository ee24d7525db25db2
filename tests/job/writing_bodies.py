"""Functions that write to their arguments, and what `restart_of` must say of them."""

import heapq

import numpy as np
from bodies import (
    FUNCTIONS,
    Odd,
    Point,
    fill_first,
    hooked,
    same,
    says,
)

# ruff: noqa: B905, RUF005
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


@says(writes=[1])
def sets_an_item(n, a):
    a[n] = 1


@says(writes=[0])
def sets_a_slice(a, b):
    a[1:, 0] = b


@says(writes=[0])
def deletes(a):
    del a[0]


@says(writes=[0])
def adds_in_place(a, b):
    a += b


@says(writes=[0])
def adds_to_an_item(a, i):
    a[i] += 1


@says(writes=[0])
def adds_to_a_row(a, i):
    row = a[i]
    row += 1


@says(parts=[(0, 1)], nested=[0], loops=True)
def adds_to_each_row(a):
    for row in a:
        row *= 2


@says(writes=[0])
def sets_in_a_view(a):
    b = a.T.reshape(4, 4)[1:].ravel()
    b[0] = 1


@says(writes=[0])
def sets_in_a_real_part(a):
    a.real[0] = 1
    np.imag(a)[0] = 1


@says(writes=[0])
def sets_in_what_may_be_a_view(a):
    np.asarray(a)[0] = 1


@says(writes=[0, 1])
def sets_one_of_two(a, b, n):
    c = a if n else b
    c[0] = 1


@says(writes=[0, 1])
def sets_through_a_tuple(a, b):
    pair = (a, b)
    pair[0][0] = 1 if pair else 0
    x, _ = pair, b
    return x


@says(writes=[0, 1])
def sets_through_joined_tuples(a, b):
    both = (a,) + (b,)
    both[0][0] = 1


@says(parts=[(1, 1)], nested=[0])
def sets_through_a_joined_parameter(t, x):
    joined = t + (x[0],)
    joined[0][0] = 1


@says(nested=[0], loops=True)
def sets_through_a_repeated_parameter(t):
    for one in t * 2:
        one[0] = 1


@says(writes=[0], loops=True)
def sets_through_a_list(a):
    found = []
    found.append(a)
    for one in found:
        one[0] = 1


@says(writes=[0])
def sets_through_a_dictionary(a):
    d = {1: a}
    d[1][0] = 2


@says(writes=[0])
def sets_through_a_point(a, b):
    p = Point(a, b[0] * 2.0 - 1)
    p.x[0] = 1


@says(writes=[0, 1], loops=True)
def sets_while_counting(a, b):
    for i, row in enumerate(zip(a, b)):
        row[0][i] = 1
    for i, row in enumerate(a):
        row[i] = 1


@says(writes=[0, 1], loops=True)
def sets_both_while_counting(a, b):
    for x, y in zip(a, b):
        x[0] = y[0] = 1


@says(writes=[0])
def sets_a_field(record):
    record.x = 1


@says(writes=[0])
def sets_a_field_of_one(records, i):
    records[i].x = 1
    records[i]["y"] += 1


@says(writes=[0])
def sorts_in_place(a):
    a.sort()


@says(writes=[0])
def fills(a):
    a[1:].fill(0)


@says(writes=[0])
def appends(found, x):
    found.append(x)


@says(writes=[0])
def updates(d, k):
    d.update({k: 1})
    d.setdefault(k, 2)


@says(writes=[0])
def copies_into(a, b):
    np.copyto(a, b)


@says(writes=[0])
def fills_a_diagonal(a):
    np.fill_diagonal(a, 1)


@says(writes=[2])
def writes_out(a, b, c):
    np.add(a, b, c)


@says(writes=[1])
def writes_out_by_name(a, b):
    np.sqrt(a, out=b)


@says(writes=[2])
def writes_a_product(a, b, c):
    np.dot(a, b, c)


@says(writes=[0])
def gives_to_a_callee(a, x):
    fill_first(a, x)


@says(writes=[1], nested=[0])
def gives_by_name(x, a):
    fill_first(value=x, a=a[1:])


@says(writes=[0])
def gives_the_rest(*rest):
    fill_first(*rest)


@says(writes=[1])
def writes_to_the_rest(n, *rest):
    rest[n][0] = 1


@says(writes=[1])
def gives_to_the_rest(a, b):
    writes_to_the_rest(0, b)
    return a


@says(writes=[0])
def gives_to_a_dispatcher(a):
    hooked(a)


@says(writes=[0])
def sets_what_a_callee_returns(a):
    same(a)[0] = 1


@says(writes=[0])
def sets_what_a_closure_captures(a):
    def inner(i):
        a[i] = 1

    inner(0)


@says(writes=[0])
def sets_what_a_closure_gets(a):
    def inner(x):
        x[0] = 1

    inner(a)


@says(writes=[0], loops=True)
def recursive_writer(a, n):
    if n > 0:
        a[n] = n
        recursive_writer(a, n - 1)


@says(writes=[0, 1], loops=True)
def swapping_writer(a, b, n):
    if n > 0:
        a[n] = n
        swapping_writer(b, a, n - 1)


@says(writes=[0], nested=[1])
def puts_one_into_another(found, a):
    found.append(a)
    found[0][0] = 1


@says(writes=[0], nested=[1])
def sets_items_and_adds(out, a):
    out[0] = a[0]
    out[0] += 1


@says(writes=[0], nested=[1])
def puts_through_a_callee(found, a):
    appends(found, a)
    found.pop()[0] = 1


@says(writes=[0])
def calls_one_of_several(a):
    FUNCTIONS[1](a, 1)
    return FUNCTIONS[0](3)


@says(writes=[0], loops=True)
def changes_by_functions(a, b):
    np.nan_to_num(a, False)
    heapq.heapify(a)


@says(writes=[0])
def catches_and_writes(a):
    try:
        a[0] = 1
    except Exception:
        a[1] = 2


@says(parts=[(0, 1)])
def begins_with_an_item(a):
    total = a[0]
    total += 1
    return total


@says(parts=[(0, 2)], loops=True)
def begins_with_an_item_of_a_matrix(a):
    for i in range(3):
        rest = a[i, i + 1]
        rest -= 1


@says(parts=[(0, 2)])
def takes_two_steps(a):
    row = a[1:][0]
    x = row[:-1][2]
    x += 1


@says(parts=[(0, 1)])
def takes_a_column(a):
    x = a[:, 0]
    x += 1


@says(writes=[0])
def takes_a_part_of_another_shape(a):
    x = a.reshape(-1, 1)[0]
    x += 1


@says(writes=[0])
def takes_a_part_with_a_new_dimension(a):
    x = a[0, None]
    x += 1


@says(writes=[0])
def takes_what_an_unknown_index_gives(a, i):
    x = a[i]
    x += 1


@says(writes=[0])
def takes_an_item_as_an_array_without_dimensions(a):
    x = a[..., 0]
    x += 1


@says(writes=[0])
def takes_two_steps_in_another_shape(a):
    x = a.reshape(-1, 1, 1)[0][0]
    x += 1


@says(writes=[0])
def takes_a_part_of_what_an_attribute_gives(a):
    x = a.flat[0]
    x += 1


@says(writes=[0])
def sets_through_a_field_with_the_name_of_an_attribute(a, b):
    p = Odd(a, 1)
    p.real[0] = 1
    return b


@says(parts=[(0, 1)])
def takes_a_part_of_a_transposed_view(a):
    x = a.T[0]
    x += 1


@says(parts=[(0, 2)])
def gives_a_row(a):
    begins_with_an_item(a[0])


@says(parts=[(0, 1)])
def gives_an_item(a):
    adds_in_place(a[0], 1)


@says(writes=[0])
def gives_a_list_of_arguments(a, b):
    adds_in_place(*(a, 1))
    return b


@says(writes=[0], loops=True)
def goes_down(a, n):
    while n:
        a = a[0]
    a[0] = 1


@says(parts=[(0, 1)])
def sorts_a_row(a):
    a[0].sort()
