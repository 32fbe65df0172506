"""P9: a slot is used again without a reset of its data, or of what is said of it."""

import pytest

from kernel.errors import StepError
from kernel.step import CopyOf
from ownership import BaseName, CustodianId, LedgerError, Need, Refused, SlotIndex, StepFailed
from tests.kernel.loopless import Loopless, error_of
from tests.kernel.pool import Pool
from tests.museum.acts import greedy, held, judge, one_shot, prompt, talk, working
from tests.museum.exhibit import exhibit
from tests.scenarios.inputs import on_both_models
from tests.scenarios.stage import DeviceFactory, open_stage


@exhibit("M033", pattern="P9", guard="ledger", bug="pin-ends-with-any-landing")
def test_m033_a_copy_that_is_due_waits_for_the_step_of_its_own_slot() -> None:
    """sgl-project/sglang#24954: a pending copy was attached to a step of somebody else.

    "To be copied from this base" is what the claim's slot holds until its own first step; steps
    of others in between change nothing of that.
    """
    world = Loopless.open(num_slots=4, num_pages=60, max_num_batched_tokens=8)
    session, log = world.session("s"), list[int]()
    talk(world, session, log, prompt(5), 3)
    (state,) = held(world, session)
    other = one_shot(world, "other", prompt(24, 1), 2)
    turn = world.start(session, prompt(4, 2), greedy(3))
    world.step()
    mine = working(world, turn)
    assert mine is not None
    for _ in range(2):
        assert working(world, turn) == mine
        assert mine.base == state.name
        assert held(world, session)[0].pinned == 1
        (step,) = world.device.waiting
        assert mine.slot not in {row.slot for row in step.rows}
        world.step()
    (step,) = world.device.waiting
    first = next(row for row in step.rows if row.slot == mine.slot)
    assert first.initial == CopyOf(SlotIndex(0))
    assert state.slot == 0
    assert held(world, session)[0].pinned == 1
    world.step()
    assert held(world, session)[0].pinned == 0
    for request, tokens, history in ((turn, prompt(4, 2), log), (other, prompt(24, 1), [])):
        world.finish(request)
        judge(history, tokens, request)
    world.close(session)
    world.assert_all_free()


@exhibit("M046", pattern="P9", guard="ledger", bug="failed-step-counts-as-valid")
def test_m046_a_slot_that_was_not_filled_is_not_read() -> None:
    """sgl-project/sglang#30986: a load was refused after the slot was attached; it was read anyway.

    A step that fails leaves its claims undefined: they can be rolled back and nothing else. The
    turn fails, and its retry starts from the base again.
    """
    world = Loopless.open(num_slots=3, num_pages=30)
    session, log = world.session("s"), list[int]()
    talk(world, session, log, prompt(5), 3)
    turn = world.start(session, prompt(4, 1), greedy(3))
    world.device.fail(why="no copy was made")
    world.run()
    assert isinstance(error_of(turn), StepError)
    assert working(world, turn) is None
    talk(world, session, log, prompt(4, 1), 3)
    assert not world.device.poison_reads
    world.close(session)
    world.assert_all_free()

    pool = Pool(slots=3)
    base = pool.rest("a", 6)
    claim = pool.reserve(9, base)
    pool.port.land(pool.port.launch([claim], step=3), StepFailed("refused"))
    with pytest.raises(LedgerError, match="undefined"):
        pool.port.launch([claim], step=4)
    with pytest.raises(LedgerError, match="undefined"):
        pool.port.grow(claim, Need(40))
    with pytest.raises(LedgerError, match="undefined"):
        pool.ledger.cache_port(CustodianId("scheduler")).admit(claim)
    pool.port.rollback(claim)
    found = pool.view.find_base(base)
    assert found is not None
    assert found.pinned == 0


@exhibit("M050", pattern="P9", guard="ledger", bug="closed-state-keeps-its-name")
def test_m050_a_name_ends_with_what_it_names() -> None:
    """sgl-project/sglang#27586: a map entry of a freed slot led to the slot's next owner.

    Whoever comes with the name of a state that is gone is told so; the slot is its new owner's.
    """
    pool = Pool(slots=2)
    name = pool.rest("a", 6)
    state = pool.states.pop()
    slot = pool.view.slot_of(state)
    pool.ledger.session_port(CustodianId("session:a")).close(state)
    new = pool.reserve(5, turn="new")
    assert pool.view.slot_of(new) == slot
    late = pool.port.reserve(Need(9), name, turn="late")
    assert late == Refused("base", 0, 0)
    assert pool.view.find_base(name) is None
    assert pool.ledger.audit().conserved

    world = Loopless.open(num_slots=1, num_pages=30)
    session, log = world.session("s"), list[int]()
    talk(world, session, log, prompt(5), 3)
    request = one_shot(world, "other", prompt(3, 1), 2)
    assert not isinstance(session.state.base, BaseName), "it was given up for the other client"
    world.finish(request)
    judge([], prompt(3, 1), request)
    talk(world, session, log, prompt(2, 2), 2)
    world.close(session)
    world.assert_all_free()


@exhibit("M051", pattern="P9", guard="ledger", bug="shared-run-ends-with-its-first-owner")
def test_m051_a_page_goes_back_with_the_last_who_names_it() -> None:
    """sgl-project/sglang#25805: a recycled page led on to a companion that was another's by then.

    What goes with a page is the run that it is in: it ends, with all its pages, when the last claim
    that names it has ended, and nothing of it is left to find.
    """
    pool = Pool(slots=4)
    holder = CustodianId("session:a")
    base = pool.rest("a", 9)
    child = pool.reserve(14, base, turn="child")
    pool.land([child], 1)
    shared = set(pool.view.describe(child).pages[:2])
    state = pool.states.pop()
    pool.ledger.session_port(holder).close(state)
    other = pool.reserve(4 * pool.view.free_pages, turn="other")
    assert not {*pool.view.describe(other).pages} & shared
    assert pool.ledger.audit().conserved
    pool.port.rollback(other)
    pool.port.rollback(child)
    assert pool.view.free_pages == 16
    again = pool.reserve(64, turn="again")
    pool.land([again], 64)
    assert pool.ledger.audit().conserved
    pool.port.rollback(again)
    assert pool.ledger.audit().at_rest


@exhibit("M079", pattern="P9", guard="protocol", bug="fresh-slot-not-zeroed")
@on_both_models
async def test_m079_a_slot_is_cleared_before_its_first_read(opened_device: DeviceFactory) -> None:
    """vllm-project/vllm#56524: blocks of a recurrent state were handed out as they were.

    One slot, one client after another: each answer is that of a cold run, and each first row says
    that its slot starts from zeros.
    """
    async with open_stage(opened_device, num_slots=1, num_pages=24) as stage:
        for salt in range(3):
            turn = stage.engine.stream(prompt(7 + salt, salt), greedy(5))
            stage.note([], await stage.run(turn))
        starts = [row for step in stage.device.steps for row in step.rows if not row.position]
        assert [row.initial for row in starts] == ["zeros"] * 3
        assert len({row.slot for row in starts}) == 1
        stage.assert_at_rest()
