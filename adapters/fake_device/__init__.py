"""A deterministic device without tensors, for tests, the tutorial and measurements."""

from adapters.fake_device.device import FakeDevice, PoisonRead, open_fake
from adapters.fake_device.tokenizer import FakeTokenizer

__all__ = ["FakeDevice", "FakeTokenizer", "PoisonRead", "open_fake"]
