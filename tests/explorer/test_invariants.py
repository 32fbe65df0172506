"""The invariants see what they are for: each is broken on purpose, and told."""

import pytest

from kernel.actors.reply import Reply
from kernel.ids import SCHEDULER, SessionId, TurnId
from kernel.messages import GiveUp, SetMark
from kernel.testing.explorer import Event, replay
from kernel.testing.explorer.forms import field
from kernel.testing.explorer.stage import Stage
from kernel.testing.invariants import Broken, all_free, always, at_rest
from ownership import ZEROS, BaseName, CustodianId, Need, Refused
from tests.durable.worlds import Durable
from tests.explorer.small_worlds import ONE_TURN
from tests.explorer.test_devices import LAUNCHED

LANDED = [
    *LAUNCHED,
    Event("complete", detail="done"),
    Event("deliver", "gpu-pool"),
    Event("deliver", "scheduler"),
]


def properties(broken: list[Broken]) -> set[str]:
    return {one.property for one in broken}


def rested() -> Stage:
    stage = replay(ONE_TURN, LANDED)
    for name in ("session:a", "scheduler"):
        actor = stage.core.dispatcher.actor(CustodianId(name))
        while actor is not None and len(actor.mailbox):
            stage.serve(actor)
    while stage.head("scheduler") is not None:
        stage.perform(Event("deliver", "scheduler"))
    return stage


def test_nothing_is_broken_in_a_kernel_that_was_left_alone() -> None:
    """Neither while a step runs, nor when all has come to rest."""
    assert always(replay(ONE_TURN, LAUNCHED).core) == []
    stage = rested()
    assert always(stage.core) == []
    assert at_rest(stage.core) == []
    stage.core.stop(join_timeout_s=0.0)
    assert all_free(stage.core) == []


def test_a_slot_in_two_columns_breaks_conservation() -> None:
    """The oldest bug of all."""
    stage = rested()
    book = field(stage.core.ledger, "_book")
    book.free_slots.append(0)

    assert properties(always(stage.core)) == {"conservation"}
    assert str(always(stage.core)[0]).startswith("conservation: slot 0 stands in 2 columns")


def test_a_death_that_nobody_planted_is_broken() -> None:
    """So is what it makes the ledger take back; both are known in a world with faults."""
    stage = rested()
    stage.core.dispatcher.kill(CustodianId("session:a"), RuntimeError("a bug"))

    assert properties(always(stage.core)) == {"nobody dies", "no reclaim without a fault"}
    assert always(stage.core, deaths=1, reclaims=True) == []


def test_a_refused_use_of_a_handle_is_broken() -> None:
    """The ledger has taken a note of it."""
    stage = rested()
    handle = stage.core.sessions[SessionId("a")].state.state
    with pytest.raises(TypeError):
        stage.core.ledger.batch_port(SCHEDULER).rollback(handle)  # type: ignore[arg-type]

    assert properties(always(stage.core)) == {"no violation"}


def test_a_claim_that_nobody_lists_has_no_custodian() -> None:
    """The table says that the scheduler holds it, and the scheduler does not know."""
    stage = Stage(ONE_TURN)
    claim = stage.core.ledger.batch_port(SCHEDULER).reserve(Need(1), ZEROS, turn="a1")
    assert not isinstance(claim, Refused)

    assert properties(always(stage.core)) == {"one custodian"}
    assert properties(at_rest(stage.core)) == {"at rest"}
    assert properties(all_free(stage.core)) == {"everything free"}


def test_a_handle_that_was_spent_and_kept_is_seen() -> None:
    """A list may not name what is somebody else's by now."""
    stage = rested()
    actor = stage.core.sessions[SessionId("a")]
    assert actor.state.state is not None
    stage.core.ledger.reclaim(actor.name)

    broken = always(stage.core, reclaims=True)

    assert properties(broken) == {"one custodian"}
    assert "lists" in str(broken[0])


def test_more_mail_than_was_meant_is_broken() -> None:
    """The bound is asserted where it is looked at, too."""
    stage = Stage(ONE_TURN)
    pool = stage.core.recovery.pool
    assert pool is not None
    pool.mail_bound = -1

    assert properties(always(stage.core)) == {"mailboxes are bounded"}


