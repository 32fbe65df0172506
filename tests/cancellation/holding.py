"""What must be true of an engine once nobody wants anything of it any more."""

from adapters.fake_device import FakeDevice
from kernel import Engine
from kernel.engine.core import Core

__all__ = ["assert_all_free", "assert_at_rest", "assert_nothing_held", "assert_stopped"]


def assert_at_rest(
    engine: Engine, *, device: FakeDevice | None = None, after_deaths: bool = False
) -> None:
    """No turn is left anywhere; only sessions that are open may hold something.

    Nothing was reclaimed, unless an actor was killed.
    """
    core = engine.core
    audit = engine.audit()
    assert audit.conserved, audit.problems
    assert audit.batch == audit.quarantined == audit.draining == 0, audit
    _assert_no_violation(core, after_deaths=after_deaths)
    assert (core.door.queued_reqs, core.door.queued_tokens) == (0, 0)
    scheduler = core.scheduler
    if scheduler is not None:
        assert not len(scheduler.roster), list(scheduler.roster)
        assert not scheduler.claims
        assert scheduler.flight is None
    assert [actor.phase for actor in core.sessions.values()] == ["idle"] * len(core.sessions)
    if device is not None:
        assert not device.poison_reads, device.poison_reads


def assert_nothing_held(
    engine: Engine, *, device: FakeDevice | None = None, after_deaths: bool = False
) -> None:
    """Every slot and page is free, no session is open, nothing is counted."""
    assert_at_rest(engine, device=device, after_deaths=after_deaths)
    assert not engine.core.sessions
    assert_all_free(engine.core)


def assert_all_free(core: Core) -> None:
    """The pool is as it was when the engine was opened."""
    audit = core.ledger.audit()
    assert audit.at_rest, audit
    capacity = core.ledger.view.capacity
    assert (audit.free_slots, audit.free_pages) == (capacity.slots, capacity.pages)


def assert_stopped(core: Core, *, after_deaths: bool = False) -> None:
    """The engine has ended: audited, everything free, every actor retired."""
    assert core.audit is not None
    assert core.audit.at_rest, core.audit
    assert_all_free(core)
    _assert_no_violation(core, after_deaths=after_deaths)
    assert (core.door.queued_reqs, core.door.queued_tokens) == (0, 0)
    assert not core.sessions
    assert not core.dispatcher.actors()


def _assert_no_violation(core: Core, *, after_deaths: bool) -> None:
    view = core.ledger.view
    if after_deaths:
        assert not [violation for violation in view.violations if violation.kind == "lost"]
    else:
        assert (view.counters.reclaimed, view.counters.violations) == (0, 0), view.violations
