"""What can be wrong with a model directory: one type each, so that a caller can tell them apart."""

from kernel.errors import ModelError

__all__ = [
    "ConfigError",
    "DamagedWeights",
    "MisshapenTensor",
    "MissingTensor",
    "ModelError",
    "ModelFileMissing",
    "WeightsError",
]


class ModelFileMissing(ModelError):
    """The directory lacks a file that every model directory has."""


class ConfigError(ModelError):
    """config.json doesn't describe a model that this package can build."""


class WeightsError(ModelError):
    """The weights don't fit the configuration."""


class DamagedWeights(WeightsError):
    """The weights file is cut short or isn't a safetensors file."""


class MissingTensor(WeightsError):
    """The weights lack a tensor that the configuration needs."""


class MisshapenTensor(WeightsError):
    """A tensor's shape or number type isn't the one that the configuration gives it."""
