"""P19, from M086 on: a check and what follows from it are one step; all of a change, or none."""

from kernel.ids import SCHEDULER, SessionId
from kernel.messages import StartTurn
from kernel.sessions.session import SessionActor
from ownership import Need, Refused
from tests.kernel.loopless import Loopless, error_of
from tests.kernel.toys import CALLER
from tests.kernel.turns import make_request
from tests.museum.exhibit import exhibit
from tests.museum.support import (
    assert_solo,
    finish_all,
    history_of,
    is_open,
    live_rows,
    name_held_by,
    one_shot,
)
from tests.ownership.support import CACHE, Desk, open_desk, snapshot
from tests.scenarios.inputs import greedy, prompt


def _fork(world: Loopless, parent: SessionActor, name: str) -> SessionActor:
    return world.core.open_session(
        SessionId(name), is_one_shot=False, idle_timeout_s=None, parent=parent
    )


@exhibit("M103", pattern="P19", guard="ledger", bug="base-freed-while-pinned")
def test_m103_what_was_looked_up_is_pinned_in_the_same_step() -> None:
    """vllm-project/vllm#37076: a block was found, taken by another, and then pinned.

    A fork's step copies out of its parent's state. The parent closes, and another client wants all
    the room there is: what is being copied has no owner and is nobody's until the copy has landed.
    """
    world = Loopless.open(num_slots=3, num_pages=24)
    parent = world.session("parent")
    world.finish(world.start(parent, prompt(9), greedy(4)))
    shared = history_of(parent)
    (base,) = world.core.ledger.view.held_by(parent.name)
    child = _fork(world, parent, "child")
    turn = world.start(child, prompt(3, 1), greedy(4))
    world.close(parent)
    view = world.core.ledger.view
    assert world.core.ledger.audit().draining == 1
    assert view.free_slots == 1
    thieves = [
        world.start(one_shot(world, f"t{n}"), prompt(20, 5 + n), greedy(3)) for n in range(2)
    ]
    assert world.core.ledger.audit().draining == 1
    world.step()
    assert world.core.ledger.audit().draining == 0
    assert any(row.slot == base.slot for row in live_rows(world)), "free, and taken now"
    finish_all(world, turn, *thieves)
    assert_solo(shared, turn)
    for thief in thieves:
        assert_solo([], thief)
    assert not world.device.poison_reads
    world.close(child)
    world.assert_all_free()


