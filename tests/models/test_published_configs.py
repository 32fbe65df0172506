"""Published models open as they lie on the hub: their keys, their tensors' names, their sizes.

No weight is needed: a family is asked what it wants, on no device. How many numbers that makes is
known from the publishers, so a wrong shape shows.
"""

import json
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from adapters.models.config_reader import ConfigReader
from adapters.models.loader import TensorLoader
from adapters.models.precision import Precision
from adapters.models.registry import check_model, family_of, known_model_types
from adapters.models.store import MemoryStore
from adapters.ragged.spec import StateSpec
from tests.models.published import PUBLISHED

PRECISION = Precision(torch.bfloat16, torch.float32, torch.float32)
NOWHERE = torch.device("meta")


def without_numbers(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    return {name: torch.empty(shape, device=NOWHERE) for name, shape in shapes.items()}


def published_bytes(state: StateSpec) -> int:
    """As other engines keep it: the recurrence in 32 bits, the convolution's inputs in 16."""
    return state.numbers * (2 if state.kind == "conv" else 4)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model_fits_its_own_configuration(name: str) -> None:
    """Every tensor that is known to be in the file is asked for, and in that shape."""
    model = PUBLISHED[name]
    config = ConfigReader.from_json(json.dumps(model.config))
    loader = TensorLoader(MemoryStore(without_numbers(model.tensors)), PRECISION, NOWHERE)
    family_of(config).build(config, loader)
    file = {**loader.asked.shapes, **model.tensors, **model.unused}

    built, asked = check_model(config, MemoryStore(without_numbers(file)), PRECISION)

    assert asked.num_parameters == model.parameters
    state_mib = sum(map(published_bytes, built.shape.states)) / 2**20
    assert state_mib == pytest.approx(model.state_mib, rel=0.005)


def test_every_family_has_a_published_model_here() -> None:
    """Else its keys are those of the models that transformers writes today, and no others."""
    kinds = {str(model.config["model_type"]) for model in PUBLISHED.values()}
    families = {family_of(ConfigReader({"model_type": kind})) for kind in known_model_types()}

    without = [family.model_types for family in families if kinds.isdisjoint(family.model_types)]

    assert without == [("tenure_hybrid",)]
