"""A turn that is left just as it ends: its result and its session must tell the same story."""

from typing import Literal

import pytest

from adapters.fake_device import FakeDevice
from kernel import Engine, EngineConfig, SamplingParams
from kernel.engine import shell
from tests.cancellation.holding import assert_at_rest
from tests.cancellation.killing import deliver, tick

CONFIG = EngineConfig(model="fake", num_slots=3, num_pages=64, page_size=4, max_num_seqs=2)
THREE = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)


@pytest.mark.parametrize("on_exit", ["keep", "rollback"])
async def test_a_turn_left_at_its_end_keeps_what_its_result_says(
    on_exit: Literal["keep", "rollback"], anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One message a tick: the caller's leave is posted before and after each of the last ones."""
    monkeypatch.setattr(shell, "_HOPS_PER_TURN", 1)
    outcomes: set[int | None] = set()
    for ticks in range(12):
        device = FakeDevice(mode="manual", eos_token_ids=())
        async with Engine.open(CONFIG, device=device) as engine, engine.session() as session:
            async with session.turn([1, 2], THREE, on_exit=on_exit) as turn:
                for _ in range(2):
                    await deliver(engine)
                    device.complete()
                await deliver(engine)
                await anext(turn)
                device.complete()
                for _ in range(ticks):
                    await tick()
            await deliver(engine)
            kept = len(turn.result.token_ids) if turn.has_result else None
            outcomes.add(kept)
            expected = 0 if kept is None else 2 + kept
            assert session.info.num_tokens == expected, f"left {ticks} ticks after the step"
            assert_at_rest(engine, device=device)
    assert outcomes == ({2, 3} if on_exit == "keep" else {None, 3})
