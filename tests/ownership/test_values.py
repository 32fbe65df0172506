"""Values: they hold and pin nothing, and refuse what makes no sense."""

import copy

import pytest

from ownership import NO_SLOT, ZEROS, BaseName, Capacity, CustodianId, NoSlot, Zeros


@pytest.mark.parametrize(
    ("slots", "pages", "page_size"), [(-1, 4, 4), (4, -1, 4), (4, 4, 0), (0, 0, 4)]
)
def test_a_capacity_that_makes_no_sense_is_refused(slots: int, pages: int, page_size: int) -> None:
    """The first error should come where the number was given."""
    with pytest.raises(ValueError, match=r"must be >=|nothing to own"):
        Capacity(slots, pages, page_size)


@pytest.mark.parametrize(("slots", "pages"), [(1, 0), (0, 1)])
def test_one_slot_or_one_page_is_a_legal_pool(slots: int, pages: int) -> None:
    """Models of one kind of layer use only one of the two."""
    assert Capacity(slots, pages, 1).page_size == 1


def test_no_slot_and_zeros_are_values_of_their_own() -> None:
    """None, -1 and 0 mean too many things; a copy of a singleton is the singleton."""
    assert isinstance(NO_SLOT, NoSlot)
    assert isinstance(ZEROS, Zeros)
    assert copy.deepcopy(ZEROS) is ZEROS
    assert copy.deepcopy(NO_SLOT) is NO_SLOT


def test_base_names_compare_by_value() -> None:
    """A queued turn names its base, and holds nothing."""
    assert BaseName(CustodianId("a"), 1) == BaseName(CustodianId("a"), 1)
    assert len({BaseName(CustodianId("a"), 1), BaseName(CustodianId("a"), 1)}) == 1
