"""Small engines on the fake device, opened through the public door."""

from typing import Any

from adapters.fake_device import FakeDevice
from kernel import EngineConfig, SamplingParams
from kernel.step import OpenedDevice

__all__ = ["GREEDY", "LONG", "config", "opened"]

GREEDY = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
LONG = SamplingParams(temperature=0, max_tokens=2000, ignore_eos=True)
"""Goes on for longer than any of these tests."""


def opened(**options: Any) -> OpenedDevice:
    """A fake device with its tokenizer; no token ends a turn."""
    given: dict[str, Any] = {"eos_token_ids": (), **options}
    device = FakeDevice(**given)
    return OpenedDevice(device=device, tokenizer=device.tokenizer)


def config(**options: Any) -> EngineConfig:
    """Pages of four tokens, so that a short turn has more than one."""
    given: dict[str, Any] = {"model": "fake", "page_size": 4, **options}
    return EngineConfig(**given)
