"""The environment: what could differ from run to run comes from one injected place."""

import random
from collections.abc import Callable

import pytest

from adapters.fake_device import FakeDevice
from kernel import Engine, EngineConfig, Environment, SamplingParams
from tests.kernel.loopless import Loopless, tokens_of
from tests.oracle.world import Plan, World, cold_runs, run_world

GREEDY = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)


def test_ids_begin_with_their_prefix_and_count_by_it() -> None:
    """A log names requests and sessions so that a reader can tell them apart."""
    new_id = Environment().new_id

    assert [new_id(prefix) for prefix in ("req", "req", "session", "req")] == [
        "req-1",
        "req-2",
        "session-1",
        "req-3",
    ]


def test_two_environments_share_nothing() -> None:
    """Two engines in one process count by themselves, so a replay gives the same ids."""
    first, second = Environment(), Environment()
    first.new_id("req")

    assert second.new_id("req") == "req-1"


async def test_ids_of_requests_and_sessions_come_from_it() -> None:
    """A caller's own numbering reaches results and events."""
    environment = Environment(new_id=lambda prefix: f"{prefix}:mine")
    config = EngineConfig(model="fake")
    async with Engine.open(config, device=FakeDevice(), environment=environment) as engine:
        result = await engine.complete([1], GREEDY)
        session = engine.session()

    assert result.request_id == "req:mine"
    assert session.session_id == "session:mine"


async def test_its_clock_is_the_only_time() -> None:
    """On a clock that stands still nothing takes time, however long it took."""
    config = EngineConfig(model="fake")
    environment = Environment(clock=lambda: 42.0)
    async with Engine.open(config, device=FakeDevice(), environment=environment) as engine:
        result = await engine.complete([1], GREEDY)

    assert (result.timings.total_s, result.timings.ttft_s) == (0.0, 0.0)


def test_deliveries_of_completions_can_be_held() -> None:
    """A turn goes on only when the test lets the completion in."""
    held: list[Callable[[], object]] = []
    world = Loopless.open(device=FakeDevice(eos_token_ids=()))
    world.core.environment.deliver = held.append
    request = world.start(world.session(), [1, 2])
    counts: list[int] = []
    while held:
        counts.append(len(request.output.tokens))
        held.pop(0)()
        world.run()

    assert counts == [0, 1, 2, 3]
    assert len(tokens_of(request)) == 4


async def _world_in_random_order(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[World, FakeDevice]:
    order = random.Random(f"order {seed}")
    device = FakeDevice(eos_token_ids=(), delay=None if seed % 2 else 0.0)
    with monkeypatch.context() as patches:
        patches.setattr(
            "kernel.engine.engine.Environment", lambda: Environment(choose=order.randrange)
        )
        world = await run_world(Plan.draw(seed, vocab=1000), device)
    return world, device


@pytest.mark.timeout(60)
async def test_any_order_of_dispatch_gives_the_same_tokens(
    anyio_backend_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No actor may count on who is served first; the oracle is a cold, solo run, as ever."""
    turns = 0
    first = 500 if anyio_backend_name == "asyncio" else 512
    for seed in range(first, first + 12):
        world, device = await _world_in_random_order(seed, monkeypatch)
        for turn, expected in await cold_runs(world.plan, world.finished):
            assert turn.tokens == expected, f"seed {seed}"
            turns += 1
        assert not device.poison_reads, f"seed {seed}"

    assert turns > 60
