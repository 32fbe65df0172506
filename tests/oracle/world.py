"""A random world around an engine, and the oracle that judges every turn that ends in it.

The oracle: under any schedule, whatever was cancelled, interrupted, preempted or given up beside
it, a finished turn has exactly the tokens of a cold, solo, greedy run over the same history.
"""

import random
from collections.abc import Sequence
from typing import Literal

import anyio
import attrs

from adapters.fake_device import FakeDevice
from kernel import (
    Device,
    Engine,
    EngineConfig,
    SamplingParams,
    Session,
    SessionInfo,
    TurnNotFound,
    ValidationError,
)
from kernel.config import OnLimit
from kernel.step import ModelSpec
from tests.known import known
from tests.oracle.history import History

__all__ = ["Finished", "Plan", "World", "cold_runs", "run_world"]

_STATE_POSITIONS = 48
_SLIDING = 0.4
_LONGEST_PROMPT = 32
_LONGEST_TURN = _LONGEST_PROMPT + 25
"""Positions that one turn of a session adds at most."""


@attrs.frozen(kw_only=True)
class Plan:
    """How large a world is; drawn from its seed."""

    seed: int
    num_slots: int
    num_pages: int
    page_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    sessions: int
    one_shots: int
    turns: int
    vocab: int
    has_faults: bool = True
    cache_block: int = 0
    """Positions between states of the prefix cache; 0: there is none."""
    host_states: int = 0
    """States of some 48 positions that host memory has room for."""
    slides: bool = False
    """Some of its sessions slide; the pool is so small that they do."""

    @classmethod
    def draw(
        cls, seed: int, *, vocab: int, uses_slots: bool = True, uses_pages: bool = True
    ) -> "Plan":
        """A plan of moderate size, tight pools included."""
        rng = random.Random(f"plan {seed}")
        below = random.Random(f"tiers {seed}")
        host_states, cache_block = below.choice([0, 1, 3, 20]), below.choice([0, 0, 4, 8])
        rows = rng.choice([1, 2, 4, 8, 8])
        if seed % 4 == 0 and uses_pages:
            # A crowd of long one-shots on few pages: growth has to preempt.
            rows = 8
            return cls(
                seed=seed,
                num_slots=20 if uses_slots else 0,
                num_pages=40,
                page_size=4,
                max_num_seqs=rows,
                max_num_batched_tokens=rows + rng.choice([0, 8]),
                sessions=2,
                one_shots=10,
                turns=2,
                vocab=vocab,
                host_states=host_states,
                cache_block=cache_block,
            )
        plan = cls(
            seed=seed,
            num_slots=rng.choice([1, 2, 3, 6, 20, 20]) if uses_slots else 0,
            num_pages=rng.choice([40, 48, 64, 200]) if uses_pages else 0,
            page_size=rng.choice([4, 8]),
            max_num_seqs=rows,
            max_num_batched_tokens=rows + rng.choice([0, 1, 5, 30]),
            sessions=rng.randint(1, 6),
            one_shots=rng.choice([0, 2, 6, 10]),
            turns=rng.randint(1, 4),
            vocab=vocab,
            host_states=host_states,
            cache_block=cache_block,
        )
        return plan.sliding(below) if uses_pages and below.random() < _SLIDING else plan

    def sliding(self, rng: random.Random) -> "Plan":
        """The same, longer, on a pool so small that sessions slide in it; it takes two slots."""
        return attrs.evolve(
            self,
            slides=True,
            num_pages=rng.choice([12, 16, 24]),
            page_size=4,
            num_slots=self.num_slots and max(2, self.num_slots),
            turns=self.turns + 3,
        )

    @property
    def longest_one_shot(self) -> int:
        """Tokens that a one-shot request generates at most, so that it fits into the pool."""
        return min(60, self.num_pages * self.page_size - _LONGEST_PROMPT) if self.slides else 60

    def config(self, model: ModelSpec) -> EngineConfig:
        """The engine's, for a model of such states."""
        state_bytes = model.slot_bytes + _STATE_POSITIONS * model.page_token_bytes
        return EngineConfig(
            model="fake",
            num_slots=self.num_slots or None,
            num_pages=self.num_pages or None,
            page_size=self.page_size,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            enable_prefix_caching=self.cache_block > 0,
            prefix_cache_block=self.cache_block or 512,
            host_memory_bytes=self.host_states * state_bytes,
            log_events=False,
        )


@attrs.frozen
class Finished:
    """A turn that ended with a result: what it started from, and what it generated."""

    context: tuple[int, ...]
    tokens: tuple[int, ...]
    reason: str | None
    slides: bool = False
    """Its session drops its oldest positions."""


