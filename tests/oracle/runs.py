"""Run many random worlds and judge every finished turn in them."""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

import anyio
import attrs
import torch

from adapters.fake_device import FakeDevice
from kernel.step import Device
from tests.oracle.lives import run_lives
from tests.oracle.masked import Window
from tests.oracle.tiny_model import TinyModel
from tests.oracle.world import Finished, Plan, cold_runs, run_world

__all__ = ["Tally", "judge_fake_worlds", "judge_torch_worlds"]

WORLD_TIMEOUT_S = 120
_LIVES_IN = 5
"""One seed in so many also lives several lives on one disk."""
KINDS: tuple[tuple[str, ...], ...] = (
    ("mamba2", "attention", "mamba2"),
    ("mamba2", "mamba2"),
    ("attention", "attention"),
)
"""Hybrid, recurrent only (no pages), attention only (no slots)."""


@attrs.define
class Tally:
    """Sums over worlds."""

    schedules: int = 0
    turns: int = 0
    tokens: int = 0
    differing: int = 0
    ties: int = 0
    slid: int = 0
    """Turns of which a token was drawn when attention layers had dropped positions."""
    events: Counter[str] = attrs.field(factory=Counter[str])
    wrong_seeds: list[int] = attrs.field(factory=list[int])


async def judge_fake_worlds(seeds: Iterable[int]) -> Tally:
    """Worlds on the fake device, judged by cold solo runs on a second one."""
    tally = Tally()
    for seed in seeds:
        plan = Plan.draw(seed, vocab=1000)
        device = FakeDevice(eos_token_ids=(), delay=None if seed % 2 else 0.0)
        finished = await _run(tally, plan, device)
        if seed % _LIVES_IN == 1:
            made: list[FakeDevice] = []
            finished += await _run_lives(tally, plan, partial(_new_fake, made))
        for turn, expected in await cold_runs(plan, finished):
            _count(tally, seed, len(turn.tokens), int(turn.tokens != expected), 0)
        tally.slid += sum(_has_slid(plan, turn) for turn in finished)
        if device.poison_reads:
            tally.wrong_seeds.append(seed)
    return tally


async def judge_torch_worlds(
    seeds: Iterable[int], *, dtype: str, progress: Callable[[int], None] = lambda seed: None
) -> Tally:
    """Worlds on tiny random models, judged by one plain forward pass in float64."""
    tally = Tally()
    models = [TinyModel(7 + number, layer_types=kind) for number, kind in enumerate(KINDS)]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for seed in seeds:
            model = models[seed % 5 if seed % 5 < len(models) else 0]
            kinds = model.config.layer_types
            plan = Plan.draw(
                seed,
                vocab=model.config.vocab_size,
                uses_slots="mamba2" in kinds,
                uses_pages="attention" in kinds,
            )
            finished = await _run(tally, plan, model.device(dtype))
            if seed % _LIVES_IN == 1:
                finished += await _run_lives(tally, plan, partial(model.device, dtype))
            for turn in finished:
                verdict = model.judge(turn, _window(plan) if turn.slides else None)
                _count(tally, seed, verdict.tokens, verdict.differing, verdict.ties)
            tally.slid += sum(_has_slid(plan, turn) for turn in finished)
            progress(seed)
    finally:
        torch.set_num_threads(threads)
    return tally


async def _run(tally: Tally, plan: Plan, device: Device) -> list[Finished]:
    with anyio.fail_after(WORLD_TIMEOUT_S):
        world = await run_world(plan, device)
    tally.schedules += 1
    tally.turns += len(world.finished)
    tally.events.update(world.events)
    return [turn for turn in world.finished if turn.tokens]


def _window(plan: Plan) -> Window:
    return Window.of_pool(plan.num_pages, plan.page_size)


def _has_slid(plan: Plan, turn: Finished) -> bool:
    computed = len(turn.context) + len(turn.tokens) - 1
    return turn.slides and _window(plan).first_seen(computed)[-1] > 0


def _new_fake(made: list[FakeDevice]) -> FakeDevice:
    made.append(FakeDevice(eos_token_ids=()))
    return made[-1]


async def _run_lives(tally: Tally, plan: Plan, device: Callable[[], Device]) -> list[Finished]:
    with anyio.fail_after(WORLD_TIMEOUT_S):
        world = await run_lives(plan, device)
    tally.turns += len(world.finished)
    tally.events.update(world.events)
    return world.finished


def _count(tally: Tally, seed: int, tokens: int, differing: int, ties: int) -> None:
    tally.tokens += tokens
    tally.differing += differing
    tally.ties += ties
    if differing > ties:
        tally.wrong_seeds.append(seed)
