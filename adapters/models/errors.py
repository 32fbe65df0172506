"""What can be wrong with a model directory: one type each, so that a caller can tell them apart.

Every message names the thing (a file, a key, a tensor), the value it has, and the way out. Each
is raised before anything is served; the files that were open are closed by then.
"""

from kernel.errors import ModelError

__all__ = [
    "AmbiguousTensor",
    "ConfigError",
    "DamagedWeights",
    "ExtraTensor",
    "MisshapenTensor",
    "MissingTensor",
    "MistypedTensor",
    "ModelError",
    "ModelFileMissing",
    "ModelNotFound",
    "ShardMissing",
    "TokenizerMismatch",
    "UnsafeWeights",
    "UnsupportedModel",
    "UnsupportedQuantization",
    "UnsupportedRope",
    "WeightsError",
]


class ModelNotFound(ModelError):
    """The name is neither a model in the package nor a directory: a file, a hub id, a typo."""


class ModelFileMissing(ModelError):
    """The directory lacks a file that every model directory has."""


class ConfigError(ModelError):
    """config.json doesn't describe a model that this package can build."""


class UnsupportedModel(ConfigError):
    """config.json names a ``model_type`` that no family here reads."""


class UnsupportedRope(ConfigError):
    """config.json asks for a kind of rotary embedding that isn't built here."""


class UnsupportedQuantization(ConfigError):
    """config.json says that the weights are quantised in a way that isn't read here."""


class TokenizerMismatch(ModelError):
    """The tokenizer has more ids than the model has rows for them."""


class WeightsError(ModelError):
    """The weights don't fit the configuration."""


class DamagedWeights(WeightsError):
    """A weights file is cut short, or isn't what its header or its name says."""


class UnsafeWeights(WeightsError):
    """The weights are there as pickles only, which run code when they are read."""


class ShardMissing(WeightsError):
    """The index names a file that isn't in the directory."""


class AmbiguousTensor(WeightsError):
    """Two files hold a tensor of the same name."""


class MissingTensor(WeightsError):
    """The weights lack a tensor that the configuration needs."""


class ExtraTensor(WeightsError):
    """The weights hold a tensor that the configuration has no use for."""


class MisshapenTensor(WeightsError):
    """A tensor's shape isn't the one that the configuration gives it."""


class MistypedTensor(MisshapenTensor):
    """A tensor holds numbers of a type that can't be weights: integers, 8-bit floats."""
