"""Many sessions on few slots of a real model: each comes back from host memory as it went."""

import anyio
import pytest

from adapters.fake_device.tokenizer import FakeTokenizer
from kernel import Engine, EngineConfig, EngineStats, OpenedDevice, SamplingParams
from tests.oracle.tiny_model import TinyModel

SESSIONS, TURNS = 7, 3
GREEDY = SamplingParams(temperature=0, max_tokens=5)
KINDS = {
    "hybrid": ("mamba2", "attention", "mamba2"),
    "recurrent": ("mamba2", "mamba2"),
    "attention": ("attention", "attention"),
}


async def talk(kind: str, config: EngineConfig) -> tuple[list[list[int]], EngineStats]:
    """All sessions take their turns at once; what each has drawn, one turn after another."""
    model = TinyModel(3, layer_types=KINDS[kind])
    device = OpenedDevice(device=model.device("float64"), tokenizer=FakeTokenizer(61, ()))
    drawn: list[list[int]] = [[] for _ in range(SESSIONS)]

    async def one(engine: Engine, number: int) -> None:
        async with engine.session() as session:
            for turn in range(TURNS):
                prompt = [(7 * number + 3 * turn + at) % 61 for at in range(9)]
                async with session.turn(prompt, GREEDY) as running:
                    await running.wait()
                    drawn[number] += running.result.token_ids

    async with Engine.open(config, device=device) as engine:
        with anyio.fail_after(15):
            async with anyio.create_task_group() as group:
                for number in range(SESSIONS):
                    group.start_soon(one, engine, number)
        stats = engine.stats()
    assert engine.core.audit is not None
    assert engine.core.audit.conserved
    return drawn, stats


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_sessions_in_host_memory_say_what_they_would_have_said(
    kind: str, anyio_backend: str
) -> None:
    """Exactly, in float64; nothing is computed twice while the host has room."""
    roomy = EngineConfig(max_num_seqs=8, max_num_batched_tokens=64, page_size=4)
    tight = EngineConfig(
        max_num_seqs=8,
        max_num_batched_tokens=64,
        page_size=4,
        num_slots=None if kind == "attention" else 2,
        num_pages=None if kind == "recurrent" else 24,
        max_model_len=80,
        host_memory_bytes="1MiB",
    )
    expected, _ = await talk(kind, roomy)
    drawn, stats = await talk(kind, tight)

    assert drawn == expected
    assert stats.recomputed_tokens == 0
    assert stats.forced_parks > 0
