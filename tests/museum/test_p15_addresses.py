"""P15, from M086 on: states and outputs are addressed by their owner, and no name is shared."""

import threading

import anyio

from adapters.fake_device import FakeDevice
from kernel import Engine, EngineConfig
from tests.kernel.loopless import Loopless
from tests.museum.exhibit import exhibit
from tests.museum.support import assert_solo, finish_all, history_of, one_shot, solo
from tests.scenarios.inputs import greedy, prompt


@exhibit("M141", pattern="P15", guard="ledger", bug="base-found-by-version-alone")
def test_m141_a_state_is_found_by_its_owner_and_by_nobody_else() -> None:
    """ggml-org/llama.cpp#27148: two slots were evicted at once, and a new one got another's entry.

    Six conversations, all at the same version. Two of them are evicted in one tick and go on at
    once; the others go on from their states. Each answers from its own log. And a session that
    opens under the name of a closed one finds nothing of it.
    """
    world = Loopless.open(num_slots=7, num_pages=120, max_num_seqs=8)
    sessions = [world.session(f"s{n}") for n in range(6)]
    for salt, session in enumerate(sessions):
        world.finish(world.start(session, prompt(5 + salt, salt), greedy(3)))
        session.state.drop_checkpoint()
    crowd = [world.start(one_shot(world, f"c{n}"), prompt(4, 9 + n)) for n in range(3)]
    finish_all(world, *crowd)
    evicted = [session for session in sessions if not world.held_by(session)]
    assert len(evicted) == 2
    for group in (evicted, [session for session in sessions if session not in evicted]):
        befores = [history_of(session) for session in group]
        turns = [world.start(session, prompt(2, 7), greedy(3)) for session in group]
        finish_all(world, *turns)
        for before, turn in zip(befores, turns, strict=True):
            assert_solo(before, turn)

    for session in sessions:
        world.close(session)
    again = world.session("s0")
    turn = world.start(again, prompt(3), greedy(3))
    world.finish(turn)
    assert_solo([], turn)
    world.close(again)
    world.assert_all_free()


@exhibit("M161", pattern="P15", guard="protocol", bug="tokens-to-the-wrong-rows")
async def test_m161_two_readers_lose_nothing_to_each_other_and_shutdown_joins_all() -> None:
    """huggingface/transformers#40479: one queue for all outputs; a timer thread hung the end.

    Two consumers read at the same time, and two more share one turn: each turn's tokens come once
    and in order. Then the engine shuts down with idle timers armed, and leaves no thread.
    """
    threads = set(threading.enumerate())
    device = FakeDevice(mode="thread", eos_token_ids=(), delay=0.0005)
    config = EngineConfig(num_slots=4, num_pages=80, page_size=4, max_num_seqs=4)
    read: dict[str, list[int]] = {"a": [], "b": [], "shared": []}
    with anyio.fail_after(15):
        async with Engine.open(config, device=device) as engine:
            idle = await engine.session(idle_timeout_s=3600).__aenter__()
            async with idle.turn(prompt(2), greedy(1)) as turn:
                await turn.wait()

            async def consume(name: str, salt: int) -> None:
                async with engine.stream(prompt(6, salt), greedy(12)) as stream:
                    async for delta in stream:
                        read[name] += delta.token_ids

            async with anyio.create_task_group() as group:
                group.start_soon(consume, "a", 1)
                group.start_soon(consume, "b", 2)
                async with (
                    engine.stream(prompt(6, 3), greedy(12)) as shared,
                    anyio.create_task_group() as readers,
                ):

                    async def share() -> None:
                        async for delta in shared:
                            read["shared"] += delta.token_ids

                    readers.start_soon(share)
                    readers.start_soon(share)
    assert read == {
        name: solo(prompt(6, salt), 12) for name, salt in (("a", 1), ("b", 2), ("shared", 3))
    }
    ours = {thread for thread in threading.enumerate() if thread.name == "fake-device"}
    assert ours <= threads
