"""A fork of a session whose state is only on the disk starts from its parent's snapshot."""

import pytest

from kernel.actors.reply import Reply
from kernel.engine.inspection import session_info
from kernel.ids import SessionId
from kernel.messages import Exported, ExportSession, Hibernate, Rewind
from kernel.sessions.session import SessionActor
from kernel.turn import TurnRequest
from tests.durable.test_exports import goes_on, hold_up_reads, leave_to_disk
from tests.durable.worlds import Durable, settled
from tests.kernel.loopless import error_of, tokens_of
from tests.kernel.toys import Recorder
from tests.pressure.worlds import greedy, words


def open_world(probe: Recorder | None = None) -> Durable:
    return Durable.on(probe=probe, num_slots=6, num_pages=64)


def take(world: Durable, session: SessionActor, salt: int) -> TurnRequest:
    request = world.start(session, words(4, salt), greedy(3))
    world.rest()
    assert error_of(request) is None
    return request


def fork_of(world: Durable, parent: SessionActor, name: str = "fork") -> SessionActor:
    return world.session(name, parent=parent)


def parent_on_disk(world: Durable) -> SessionActor:
    parent = world.session("a")
    take(world, parent, 0)
    take(world, parent, 1)
    leave_to_disk(world, parent)
    return parent


def expected() -> list[int]:
    """The fork's turn, where the parent's state stayed on the device."""
    world = open_world()
    parent = world.session("a")
    take(world, parent, 0)
    take(world, parent, 1)
    return tokens_of(take(world, fork_of(world, parent), 5))


@pytest.mark.parametrize("parent_is", ["at rest", "dormant", "closed late", "a fork itself"])
def test_a_fork_starts_from_the_snapshot_of_its_parent(parent_is: str) -> None:
    """Else a long history is computed again for each fork, though its state is on the disk."""
    world = open_world()
    parent = parent_on_disk(world)
    if parent_is == "a fork itself":
        parent = fork_of(world, parent, "between")
    fork = fork_of(world, parent)
    if parent_is == "dormant":
        world.post(parent, Hibernate())
        world.rest()
        assert parent.is_closed
    request = take(world, fork, 5)
    if parent_is == "closed late":
        world.close(parent)
    again = take(world, fork, 6)

    assert tokens_of(request) == expected()
    assert request.output.cached_tokens == 13
    assert request.output.recomputed_tokens == 0
    assert again.output.cached_tokens == 20


def test_where_the_state_of_a_fork_is_says_disk() -> None:
    """As it does of its parent."""
    world = open_world()
    parent = parent_on_disk(world)
    fork = fork_of(world, parent)

    assert session_info(world.core, fork).place == "disk"
    assert session_info(world.core, parent).place == "disk"


@pytest.mark.parametrize("goes", ["elsewhere", "on", "away", "missing"])
def test_a_parent_that_went_its_own_way_leaves_its_fork_the_log(goes: str) -> None:
    """A snapshot at the very same position may be of another history by then; nothing is lost."""
    probe = Recorder()
    world = open_world(probe)
    parent = parent_on_disk(world)
    fork = fork_of(world, parent)
    if goes == "elsewhere":
        world.post(parent, Rewind(1, Reply()))
        world.rest()
        take(world, parent, 9)
        leave_to_disk(world, parent)
        assert parent.archive is not None
        assert parent.archive.snapshots.position == 13
    elif goes == "on":
        take(world, parent, 9)
        leave_to_disk(world, parent)
    elif goes == "away":
        world.close(parent)
        world.rest()
    else:
        world.disk.lose_snapshot("a")
    request = take(world, fork, 5)

    assert tokens_of(request) == expected()
    assert request.output.cached_tokens == 0
    assert not probe.named("session.state_lost")


def test_a_namesake_of_the_parent_is_not_taken_for_it() -> None:
    """Its snapshot stands at the same position, under the same name."""
    world = open_world()
    fork = fork_of(world, parent_on_disk(world))
    world.close(world.core.sessions[SessionId("a")])
    world.rest()
    namesake = world.session("a")
    take(world, namesake, 7)
    take(world, namesake, 8)
    leave_to_disk(world, namesake)
    request = take(world, fork, 5)

    assert tokens_of(request) == expected()
    assert request.output.cached_tokens == 0


def test_a_damaged_snapshot_of_the_parent_is_told_once_and_costs_the_log() -> None:
    """Content is never lost while the log is there."""
    probe = Recorder()
    world = open_world(probe)
    fork = fork_of(world, parent_on_disk(world))
    world.disk.damage_snapshot("a")
    request = take(world, fork, 5)
    take(world, fork, 6)

    assert tokens_of(request) == expected()
    told = probe.named("session.state_lost")
    assert [(one["session"], one["position"], one["reason"]) for one in told] == [
        ("fork", 13, "damaged")
    ]


def test_a_fork_that_is_exported_before_its_first_turn_has_its_parents_state() -> None:
    """And goes on there as it would from its log."""
    world = open_world()
    fork = fork_of(world, parent_on_disk(world))
    reply: Reply[Exported] = Reply()
    world.post(fork, ExportSession(reply))
    world.rest()

    found = settled(reply)
    assert isinstance(found, Exported)
    assert found.image is not None
    assert found.image.position == 13
    assert goes_on(found.record, found.image) == goes_on(found.record, None)


def test_an_export_that_waits_for_a_parents_snapshot_does_without_when_the_fork_is_cut() -> None:
    """Others may come to wait for the same image by then, whose log is another one."""
    world = open_world()
    fork = fork_of(world, parent_on_disk(world))
    other = hold_up_reads(world)
    replies: list[Reply[Exported]] = [Reply(), Reply()]
    world.post(fork, ExportSession(replies[0]))
    world.work()
    assert not replies[0].is_settled
    world.post(fork, Rewind(1, Reply()))
    world.work()
    first = settled(replies[0])
    assert isinstance(first, Exported)
    assert (first.record.log_len, first.image) == (14, None)

    world.post(fork, ExportSession(replies[1]))
    world.close(other)
    world.rest()
    second = settled(replies[1])
    assert isinstance(second, Exported)
    assert (second.record.log_len, second.image) == (7, None)


def test_a_fork_that_went_back_below_the_snapshot_starts_from_its_log() -> None:
    """A state of more than the log is none."""
    world = open_world()
    fork = fork_of(world, parent_on_disk(world))
    world.post(fork, Rewind(1, Reply()))
    world.rest()
    request = take(world, fork, 5)

    assert request.output.cached_tokens == 0
    assert request.output.prompt_tokens == 11
