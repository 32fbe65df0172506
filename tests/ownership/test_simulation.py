"""Simulated endings: exact, in any order, and without a trace."""

import pytest

from ownership import BaseName, BatchOwned, ReleaseSimulation, StaleHandle
from tests.ownership.support import CACHE, Desk, open_desk, snapshot


def gain(simulation: ReleaseSimulation) -> tuple[int, int]:
    return simulation.slots, simulation.pages


def test_nothing_supposed_is_nothing_gained(desk: Desk) -> None:
    """The neutral element."""
    assert gain(desk.ledger.view.simulate()) == (0, 0)


def test_a_claim_gives_its_slot_and_its_pages(desk: Desk) -> None:
    """Exclusive ones, and frozen ones that nobody shares."""
    claim = desk.working(9, covers=16)
    before = snapshot(desk.ledger)

    assert gain(desk.ledger.view.simulate().claim(claim)) == (1, 4)
    assert snapshot(desk.ledger) == before


def test_a_shared_run_is_gained_with_the_last_that_names_it(desk: Desk) -> None:
    """The sum of the single answers is less than the answer for all."""
    desk.committed(8)
    desk.committed(4, desk.name(1))
    claim = desk.working(2, desk.name(2))
    view = desk.ledger.view

    assert gain(view.simulate().base(desk.name(1))) == (1, 0)
    assert gain(view.simulate().base(desk.name(2))) == (1, 0)
    assert gain(view.simulate().claim(claim)) == (1, 1)
    assert gain(view.simulate().claim(claim).base(desk.name(2))) == (2, 2)
    assert gain(view.simulate().base(desk.name(2)).base(desk.name(1)).claim(claim)) == (3, 4)


def test_what_is_supposed_twice_counts_once(desk: Desk) -> None:
    """Victims and bases may overlap in a list of moves."""
    desk.committed(6)
    claim = desk.working(2)

    simulation = desk.ledger.view.simulate().claim(claim).claim(claim)
    assert gain(simulation.base(desk.name()).base(desk.name())) == (2, 3)


def test_a_base_that_is_gone_gives_nothing(desk: Desk) -> None:
    """It has given all it had."""
    assert gain(desk.ledger.view.simulate().base(BaseName(CACHE, 3))) == (0, 0)


@pytest.mark.parametrize("base_first", [True, False])
def test_a_pinned_base_gives_nothing_unless_its_pins_go_too(desk: Desk, base_first: bool) -> None:
    """It would drain; with the last pin, it is free."""
    desk.committed(6)
    one, two = desk.reserve(9, desk.name()), desk.reserve(9, desk.name())
    view = desk.ledger.view

    assert gain(view.simulate().base(desk.name())) == (0, 0)
    assert gain(view.simulate().base(desk.name()).claim(one)) == (1, 2)
    simulation = view.simulate()
    if base_first:
        simulation.base(desk.name()).claim(one).claim(two)
    else:
        simulation.claim(one).claim(two).base(desk.name())
    assert gain(simulation) == (3, 6)


def test_the_last_pin_of_a_draining_base_gives_the_base_as_well(desk: Desk) -> None:
    """What is rolled back is then more than the claim's own."""
    state = desk.committed(6)
    claim = desk.reserve(9, desk.name())
    desk.session.close(state)

    assert gain(desk.ledger.view.simulate().claim(claim)) == (2, 4)


def test_a_claim_on_the_device_counts_as_if_it_had_landed(desk: Desk) -> None:
    """Victims are chosen while a step runs; they give once it lands."""
    claim = desk.working(3, covers=9)
    victim: object = claim
    lease = desk.batch.launch([claim], step=1)
    assert isinstance(victim, BatchOwned)
    assert gain(desk.ledger.view.simulate().claim(victim)) == (1, 3)

    desk.ledger.quarantine(lease)
    assert gain(desk.ledger.view.simulate().claim(victim)) == (0, 0)


def test_without_slots_only_pages_are_gained() -> None:
    """There is no slot to count."""
    desk = open_desk(slots=0)

    assert gain(desk.ledger.view.simulate().claim(desk.reserve(9))) == (0, 3)


def test_a_spent_claim_is_not_supposed(desk: Desk) -> None:
    """Whoever counts on it has not kept up with its own rollbacks."""
    claim = desk.reserve(3)
    desk.batch.rollback(claim)

    with pytest.raises(StaleHandle):
        desk.ledger.view.simulate().claim(claim)
