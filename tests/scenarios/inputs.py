"""Devices, prompts and parameters of the scenarios, and the cold runs that judge them."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest

from adapters.fake_device import FakeDevice, FakeTokenizer
from kernel import Engine, EngineConfig, SamplingParams
from kernel.step import ModelSpec, OpenedDevice

__all__ = [
    "PAGE_SIZE",
    "DeviceFactory",
    "cold_tokens",
    "greedy",
    "judge",
    "on_both_models",
    "open_fake",
    "prompt",
]

DeviceFactory = Callable[[], OpenedDevice]
"""Opens a fresh device on each call; all of them compute alike."""

PAGE_SIZE = 4
"""Everywhere the same: the fake device reads page by page, so its tokens depend on it."""

on_both_models = pytest.mark.parametrize(
    ("anyio_backend", "opened_device"),
    [("asyncio", "fake"), ("trio", "fake"), ("asyncio", "bundled")],
    indirect=["opened_device"],
)
"""The real model runs on one event loop where a test doesn't choose: two would say no more."""


@cache
def _tokenizer(model: ModelSpec) -> FakeTokenizer:
    return FakeTokenizer(model.vocab_size, model.eos_token_ids)


def open_fake(**options: Any) -> OpenedDevice:
    """A fake device with its tokenizer; nothing in its vocabulary ends a turn."""
    chosen: dict[str, Any] = {"eos_token_ids": (), **options}
    device = FakeDevice(**chosen)
    return OpenedDevice(device=device, tokenizer=_tokenizer(device.model))


def greedy(max_tokens: int, **options: Any) -> SamplingParams:
    """Exactly ``max_tokens`` tokens, the likeliest each time."""
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, **options)


def prompt(length: int, salt: int = 0) -> list[int]:
    """Token ids of every model; another salt makes another prompt."""
    return [(7 * salt + 3 * number) % 200 + 1 for number in range(length)]


async def cold_tokens(
    open_device: DeviceFactory, contexts: Sequence[tuple[Sequence[int], int]]
) -> list[tuple[int, ...]]:
    """Tokens of cold, solo, greedy runs: one for each (context, number of tokens)."""
    opened = open_device()
    model = opened.device.model
    config = EngineConfig(
        log_events=False,
        max_num_seqs=1,
        num_pages=256 if model.uses_pages else None,
        page_size=PAGE_SIZE,
    )
    async with Engine.open(config, device=opened) as engine:
        results = [
            (await engine.complete(list(context), greedy(length, detokenize=False))).token_ids
            if length
            else ()
            for context, length in contexts
        ]
    opened.device.close()
    return results


async def judge(
    open_device: DeviceFactory, noted: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
) -> None:
    """Compare what turns generated with cold runs over what they started from."""
    if not noted:
        return
    cold = await cold_tokens(open_device, [(context, len(tokens)) for context, tokens in noted])
    for (context, tokens), expected in zip(noted, cold, strict=True):
        assert tokens == expected, f"after {context}"
