"""The explorer's own instruments: the held device, its memory, the reference and the planter."""

import pytest

from kernel.errors import ValidationError
from kernel.step import CopyOf, DeviceStep, StepDone, StepFault, StepReport, StepRow
from kernel.testing.explorer import Event, replay
from kernel.testing.explorer.held_device import HeldStep, Memory, borrow, give_back, open_inner
from kernel.testing.explorer.reference import Reference
from kernel.testing.explorer.stage import Stage
from ownership import PageIndex, SlotIndex
from tests.explorer.small_worlds import ONE_TURN, two_sessions

LAUNCHED = [
    Event("start", "a"),
    Event("deliver", "session:a"),
    Event("deliver", "scheduler"),
    Event("deliver", "scheduler"),
    Event("deliver", "gpu-pool"),
]


def row(slot: int, tokens: list[int], **fields: object) -> StepRow:
    given: dict[str, object] = {
        "initial": "zeros",
        "position": 0,
        "pages": (),
        "tail_copy": None,
        "sampling": None,
        **fields,
    }
    return StepRow(SlotIndex(slot), tokens=tokens, **given)  # type: ignore[arg-type]


def test_a_step_stays_on_the_device_until_it_is_let_go() -> None:
    """Nothing completes by itself, so memory is touched as late as it can be."""
    stage = replay(ONE_TURN, LAUNCHED)

    (held,) = stage.device.held
    assert stage.is_wanted(held)
    assert held.touched_slots == {0}
    assert not held.worker.join(0.0)
    assert isinstance(stage.device.end(held, "done"), StepDone)
    assert held.worker.join(0.0)
    assert stage.device.memory.slots[0] == (1, 2)


def test_what_a_failed_step_has_written_is_unknown() -> None:
    """Nobody may go on from there."""
    stage = replay(ONE_TURN, LAUNCHED)

    report = stage.device.end(stage.device.held[0], "failed")

    assert isinstance(report, StepFault)
    assert stage.device.memory.slots[0] is None


def test_a_stopped_worker_ends_the_step_that_runs_and_no_other() -> None:
    """As the contract with devices says."""
    stage = replay(ONE_TURN, LAUNCHED)
    (held,) = stage.device.held
    step = held.step
    assert isinstance(step, DeviceStep)
    reports: list[StepReport] = []
    held.worker.held.append(HeldStep(step, reports.append, held.worker))

    held.worker.stop()
    held.worker.submit(step, reports.append)

    assert stage.device.held == [held]
    assert [type(report) for report in reports] == [StepFault, StepFault]


def test_a_lost_device_serves_no_other_stage() -> None:
    """A spare one must not remember the world that it was lost in."""
    stage = replay(ONE_TURN, LAUNCHED)
    stage.device.end(stage.device.held[0], "lost")
    inner = stage.device.inner

    stage.close()

    assert borrow("fake-recurrent") is not inner


def test_a_device_is_used_again() -> None:
    """Opening one takes longer than replaying a trace."""
    stage = Stage(ONE_TURN)
    inner = stage.device.inner
    stage.close()

    assert borrow("fake-recurrent") is inner
    give_back("fake-recurrent", stage.device)


def test_a_device_that_is_not_there_is_refused() -> None:
    """With its name in the error."""
    with pytest.raises(ValidationError, match="nowhere"):
        open_inner("fake", "nowhere")


def test_the_memory_sees_a_row_that_goes_on_from_what_it_does_not_hold() -> None:
    """Two tokens are in the slot, and the row says that it is at three."""
    memory = Memory()
    memory.run(DeviceStep(1, (row(0, [1, 2]),)))

    memory.run(DeviceStep(2, (row(0, [4], initial="kept", position=3),)))

    assert memory.wrong == ["step 2: slot 0 held 2 tokens at 3"]


def test_the_memory_follows_copies() -> None:
    """A copy is worth what its source was."""
    memory = Memory()
    memory.run(DeviceStep(1, (row(0, [1, 2]),)))
    memory.run(DeviceStep(2, (row(1, [3], initial=CopyOf(SlotIndex(0)), position=2),)))

    assert memory.slots == {0: (1, 2), 1: (1, 2, 3)}
    assert memory.wrong == []


def test_the_memory_of_pages_is_one_history_or_none() -> None:
    """A page of somebody else in the table is seen."""
    memory = Memory(page_size=2)
    pages = [PageIndex(4), PageIndex(5)]
    memory.run(DeviceStep(1, (row(0, [1, 2, 3], pages=pages),)))

    assert memory.prefix(pages, 3) == (1, 2, 3)
    assert memory.prefix(pages[::-1], 3) is None
    assert memory.prefix(pages, 4) is None


def test_the_reference_is_the_device_alone_and_cold() -> None:
    """The same history gives the same token, whatever was asked before."""
    one, other = (Reference(open_inner("fake"), 4) for _ in range(2))

    assert one.next_token((1, 2)) != one.next_token((2, 1))
    assert one.next_token((1, 2)) == other.next_token((1, 2))


def test_an_actor_dies_at_the_moment_that_was_chosen() -> None:
    """The moments are those of its plain run: before, around each of its posts, and at the end."""
    world = two_sessions(faults=("crash",))
    start = Event("start", "a")
    plain = replay(world, [start])
    plain.watches = True
    plain.perform(Event("deliver", "session:a"))

    struck = replay(world, [start, Event("crash", "session:a", 1)])

    assert plain.planter.moments == [
        "before it handles anything",
        "before the post of Submit",
        "after the post of Submit",
        "at the end of its handler",
    ]
    assert struck.planter.moments == plain.planter.moments[:2]
    assert struck.deaths == struck.core.dispatcher.deaths == 1
