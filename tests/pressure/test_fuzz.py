"""Random operations on sessions that make room in host memory; copies land or fail late."""

import random

import attrs
import pytest

from adapters.fake_device import FakeDevice
from kernel.step import OpenedDevice
from tests.pressure.slow_copies import SlowCopies
from tests.pressure.worlds import PAGE_BYTES, SLOT_BYTES
from tests.scenarios.fuzz_model import draw_config
from tests.scenarios.fuzz_world import FuzzWorld
from tests.scenarios.stage import open_fake, open_stage

OPERATIONS = 300


@attrs.define(eq=False)
class SlowFuzz(FuzzWorld):
    """As the fuzz of the scenarios, where a copy lands when its turn has come."""

    copies: SlowCopies = attrs.field(kw_only=True)

    async def act(self) -> None:
        if self.copies.waiting and self.rng.random() < 0.25:
            await self._copy(fails=self.rng.random() < 0.15)
        else:
            await super().act()

    async def _copy(self, *, fails: bool) -> None:
        self.tape.append("fail_copy" if fails else "copy")
        self.seen[self.tape[-1]] += 1
        if fails:
            self.copies.fail()
        else:
            self.copies.let_go(is_idle=True)
        await self.stage.settle()
        await self._compare()

    async def finish(self) -> None:
        while self.copies.waiting or self.stage.device.waiting:
            if self.copies.waiting:
                await self._copy(fails=False)
            else:
                await self.stage.step()
                await self._compare()
        await super().finish()


async def run_fuzz(seed: int) -> SlowFuzz:
    rng = random.Random(f"slow fuzz {seed}")
    config = draw_config(rng)
    config["host_memory_bytes"] = rng.choice([1, 2, 4]) * (SLOT_BYTES + 4 * PAGE_BYTES)
    device = FakeDevice(eos_token_ids=())
    copies = SlowCopies(device, steps_beside=1 << 30)
    opened = OpenedDevice(device=copies, tokenizer=device.tokenizer)

    def open_device() -> OpenedDevice:
        nonlocal opened
        found, opened = opened, open_fake()
        return found

    async with open_stage(open_device, **config) as stage:
        world = SlowFuzz(stage, rng, copies=copies)
        try:
            for _ in range(OPERATIONS):
                await world.act()
            await world.finish()
        except BaseException as error:
            error.add_note(f"seed {seed}, after {len(world.tape)}: {' '.join(world.tape[-30:])}")
            raise
        assert not device.poison_reads
    return world


@pytest.mark.parametrize("seed", range(2))
async def test_random_operations_keep_every_slot_and_every_history(seed: int) -> None:
    """In both places, whatever ends while a copy is under way."""
    world = await run_fuzz(seed)
    assert world.seen["copy"]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_many_random_operations_keep_every_slot_and_every_history() -> None:
    """A hundred seeds."""
    seen = {"copy": 0, "fail_copy": 0}
    for seed in range(100):
        world = await run_fuzz(seed)
        for name in seen:
            seen[name] += world.seen[name]
    assert all(seen.values()), seen
