"""A small engine under pressure, with one session that outlives whoever is killed on it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs

from adapters.fake_device import FakeDevice
from kernel import Engine, EngineConfig, SamplingParams, Session
from kernel.ids import SessionId
from tests.cancellation.holding import assert_at_rest, assert_nothing_held
from tests.known import known

__all__ = ["CONFIG", "GREEDY", "Stage", "open_stage"]

CONFIG = EngineConfig(
    model="fake",
    num_slots=3,
    num_pages=64,
    page_size=4,
    max_num_seqs=3,
    max_num_batched_tokens=8,
)
GREEDY = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)


@attrs.define
class Stage:
    """The engine, its device, and the session that is to stay whole."""

    engine: Engine
    device: FakeDevice
    shared: Session

    async def check_rest(self) -> None:
        """Nobody holds anything for a turn, and the session's state lies within its log."""
        await self.engine.settle()
        assert_at_rest(self.engine, device=self.device)
        info = self.shared.info
        assert known(info.position) <= max(0, known(info.num_tokens) - 1), info

    async def check_tokens(self) -> None:
        """The session's next turn has the tokens of a cold run over its log; then a fresh one."""
        log = self.engine.core.session(SessionId(self.shared.session_id)).state.log.tolist()
        if len(log) + 5 > self.engine.core.session_limits.max_len:
            await self.renew()
            return
        async with self.shared.turn([7], GREEDY) as turn:
            warm = (await turn.wait()).token_ids
        cold = (await self.engine.complete([*log, 7], GREEDY)).token_ids
        assert warm == cold
        await self.renew()

    async def renew(self) -> None:
        """Go on with a session that has no history."""
        await self.shared.close()
        self.shared = await self.engine.session().__aenter__()


@asynccontextmanager
async def open_stage(device: FakeDevice, config: EngineConfig = CONFIG) -> AsyncGenerator[Stage]:
    """An engine that must hold nothing when the block is left."""
    async with Engine.open(config, device=device) as engine:
        stage = Stage(engine, device, await engine.session().__aenter__())
        yield stage
        await stage.shared.close()
        await engine.settle()
        assert_nothing_held(engine, device=device)
