"""The torch device: models on CPU or GPU, behind the kernel's Device protocol."""

from adapters.torch_device.device import TorchDevice
from adapters.torch_device.factory import open_torch

__all__ = ["TorchDevice", "open_torch"]
