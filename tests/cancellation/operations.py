"""Everything that a caller can wait for, each as one coroutine to be killed at any of its awaits.

An operation works on one engine and on one session that outlives it, so that what a killed caller
leaves behind would be seen by the next.
"""

import gc
import random
from collections.abc import Awaitable, Callable
from typing import Literal

import attrs

from kernel import Engine, SamplingParams, Session

__all__ = ["OPERATIONS", "Scene"]


@attrs.frozen
class Scene:
    """Where an operation takes place."""

    engine: Engine
    shared: Session
    rng: random.Random
    lengths: tuple[int, ...] = (1, 2, 5, 12)
    """How many tokens a turn may be asked for."""

    def prompt(self) -> list[int]:
        return [self.rng.randrange(900) for _ in range(self.rng.choice([1, 3, 9, 20]))]

    def params(self) -> SamplingParams:
        length = self.rng.choice(self.lengths)
        return SamplingParams(temperature=0, max_tokens=length, ignore_eos=True)


async def _stream(scene: Scene) -> None:
    leave_after = scene.rng.choice([1, 3, 99])
    async with scene.engine.stream(scene.prompt(), scene.params()) as out:
        async for _ in out:
            leave_after -= 1
            if not leave_after:
                break


async def _complete(scene: Scene) -> None:
    await scene.engine.complete(scene.prompt(), scene.params())


async def _generate(scene: Scene) -> None:
    generation = scene.engine.generate(scene.prompt(), scene.params())
    try:
        async for _ in generation:
            pass
    finally:
        await generation.aclose()


async def _generate_and_abandon(scene: Scene) -> None:
    generation = scene.engine.generate(scene.prompt(), scene.params())
    await anext(generation)
    del generation
    gc.collect(0)


async def _map(scene: Scene) -> None:
    prompts = [scene.prompt() for _ in range(3)]
    await scene.engine.map(prompts, scene.params(), concurrency=2)


async def _turn(scene: Scene) -> None:
    exits: list[Literal["rollback", "keep"]] = ["rollback", "keep"]
    on_exit = scene.rng.choice(exits)
    wait = scene.rng.random() < 0.5
    turn = scene.shared.turn(scene.prompt(), scene.params(), wait=wait, on_exit=on_exit)
    async with turn:
        async for _ in turn:
            pass


async def _append(scene: Scene) -> None:
    await scene.shared.append(scene.prompt(), wait=scene.rng.random() < 0.5)


async def _interrupt(scene: Scene) -> None:
    async with scene.shared.turn(scene.prompt(), scene.params(), wait=True) as turn:
        await anext(turn)
        await turn.interrupt(scene.rng.choice([None, 0, 1]))
        await turn.wait()


async def _interrupt_last(scene: Scene) -> None:
    await scene.shared.interrupt(scene.rng.choice([None, 0]))


async def _own_session(scene: Scene) -> None:
    async with scene.engine.session() as session:
        await session.append(scene.prompt())
        async with session.turn(scene.prompt(), scene.params()) as turn:
            await anext(turn)
            await session.close()


async def _attach(scene: Scene) -> None:
    async with scene.engine.attach(scene.shared.session_id) as session:
        async with session.turn(scene.prompt(), scene.params(), wait=True) as turn:
            await turn.wait()


async def _settle(scene: Scene) -> None:
    turn = scene.shared.turn(scene.prompt(), scene.params(), wait=True)
    async with turn:
        turn.cancel()
        await scene.engine.settle()


OPERATIONS: dict[str, Callable[[Scene], Awaitable[None]]] = {
    "stream": _stream,
    "complete": _complete,
    "generate": _generate,
    "abandoned generate": _generate_and_abandon,
    "map": _map,
    "turn": _turn,
    "append": _append,
    "interrupt": _interrupt,
    "late interrupt": _interrupt_last,
    "session and close": _own_session,
    "attach": _attach,
    "settle": _settle,
}