@attrs.define
class World:
    """What happened."""

    plan: Plan
    finished: list[Finished] = attrs.field(factory=list[Finished])
    events: dict[str, int] = attrs.field(factory=dict[str, int])

    def count(self, event: str) -> None:
        self.events[event] = self.events.get(event, 0) + 1


async def cold_runs(
    plan: Plan, finished: Sequence[Finished]
) -> list[tuple[Finished, tuple[int, ...]]]:
    """Each turn of a world on the fake device that drew tokens, with those of a cold, solo run."""
    found: list[tuple[Finished, tuple[int, ...]]] = []
    for slides in (False, True):
        # A session that slides forgets what its own pool can't hold: alone it needs the same pool.
        pages = plan.num_pages if slides else 400
        solo = EngineConfig(num_slots=2, num_pages=pages, page_size=plan.page_size, max_num_seqs=1)
        async with Engine.open(solo, device=FakeDevice(eos_token_ids=())) as cold:
            for turn in (turn for turn in finished if turn.tokens and turn.slides == slides):
                tokens = await _cold_run(cold, turn.context, len(turn.tokens), slides=slides)
                found.append((turn, tokens))
    return found


async def _cold_run(
    engine: Engine, context: tuple[int, ...], length: int, *, slides: bool
) -> tuple[int, ...]:
    params = SamplingParams(temperature=0, max_tokens=length, ignore_eos=True)
    if not slides:
        return (await engine.complete(list(context), params)).token_ids
    async with (
        engine.session(on_limit="slide") as session,
        session.turn(list(context), params) as turn,
    ):
        return (await turn.wait()).token_ids


async def run_world(plan: Plan, device: Device) -> World:
    """Run a plan to its end on a device; the engine must be conserved throughout."""
    world = World(plan)
    async with Engine.open(plan.config(device.model), device=device) as engine:
        async with anyio.create_task_group() as tasks:
            for number in range(plan.sessions):
                tasks.start_soon(_live_session, world, engine, number)
            for number in range(plan.one_shots):
                tasks.start_soon(_live_one_shot, world, engine, number)
        await engine.settle()
        engine.reset_prefix_cache()
        await engine.settle()
        audit = engine.audit()
        assert audit.conserved, audit.problems
        stats = engine.stats()
        assert stats.reclaimed == 0, stats
        assert stats.slots_free == stats.slots_total, stats
        assert stats.pages_free == stats.pages_total, stats
        assert stats.num_queued_tokens == 0, stats
        for name in (
            "preemptions",
            "forced_parks",
            "rollbacks",
            "recomputed_tokens",
            "cache_hits",
            "cache_evictions",
            "cache_published",
        ):
            world.events[name] = getattr(stats, name)
    return world


def _prompt(rng: random.Random, plan: Plan) -> list[int]:
    fresh = [rng.randrange(plan.vocab) for _ in range(rng.choice([1, 2, 3, 7, 12]))]
    if not plan.cache_block:
        return fresh
    # Beginnings of one text, so that there is something to share.
    return [7 * n % plan.vocab for n in range(rng.choice([0, 3, 9, 16, 20]))] + fresh


def _params(rng: random.Random, longest: int = 25) -> SamplingParams:
    length = rng.choice([1, 2, 5, 9, longest])
    return SamplingParams(temperature=0, max_tokens=length, ignore_eos=True)


async def _dawdle(rng: random.Random) -> None:
    for _ in range(rng.choice([0, 0, 1, 3, 10])):
        await anyio.lowlevel.checkpoint()


async def _live_one_shot(world: World, engine: Engine, number: int) -> None:
    rng = random.Random(f"{world.plan.seed} one-shot {number}")
    for _ in range(world.plan.turns):
        await _dawdle(rng)
        prompt, params = _prompt(rng, world.plan), _params(rng, world.plan.longest_one_shot)
        leave_after = (
            rng.choice([None, None, None, None, 0, 1, 3]) if world.plan.has_faults else None
        )
        async with engine.stream(prompt, params) as out:
            read = 0
            async for _ in out:
                read += 1
                if leave_after is not None and read > leave_after:
                    world.count("one-shot left early")
                    break
            if out.has_result:
                world.finished.append(
                    Finished(tuple(prompt), out.result.token_ids, out.result.finish_reason)
                )


