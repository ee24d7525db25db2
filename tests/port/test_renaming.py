"""What may be called otherwise, and what may not."""

from farm.port.renaming import Exact, Renaming, masked


def test_one_renaming_explains_all_or_nothing() -> None:
    renaming = Renaming()
    assert renaming.text("f at 0x7f0000000001, g at 0x7f0000000002", "f at 0x7f0000000003, g at 0x7f0000000004")
    assert renaming.text("0x7f0000000001", "0x7f0000000003")
    assert not renaming.text("0x7f0000000001", "0x7f0000000004"), "it is called otherwise there"
    assert not renaming.text("0x7f0000000005", "0x7f0000000003"), "that is the name of another"


def test_numbers_of_compiles_are_the_same_in_each_notation_and_in_any_length() -> None:
    renaming = Renaming()
    assert renaming.text("_ZN1m1fB19v1234567890123456789B4abcdEd", "_ZN1m1fB11v98765432100B4abcdEd")
    assert renaming.text("f$1234567890123456789", "f$98765432100")
    assert renaming.number(1234567890123456789, 98765432100)
    assert not renaming.number(1234567890123456788, 98765432100)
    assert not Renaming().number(10**15, 10**15 + 1), "a large constant is no number of a compile"


def test_a_constant_that_is_named_by_its_hash_is_the_same_under_any_seed() -> None:
    assert Renaming().text("@.bytes.2177790346619493622", "@.bytes.-7436360756540568045")
    assert not Renaming().text("@.bytes.2177790346619493622", "@.other.2177790346619493622")


def test_what_is_no_such_name_must_be_equal() -> None:
    for one, other in (("f", "g"), ("x = 0x10", "x = 0x11"), ("v1", "v2"), ("a$1", "a$2")):
        assert not Renaming().text(one, other)
    assert not Exact().text("0x7f0000000001", "0x7f0000000002")
    assert masked("f at 0x7f0000000001") == masked("f at 0x7f0000000002") == "f at *"
