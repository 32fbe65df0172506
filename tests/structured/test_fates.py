"""Structured output whatever becomes of a turn: cut, left, preempted, failed, forked."""

import re
from collections.abc import Callable

import anyio
import attrs
import pytest

from adapters.passing_device import PassingDevice, PassingWorker
from adapters.torch_device import open_torch
from kernel import Engine, EngineConfig, OpenedDevice, StepError, StructuredOutputs
from kernel.step import DeviceStep, DeviceWorker, StepFault, StepReport, WorkerContext
from tests.known import known
from tests.structured.test_engine import EXACT, FORMS, ONE_LOOP, PROMPT, SMALL, check, params

pytestmark = pytest.mark.timeout(90)

LONG = StructuredOutputs(regex="[a-z]+( [a-z]+)*\\.")


async def test_a_turn_that_is_cut_leaves_nothing_to_the_next() -> None:
    """Each turn's output has its form from its first token, whatever the last one left open."""
    async with Engine.open(SMALL) as engine:
        for keep in (0, 1, 3):
            async with engine.session() as session:
                async with session.turn(PROMPT, params(FORMS["json"])) as turn:
                    taken = 0
                    while taken < 4:
                        taken += len((await anext(turn)).token_ids)
                    before = known(session.info.num_tokens)
                    assert await turn.interrupt(keep) == keep
                for name in ("regex", "json"):
                    async with session.turn(" So", params(FORMS[name])) as turn:
                        check(name, (await turn.wait()).text)
                assert known(session.info.num_tokens) > before


@ONE_LOOP
async def test_a_cut_turn_and_its_next_are_those_of_a_session_that_was_never_cut() -> None:
    """The tokens kept are the turn's first, and the next turn depends on the log alone."""
    async with Engine.open(EXACT) as engine:
        async with engine.session() as session:
            async with session.turn(PROMPT, params(FORMS["json"])) as turn:
                whole = await turn.wait()
        async with engine.session() as session:
            async with session.turn(PROMPT, params(FORMS["json"])) as turn:
                await turn.wait()
                assert await turn.interrupt(keep=3) == 3
            async with session.turn(" So", params(FORMS["json"])) as turn:
                cut = await turn.wait()
        async with engine.session() as session:
            await session.append(engine.tokenizer.encode(PROMPT) + list(whole.token_ids[:3]))
            async with session.turn(" So", params(FORMS["json"])) as turn:
                cold = await turn.wait()

    assert cut.token_ids == cold.token_ids
    check("json", cut.text)


async def test_a_turn_that_is_left_midway_is_forgotten_with_its_form() -> None:
    async with Engine.open(SMALL) as engine, engine.session() as session:
        async with session.turn(PROMPT, params(FORMS["json"])) as turn:
            async for _ in turn:
                break
        with anyio.move_on_after(0):
            async with session.turn(PROMPT, params(FORMS["json"])) as turn:
                await turn.wait()
        assert session.info.num_tokens == 0

        async with session.turn(PROMPT, params(FORMS["regex"])) as turn:
            check("regex", (await turn.wait()).text)
        await engine.settle()
        assert engine.audit().conserved


@ONE_LOOP
async def test_turns_that_are_preempted_midway_draw_what_they_would_have_drawn_alone() -> None:
    """Their states are computed again from the log; their constraints follow the same tokens."""
    tight = EngineConfig(max_num_seqs=4, num_slots=4, num_pages=7, page_size=8, dtype="float64")
    asked = [
        params(None, max_tokens=30),
        params(LONG, max_tokens=30),
        params(LONG, max_tokens=30, temperature=0.9, seed=2),
        params(FORMS["json"], max_tokens=30),
    ]
    async with Engine.open(tight) as engine:
        alone = [await engine.complete(PROMPT, each) for each in asked]
        together = await engine.map([PROMPT] * len(asked), asked)

    assert sum(each.timings.preemptions for each in together[2:]) > 0
    assert [each.token_ids for each in together] == [each.token_ids for each in alone]


async def test_a_fork_and_its_parent_draw_their_own_outputs() -> None:
    """Forked in the midst of a turn: the child begins where the parent stood before it."""
    async with Engine.open(EXACT) as engine, engine.session() as parent:
        async with parent.turn(PROMPT, params(None, max_tokens=4)) as turn:
            await turn.wait()
        async with parent.turn(" So", params(FORMS["json"])) as turn:
            await anext(turn)
            async with parent.fork() as child:
                async with child.turn(" So", params(FORMS["json"])) as other:
                    theirs = await other.wait()
                async with child.turn(" So", params(FORMS["regex"])) as other:
                    check("regex", (await other.wait()).text)
            ours = await turn.wait()

    check("json", ours.text)
    assert theirs.token_ids == ours.token_ids


# A step that fails after its masks were used


@attrs.define(eq=False)
class LostReports(PassingDevice):
    """A device whose n-th step is computed, and reported as failed all the same."""

    lost: int

    def start_worker(self, context: WorkerContext, /) -> DeviceWorker:
        return LosingWorker(super().start_worker(context), self)


@attrs.define(eq=False)
class LosingWorker(PassingWorker):
    owner: LostReports

    def submit(self, step: DeviceStep, done: Callable[[StepReport], None], /) -> None:
        self.owner.lost -= 1
        is_lost = self.owner.lost == 0
        self.worker.submit(
            step, lambda report: done(StepFault("its report was lost") if is_lost else report)
        )


@ONE_LOOP
@pytest.mark.parametrize("lost", [1, 2, 5])
async def test_a_turn_whose_step_failed_is_drawn_again_from_its_start(lost: int) -> None:
    opened = open_torch(model="bundled", device="cpu", dtype="float32")
    device = LostReports(opened.device, lost)
    wrapped = OpenedDevice(
        device=device, tokenizer=opened.tokenizer, constraints=opened.constraints
    )
    async with Engine.open(SMALL, device=wrapped) as engine, engine.session() as session:
        with pytest.raises(StepError, match="its report was lost"):
            async with session.turn(PROMPT, params(FORMS["json"])) as turn:
                await turn.wait()
        async with session.turn(PROMPT, params(FORMS["json"])) as turn:
            again = await turn.wait()
    async with Engine.open(SMALL) as engine:
        never = await engine.complete(PROMPT, params(FORMS["json"]))

    assert again.token_ids == never.token_ids


@ONE_LOOP
async def test_a_session_holds_a_conversation_of_forms() -> None:
    """Every turn may have another form or none."""
    async with Engine.open(SMALL) as engine, engine.session() as session:
        async with session.turn(PROMPT, params(None, max_tokens=5)) as turn:
            await turn.wait()
        async with session.turn("\nPerson: ", params(FORMS["json"])) as turn:
            check("json", (await turn.wait()).text)
        async with session.turn("\nNumber: ", params(StructuredOutputs(regex="[0-9]{2}"))) as turn:
            assert re.fullmatch("[0-9]{2}", (await turn.wait()).text)
        assert session.info.turns == 3
