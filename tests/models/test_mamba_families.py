"""What the Mamba-1 families refuse, and what they read in more than one spelling."""

from collections.abc import Mapping

import pytest
import torch

from adapters.models.config_reader import ConfigReader
from adapters.models.errors import ConfigError
from adapters.models.families import jamba, mamba
from adapters.models.loader import TensorLoader
from adapters.models.precision import Precision
from adapters.models.store import MemoryStore
from adapters.ragged.spec import ModelShape

MAMBA: Mapping[str, object] = {
    "model_type": "mamba",
    "vocab_size": 11,
    "hidden_size": 20,
    "num_hidden_layers": 2,
    "tie_word_embeddings": True,
}
JAMBA: Mapping[str, object] = {
    "model_type": "jamba",
    "vocab_size": 11,
    "hidden_size": 20,
    "intermediate_size": 12,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_experts": 3,
    "attn_layer_period": 3,
    "attn_layer_offset": 1,
}


def asked(config: Mapping[str, object], *stored: str) -> tuple[ModelShape, TensorLoader]:
    """Build on no device, with weights of these names beside."""
    store = MemoryStore({name: torch.zeros(1) for name in stored})
    precision = Precision(torch.float32, torch.float32, torch.float32)
    loader = TensorLoader(store, precision, torch.device("meta"))
    family = jamba.FAMILY if config["model_type"] == "jamba" else mamba.FAMILY
    return family.build(ConfigReader(config), loader).shape, loader


def test_the_steps_rank_is_a_sixteenth_of_the_hidden_size_unless_given() -> None:
    for rank, rows in ((None, 2), ("auto", 2), (7, 7)):
        _, loader = asked({**MAMBA, "time_step_rank": rank})
        assert loader.asked.shapes["backbone.layers.0.mixer.dt_proj.weight"] == (40, rows)


def test_an_embedding_under_its_older_name_is_found() -> None:
    """The first published checkpoints have it in the singular."""
    _, loader = asked(MAMBA, "backbone.embedding.weight")

    assert "backbone.embedding.weight" in loader.asked.shapes
    assert "backbone.embeddings.weight" not in loader.asked.shapes


def test_norms_without_weights_ask_for_no_tensor() -> None:
    _, plain = asked(MAMBA)
    _, normed = asked({**MAMBA, "model_type": "falcon_mamba"})

    assert plain.asked.shapes == normed.asked.shapes


def test_states_are_counted_by_kind_of_layer() -> None:
    """Jamba's attention layers keep no state, its others no page."""
    shape, _ = asked(JAMBA)

    assert shape.kv is not None
    assert shape.kv.layers == 2
    assert [(state.name, state.shape, state.layers) for state in shape.states] == [
        ("conv", (3, 40), 3),
        ("ssm", (16, 40), 3),
    ]


def test_a_jamba_of_attention_layers_alone_needs_no_slot() -> None:
    shape, _ = asked({**JAMBA, "attn_layer_period": 1, "attn_layer_offset": 0})

    assert shape.states == ()
    assert shape.taps == 1


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({**MAMBA, "hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({**MAMBA, "time_step_rank": 0}, "time_step_rank must be a whole number from 1, not 0"),
        ({**MAMBA, "time_step_rank": "all"}, "time_step_rank must be a whole number"),
        ({**JAMBA, "attn_layer_offset": 3}, "attn_layer_offset must be less than attn_layer_peri"),
        ({**JAMBA, "expert_layer_offset": 2}, "expert_layer_offset must be less than expert_laye"),
        ({**JAMBA, "num_experts_per_tok": 4}, "num_experts_per_tok must be at most num_experts, 3"),
        ({**JAMBA, "hidden_act": "relu"}, "hidden_act is 'relu'"),
    ],
)
def test_a_configuration_that_cannot_be_built_is_refused_by_key(
    config: Mapping[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        asked(config)
