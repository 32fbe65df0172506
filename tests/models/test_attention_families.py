"""Attention layers of Llama, Qwen3 and Nemotron-H: what older files leave out, what is refused."""

from collections.abc import Mapping

import pytest
import torch

from adapters.models.config_reader import ConfigReader
from adapters.models.errors import ConfigError
from adapters.models.precision import Precision
from adapters.models.registry import outline_model

PRECISION = Precision(torch.float32, torch.float32, torch.float32)
QWEN3: Mapping[str, object] = {
    "model_type": "qwen3",
    "vocab_size": 11,
    "hidden_size": 12,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 6,
}
NEMOTRON: Mapping[str, object] = {
    "model_type": "nemotron_h",
    "vocab_size": 11,
    "hidden_size": 12,
    "intermediate_size": 16,
    "hybrid_override_pattern": "M*-",
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "mamba_num_heads": 4,
    "mamba_head_dim": 3,
    "ssm_state_size": 5,
    "n_groups": 2,
}


def shapes(config: Mapping[str, object]) -> dict[str, tuple[int, ...]]:
    """Of all tensors that the family asks for."""
    return outline_model(ConfigReader(config), PRECISION)[1].shapes


@pytest.mark.parametrize(
    ("says", "width"), [({}, 128), ({"attention_head_dim": 10}, 10), ({"head_dim": 6}, 6)]
)
def test_a_nemotron_head_is_as_wide_as_it_says_whatever_the_hidden_size(
    says: Mapping[str, int], width: int
) -> None:
    """The first published ones say it under an older name, or leave it to the default.

    Of Nemotron-H-4B the hidden size gives 96, and its projections are made for 128.
    """
    asked = shapes({**NEMOTRON, **says})

    assert asked["backbone.layers.1.mixer.q_proj.weight"] == (2 * width, 12)
    assert asked["backbone.layers.1.mixer.k_proj.weight"] == (width, 12)


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ({"use_sliding_window": True}, "use_sliding_window is True: sliding windows aren't built"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "not 'sliding_attention'"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type 'dynamic' isn't served"),
        ({"hidden_act": "gelu_new"}, "hidden_act must be one of"),
    ],
)
def test_what_an_attention_model_asks_for_and_is_not_built_is_refused(
    says: Mapping[str, object], message: str
) -> None:
    """A window that is read past gives other text than the model's, and no error."""
    with pytest.raises(ConfigError, match=message):
        shapes({**QWEN3, **says})


def test_layers_that_all_see_everything_may_say_so() -> None:
    assert shapes({**QWEN3, "layer_types": ["full_attention"] * 2}) == shapes(QWEN3)