async def _live_session(world: World, engine: Engine, number: int) -> None:
    rng = random.Random(f"{world.plan.seed} session {number}")
    history = History()
    slides = world.plan.slides and random.Random(f"slide {world.plan.seed} {number}").random() < 0.8
    on_limit: OnLimit = "slide" if slides else "refuse"
    history.slides = slides
    async with engine.session(on_limit=on_limit) as session:
        for _ in range(world.plan.turns):
            await _dawdle(rng)
            if _is_full(world.plan, history):
                break
            what = (
                rng.choice(["turn"] * 9 + ["append", "late", "fork", "rewind", "mark", "restore"])
                if world.plan.has_faults
                else "turn"
            )
            if what == "append":
                prompt = _prompt(rng, world.plan)
                await session.append(prompt)
                history.log += prompt
            elif what == "late" and history.log:
                await _late_interrupt(world, session, rng, history)
            elif what == "fork":
                world.count("fork")
                async with session.fork() as child:
                    await _one_turn(world, engine, child, rng, history.fork())
            elif what in ("rewind", "mark", "restore"):
                await _go_back(world, session, rng, history, what)
                await _one_turn(world, engine, session, rng, history)
            else:
                await _one_turn(world, engine, session, rng, history)
            _compare(session.info, history)
        if rng.random() < 0.3:
            world.count("closed explicitly")
            await session.close()


def _is_full(plan: Plan, history: History) -> bool:
    """Whether the longest turn might be refused for want of room."""
    room = plan.num_pages * plan.page_size
    return plan.slides and not history.slides and len(history.log) + _LONGEST_TURN > room


def _compare(info: SessionInfo, history: History) -> None:
    length = len(history.log)
    assert (info.num_tokens, info.turns) == (length, history.turns), (info, history)
    assert known(info.position) <= max(0, length - 1), info
    marks = {mark.name: (mark.num_tokens, mark.turns) for mark in known(info.checkpoints)}
    assert marks == history.marks, (info, history)


async def _go_back(
    world: World, session: Session, rng: random.Random, history: History, what: str
) -> None:
    """Undo turns, mark a place, or come back to one."""
    if what == "restore" and history.marks:
        name = rng.choice([*history.marks])
        assert await session.restore(name) == history.marks[name][1]
        history.go_back(*history.marks[name])
    elif what == "rewind" and history.turns:
        keep = rng.randint(0, history.turns)
        assert await session.rewind(rng.choice([keep, keep - history.turns or keep])) == keep
        history.rewind(keep)
    else:
        what = "mark"
        history.mark(await session.checkpoint(rng.choice([None, "a", "b"])))
    world.count(what)


async def _late_interrupt(
    world: World, session: Session, rng: random.Random, history: History
) -> None:
    try:
        kept_all = await session.interrupt(None)
    except TurnNotFound:
        return
    keep = rng.randint(0, kept_all)
    try:
        kept = await session.interrupt(keep)
    except ValidationError:
        # The last turn was left before so many of its tokens were received.
        world.count("late interrupt refused")
        return
    assert kept == keep
    history.cut(len(history.log) - (kept_all - keep))
    world.count("late interrupt")


async def _one_turn(
    world: World, engine: Engine, session: Session, rng: random.Random, history: History
) -> None:
    prompt, params = _prompt(rng, world.plan), _params(rng)
    how = rng.choice(["read", "read", "read", "leave", "scope", "interrupt", "keep"])
    if not world.plan.has_faults:
        how = "read"
    after = rng.choice([0, 1, 2])
    on_exit: Literal["keep", "rollback"] = "keep" if how == "keep" else "rollback"
    received: list[int] = []
    kept: int | None = None
    turn = session.turn(prompt, params, on_exit=on_exit, wait=True)
    with anyio.CancelScope() as scope:
        async with turn:
            if how == "scope" and after == 0:
                scope.cancel()
            async for delta in turn:
                received += delta.token_ids
                if delta.finish_reason is None and len(received) > after and how != "read":
                    if how == "interrupt":
                        kept = await turn.interrupt(rng.randint(0, len(received)))
                    elif how == "scope":
                        scope.cancel()
                        await anyio.sleep(1)
                    else:
                        break
    if how == "keep":
        await session.interrupt(None)
    while not engine.core.dispatcher.is_quiet:
        # A turn that was left may have ended before: the session decides, in the order of its mail.
        await anyio.lowlevel.checkpoint()
    if turn.has_result:
        result = turn.result
        world.count(f"turn {result.finish_reason}")
        context = (*history.log, *prompt)
        world.finished.append(
            Finished(context, result.token_ids, result.finish_reason, history.slides)
        )
        # An interrupt that came after the end has cut the log, and not the result.
        history.add_turn(prompt, result.token_ids[:kept])
        return
    world.count(f"turn left: {how}")
