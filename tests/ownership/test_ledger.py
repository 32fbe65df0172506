"""The ledger's own door: ports, observers, and what a device may poison."""

import pytest

from ownership import DEVICE, Capacity, Ledger, LedgerError
from tests.ownership.support import CACHE, SESSION, Desk, Recorder, open_desk


def test_no_port_belongs_to_the_device(desk: Desk) -> None:
    """It would find the claims that are in a step."""
    for bind in (desk.ledger.batch_port, desk.ledger.session_port, desk.ledger.cache_port):
        with pytest.raises(LedgerError, match="the device has leases"):
            bind(DEVICE)


def test_ports_have_the_verbs_and_nothing_else(desk: Desk) -> None:
    """Who may call what is the whole point of three classes."""

    def public(port: object) -> set[str]:
        return {name for name in dir(port) if not name.startswith("_")}

    assert public(desk.batch) == {"reserve", "grow", "launch", "land", "rollback"}
    assert public(desk.session) == {"commit", "close", "rollback", "version"}
    assert public(desk.cache) == {"admit", "evict", "rollback"}


def test_freed_memory_is_told_once(desk: Desk) -> None:
    """Everything that was given back since the last call, so that the device can poison it."""
    desk = open_desk(track_freed=True)
    first = desk.committed(6)
    second = desk.committed(3, desk.name(), replaces=first)
    assert desk.ledger.drain_freed() == ((0,), (1,))

    desk.session.close(second)
    slots, pages = desk.ledger.drain_freed()
    assert (slots, set(pages)) == ((1,), {0, 2, 3})
    assert desk.ledger.drain_freed() == ((), ())


def test_pages_beyond_the_position_are_told_as_freed() -> None:
    """They go back with the commit."""
    desk = open_desk(track_freed=True)
    desk.cache.admit(desk.hand(desk.working(2, covers=12), CACHE))

    assert desk.ledger.drain_freed() == ((), (1, 2))


def test_freed_memory_that_nobody_asks_for_is_bounded_by_the_capacity() -> None:
    """A device that never runs must not cost memory without end."""
    desk = open_desk(track_freed=True)
    for _ in range(100):
        desk.batch.rollback(desk.reserve(64))

    slots, pages = desk.ledger.drain_freed()
    assert (len(slots), len(pages)) == (1, 16)


def test_freed_memory_is_only_kept_when_asked_for(desk: Desk) -> None:
    """Most devices don't poison."""
    with pytest.raises(LedgerError, match="without track_freed"):
        desk.ledger.drain_freed()


def test_an_observer_may_come_and_go(recorder: Recorder) -> None:
    """A log is whole when it begins with the opening."""
    ledger = Ledger(Capacity(2, 2, 2))
    assert ledger.observer is None
    ledger.observer = recorder
    opened = {"slots": 2, "pages": 2, "page_size": 2, "host_slots": 0, "host_pages": 0, "seq": 0}
    assert recorder.events == [("ledger.opened", opened)]

    ledger.observer = None
    ledger.audit()
    ledger.observer = recorder
    ledger.audit()
    assert recorder.names == ["ledger.opened", "ledger.audited"]
    assert ledger.session_port(SESSION).version == 0
