"""DF-3 and DF-4: every way in which a turn is turned away or displaced, for every kind of owner.

An owner is a one-shot request (*plain*), the *first* turn of a session, or a *later* one. Whatever
the reason, what the session holds is untouched, nothing is left with the scheduler, and the same
caller's next attempt starts from a clean slot or from the very state that was there before.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio
import attrs
import pytest

from kernel import (
    EngineClosed,
    PromptTooLong,
    QueueFull,
    RequestExists,
    RunningTurn,
    Session,
    StepError,
    TenureError,
    ValidationError,
)
from kernel.step import OpenedDevice
from tests.scenarios.stage import Stage, greedy, open_fake, open_stage, prompt

Owner = Literal["plain", "first", "later"]

each_owner = pytest.mark.parametrize("owner", ["plain", "first", "later"])


@attrs.frozen
class Scene:
    """An owner that is about to be turned away."""

    stage: Stage
    session: Session | None
    history: list[int]

    def submit(self, *args: Any, **options: Any) -> RunningTurn:
        if self.session is None:
            return self.stage.engine.stream(*args, **options)
        return self.session.turn(*args, **options)

    def holding(self) -> object:
        """All that the owner has: log, version, claims."""
        if self.session is None:
            return None
        info = self.session.info
        return info.num_tokens, info.version, info.turns, self.stage.held_by(self.session)

    async def retry(self) -> None:
        """The next attempt starts where the owner stood: at zeros, or at its committed state."""
        position = 0 if self.session is None else self.session.info.position
        params = greedy(3, detokenize=False)
        result = await self.stage.run(self.submit(prompt(3, 5), params))
        assert result.usage.cached_tokens == position
        assert result.usage.recomputed_tokens == 0
        self.stage.note(self.history, result)


@asynccontextmanager
async def open_scene(
    owner: Owner, open_device: Callable[[], OpenedDevice] = open_fake, **config: Any
) -> AsyncGenerator[Scene]:
    merged: dict[str, Any] = {"num_slots": 4, "num_pages": 20, **config}
    async with open_stage(open_device, **merged) as stage:
        if owner == "plain":
            yield Scene(stage, None, [])
            return
        async with stage.engine.session() as session:
            history: list[int] = []
            if owner == "later":
                params = greedy(3, detokenize=False)
                history = stage.note([], await stage.run(session.turn(prompt(5), params)))
            yield Scene(stage, session, history)


@each_owner
@pytest.mark.parametrize(
    ("tokens", "max_tokens", "error"),
    [
        (prompt(100), 1, PromptTooLong),
        (prompt(3), 100, PromptTooLong),
        ([1, 5000], 1, ValidationError),
        ([-1], 1, ValidationError),
    ],
)
async def test_what_can_never_be_served_is_refused_at_submit(
    owner: Owner, tokens: list[int], max_tokens: int, error: type[TenureError]
) -> None:
    """It is not queued: it would wait for ever."""
    async with open_scene(owner) as scene:
        before = scene.holding()
        with pytest.raises(error):
            await scene.stage.run(scene.submit(tokens, greedy(max_tokens)))
        await scene.stage.settle()
        assert scene.holding() == before
        assert scene.stage.device.waiting == 0
        await scene.retry()


@pytest.mark.parametrize("owner", ["plain", "first"])
async def test_an_empty_prompt_is_refused_where_there_is_no_log(owner: Owner) -> None:
    """There is nothing to absorb."""
    async with open_scene(owner) as scene:
        with pytest.raises(ValidationError):
            await scene.stage.run(scene.submit([], greedy(1)))
        await scene.retry()


async def test_an_empty_prompt_goes_on_from_a_log() -> None:
    """The neighbour of the case above: a session's pending token is enough."""
    async with open_scene("later") as scene:
        scene.stage.note(scene.history, await scene.stage.run(scene.submit([], greedy(3))))


@each_owner
@pytest.mark.parametrize(
    "bound", [{"max_num_queued_reqs": 1}, {"max_num_queued_tokens": 5}], ids=["requests", "tokens"]
)
async def test_a_full_queue_refuses_the_newcomer(owner: Owner, bound: dict[str, Any]) -> None:
    """The one that was there first keeps its place; nobody is displaced."""
    async with open_scene(owner, max_num_seqs=1, **bound) as scene:
        stage, before = scene.stage, scene.holding()
        async with (
            stage.engine.stream(prompt(4, 1), greedy(5)) as running,
            stage.engine.stream(prompt(4, 2), greedy(2)) as waiting,
        ):
            await stage.step()
            with pytest.raises(QueueFull):
                await stage.run(scene.submit(prompt(4, 3), greedy(1)))
            assert scene.holding() == before
            stage.note([], await stage.finish(running))
            stage.note([], await stage.finish(waiting))
        await scene.retry()


@each_owner
async def test_a_request_id_in_use_is_refused(owner: Owner) -> None:
    """The open request is not disturbed."""
    async with open_scene(owner) as scene:
        stage, before = scene.stage, scene.holding()
        async with stage.engine.stream(prompt(4, 1), greedy(5), request_id="mine") as first:
            with pytest.raises(RequestExists):
                await stage.run(scene.submit(prompt(4, 2), greedy(2), request_id="mine"))
            assert scene.holding() == before
            stage.note([], await stage.finish(first))
        await scene.retry()


@each_owner
@pytest.mark.parametrize("after", [0, 2])
async def test_a_failed_step_fails_its_turns_and_nothing_else(owner: Owner, after: int) -> None:
    """What the step wrote is undefined and is given back; the base was only read."""
    async with open_scene(owner) as scene:
        stage, before = scene.stage, scene.holding()
        async with scene.submit(prompt(5, 1), greedy(5)) as turn:
            await stage.step(after)
            await stage.fail_step()
            with pytest.raises(StepError):
                await turn.wait()
        assert scene.holding() == before
        assert stage.running() == set()
        await scene.retry()


@attrs.frozen
class BrokenTokenizer:
    """Fails once there is something to decode."""

    vocab_size: int = 1000

    def encode(self, text: str, /) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: object, /) -> str:
        raise RuntimeError("planted")


def open_broken() -> OpenedDevice:
    return OpenedDevice(device=open_fake().device, tokenizer=BrokenTokenizer())


@each_owner
async def test_foreign_code_that_raises_ends_its_own_turn(owner: Owner) -> None:
    """A tokenizer that fails while it looks for a stop string is not the engine's death."""
    async with open_scene(owner, open_broken) as scene:
        stage = scene.stage
        before = scene.holding()
        params = greedy(5, stop=["x"])
        async with scene.submit(prompt(5, 1), params) as turn:
            await stage.step(2)
            with pytest.raises(RuntimeError, match="planted"):
                await turn.wait()
        await stage.drain()
        assert scene.holding() == before
        assert stage.engine.health().live
        assert stage.engine.stats().restarts == 0
        await scene.retry()


@each_owner
async def test_shutdown_ends_a_queued_turn(owner: Owner) -> None:
    """It holds nothing, so there is nothing to wait for but the step in flight."""
    async with open_scene(owner, max_num_seqs=1) as scene:
        stage = scene.stage
        async with (
            stage.engine.stream(prompt(4, 1), greedy(9)) as running,
            scene.submit(prompt(4, 2), greedy(2)) as queued,
        ):
            await stage.step(2)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stage.engine.aclose)
                await anyio.sleep(0.01)
                stage.device.open()
            for turn in (running, queued):
                with pytest.raises(EngineClosed):
                    await turn.wait()
        with pytest.raises(EngineClosed):
            await stage.run(stage.engine.stream(prompt(1), greedy(1)))
