"""A session that is about to go dormant while its log is changed."""

from kernel.actors.reply import Reply
from kernel.ids import SessionId
from kernel.messages import Exported, ExportSession, GiveUp, Hibernate, Rewind
from tests.durable.test_exports import hold_up_reads, leave_to_disk
from tests.durable.worlds import Durable, settled
from tests.kernel.toys import Recorder
from tests.pressure.worlds import greedy, name_of, words


def test_a_session_does_not_leave_between_a_change_on_the_disk_and_its_own_log() -> None:
    """Nothing but an export held it up, and the cut that is being done to it ends the export.

    The store has the shorter log by then and the session the longer one: of what goes dormant at
    that moment would be remembered what is not on the disk.
    """
    probe = Recorder()
    world = Durable.on(probe=probe, num_slots=6, num_pages=64)
    session = world.session("a")
    for number in range(2):
        world.start(session, words(4, number), greedy(3))
        world.rest()
        if not number:
            leave_to_disk(world, session)
    other = hold_up_reads(world)
    world.post(session, Hibernate())
    world.post(session, GiveUp(name_of(session)))
    while world.device.waiting_transfers:
        world.copy()
    assert session.state.state is None
    exported: Reply[Exported] = Reply()
    world.post(session, ExportSession(exported))
    world.work()
    assert not exported.is_settled
    gone_back: Reply[int] = Reply()
    world.post(session, Rewind(1, gone_back))
    world.work()

    assert isinstance(settled(exported), Exported)
    assert settled(gone_back) == 1
    assert [one["num_tokens"] for one in probe.named("session.dormant")] == []
    assert not session.is_closed
    assert world.disk.log_of("a") == list(session.state.log)
    world.close(other)
    world.rest()
    world.post(session, Hibernate())
    world.rest()
    (dormant,) = probe.named("session.dormant")
    assert dormant["num_tokens"] == len(world.disk.log_of("a")) == 7
    assert list(world.wake(SessionId("a")).state.log) == world.disk.log_of("a")
