"""Copies merged: what becomes the same, and that nothing else does."""

import pytest

from farm.port.merged import Entity, colours


def graph(**entities: tuple[str, list[str]]) -> frozenset[str]:
    return colours({name: Entity(what, to) for name, (what, to) in entities.items()})


def test_two_copies_are_one_whatever_they_are_called() -> None:
    one = graph(f=("f", ["a"]), a=("body", []))
    assert one == graph(f=("f", ["x"]), x=("body", []), y=("body", []))


def test_copies_that_differ_are_two_and_so_is_what_refers_to_them() -> None:
    same = graph(f=("f", ["a", "a"]), a=("body", []), b=("other body", []))
    assert same != graph(f=("f", ["a", "b"]), a=("body", []), b=("other body", []))
    assert same != graph(f=("f", ["a", "a"]), a=("body", []))


def test_what_is_far_away_counts() -> None:
    def chain(end: str) -> frozenset[str]:
        links = {f"n{number}": ("link", [f"n{number + 1}"]) for number in range(8)}
        return graph(**links, n8=(end, []))

    assert chain("one") == chain("one") != chain("another")


def test_a_loop_has_an_end_and_names_from_outside_count() -> None:
    assert graph(f=("f", ["g"]), g=("g", ["f"])) == graph(f=("f", ["h"]), h=("g", ["f"]))
    assert graph(f=("f", ["PyErr_Clear"])) != graph(f=("f", ["PyErr_Occurred"]))


@pytest.mark.parametrize("order", [["a", "b"], ["b", "a"]])
def test_the_order_of_what_is_referred_to_counts(order: list[str]) -> None:
    first = graph(f=("f", ["a", "b"]), a=("one", []), b=("two", []))
    assert (first == graph(f=("f", order), a=("one", []), b=("two", []))) == (order == ["a", "b"])
