"""A turn whose own parameters fail it fails alone: neighbours, session and ledger are untouched."""

from typing import Any

import anyio
import pytest

from adapters.fake_device import FakeDevice
from kernel import ClientError, Engine, EngineConfig, SamplingError, SamplingParams
from kernel.step import OpenedDevice
from tests.sampling.tiny import open_small
from tests.scenarios.stage import open_stage, prompt

GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)


def breaks_after(count: int) -> SamplingParams:
    """Greedy, with a processor that raises once so many tokens were generated."""

    def process(generated: list[int], logits: Any) -> Any:
        if len(generated) >= count:
            raise LookupError("planted")
        return logits

    return SamplingParams(
        temperature=0, max_tokens=8, ignore_eos=True, logits_processors=(process,)
    )


@pytest.mark.parametrize("count", [0, 1, 5])
async def test_a_processor_that_raises_fails_its_own_turn(count: int) -> None:
    """On the device's thread, beside five turns in the same steps."""
    async with open_small() as engine:
        expected = [(await engine.complete([1 + at, 2], GREEDY)).token_ids for at in range(5)]
        found: dict[int, tuple[int, ...]] = {}
        failed: list[SamplingError] = []

        async def run(at: int) -> None:
            found[at] = (await engine.complete([1 + at, 2], GREEDY)).token_ids

        async def fail() -> None:
            with pytest.raises(SamplingError, match="LookupError: planted") as caught:
                await engine.complete([9, 2], breaks_after(count), request_id="mine")
            failed.append(caught.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail)
            for at in range(5):
                tasks.start_soon(run, at)
        assert [found[at] for at in range(5)] == expected
        (error,) = failed
        assert error.request_id == "mine"
        assert isinstance(error, ClientError)
        assert isinstance(error.__cause__, LookupError)
        assert 'raise LookupError("planted")' in "".join(error.__cause__.__notes__)
        assert engine.health().live
        assert engine.stats().restarts == 0


async def test_a_session_is_where_it_was_before_the_turn_that_failed() -> None:
    """Its log, its state and its count of turns; what was streamed of the turn is void."""
    async with open_small() as engine, engine.session() as session, engine.session() as other:
        for one in (session, other):
            async with one.turn([1, 2, 3], GREEDY) as turn:
                await turn.wait()
        before = session.info

        streamed: list[int] = []
        with pytest.raises(SamplingError):
            async with session.turn([4, 5], breaks_after(3)) as turn:
                async for delta in turn:
                    streamed += delta.token_ids

        assert len(streamed) <= 3
        after = session.info
        assert (after.num_tokens, after.position, after.turns, after.place) == (
            before.num_tokens, before.position, before.turns, before.place
        )  # fmt: skip
        results: list[tuple[int, ...]] = []
        for one in (session, other):
            async with one.turn([4, 5], GREEDY) as turn:
                results.append((await turn.wait()).token_ids)
        assert results[0] == results[1]


async def test_an_interrupt_that_came_first_is_the_outcome() -> None:
    """What was said is kept, though the row in flight could draw nothing."""
    async with open_stage() as stage, stage.engine.session() as session:
        async with session.turn(prompt(5), breaks_after(2)) as turn:
            await stage.step(2)
            with anyio.move_on_after(0):
                await turn.interrupt()
            await stage.land()
        assert turn.result.finish_reason == "interrupt"
        assert len(turn.result.token_ids) == 2
        assert session.info.num_tokens == 7
        again = await stage.run(session.turn(prompt(2, 3), GREEDY))
        stage.note([*prompt(5), *turn.result.token_ids], again)


async def test_a_cancel_that_came_first_is_the_outcome() -> None:
    """Nobody is told of the fault of a turn that was left."""
    async with open_stage() as stage, stage.engine.session() as session:
        async with session.turn(prompt(5), breaks_after(0)):
            await stage.settle()
        await stage.land()
        assert session.info.num_tokens == 0
        assert stage.engine.stats().turns_failed == 0
        stage.note([], await stage.run(session.turn(prompt(5), GREEDY)))


async def test_parameters_that_leave_no_token_are_the_turns_own_fault() -> None:
    """Ids that are allowed and banned at once: known only where they meet."""
    params = SamplingParams(max_tokens=2, allowed_token_ids=[3], bad_words=[[3]])
    async with open_small() as engine:
        with pytest.raises(SamplingError, match="no token is left"):
            await engine.complete([1, 2], params)
        assert (await engine.complete([1, 2], GREEDY)).finish_reason == "length"


async def test_a_fault_among_many_turns_of_many_sessions_leaves_nothing_behind() -> None:
    """Each third turn fails, at its own token; slots and pages are tight."""
    device = FakeDevice()
    opened = OpenedDevice(device=device, tokenizer=device.tokenizer)
    config = EngineConfig(num_slots=4, num_pages=24, page_size=4, max_num_seqs=4, log_events=False)
    outcomes: list[str] = []
    async with Engine.open(config, device=opened) as engine:

        async def talk(number: int) -> None:
            async with engine.session() as session:
                for turn in range(6):
                    params = breaks_after(number % 4) if (number + turn) % 3 == 0 else GREEDY
                    try:
                        async with session.turn(prompt(3, turn), params) as out:
                            await out.wait()
                        outcomes.append("ended")
                    except SamplingError:
                        outcomes.append("failed")

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(talk, number)
        await engine.settle()
        assert engine.audit().at_rest, engine.audit()
        assert engine.stats().turns_failed == 12
    assert sorted(outcomes) == ["ended"] * 24 + ["failed"] * 12
    assert not device.poison_reads
