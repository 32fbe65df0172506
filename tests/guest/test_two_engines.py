"""Two engines in one process, with the same names for everything, know nothing of each other."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest
import structlog

from adapters.fake_device import FakeDevice
from kernel import (
    DeviceLost,
    Engine,
    EngineConfig,
    RequestAborted,
    SamplingParams,
    SessionNotFound,
)
from tests.cancellation.holding import assert_at_rest

PARAMS = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
CONFIG = EngineConfig(num_slots=3, num_pages=32, page_size=4, max_num_seqs=2)


@asynccontextmanager
async def open_two(
    first: FakeDevice, second: FakeDevice
) -> AsyncGenerator[tuple[Engine, Engine, list[structlog.typing.EventDict]]]:
    """Two engines that write into one log."""
    log = structlog.testing.CapturingLogger()
    logger = structlog.wrap_logger(log, processors=[lambda _logger, _name, event: event])
    events: list[structlog.typing.EventDict] = []
    async with (
        Engine.open(CONFIG, device=first, logger=logger) as one,
        Engine.open(CONFIG, device=second, logger=logger) as two,
    ):
        yield one, two, events
        for engine in (one, two):
            await engine.settle()
            assert_at_rest(engine)
    events += [call.kwargs for call in log.calls]


async def test_the_same_session_id_names_two_sessions() -> None:
    """Neither is found, counted, continued or closed through the other."""
    async with open_two(FakeDevice(), FakeDevice()) as (one, two, _):
        async with one.session(session_id="same") as mine:
            await mine.append([1, 2, 3])
            with pytest.raises(SessionNotFound):
                two.attach("same")
            async with two.session(session_id="same") as theirs:
                await theirs.append([1])
                assert (mine.info.num_tokens, theirs.info.num_tokens) == (3, 1)
                await theirs.close()
            assert mine.info.state == "idle"
            assert one.attach("same").info.num_tokens == 3
            assert (len(one.list_sessions()), len(two.list_sessions())) == (1, 0)


async def test_an_abort_reaches_its_own_engine_only() -> None:
    """Request ids are counted by each engine, so they are the same ones."""
    devices = FakeDevice(mode="manual"), FakeDevice(mode="manual")
    async with open_two(*devices) as (one, two, _):
        async with one.stream([1], PARAMS) as mine, two.stream([1], PARAMS) as theirs:
            assert mine.request_id == theirs.request_id
            assert two.abort(theirs.request_id)
            with pytest.raises(RequestAborted):
                await theirs.wait()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_complete_all, devices[0])
                await mine.wait()
                tasks.cancel_scope.cancel()
        for device in devices:
            while device.waiting:
                device.complete()
        assert len(mine.result.token_ids) == 4


async def _complete_all(device: FakeDevice) -> None:
    while True:
        while device.waiting:
            device.complete()
        await anyio.lowlevel.checkpoint()


async def test_a_lost_device_takes_its_own_engine_only() -> None:
    """And the other one stays open when the first is closed."""
    broken = FakeDevice()
    async with open_two(broken, FakeDevice()) as (one, two, _):
        broken.fail_next(device_lost=True)
        with pytest.raises(DeviceLost):
            await one.complete([1], PARAMS)
        assert not one.health().live
        assert two.health().live
        await one.aclose()
        assert len((await two.complete([1], PARAMS)).token_ids) == 4


async def test_events_tell_the_engines_apart_and_count_by_themselves() -> None:
    """One log, two ledgers: each has its own sequence without gaps."""
    async with open_two(FakeDevice(), FakeDevice()) as (one, two, events):
        async with one.session(session_id="same") as mine, two.session(session_id="same") as yours:
            for session in (mine, yours, mine):
                async with session.turn([1, 2], PARAMS) as turn:
                    await turn.wait()

    engines = {event["engine"] for event in events}
    assert len(engines) == 2
    for engine in engines:
        numbers = [event["seq"] for event in events if event["engine"] == engine and "seq" in event]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) > 5
