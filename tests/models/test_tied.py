"""The matrix of the last product: tied to the embedding, stored twice, or another one."""

from typing import Any

import pytest
import torch
from torch import Tensor

from adapters.models.config_reader import ConfigReader
from adapters.models.decoder import CausalModel, Decoder
from adapters.models.errors import MisshapenTensor, MissingTensor
from adapters.models.loader import Asked
from adapters.models.precision import Precision
from adapters.models.registry import load_model
from adapters.models.store import MemoryStore
from tests.models.tiny import config_of, make_weights

EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"
FLOAT32 = Precision(torch.float32, torch.float32, torch.float32)


def load(weights: dict[str, Tensor], **changes: Any) -> tuple[CausalModel, Asked]:
    config = ConfigReader(config_of(**changes))
    return load_model(
        config, MemoryStore(weights), FLOAT32, torch.device("cpu"), with_fingerprint=True
    )


def tied_weights() -> dict[str, Tensor]:
    return make_weights(config_of(tie_word_embeddings=True))


@pytest.mark.parametrize("says", [True, None])
def test_without_a_matrix_of_its_own_the_head_is_the_embedding(says: bool | None) -> None:
    """Not a copy: of a small model it is a fifth. Also where the configuration says nothing."""
    weights = tied_weights()
    model, asked = load(weights, tie_word_embeddings=says)

    assert torch.equal(model.head, weights[EMBED])
    assert isinstance(model, Decoder)
    assert model.head is model.embed
    assert asked.num_bytes == sum(tensor.nbytes for tensor in weights.values())


def test_a_second_copy_of_the_embedding_is_not_kept() -> None:
    """Many writers store it; the model is the same with and without it, fingerprint included."""
    weights = tied_weights()
    alone, without = load(weights, tie_word_embeddings=True)
    model, asked = load(weights | {HEAD: weights[EMBED].clone()}, tie_word_embeddings=True)

    assert torch.equal(model.head, alone.head)
    assert asked.num_bytes == without.num_bytes
    assert asked.num_parameters == without.num_parameters
    assert asked.fingerprint == without.fingerprint


def test_a_copy_in_another_type_is_compared_as_the_model_has_it() -> None:
    """What differs on disk by rounding only doesn't differ in the model."""
    weights = tied_weights()
    weights[EMBED] = weights[EMBED].bfloat16().float()
    _, without = load(weights, tie_word_embeddings=True)
    _, asked = load(weights | {HEAD: weights[EMBED].bfloat16()}, tie_word_embeddings=True)

    assert asked.num_bytes == without.num_bytes


def test_another_matrix_goes_before_what_the_configuration_says() -> None:
    """As in transformers, which warns: the weights know better what they were trained as."""
    weights = tied_weights()
    other = weights[EMBED] + 1
    model, asked = load(weights | {HEAD: other}, tie_word_embeddings=True)
    _, untied = load(weights | {HEAD: other}, tie_word_embeddings=False)

    assert torch.equal(model.head, other)
    assert asked.num_bytes == untied.num_bytes


def test_a_matrix_that_must_be_there_and_is_not_is_told() -> None:
    with pytest.raises(MissingTensor, match=HEAD):
        load(tied_weights(), tie_word_embeddings=False)


def test_a_misshapen_copy_is_refused_before_anything_is_read() -> None:
    """It would be compared, so its shape is checked like any other."""
    with pytest.raises(MisshapenTensor, match=rf"{HEAD} is \[3, 16\], not \[24, 16\]"):
        load(tied_weights() | {HEAD: torch.zeros(3, 16)}, tie_word_embeddings=True)
