"""P8, from M086 on: a recurrent state can't be cut; there is a base, a checkpoint, or the log."""

import pytest

from kernel import ValidationError
from kernel.sessions.session import SessionActor
from tests.kernel.loopless import Loopless, outcome, read, tokens_of
from tests.museum.exhibit import exhibit
from tests.museum.support import (
    assert_solo,
    finish_all,
    history_of,
    live_rows,
    on_the_tiny_model,
    one_shot,
    open_tiny,
    solo,
    words,
)
from tests.scenarios.inputs import greedy, prompt
from tests.scenarios.stage import open_stage


@exhibit("M086", pattern="P8", guard="position check", bug="pads-count-as-tokens")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@on_the_tiny_model
async def test_m086_what_pads_a_step_does_not_move_a_state() -> None:
    """vllm-project/vllm#55178: a last prompt token was padded, and the state kept after the pads.

    On the real scan: one turn decodes, another has a single prompt token left, a third is a chunk
    that does not fill its block. Their states are those of their last real tokens: every answer,
    and the next turn that starts from the state, equals a cold run.
    """
    async with open_stage(open_tiny, num_slots=8, max_num_batched_tokens=9) as stage:
        async with (
            stage.engine.session() as decoding,
            stage.engine.session() as tail,
            stage.engine.session() as chunk,
        ):
            first = decoding.turn(words(3), greedy(8))
            async with first:
                await stage.settle()
                await stage.step(2)
                second, third = (
                    tail.turn(words(9, 1), greedy(4)),
                    chunk.turn(words(13, 2), greedy(4)),
                )
                async with second, third:
                    await stage.settle()
                    histories = [
                        stage.note([], await stage.finish(turn)) for turn in (first, second, third)
                    ]
            sizes = {len(row.tokens) for step in stage.device.steps for row in step.rows}
            assert sizes & {5, 6, 7}, "a chunk that fills no block of eight"
            for session, history in zip((decoding, tail, chunk), histories, strict=True):
                stage.note(history, await stage.run(session.turn([5], greedy(4))))
        await stage.settle()
        stage.assert_at_rest()


