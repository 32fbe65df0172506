"""Sessions without an end on real models, in float64, held to a forward pass with a mask."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from adapters.fake_device.tokenizer import FakeTokenizer
from adapters.models.config_reader import ConfigReader
from adapters.models.families import jamba
from adapters.models.loader import TensorLoader
from adapters.models.precision import Precision
from adapters.models.store import MemoryStore
from adapters.torch_device import TorchDevice
from kernel import Engine, EngineConfig, SamplingParams, Session
from kernel.sliding import SlidingWindow
from kernel.step import OpenedDevice
from tests.known import known
from tests.oracle.masked import Window, masked_logits
from tests.torch_device.support import CONFIGS, weights_of

pytestmark = [
    pytest.mark.timeout(90),
    # The first of these imports torch; two event loops would say no more of a model.
    pytest.mark.parametrize("anyio_backend", ["asyncio"]),
]

PAGES = 12
WINDOW = SlidingWindow(24, 12, 4)
NOPE: Mapping[str, object] = {
    "model_type": "jamba",
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 12,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_experts": 1,
    "num_experts_per_tok": 1,
    "attn_layer_period": 3,
    "attn_layer_offset": 1,
    "max_position_embeddings": 256,
}
MODELS = ("hybrid", "attention-only", "recurrent-only", "nope")
ONE_NOW = [
    "hybrid",
    *(pytest.param(model, marks=pytest.mark.slow) for model in MODELS if model != "hybrid"),
]


@cache
def nope_weights() -> Mapping[str, Tensor]:
    precision = Precision(torch.float32, torch.float32, torch.float32)
    loader = TensorLoader(MemoryStore({}), precision, torch.device("meta"))
    assert jamba.FAMILY.build(ConfigReader(NOPE), loader).shape.rope is None
    draw = torch.Generator().manual_seed(4)
    return {
        name: torch.randn(shape, generator=draw, dtype=torch.float64).mul_(0.4)
        for name, shape in loader.asked.shapes.items()
    }


def open_device(model: str) -> OpenedDevice:
    config = NOPE if model == "nope" else CONFIGS[model].to_dict()
    weights = nope_weights() if model == "nope" else weights_of(model)
    device = TorchDevice.of_weights(config, weights, dtype="float64", num_threads=1, poison=True)
    return OpenedDevice(device=device, tokenizer=FakeTokenizer(device.model.vocab_size, ()))


@asynccontextmanager
async def open_engine(model: str, **config: Any) -> AsyncGenerator[Engine]:
    opened = open_device(model)
    uses = opened.device.model
    given: dict[str, Any] = {
        "num_slots": 3 if uses.uses_slots else None,
        "num_pages": PAGES if uses.uses_pages else None,
        "page_size": 4,
        "max_num_seqs": 2,
        "max_num_batched_tokens": 33,
        **config,
    }
    async with Engine.open(EngineConfig(**given), device=opened) as engine:
        yield engine
    opened.device.close()


def greedy(count: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False)


def words(length: int, salt: int) -> list[int]:
    return [(5 * salt + 3 * number + number * number) % 39 + 1 for number in range(length)]


async def take_turn(session: Session, log: list[int], tokens: Sequence[int], count: int) -> int:
    """One turn; the log grows by it. Returns what was computed again."""
    async with session.turn(list(tokens), greedy(count)) as turn:
        result = await turn.wait()
    log += [*tokens, *result.token_ids]
    return result.usage.recomputed_tokens


async def cold(model: str, context: Sequence[int], count: int, **config: Any) -> list[int]:
    """A run alone over the whole log."""
    async with (
        open_engine(model, max_num_seqs=1, **config) as engine,
        engine.session(on_limit="slide") as session,
        session.turn(list(context), greedy(count)) as turn,
    ):
        return list((await turn.wait()).token_ids)


@pytest.mark.parametrize("model", ONE_NOW)
async def test_twenty_windows_are_the_tokens_of_one_run_over_the_log(model: str) -> None:
    """Parked, preempted and given up on the way; beyond what the model was made for."""
    host = 1 << 20
    log: list[int] = []
    recomputed = 0
    async with (
        open_engine(model, host_memory_bytes=host) as engine,
        engine.session(on_limit="slide") as session,
    ):
        number = 0
        while len(log) < 20 * WINDOW.length:
            number += 1
            recomputed += await take_turn(
                session, log, words(1 + 11 * number % 37, number), 1 + number % 5
            )
            if not number % 3:
                await engine.complete(words(30, number), greedy(2))
        mark = len(log)
        recomputed += await take_turn(session, log, words(3, 1), 12)
        stats, info = engine.stats(), session.info
    assert recomputed == 0
    if model in ("hybrid", "nope"):
        assert stats.forced_parks
    tokens = log[mark + 3 :]
    assert await cold(model, log[: mark + 3], 12, max_num_batched_tokens=7) == tokens
    if model != "recurrent-only":
        assert info.first_position == WINDOW.first_page(known(info.position) - 1) * 4
    else:
        assert info.first_position == 0


@pytest.mark.parametrize("model", MODELS)
async def test_computed_again_from_its_log_it_says_the_same(model: str) -> None:
    """Without host memory a state that makes room is computed from all of its log."""
    log: list[int] = []
    async with (
        open_engine(model, host_memory_bytes=0, max_num_seqs=1) as engine,
        engine.session(on_limit="slide") as session,
    ):
        await take_turn(session, log, words(70, 2), 4)
        for number in range(3):
            async with engine.session() as first, engine.session() as second:
                for other in (first, second):
                    await take_turn(other, [], words(20, number), 2)
                await take_turn(session, log, words(5, number), 6)
        if model != "recurrent-only":
            assert engine.stats().recomputed_tokens > 0
    assert await cold(model, log[:-6], 6) == log[-6:]


@pytest.mark.parametrize("model", ["hybrid", "attention-only"])
async def test_it_is_attention_with_a_mask(model: str) -> None:
    """One forward pass over the log, in the simplest form: each token is the likeliest."""
    log: list[int] = []
    drawn: list[int] = []
    async with (
        open_engine(model) as engine,
        engine.session(on_limit="slide") as session,
    ):
        for number, (length, count) in enumerate([(5, 30), (41, 9), (2, 12)]):
            start = len(log) + length
            await take_turn(session, log, words(length, number), count)
            drawn += range(start, start + count)
    window = Window(WINDOW.length, WINDOW.hop)
    logits = masked_logits(CONFIGS[model], weights_of(model), torch.tensor([log]), window)
    assert [int(logits[0, at - 1].argmax()) for at in drawn] == [log[at] for at in drawn]