@exhibit("M114", pattern="P19", guard="protocol", bug="refusal-used-as-a-claim")
def test_m114_what_ends_in_a_tick_is_given_back_before_what_arrives_takes() -> None:
    """vllm-project/vllm#10693: in one tick slots were taken before the ended ones came back.

    Of four turns on four slots two end in a step, and four have arrived meanwhile. Two of them are
    in the very next step, in the slots of the ended; the other two wait, and neither is failed.
    """
    world = Loopless.open(num_slots=4, num_pages=40, max_num_seqs=8)
    for _ in range(3):
        blocker = world.start(one_shot(world, "blocker"), prompt(2), greedy(1))
        old = [
            world.start(one_shot(world, f"o{n}"), prompt(3, n), greedy(1 + n // 2))
            for n in range(4)
        ]
        world.finish(blocker)
        assert len(live_rows(world)) == 4
        new = [world.start(one_shot(world, f"n{n}"), prompt(4, n), greedy(1)) for n in range(4)]
        world.step()
        assert [turn.output.end is not None for turn in old] == [True, True, False, False]
        assert [turn.output.admitted_at is not None for turn in new] == [True, True, False, False]
        assert len(live_rows(world)) == 4
        world.step()
        assert len(live_rows(world)) == 2
        world.step()
        for turn in (*old, *new):
            assert error_of(turn) is None
            assert turn.output.preemptions == 0
            assert_solo([], turn)
        world.assert_all_free()


@exhibit("M115", pattern="P19", guard="ledger", bug="pinned-before-the-check")
def test_m115_a_reserve_that_does_not_fit_has_pinned_nothing() -> None:
    """vllm-project/vllm#11565: cached blocks were pinned, and then the capacity check failed.

    For every need up to more than the pool: a reserve from a cached state either holds all that it
    asks for, or leaves everything as it was, the count of the state included.
    """
    desk = open_desk(slots=3, pages=9)
    cached = desk.cache.admit(desk.hand(desk.working(8), CACHE))
    name = name_held_by(desk, CACHE)
    for positions in range(48):
        before = snapshot(desk.ledger)
        claim = desk.batch.reserve(Need(positions), name, turn="turn")
        if isinstance(claim, Refused):
            assert (claim.reason, claim.pages_short) == ("room", -(-positions // 4) - 9)
            assert snapshot(desk.ledger) == before
        else:
            assert positions <= 36
            desk.batch.rollback(claim)
            desk.check()
    desk.cache.evict(cached)
    assert desk.is_empty()


@exhibit("M159", pattern="P19", guard="ledger", bug="refusal-keeps-a-slot")
def test_m159_a_fork_that_does_not_fit_takes_nothing_and_is_computed_later() -> None:
    """huggingface/transformers#46117: a fork took some blocks, found no more, and failed.

    Three forks of one session, with pages for two. The third holds nothing and pins nothing while
    it waits; each answer equals a cold run.
    """
    world = Loopless.open(num_slots=6, num_pages=8, max_num_seqs=6)
    parent = world.session("parent")
    world.finish(world.start(parent, prompt(7), greedy(4)))
    shared = history_of(parent)
    blocker = world.start(one_shot(world, "blocker"), prompt(2), greedy(1))
    children = [_fork(world, parent, f"child{n}") for n in range(3)]
    turns = [world.start(child, prompt(5, n), greedy(2)) for n, child in enumerate(children)]
    world.finish(blocker)
    assert len(live_rows(world)) == 2
    held = {claim.turn for claim in world.core.ledger.view.held_by(SCHEDULER)}
    assert turns[2].id not in held
    assert world.core.ledger.view.free_slots == 3
    assert world.core.ledger.view.held_by(parent.name)[0].pinned == 2
    finish_all(world, *turns)
    for turn in turns:
        assert_solo(shared, turn)
    for session in (parent, *children):
        world.close(session)
    world.assert_all_free()


@exhibit("M173", pattern="P19", guard="ledger", bug="drained-for-ever")
def test_m173_the_order_of_close_and_unpin_does_not_matter() -> None:
    """LMCache/LMCache#1130: a count fell to zero while pinned, and the unpin freed nothing.

    A state is evicted before or after the copy out of it ends, and the copy ends by landing, by
    failing or by rollback. Each time all is free at the end.
    """

    def land(desk: Desk) -> None:
        desk.step([claim], 2)

    def fail(desk: Desk) -> None:
        desk.fail(claim)

    def roll_back(desk: Desk) -> None:
        desk.batch.rollback(claim)

    for end in (land, fail, roll_back):
        for is_evicted_first in (True, False):
            desk = open_desk()
            cached = desk.cache.admit(desk.hand(desk.working(6), CACHE))
            claim = desk.reserve(8, name_held_by(desk, CACHE))
            if is_evicted_first:
                desk.cache.evict(cached)
                assert desk.ledger.audit().draining == 1
                end(desk)
            else:
                end(desk)
                desk.cache.evict(cached)
            assert desk.ledger.audit().draining == 0
            if end is not roll_back:
                desk.batch.rollback(claim)
            assert desk.is_empty(), (end, is_evicted_first)


@exhibit("M184", pattern="P19", guard="position check", bug="resumed-at-the-former-position")
def test_m184_what_is_left_to_compute_is_counted_from_the_claim_that_was_got() -> None:
    """GeeeekExplorer/nano-vllm#211: a token count was taken before the allocation that changed it.

    A later turn is preempted, and its base has gone when it is resumed. What it computes is what
    its new claim lacks; the counts and the tokens are right.
    """
    world = Loopless.open(num_slots=2, num_pages=40, scheduling_policy="priority")
    session = world.session("a")
    world.finish(world.start(session, prompt(6), greedy(4)))
    before = history_of(session)
    turn = world.start(session, prompt(3, 1), greedy(9))
    world.step(3)
    seniors = [
        world.start(one_shot(world, f"s{n}"), prompt(5, 5 + n), greedy(3), priority=-9)
        for n in range(2)
    ]
    world.step()
    assert turn.output.preemptions == 1
    assert world.held_by(session) == 0
    generated = len(turn.output.tokens)
    finish_all(world, *seniors)
    (row,) = live_rows(world)
    assert (row.position, row.initial) == (0, "zeros")
    assert list(row.tokens) == [*before, *prompt(3, 1), *turn.output.tokens]
    world.finish(turn)
    assert turn.output.cached_tokens == len(before) - 1, "as it was first admitted"
    assert turn.output.recomputed_tokens == len(before) + 3 + generated - 1
    for each, context in ((turn, before), *((senior, []) for senior in seniors)):
        assert_solo(context, each)
    world.close(session)
    world.assert_all_free()


@exhibit("M192", pattern="P19", guard="protocol", bug="idle-close-acts-late")
def test_m192_a_close_for_idleness_takes_the_session_only_if_it_is_idle_then() -> None:
    """tenstorrent/tt-inference-server#3028: a close tested "in flight", and acted on it later.

    The idle alarm goes off with a turn already in the mailbox before it: the turn runs, and its
    session stays until it has been idle again. With the turn behind it, the turn is refused.
    """
    world = Loopless.open(num_slots=2, num_pages=20)
    session = world.session("a", idle_timeout_s=60.0)
    world.finish(world.start(session, prompt(5), greedy(3)))
    before = history_of(session)
    turn = make_request("late", prompt(3, 1), greedy(3))
    world.core.door.enter(turn.id, 3)
    session.mailbox.post(StartTurn(turn), CALLER)
    world.advance(61)
    assert is_open(world, session)
    world.finish(turn)
    assert_solo(before, turn)
    world.advance(59)
    assert is_open(world, session)
    assert world.held_by(session)

    world.advance(2)
    assert not is_open(world, session)
    refused = make_request("too-late", prompt(3))
    left = session.mailbox.post(StartTurn(refused), CALLER)
    assert left is not None, "the mailbox is closed, so its caller is told at once"
    world.assert_all_free()
