"""Every family in steps that are cut small, and in every number type; no other library computes.

Texts of a few tokens fit into one chunk of the scan and one pass. Here chunks are of four tokens
and passes of seven, so that states go from chunk to chunk and from pass to pass in every layer.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import pytest
import torch
import transformers
from torch import Tensor

from adapters.models.config_reader import ConfigReader
from adapters.models.decoder import Decoder
from adapters.models.precision import Precision
from adapters.models.registry import load_model, outline_model
from adapters.models.store import MemoryStore
from adapters.ragged.passes import PassBudget
from adapters.ragged.spec import ModelShape
from adapters.torch_device import TorchDevice
from tests.parity.cases import CASES
from tests.parity.ours import Desk
from tests.parity.weights import randomise

_transformers: Any = transformers
FAMILIES = {case.family: case for case in reversed(CASES)}
HERE = torch.device("cpu")
EXACT = Precision(torch.float64, torch.float64, torch.float64)
TEXTS = [
    [5, 31, 8, 8, 90, 2, 17, 44, 61, 3, 3, 70, 12, 96],
    [11],
    [42, 7, 19, 0, 77, 30],
    [64, 50],
]


def model_of(family: str) -> tuple[ConfigReader, dict[str, Tensor]]:
    """A tiny model of the family with random weights, by the names that it asks for."""
    case = FAMILIES[family]
    made = _transformers.AutoConfig.for_model(case.family, **case.settings)
    config = ConfigReader.from_json(made.to_json_string(use_diff=False))
    shapes = outline_model(config, EXACT)[1].shapes
    weights = {name: torch.ones(shape, dtype=torch.float64) for name, shape in shapes.items()}
    randomise(weights, 3, case.gain)
    return config, weights


def opened(
    config: ConfigReader,
    weights: Mapping[str, Tensor],
    precision: Precision = EXACT,
    *,
    chunk_size: int | None = None,
) -> TorchDevice:
    model, asked = load_model(config, MemoryStore(weights), precision, HERE)
    assert isinstance(model, Decoder)
    if chunk_size is not None:
        model = attrs.evolve(model, shape=attrs.evolve(model.shape, chunk_size=chunk_size))
    return TorchDevice(
        model,
        precision,
        num_parameters=asked.num_parameters,
        device=HERE,
        num_threads=1,
        poison=True,
    )


def logits(device: TorchDevice, cuts: Sequence[int]) -> Iterator[Tensor]:
    """After each piece of each text, the texts side by side; pieces of so many tokens in turn."""
    desk = Desk(device)
    texts = [desk.begin(text) for text in TEXTS]
    for turn in range(14):
        open_texts = [text for text in texts if text.left]
        if not open_texts:
            return
        count = cuts[turn % len(cuts)]
        yield from desk.run([(text, min(count, text.left)) for text in open_texts])


def last(found: Iterator[Tensor]) -> Tensor:
    return list(found)[-1]


def tight(_shape: ModelShape) -> PassBudget:
    return PassBudget(tokens=7, chunks=2, mask_cells=90, chunk_size=4)


@pytest.mark.parametrize("family", FAMILIES)
def test_small_passes_and_chunks_change_nothing(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row goes on in the next pass, beside others that begin, end or are one token long."""
    config, weights = model_of(family)
    whole = list(logits(opened(config, weights), cuts=[14]))

    monkeypatch.setattr(PassBudget, "of", tight)
    cut = opened(config, weights, chunk_size=4)

    for ours, expected in zip(logits(cut, cuts=[14]), whole, strict=True):
        assert torch.allclose(ours, expected, rtol=0, atol=1e-9 * float(expected.abs().max()))


@pytest.mark.parametrize("family", FAMILIES)
def test_narrow_weights_and_states_meet_a_wide_layer_everywhere(family: str) -> None:
    """A product of two types would raise, in whatever layer; a lost conversion would show."""
    config, weights = model_of(family)
    rounded = {name: tensor.bfloat16() for name, tensor in weights.items()}
    precision = Precision(torch.bfloat16, torch.float32, torch.bfloat16)

    ours = last(logits(opened(config, rounded, precision), cuts=[5, 1, 8]))

    exact = last(logits(opened(config, rounded), cuts=[5, 1, 8]))
    assert torch.isfinite(ours).all()
    assert float((ours - exact).square().sum() / exact.square().sum()) < 0.25
