"""Families by ``model_type``; the only way from a configuration to a model.

Every module in ``adapters.models.families`` has a constant ``FAMILY``. Other distributions add
theirs through entry points of the group ``tenure.models``, each under the ``model_type`` that it
reads; a family of this package can't be replaced by one of theirs.
"""

import importlib
import pkgutil
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from importlib.metadata import entry_points
from typing import cast

import torch

from adapters.models import families
from adapters.models.config_reader import CONFIG_FILE, ConfigReader
from adapters.models.decoder import CausalModel
from adapters.models.errors import ConfigError, UnsupportedModel
from adapters.models.family import Family
from adapters.models.fingerprint import ContentHash, fingerprint
from adapters.models.loader import Asked, TensorLoader
from adapters.models.precision import Precision
from adapters.models.store import MemoryStore, TensorStore
from adapters.models.stream import TensorStream
from adapters.ragged.spec import ModelShape
from kernel.loading import LoadProgress, OnProgress, no_progress

__all__ = [
    "MODELS",
    "check_model",
    "family_of",
    "known_model_types",
    "load_model",
    "outline_model",
]

MODELS = "tenure.models"
"""Entry-point group in which families outside of this package are found."""


@cache
def _families() -> dict[str, Family]:
    found: dict[str, Family] = {}
    for module in pkgutil.iter_modules(families.__path__):
        family = importlib.import_module(f"{families.__name__}.{module.name}").FAMILY
        found |= dict.fromkeys(family.model_types, cast(Family, family))
    return found


def known_model_types() -> list[str]:
    """All that can be opened, in order of the alphabet."""
    foreign = {entry.name for entry in entry_points(group=MODELS)}
    return sorted(foreign.union(_families()))


def family_of(config: ConfigReader) -> Family:
    """The family that reads this configuration.

    Raises:
        ConfigError: the configuration has no ``model_type``.
        UnsupportedModel: no family here reads it.
    """
    if not config.has("model_type"):
        known = ", ".join(known_model_types())
        raise ConfigError(f"missing keys in {CONFIG_FILE}: model_type; known are {known}")
    kind = config.text("model_type")
    family = _families().get(kind)
    if family is None:
        # Loaded when asked for: one that doesn't import must not stand in the way of others.
        for entry in entry_points(group=MODELS, name=kind):
            return cast(Family, entry.load())
        known = ", ".join(known_model_types())
        raise UnsupportedModel(
            f"{CONFIG_FILE}: model_type {kind!r} isn't served; known are {known}"
            " (docs/adding-a-family.md says how to add one)"
        )
    return family


def outline_model(config: ConfigReader, precision: Precision) -> tuple[CausalModel, Asked]:
    """Build the model on no device and without weights: its shape, and what it would take.

    Raises:
        ConfigError: a key is missing, wrong, or asks for what isn't built.
    """
    loader = TensorLoader(MemoryStore({}), precision, torch.device("meta"))
    return family_of(config).build(config, loader), loader.asked


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


def _check_ends(shape: ModelShape, config: ConfigReader) -> None:
    """A request with ``min_tokens`` would fail on the device, and all others of its step."""
    beyond = [end for end in shape.eos_token_ids if end >= shape.vocab_size]
    if beyond:
        raise config.wrong(
            "eos_token_id", beyond[0], f"token ids below {shape.vocab_size}, the vocabulary"
        )


def load_model(
    config: ConfigReader,
    store: TensorStore,
    precision: Precision,
    device: torch.device,
    *,
    progress: OnProgress = no_progress,
    with_fingerprint: bool = False,
    checked: Callable[[ModelShape, Asked], None] = lambda _shape, _asked: None,
) -> tuple[CausalModel, Asked]:
    """Check the whole model, then read it tensor by tensor onto the device.

    Args:
        config: what config.json holds.
        store: the weights; not closed here.
        precision: the number types of the model.
        device: where its tensors go.
        progress: told how far it is.
        with_fingerprint: work it out, which takes a hash of all that is read.
        checked: called when all fits and nothing is read yet; what it raises ends the loading.

    Raises:
        ConfigError, WeightsError: as :func:`check_model`, before a number is read.
    """
    outline, asked = check_model(config, store, precision)
    checked(outline.shape, asked)
    _check_ends(outline.shape, config)
    total = sum(store.tensors[name].num_bytes for name in asked.shapes)
    try:
        with ExitStack() as ending, torch.inference_mode():
            content = ending.enter_context(ContentHash()) if with_fingerprint else None
            stream = TensorStream(store, total, progress, content)
            loader = TensorLoader(store, precision, device, stream=stream)
            model, asked = family_of(config).build(config, loader), loader.asked
            progress(LoadProgress(total, total, ""))
            if content is not None:
                digests = content.digests()
                asked.fingerprint = fingerprint(config.used, store.tensors, digests, precision)
    except BaseException as error:
        # Whoever keeps the error (the thread that loads does, for a while) would keep with its
        # frames what was loaded so far.
        traceback.clear_frames(error.__traceback__)
        raise
    return model, asked
