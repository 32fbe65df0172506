"""What can be wrong with a GGUF file, beside what can be wrong with any model."""

from adapters.models.errors import ConfigError, ModelError, UnsupportedModel

__all__ = [
    "GgufNotInstalled",
    "MetadataMissing",
    "UnsupportedArchitecture",
    "UnsupportedVocabulary",
]


class GgufNotInstalled(ModelError):
    """The package that knows the number types of GGUF files isn't installed."""


class MetadataMissing(ConfigError):
    """The file's metadata lacks a key that its architecture needs, or has it in a wrong type."""


class UnsupportedArchitecture(UnsupportedModel):
    """The file holds a model of an architecture that isn't read here."""


class UnsupportedVocabulary(ModelError):
    """The file's tokenizer is of a kind that isn't built here, or isn't whole."""
