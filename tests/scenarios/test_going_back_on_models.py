"""Interrupts, undone turns and checkpoints on real models of each kind: exact in float64.

A recurrent state can't be cut, keys and values could; neither is. Each turn's tokens are judged by
one plain forward pass over the log as a caller knows it.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache

import anyio
import attrs
import pytest

from kernel import Engine, EngineConfig, RequestOutput, SamplingParams, Session
from tests.oracle.tiny_model import TinyModel
from tests.oracle.world import Finished

KINDS = {
    "recurrent": ("mamba2", "mamba2"),
    "hybrid": ("mamba2", "attention", "mamba2"),
    "attention": ("attention", "attention"),
}

on_each_kind = pytest.mark.parametrize(
    ("anyio_backend", "kind"), [("asyncio", kind) for kind in KINDS]
)


@cache
def model_of(kind: str) -> TinyModel:
    return TinyModel(3, layer_types=KINDS[kind])


@attrs.define
class Talk:
    """A session, and its log as its caller knows it."""

    model: TinyModel
    engine: Engine
    session: Session
    log: list[int] = attrs.field(factory=list[int])

    async def say(self, *text: int, length: int = 9) -> RequestOutput:
        """A whole turn, judged."""
        async with self.session.turn(list(text), greedy(length)) as turn:
            result = await turn.wait()
        self.add(text, result.token_ids)
        return result

    async def barge_in(self, *text: int, keep: int) -> int:
        """A turn that is interrupted while it runs, once so many tokens were received."""
        async with self.session.turn(list(text), greedy(200)) as turn:
            received: list[int] = []
            async for delta in turn:
                received += delta.token_ids
                if len(received) >= max(keep, 1):
                    break
            kept = await turn.interrupt(keep)
        self.add(text, received[:keep])
        return kept

    def add(self, text: tuple[int, ...], tokens: tuple[int, ...] | list[int]) -> None:
        verdict = self.model.judge(Finished((*self.log, *text), tuple(tokens), None))
        assert verdict.differing == verdict.ties, verdict
        self.log += [*text, *tokens]
        assert self.session.info.num_tokens == len(self.log)


def greedy(length: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=length, ignore_eos=True)


@asynccontextmanager
async def open_talk(kind: str) -> AsyncGenerator[Talk]:
    model = model_of(kind)
    config = EngineConfig(
        page_size=4,
        max_num_seqs=4,
        num_slots=8 if "mamba2" in KINDS[kind] else None,
        num_pages=256 if "attention" in KINDS[kind] else None,
        max_num_batched_tokens=16,
        log_events=False,
    )
    with anyio.fail_after(60):
        async with Engine.open(config, device=model.device("float64")) as engine:
            async with engine.session() as session:
                yield Talk(model, engine, session)
            await engine.settle()
            assert engine.audit().at_rest
            assert engine.stats().reclaimed == 0


@pytest.mark.timeout(90)
@on_each_kind
async def test_barge_in_keeps_exactly_what_was_said(kind: str) -> None:
    """Whatever number is kept: none, on both sides of a page, more than a page."""
    async with open_talk(kind) as talk:
        await talk.say(1, 2, 3)
        for keep in (0, 1, 3, 4, 5, 9):
            assert await talk.barge_in(10 + keep, 20, keep=keep) == keep
            await talk.say(30 + keep, length=5)


@pytest.mark.timeout(90)
@on_each_kind
async def test_a_late_interrupt_cuts_exactly(kind: str) -> None:
    """After the end of the turn, and further on a second thought."""
    async with open_talk(kind) as talk:
        await talk.say(1, 2, 3)
        for first, then in ((8, 5), (4, 4), (3, 0)):
            await talk.say(11, 12, length=9)
            for keep in (first, then):
                assert await talk.session.interrupt(keep) == keep
            del talk.log[len(talk.log) - 9 + then :]
            after = await talk.say(40, length=5)
            assert after.usage.recomputed_tokens == 0


@pytest.mark.timeout(90)
@on_each_kind
async def test_interrupts_in_a_row_do_not_add_up(kind: str) -> None:
    """Each leaves its tokens pending; the next turn absorbs them once and goes on."""
    async with open_talk(kind) as talk:
        await talk.say(1, 2, 3)
        for number in range(5):
            await talk.barge_in(*range(5, 12), keep=number)
        await talk.say(50, length=6)


@pytest.mark.timeout(90)
@on_each_kind
async def test_undone_turns_and_checkpoints_are_exact(kind: str) -> None:
    """From a kept state and from the log alone."""
    async with open_talk(kind) as talk:
        await talk.say(1, 2, 3)
        mark, marked = await talk.session.checkpoint(), [*talk.log]
        await talk.say(4, 5)
        await talk.say(6)
        await talk.session.rewind(-1)
        del talk.log[len(marked) + 2 + 9 :]
        await talk.say(7, 8)
        for number in range(2):
            await talk.session.restore(mark)
            talk.log = [*marked]
            again = await talk.say(20 + number)
            assert again.usage.cached_tokens == len(marked) - 1
        await talk.session.rewind(0)
        talk.log = []
        await talk.say(9, 10)


@pytest.mark.timeout(90)
@on_each_kind
async def test_a_fork_of_a_running_session_starts_from_what_is_committed(kind: str) -> None:
    """While the parent's turn goes on, and to the same tokens."""
    async with open_talk(kind) as talk:
        await talk.say(1, 2, 3)
        async with talk.session.turn([4], greedy(30)) as running:
            await anext(running)
            async with talk.session.fork() as child:
                other = Talk(talk.model, talk.engine, child, [*talk.log])
                first = await other.say(5, 6)
                assert first.usage.cached_tokens == len(talk.log) - 1
                result = await running.wait()
                talk.add((4,), result.token_ids)
                await other.say(7)
        await talk.say(8)


@pytest.mark.timeout(90)
@on_each_kind
async def test_several_outputs_share_one_absorbed_prompt(kind: str) -> None:
    """Greedy, they are all the one that a plain pass gives; drawn, each is its seed's."""
    prompt = [*range(1, 12)]
    async with open_talk(kind) as talk:
        greedy_ones = await talk.engine.complete(
            prompt, SamplingParams(n=3, temperature=0, max_tokens=8, ignore_eos=True)
        )
        for output in greedy_ones.outputs:
            verdict = talk.model.judge(Finished(tuple(prompt), output.token_ids, None))
            assert verdict.differing == verdict.ties
        params = SamplingParams(n=3, seed=4, max_tokens=8, ignore_eos=True)
        drawn = await talk.engine.complete(prompt, params)
        single = await talk.engine.complete(prompt, attrs.evolve(params, n=1))
        assert drawn.outputs[0].token_ids == single.token_ids
        assert len({output.token_ids for output in drawn.outputs}) == 3
