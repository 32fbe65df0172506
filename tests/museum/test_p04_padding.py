"""P4, from M086 on: what pads a step names nothing that anybody owns."""

import pytest

from kernel import Session
from tests.kernel.loopless import Loopless, tokens_of
from tests.museum.exhibit import exhibit
from tests.museum.support import (
    are_equal,
    bits_of,
    finish_all,
    live_rows,
    on_the_tiny_model,
    one_shot,
    open_tiny,
    solo,
    words,
)
from tests.scenarios.inputs import greedy, prompt
from tests.scenarios.stage import open_stage


@exhibit("M119", pattern="P4", guard="position check", bug="tables-padded-with-the-first-page")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@on_the_tiny_model
async def test_m119_padding_touches_no_state_of_a_parked_session() -> None:
    """NVIDIA/TensorRT-LLM#13151: padding rows wrote into slots of turns that were not in the batch.

    Six sessions are alive; three of them, of unequal lengths, decode in one batch whose page
    tables are padded. What pads is a page of its own: the parked states stay bit for bit what
    they were, and nothing that was given back is read.
    """
    async with open_stage(open_tiny, num_slots=10, num_pages=120) as stage:
        gone = await stage.engine.session().__aenter__()
        await stage.run(gone.turn(words(80), greedy(2)))
        sessions: list[Session] = []
        histories: list[list[int]] = []
        for salt in range(6):
            session = await stage.engine.session().__aenter__()
            sessions.append(session)
            result = await stage.run(session.turn(words(2 + 5 * salt, salt), greedy(3)))
            histories.append(stage.note([], result))
        await gone.close()
        parked = [bits_of(stage, session) for session in sessions[3:]]
        turns = [session.turn([], greedy(6)) for session in sessions[:3]]
        async with turns[0], turns[1], turns[2]:
            for number, turn in enumerate(turns):
                histories[number] = stage.note(histories[number], await stage.finish(turn))
        for session, bits in zip(sessions[3:], parked, strict=True):
            assert are_equal(bits, bits_of(stage, session))
        for session, history in zip(sessions, histories, strict=True):
            stage.note(history, await stage.run(session.turn([3], greedy(3))))
            await session.close()


@exhibit("M187", pattern="P4", guard="protocol", bug="cancelled-turn-keeps-its-row")
def test_m187_a_vacated_place_of_the_batch_names_no_slot() -> None:
    """vllm-project/tpu-inference#2469: places vacated by ended turns kept the ids of live rows.

    Turns of unequal length end one after another. Every step names exactly the slots that it has
    a lease of, each once, and the answers are those of solo runs.
    """
    world = Loopless.open(num_slots=6, num_pages=60, max_num_seqs=6)
    turns = [
        world.start(one_shot(world, f"s{n}"), prompt(3 + n, n), greedy(2 + 2 * n)) for n in range(5)
    ]
    leaver = world.session("leaver")
    left = world.start(leaver, prompt(4, 9), greedy(30))
    while world.device.waiting:
        slots = [row.slot for row in live_rows(world)]
        (lease,) = world.core.ledger.view.leases()
        leased = [place.slot for place in world.core.ledger.view.placements(lease)]
        assert slots == leased
        assert len(set(slots)) == len(slots)
        if left.output.end is None and len(left.output.tokens) == 3:
            world.cancel(leaver, left)
        world.step()
    finish_all(world, *turns)
    for number, turn in enumerate(turns):
        assert tokens_of(turn) == solo(prompt(3 + number, number), 2 + 2 * number)
    world.close(leaver)
    world.assert_all_free()
