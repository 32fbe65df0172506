"""Sessions that outlive their engines: saved, killed, restored, moved; judged like all others.

A life ends at a random moment. What is on the disk then is what the next life begins with, whatever
its engine still does: as after ``kill -9``, every session must be at its last acknowledged turn, or
one further, and goes on from there.
"""

import copy
import random
from collections.abc import Callable

import anyio
import attrs

from kernel import Device, Engine, SamplingParams, Session, TenureError
from kernel.ids import SessionId
from tests.durable.memory_store import MemoryFiles, MemoryStore
from tests.oracle.world import Finished, Plan, World

__all__ = ["run_lives"]

_LIVES = 3
_LONGEST = 90
_LONGEST_SLIDING = 140
"""Tokens of a log; no session is refused for want of room."""


@attrs.define
class _Crowd:
    """The sessions by name, as their callers were told."""

    world: World
    rng: random.Random
    disk: MemoryStore
    logs: dict[str, list[int]] = attrs.field(factory=dict[str, "list[int]"])
    copies: int = 0
    left: int = 0
    """Turns until the engine is killed."""
    at_the_kill: "tuple[MemoryStore, dict[str, list[int]]] | None" = None

    def kill(self) -> None:
        """Keep what is on the disk at this moment, and what had been told."""
        disk = MemoryStore()
        disk.sessions = copy.deepcopy(self.disk.sessions)
        self.at_the_kill = disk, copy.deepcopy(self.logs)
        self.world.count("kill")

    def wake_up(self) -> None:
        """What was kept at the kill is all that there is; without one, all is there."""
        if self.at_the_kill is not None:
            self.disk, self.logs = self.at_the_kill
            self.at_the_kill = None

    def told(self, prompt: list[int], tokens: tuple[int, ...], log: list[int]) -> None:
        """A caller has the end of a turn."""
        slides = self.world.plan.slides
        self.world.finished.append(Finished((*log, *prompt), tokens, "length", slides))
        log += [*prompt, *tokens]


async def run_lives(plan: Plan, device: Callable[[], Device]) -> World:
    """Run a plan over several engines on one disk."""
    world = World(plan)
    crowd = _Crowd(world, random.Random(f"lives {plan.seed}"), MemoryStore())
    for _ in range(_LIVES):
        crowd.left = crowd.rng.randint(2, 8)
        await _one_life(crowd, device())
        crowd.wake_up()
    return world


async def _one_life(crowd: _Crowd, device: Device) -> None:
    plan, rng = crowd.world.plan, crowd.rng
    config = attrs.evolve(
        plan.config(device.model),
        session_store="anywhere",
        max_resident_sessions=rng.choice([1, 2, 100]),
        on_limit="slide" if plan.slides else "refuse",
    )
    files = MemoryFiles(crowd.disk)
    async with Engine.open(config, device=device, session_files=files) as engine:
        for name, log in crowd.logs.items():
            await _check_restart(crowd, engine, name, log)
        async with anyio.create_task_group() as tasks:
            for number in range(plan.sessions + 1):
                tasks.start_soon(_live, crowd, engine, f"s{number}", tasks.cancel_scope)


async def _check_restart(crowd: _Crowd, engine: Engine, name: str, log: list[int]) -> None:
    """The session has all that its caller was told, and at most the turn after that."""
    async with engine.session(session_id=name, resume=True, detached=True) as session:
        await session.checkpoint("here")
        kept = list(engine.core.session(SessionId(name)).state.log)
        assert kept[: len(log)] == log, f"{name} is {kept}, and was told {log}"
        crowd.world.count("restart")
        crowd.world.count("restart beyond what was told" if len(kept) > len(log) else "as told")
        log[:] = kept


async def _live(crowd: _Crowd, engine: Engine, name: str, scope: anyio.CancelScope) -> None:
    rng = random.Random(f"{crowd.world.plan.seed} {name} {len(crowd.logs.get(name, ()))}")
    for _ in range(crowd.world.plan.turns + 1):
        log = crowd.logs.setdefault(name, [])
        async with engine.session(session_id=name, resume=True, detached=True) as session:
            if len(log) > (_LONGEST_SLIDING if crowd.world.plan.slides else _LONGEST):
                return
            if rng.random() < 0.25:
                await _move(crowd, engine, session, rng, log)
            await _turn(crowd, session, rng, log)
        crowd.left -= 1
        if not crowd.left:
            crowd.kill()
            scope.cancel()


async def _turn(crowd: _Crowd, session: Session, rng: random.Random, log: list[int]) -> None:
    prompt = [rng.randrange(crowd.world.plan.vocab) for _ in range(rng.choice([1, 2, 7]))]
    params = SamplingParams(temperature=0, max_tokens=rng.choice([1, 4, 9]), ignore_eos=True)
    async with session.turn(prompt, params, wait=True) as turn:
        crowd.told(prompt, (await turn.wait()).token_ids, log)


async def _move(
    crowd: _Crowd, engine: Engine, session: Session, rng: random.Random, log: list[int]
) -> None:
    """A copy under another name goes on as the session itself would; it is closed after that."""
    crowd.world.count("moved")
    crowd.copies += 1  # one that a kill has left on the disk keeps its name
    name = f"copy-{crowd.copies}"
    copied = await engine.import_session(await session.export(), session_id=name)
    try:
        await _turn(crowd, copied, rng, list(log))
    except TenureError as error:
        raise AssertionError(f"a copy of {session.session_id} can't go on") from error
    finally:
        await copied.close()
