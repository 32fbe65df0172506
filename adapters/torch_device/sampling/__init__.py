"""Draw one token per row from logits, every row with its own parameters, in one pass over them."""

from adapters.torch_device.sampling.draw import draw
from adapters.torch_device.sampling.memory import SamplingMemory
from adapters.torch_device.sampling.scores import score
from adapters.torch_device.sampling.uniform import uniform

__all__ = ["SamplingMemory", "draw", "score", "uniform"]
