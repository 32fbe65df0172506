"""What a family of models is to the registry."""

from collections.abc import Callable

import attrs

from adapters.models.config_reader import ConfigReader
from adapters.models.decoder import CausalModel
from adapters.models.loader import TensorLoader

__all__ = ["Family"]


@attrs.frozen
class Family:
    """How one family of models is built."""

    model_types: tuple[str, ...]
    """Values of config.json's ``model_type``."""
    build: Callable[[ConfigReader, TensorLoader], CausalModel]
    """Reads sizes from the one and asks the other for tensors; runs twice (see ``loader``)."""
