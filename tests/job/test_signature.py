"""Signatures as the key sees them: argument types by structure, in full and in order."""

import itertools

import numpy as np
from numba import types

from farm.job.functor import compute_key
from farm.job.reach import describe_values, reach

SIGNATURES = [
    (types.int64, types.float64),
    (types.float64, types.int64),
    (types.int64,),
    (types.literal(1), types.int64),
    (types.int64, types.literal(1)),
    (types.literal(2), types.int64),
    (types.literal(True), types.int64),
    (types.Omitted(1), types.int64),
    (types.Omitted(1.0), types.int64),
    (types.Omitted(True), types.int64),
    (types.float64[::1],),
    (types.float64[:],),
    (types.Array(types.float64, 1, "C", readonly=True),),
    (types.Array(types.float64, 1, "C", aligned=False),),
    (types.UniTuple(types.int64, 2),),
    (types.Tuple((types.int64, types.float64)),),
    (types.NPDatetime("ns"),),
    (types.NPDatetime("s"),),
    (types.unicode_type,),
]


def test_equality_string_and_hash_agree() -> None:
    for a, b in itertools.product(SIGNATURES, SIGNATURES):
        same = a == b
        assert same == (describe_values(a) == describe_values(b)), (a, b)
        assert not same or hash(a) == hash(b)
    assert len({describe_values(one) for one in SIGNATURES}) == len(SIGNATURES)


def test_constant_parameter_swap_differs() -> None:
    constant_first, parameter_first = SIGNATURES[3], SIGNATURES[4]
    assert describe_values(constant_first) != describe_values(parameter_first)


def test_zero_size_constants_of_other_dtype_differ() -> None:
    def make(constant: object) -> object:
        def reads() -> object:
            return constant

        return reads

    empty = [np.zeros(0, kind) for kind in (np.int64, np.float64, np.int32)] + [np.zeros((0, 3)), np.zeros((3, 0))]
    assert len({reach(make(one)).description for one in empty}) == len(empty)


def test_the_return_type_is_part_of_the_signature() -> None:
    import numba

    dispatcher = numba.njit(lambda a: a)
    keys = {compute_key(dispatcher, (types.int64,), kind, None) for kind in (None, types.int64, types.float64)}
    assert len(keys) == 3