@exhibit("M090", pattern="P8", guard="ledger", bug="covered-one-page-too-far")
async def test_m090_the_page_of_every_position_that_a_step_writes_is_reserved() -> None:
    """vllm-project/vllm#57605: at each page edge the next write found no page, or another's.

    Prompts and answers of all lengths around page edges, on a pool with little to spare: each row
    of each step has pages for all that it absorbs, and they are its own.
    """
    async with open_stage(num_slots=3, num_pages=12, max_num_batched_tokens=8) as stage:
        for length in range(1, 10):
            one, other = prompt(length), prompt(9 - length + 1, 1)
            turns = [
                stage.engine.stream(tokens, greedy(10 - length + number))
                for number, tokens in enumerate((one, other))
            ]
            async with turns[0], turns[1]:
                await stage.settle()
                for turn in turns:
                    stage.note([], await stage.finish(turn))
        for step in stage.device.steps:
            written: set[int] = set()
            for row in step.rows:
                end = row.position + len(row.tokens)
                assert len(row.pages) * 4 >= end
                pages = row.pages[row.position // 4 : -(-end // 4)]
                assert written.isdisjoint(pages)
                written.update(pages)
        stage.assert_at_rest()


def _talk(turns: int) -> tuple[Loopless, SessionActor]:
    """A session after some turns of six generated tokens each, all of them read."""
    world = Loopless.open(num_slots=4, num_pages=60)
    session = world.session("a")
    for salt in range(turns):
        world.finish(world.start(session, prompt(5, salt), greedy(6)))
    return world, session


@exhibit("M135", pattern="P8", guard="position check", bug="keep-none-of-it-does-nothing")
def test_m135_going_back_by_any_number_of_tokens_goes_back() -> None:
    """ggml-org/llama.cpp#26695: a rollback of the whole last batch said yes and did nothing.

    The last turn is cut to each number of its tokens, none and all included. The log is what was
    asked for, and the next turn equals a cold run over it.
    """
    for turns in (1, 2):
        for keep in range(7):
            world, session = _talk(turns)
            before = history_of(session)
            assert outcome(world.interrupt(session, keep)) == keep
            log = history_of(session)
            assert log == before[: len(before) - 6 + keep]
            assert session.state.position <= len(log) - 1
            turn = world.start(session, prompt(2, 7), greedy(4))
            world.finish(turn)
            assert_solo(log, turn)
            world.close(session)
            world.assert_all_free()


@exhibit("M136", pattern="P8", guard="protocol", bug="no-checkpoint-is-kept")
def test_m136_an_edit_of_the_last_message_goes_back_as_far_as_the_state_can() -> None:
    """ggml-org/llama.cpp#28425: in ordinary chat a rollback depth of zero failed each edit.

    The session is asked how far it can go back. With the state that the last turn started from it
    resumes there; once that had to give way it computes the log. Both answers equal a cold run.
    """
    for gives_way in (False, True):
        world, session = _talk(2)
        if gives_way:
            crowd = [world.start(one_shot(world, f"s{n}"), prompt(4, n)) for n in range(4)]
            finish_all(world, *crowd)
        assert outcome(world.interrupt(session, 0)) == 0
        log = history_of(session)
        edited = world.start(session, prompt(4, 8), greedy(5))
        world.finish(edited)
        assert_solo(log, edited)
        if gives_way:
            assert edited.output.cached_tokens == 0
        else:
            assert edited.output.cached_tokens == 5 + 6 - 1, "the end of the first turn"
        world.close(session)
        world.assert_all_free()


@exhibit("M137", pattern="P8", guard="position check", bug="state-kept-beyond-a-cut")
def test_m137_log_and_state_are_cut_together_or_not_at_all() -> None:
    """ggml-org/llama.cpp#27931: a refused trim was ignored, and tokens cut away over its state.

    Turns share less and less. A cut that the session can't grant changes nothing, with an error
    that says how much there is; a granted one leaves no state beyond the log, whatever it costs.
    """
    for turns in (1, 2):
        world, session = _talk(turns)
        before, state = history_of(session), session.state.position
        refused = outcome(world.interrupt(session, 7))
        assert isinstance(refused, ValidationError)
        assert "6 generated tokens were received" in str(refused)
        assert (history_of(session), session.state.position) == (before, state)
        log = before
        for keep in (5, 3, 0):
            assert outcome(world.interrupt(session, keep)) == keep
            log = history_of(session)
            assert len(log) == len(before) - 6 + keep
            assert session.state.position <= len(log) - 1
        turn = world.start(session, prompt(3, 9), greedy(4))
        world.finish(turn)
        assert_solo(log, turn)
        world.close(session)
        world.assert_all_free()


@exhibit("M139", pattern="P8", guard="ledger", bug="drop-takes-any-claim")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@on_the_tiny_model
async def test_m139_going_back_with_one_of_two_leaves_the_other_as_it_is() -> None:
    """ggml-org/llama.cpp#28019: two sequences shared a step, and one's rollback moved the other.

    On the real scan two sessions share every step; one is rolled back in the middle, again and
    again. The other's answer equals a cold run alone, and so does what the first does next.
    """
    async with open_stage(open_tiny, num_slots=5) as stage:
        async with stage.engine.session() as going, stage.engine.session() as back:
            history = stage.note([], await stage.run(back.turn(words(7, 3), greedy(3))))
            async with going.turn(words(6), greedy(16)) as turn:
                for salt in range(3):
                    async with back.turn(words(5, salt), greedy(9)):
                        await stage.settle()
                        await stage.step(3)
                    await stage.settle()
                kept = stage.note([], await stage.finish(turn))
            stage.note(history, await stage.run(back.turn([9], greedy(4))))
            stage.note(kept, await stage.run(going.turn([9], greedy(4))))
        await stage.settle()
        stage.assert_at_rest()


@exhibit("M140", pattern="P8", guard="ledger", bug="tokens-to-the-wrong-rows")
def test_m140_a_hundred_rounds_on_two_slots_mix_no_two_texts() -> None:
    """ggml-org/llama.cpp#28286: text of one slot drifted into the answers of the other.

    Two clients with prompts of their own share two slots for a hundred rounds, each with a state
    of its own between them. Each answer equals its solo run.
    """
    world = Loopless.open(num_slots=2, num_pages=40, max_num_seqs=2)
    alone = {(n, size): solo(prompt(5 + n, n), size) for n in range(2) for size in (3, 4)}
    for number in range(100):
        size = 3 + number % 2
        turns = [
            world.start(one_shot(world, f"c{n}"), prompt(5 + n, n), greedy(size)) for n in range(2)
        ]
        assert live_rows(world)
        finish_all(world, *turns)
        for n, turn in enumerate(turns):
            read(turn)
            assert tokens_of(turn) == alone[n, size]
    assert not world.device.poison_reads
    world.assert_all_free()
