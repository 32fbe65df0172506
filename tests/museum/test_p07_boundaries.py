"""P7, from M086 on: all parts of a state stand at one position, and it is counted in tokens."""

import pytest

from adapters.fake_device import FakeDevice
from kernel import ValidationError
from kernel.step import CopyOf
from ownership import Absorbed, LedgerError
from tests.kernel.loopless import Loopless, outcome, read, tokens_of
from tests.museum.exhibit import exhibit
from tests.museum.support import assert_solo, finish_all, history_of, live_rows, one_shot, solo
from tests.ownership.support import open_desk
from tests.scenarios.inputs import greedy, prompt


@exhibit("M089", pattern="P7", guard="position check", bug="page-table-cut-in-tokens")
def test_m089_a_state_is_found_by_its_position_whatever_the_size_of_a_page() -> None:
    """vllm-project/vllm#53142: a position was divided by the block size of another table.

    Positions are tokens, and the ledger alone turns them into pages. For lengths around every page
    edge and pages of several sizes a session resumes at its position with a table that covers just
    its need; and no step can land beyond what its pages cover.
    """
    for page_size in (1, 3, 4, 16):
        for length in (1, page_size, page_size + 1, 2 * page_size - 1, 2 * page_size):
            world = Loopless.open(page_size=page_size, num_pages=80)
            session = world.session("a")
            world.finish(world.start(session, prompt(length), greedy(3)))
            before = history_of(session)
            turn = world.start(session, prompt(2, 1), greedy(3))
            (row,) = live_rows(world)
            assert row.position == len(before) - 1
            assert len(row.pages) == -(-(len(before) + 2) // page_size)
            world.finish(turn)
            assert_solo(before, turn, page_size=page_size)
            world.close(session)
            world.assert_all_free()

    desk = open_desk(page_size=4)
    claim = desk.reserve(6)
    lease = desk.batch.launch([claim], step=1)
    with pytest.raises(LedgerError, match="absorbed 9 at position 0, covers 8"):
        desk.batch.land(lease, Absorbed((9,)))
    desk.batch.land(lease, Absorbed((8,)))
    desk.batch.rollback(claim)


@exhibit("M153", pattern="P7", guard="admission rule", bug="pages-for-a-model-without")
def test_m153_a_pool_that_the_model_cannot_use_is_refused_at_the_start() -> None:
    """mlc-ai/mlc-llm#2750: a cache made for attention was switched on over a recurrent model.

    What a model needs is part of its description, and an engine that contradicts it does not open.
    One that does has the recurrent model's sessions right, turn after turn.
    """
    with pytest.raises(ValidationError, match="has no use for any"):
        Loopless.open(device=FakeDevice(mode="manual", uses_pages=False), num_pages=8)
    with pytest.raises(ValidationError, match="has no use for any"):
        Loopless.open(device=FakeDevice(mode="manual", uses_slots=False), num_slots=8)

    def recurrent() -> Loopless:
        device = FakeDevice(mode="manual", uses_pages=False, eos_token_ids=())
        return Loopless.open(device=device, num_slots=2)

    world, cold = recurrent(), recurrent()
    session = world.session("a")
    for salt in range(2):
        before = history_of(session)
        turn = world.start(session, prompt(5, salt), greedy(4))
        world.finish(turn)
        alone = cold.start(one_shot(cold), [*before, *turn.tokens], greedy(4))
        cold.finish(alone)
        assert tokens_of(turn) == tokens_of(alone)
    world.close(session)
    world.assert_all_free()


@exhibit("M179", pattern="P7", guard="ledger", bug="later-turn-starts-from-zeros")
def test_m179_a_hit_brings_all_parts_of_a_state_or_none() -> None:
    """LMCache/LMCache#2879: pages were restored, the recurrent state was not; it counted as hit.

    Pages and slot are parts of one claim. A session that has its state resumes with both; one that
    was asked for it has neither, and nothing counts as cached.
    """
    world = Loopless.open(num_slots=2, num_pages=40)
    session = world.session("a")
    world.finish(world.start(session, prompt(6), greedy(4)))
    before = history_of(session)
    hit = world.start(session, prompt(3, 1), greedy(2))
    (row,) = live_rows(world)
    assert isinstance(row.initial, CopyOf)
    assert row.tail_copy is not None
    assert row.position == hit.output.cached_tokens == len(before) - 1
    world.finish(hit)
    assert_solo(before, hit)

    first, second = (world.start(one_shot(world, f"s{n}"), prompt(5, n)) for n in range(2))
    finish_all(world, first, second)
    assert world.held_by(session) == 0, "both slots were wanted at once"
    before = history_of(session)
    miss = world.start(session, prompt(3, 2), greedy(2))
    (row,) = live_rows(world)
    assert (row.initial, row.tail_copy, row.position) == ("zeros", None, 0)
    assert miss.output.cached_tokens == 0
    world.finish(miss)
    assert_solo(before, miss)
    world.close(session)
    world.assert_all_free()


@exhibit("M182", pattern="P7", guard="position check", bug="state-beyond-the-log-committed")
def test_m182_the_last_token_is_absorbed_once_also_after_a_full_hit() -> None:
    """LMCache/LMCache#5249: after a full hit the last token was put through the state again.

    A turn is interrupted so that the log ends exactly where its state stands, at a page's edge or
    elsewhere. Such a state is not kept: one token is always left to absorb, and it is absorbed
    once by the next turn, also by one that brings no input.
    """
    for length in range(1, 10):
        world = Loopless.open(num_slots=3)
        session = world.session("a")
        turn = world.start(session, prompt(length), greedy(8))
        world.step(3)
        read(turn)
        reply = world.interrupt(session, 3, turn)
        world.step()
        assert outcome(reply) == 3
        log = history_of(session)
        assert log == [*prompt(length), *solo(prompt(length), 3)]
        assert session.state.position <= len(log) - 1
        again = world.start(session, [], greedy(3))
        rows = live_rows(world)
        assert rows[0].position + len(rows[0].tokens) <= len(log)
        world.finish(again)
        assert_solo(log, again)
        world.close(session)
        world.assert_all_free()


@exhibit("M183", pattern="P7", guard="protocol", bug="phase-guessed-from-the-output")
def test_m183_a_preempted_turn_prefills_again_and_always_computes_a_token() -> None:
    """GeeeekExplorer/nano-vllm#144: the phase was guessed from the output, and a hit left no query.

    A turn is preempted after some tokens. It has generated, and yet it has to prefill: what it
    does is read off its claim's position. Every row of every step has a token to compute.
    """
    world = Loopless.open(num_slots=1, num_pages=40, scheduling_policy="priority")
    turn = world.start(one_shot(world, "junior"), prompt(5), greedy(8))
    world.step(3)
    senior = world.start(one_shot(world, "senior"), prompt(4, 1), greedy(2), priority=-9)
    world.step()
    assert turn.output.preemptions == 1
    assert len(turn.output.tokens) == 4
    world.finish(senior)
    (row,) = live_rows(world)
    assert (row.initial, row.position, len(row.tokens)) == ("zeros", 0, 9)
    while turn.output.end is None:
        assert all(len(row.tokens) for row in live_rows(world))
        world.step()
    assert_solo([], turn)
    world.assert_all_free()
