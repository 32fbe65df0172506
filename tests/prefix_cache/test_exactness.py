"""The answer is the same with and without the cache, for every length around every boundary."""

import random
from collections.abc import Sequence

import pytest
import torch

from adapters.fake_device import FakeDevice
from kernel import Engine, EngineConfig, SamplingParams
from kernel.step import Device
from tests.oracle.runs import KINDS
from tests.oracle.tiny_model import TinyModel
from tests.oracle.world import Finished

PAGE, BLOCK = 4, 8
LENGTHS = range(1, 2 * BLOCK + PAGE + 3)
"""Each length from one token to beyond the second block: before, at and behind every page, every
block, and the end of every other prompt."""
Answer = tuple[tuple[int, ...], int]


def config(*, cached: bool, slots: bool, pages: bool) -> EngineConfig:
    return EngineConfig(
        num_slots=24 if slots else None,
        num_pages=300 if pages else None,
        page_size=PAGE,
        max_num_seqs=4,
        max_num_batched_tokens=12,
        enable_prefix_caching=cached,
        prefix_cache_block=BLOCK,
    )


def prompts(vocab: int, seed: int) -> list[list[int]]:
    """Beginnings of one text, each twice, and one that parts from it there; in any order."""
    rng = random.Random(seed)
    text = [rng.randrange(vocab) for _ in range(max(LENGTHS) + 1)]
    asked: list[list[int]] = []
    for length in LENGTHS:
        begin = text[:length]
        asked += [begin, [*begin, (text[length] + 1) % vocab, *text[:3]]]
    rng.shuffle(asked)
    return asked


async def answers(device: Device, config: EngineConfig, asked: Sequence[list[int]]) -> list[Answer]:
    params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    async with Engine.open(config, device=device) as engine:
        results = [await engine.complete(prompt, params) for prompt in asked]
        audit = engine.audit()
        assert audit.conserved, audit.problems
        assert engine.stats().reclaimed == 0
    assert engine.audit().at_rest
    return [(result.token_ids, result.usage.cached_tokens) for result in results]


def longest_known(asked: Sequence[list[int]], index: int) -> int:
    """Tokens that a prompt shares with one before it, less the one that a hit leaves."""
    prompt = asked[index]

    def common(other: list[int]) -> int:
        pairs = zip(prompt, other, strict=False)
        return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(prompt), len(other)))

    return min(len(prompt) - 1, max(map(common, asked[:index]), default=0))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kinds", [(True, True), (True, False), (False, True)])
async def test_fake_answers_are_those_without_a_cache(kinds: tuple[bool, bool], seed: int) -> None:
    """A fake device draws from what its slots and cells hold alone, so a wrong copy is seen."""
    slots, pages = kinds
    asked = prompts(1000, seed)
    found: list[list[Answer]] = []
    for cached in (True, False):
        device = FakeDevice(eos_token_ids=(), uses_slots=slots, uses_pages=pages)
        found.append(await answers(device, config(cached=cached, slots=slots, pages=pages), asked))
        assert not device.poison_reads

    warm, cold = found
    assert [tokens for tokens, _ in warm] == [tokens for tokens, _ in cold]
    reused = [tokens for _, tokens in warm]
    assert all(n <= longest_known(asked, index) for index, n in enumerate(reused))
    assert sum(n > 0 for n in reused) > len(asked) // 2
    assert not any(tokens for _, tokens in cold)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("layers", KINDS)
async def test_answers_in_float64_are_those_without_a_cache(layers: tuple[str, ...]) -> None:
    """Hybrid, recurrent only, attention only; and each is the oracle's."""
    model = TinyModel(11, layer_types=layers)
    slots, pages = "mamba2" in layers, "attention" in layers
    asked = prompts(model.config.vocab_size, 5)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        warm, cold = [
            await answers(
                model.device("float64"), config(cached=cached, slots=slots, pages=pages), asked
            )
            for cached in (True, False)
        ]
        assert [tokens for tokens, _ in warm] == [tokens for tokens, _ in cold]
        assert sum(reused > 0 for _, reused in warm) > len(asked) // 2
        for prompt, (tokens, _) in zip(asked, warm, strict=True):
            assert model.judge(Finished(tuple(prompt), tokens, "length")).differing == 0, prompt
    finally:
        torch.set_num_threads(threads)
