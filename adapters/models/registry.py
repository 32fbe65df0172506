"""Families by ``model_type``; the only way from a configuration to a model.

Every module in ``adapters.models.families`` has a constant ``FAMILY``. Other distributions add
theirs through entry points of the group ``tenure.models``.
"""

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from typing import cast

import torch

from adapters.models import families
from adapters.models.config_reader import CONFIG_FILE, ConfigReader
from adapters.models.decoder import CausalModel
from adapters.models.errors import UnsupportedModel
from adapters.models.family import Family
from adapters.models.loader import Asked, TensorLoader
from adapters.models.precision import Precision
from adapters.models.store import TensorStore

__all__ = ["MODELS", "check_model", "family_of", "known_model_types", "load_model"]

MODELS = "tenure.models"
"""Entry-point group in which families outside of this package are found."""


@cache
def _families() -> dict[str, Family]:
    found: dict[str, Family] = {}
    for module in pkgutil.iter_modules(families.__path__):
        family = importlib.import_module(f"{families.__name__}.{module.name}").FAMILY
        found |= dict.fromkeys(family.model_types, cast(Family, family))
    for entry in entry_points(group=MODELS):
        family = cast(Family, entry.load())
        found |= dict.fromkeys(family.model_types, family)
    return found


def known_model_types() -> list[str]:
    """All that can be opened, in order of the alphabet."""
    return sorted(_families())


def family_of(config: ConfigReader) -> Family:
    """The family that reads this configuration.

    Raises:
        ConfigError: the configuration has no ``model_type``.
        UnsupportedModel: no family here reads it.
    """
    kind = config.text("model_type")
    family = _families().get(kind)
    if family is None:
        known = ", ".join(known_model_types())
        raise UnsupportedModel(
            f"{CONFIG_FILE}: model_type {kind!r} isn't served; known are {known} (docs/models.md"
            " says how to add one)"
        )
    return family


def check_model(
    config: ConfigReader, store: TensorStore, precision: Precision
) -> tuple[CausalModel, Asked]:
    """Build the model on no device at all: its shape, and what it asks for, checked.

    Raises:
        ConfigError: a key is missing, wrong, or asks for what isn't built.
        WeightsError: a tensor is missing, extra, misshapen or mistyped.
    """
    loader = TensorLoader(store, precision, torch.device("meta"))
    model = family_of(config).build(config, loader)
    loader.asked.check(store.tensors)
    return model, loader.asked


def load_model(
    config: ConfigReader,
    store: TensorStore,
    precision: Precision,
    device: torch.device,
    *,
    read_one: Callable[[str], None] = lambda _name: None,
) -> tuple[CausalModel, Asked]:
    """Check the whole model, then read it tensor by tensor onto the device.

    Raises:
        ConfigError, WeightsError: as :func:`check_model`, before a number is read.
    """
    check_model(config, store, precision)
    loader = TensorLoader(store, precision, device, read_one=read_one)
    with torch.inference_mode():
        return family_of(config).build(config, loader), loader.asked
