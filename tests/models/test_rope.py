"""Rotary frequencies are those of ``transformers``, in both spellings of the configuration."""

import math
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from adapters.models.config_reader import ConfigReader
from adapters.models.errors import ConfigError, UnsupportedRope
from adapters.models.rope import read_rope

LENGTHS = {"original_max_position_embeddings": 32}
KINDS: dict[str, dict[str, object]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 3.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        **LENGTHS,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, **LENGTHS},
    "yarn-untruncated": {"rope_type": "yarn", "factor": 4.0, "truncate": False, **LENGTHS},
    "yarn-betas": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 16, "beta_slow": 2, **LENGTHS},
    "yarn-factor": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.5, **LENGTHS},
    "yarn-mscale": {
        "rope_type": "yarn",
        "factor": 4.0,
        "mscale": 0.7,
        "mscale_all_dim": 1.3,
        **LENGTHS,
    },
}


def peer(parameters: dict[str, object], theta: float) -> tuple[torch.Tensor, float]:
    """Inverse frequencies and attention factor of the peer, float32."""
    config = LlamaConfig(
        hidden_size=64,
        num_attention_heads=4,
        max_position_embeddings=128,
        rope_parameters={"rope_theta": theta, **parameters},
    )
    if parameters["rope_type"] == "default":
        embedding: Any = LlamaRotaryEmbedding(config)
        return embedding.inv_freq, embedding.attention_scaling
    make = ROPE_INIT_FUNCTIONS[str(parameters["rope_type"])]
    frequencies, factor = make(config, torch.device("cpu"))
    return frequencies, factor


@pytest.mark.parametrize("theta", [10_000.0, 500_000.0])
@pytest.mark.parametrize("kind", KINDS)
def test_frequencies_are_those_of_the_peer(kind: str, theta: float) -> None:
    expected, factor = peer(KINDS[kind], theta)
    new = ConfigReader(
        {"max_position_embeddings": 128, "rope_parameters": {"rope_theta": theta, **KINDS[kind]}}
    )
    old = ConfigReader(
        {"max_position_embeddings": 128, "rope_theta": theta, "rope_scaling": KINDS[kind]}
    )

    rope = read_rope(new, 16)

    assert torch.allclose(torch.tensor(rope.frequencies), expected, rtol=1e-6, atol=0)
    assert math.isclose(rope.factor, factor, rel_tol=1e-9)
    assert read_rope(old, 16) == rope


def test_the_oldest_spelling_says_type() -> None:
    old = ConfigReader({"rope_scaling": {"type": "linear", "factor": 2.0}})
    new = ConfigReader({"rope_parameters": {"rope_type": "linear", "factor": 2.0}})

    assert read_rope(old, 8) == read_rope(new, 8)


def test_a_part_of_a_head_is_rotated() -> None:
    """The configuration goes before the family's own share."""
    said = ConfigReader({"partial_rotary_factor": 0.25})

    assert read_rope(said, 32, partial=0.5).width == 8
    assert read_rope(ConfigReader({}), 32, partial=0.5).width == 16
    assert read_rope(ConfigReader({}), 32).width == 32


@pytest.mark.parametrize("kind", ["dynamic", "longrope", "mrope", "of tomorrow"])
def test_a_kind_that_is_not_built_is_refused_by_name(kind: str) -> None:
    """Wrong angles are no error that anybody would see: the text gets worse with its length."""
    config = ConfigReader({"rope_scaling": {"rope_type": kind, "factor": 2.0}})

    with pytest.raises(UnsupportedRope, match=f"rope_type '{kind}' isn't served; known: default"):
        read_rope(config, 16)


@pytest.mark.parametrize(("share", "width"), [(0.3, 10), (0.0, 16), (1.5, 16)])
def test_a_share_that_makes_no_pairs_is_refused(share: float, width: int) -> None:
    with pytest.raises(ConfigError, match="partial_rotary_factor"):
        read_rope(ConfigReader({"partial_rotary_factor": share}), width)


def test_what_both_spellings_say_alike_is_read_once() -> None:
    """Some writers keep the old key beside the new one."""
    both = ConfigReader(
        {
            "rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 2.0},
            "rope_scaling": {"type": "linear", "factor": 2.0},
        }
    )
    old = ConfigReader({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}})

    assert read_rope(both, 16) == read_rope(old, 16)


def test_an_old_key_beside_a_new_one_that_says_otherwise_is_refused() -> None:
    """Model cards advise to add it for a longer context: read past, it would do nothing."""
    config = ConfigReader(
        {
            "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"},
            "rope_scaling": {"rope_type": "yarn", "factor": 4.0, **LENGTHS},
        }
    )

    with pytest.raises(ConfigError, match="rope_scaling must be left out, or say the same as rope"):
        read_rope(config, 16)


def test_a_rotation_of_some_layers_only_is_refused() -> None:
    """Its base would be looked for one level too high, and not found."""
    nested = {"full_attention": {"rope_theta": 1e6, "rope_type": "default"}}

    with pytest.raises(UnsupportedRope, match="rope_parameters: full_attention: a rotation for"):
        read_rope(ConfigReader({"rope_parameters": nested}), 16)