def test_a_log_without_anything_pending_is_broken() -> None:
    """The state would have absorbed the token that the next turn starts from."""
    stage = rested()
    stage.core.sessions[SessionId("a")].state.log.pop()

    assert properties(always(stage.core)) == {"something is pending"}


def test_a_lease_that_nobody_will_land_is_broken() -> None:
    """It would stay on the device for ever."""
    stage = replay(ONE_TURN, LAUNCHED)
    pool = stage.core.recovery.pool
    assert pool is not None
    pool.leases.clear()

    assert properties(always(stage.core)) == {"a lease is known"}


def test_a_claim_of_a_turn_that_has_ended_is_broken() -> None:
    """Whoever forgets the turn must not keep its claim."""
    stage = replay(ONE_TURN, LAUNCHED)
    scheduler = stage.core.scheduler
    assert scheduler is not None
    claim = stage.core.ledger.batch_port(SCHEDULER)
    work = field(scheduler, "_work")
    work.claims[TurnId("a9")] = claim

    assert "a claim has a turn" in properties(always(stage.core)) or "one custodian" in properties(
        always(stage.core)
    )


def test_whoever_waits_is_seen_at_rest() -> None:
    """A turn that is open while nothing will happen waits for ever."""
    unrest = {one.message for one in at_rest(replay(ONE_TURN, LAUNCHED).core)}

    assert "turn a1 of session:a is open, and nothing will happen" in unrest
    assert "step 1 has not landed" in unrest
    assert "a step is on the device" in unrest
    assert "the scheduler has turn a1 (running), which nobody waits for" in unrest


def test_what_is_counted_and_asked_is_seen_at_rest() -> None:
    """The door's count, an ask without an answer, and mail under way."""
    stage = rested()
    stage.core.door.enter(TurnId("a9"), 1)
    field(stage.core.scheduler, "_admission").room.asked.add(BaseName(CustodianId("session:a"), 7))
    actor = stage.core.sessions[SessionId("a")]
    actor.mailbox.post(GiveUp(BaseName(actor.name, 7)), SCHEDULER)

    unrest = [one.message for one in at_rest(stage.core)]

    assert any(message.startswith("the door still counts 1") for message in unrest)
    assert any("was asked for" in message for message in unrest)
    assert "a message is under way" in unrest


def test_a_claim_that_is_still_held_is_seen_at_rest() -> None:
    """Where there is no store, a finished turn's claim is committed or rolled back at once."""
    stage = Stage(ONE_TURN)
    actor = stage.core.sessions[SessionId("a")]
    claim = stage.core.ledger.batch_port(SCHEDULER).reserve(Need(1), ZEROS, turn="a1")
    assert not isinstance(claim, Refused)
    stage.core.ledger.move(claim, SCHEDULER, actor.name, "test")
    actor.state.hold(claim)

    unrest = [one.message for one in at_rest(stage.core)]

    assert unrest == ["session:a holds a claim of a turn that is over"]


def test_a_session_that_waits_for_its_store_is_seen_at_rest() -> None:
    """And the store that has a job of it."""
    world = Durable.on()
    session = world.session("a")
    world.start(session, [1, 2])
    world.rest()
    assert at_rest(world.core) == []
    reply: Reply[int] = Reply()
    world.post(session, SetMark("here", reply))
    world.post(session, SetMark("there", reply))

    unrest = [one.message for one in at_rest(world.core)]

    assert "the store has not done all that it was asked" in unrest
    assert "session:a waits for the store" in unrest
    assert any(message.startswith("session:a has never handled SetMark") for message in unrest)


def test_poison_that_was_read_is_broken() -> None:
    """The device has seen it."""
    stage = Stage(ONE_TURN)
    reads = stage.device.inner.poison_reads
    assert isinstance(reads, list)
    reads.append("slot 0")

    assert properties(always(stage.core)) == {"no poison is read"}
    stage.device.was_lost = True
    stage.close()
