"""Qwen3-Next and Qwen3.5 by themselves; tests/parity holds them to ``transformers``."""

import pytest
import torch
from torch import Tensor

from adapters.models.config_reader import ConfigReader
from adapters.models.errors import ConfigError
from adapters.models.loader import TensorLoader
from adapters.models.precision import Precision
from adapters.models.registry import check_model, family_of
from adapters.models.store import MemoryStore
from adapters.ragged.spec import ModelShape
from adapters.torch_device import TorchDevice
from tests.parity.ours import Desk

Config = dict[str, object]

TEXT: Config = {
    "model_type": "qwen3_5_text",
    "vocab_size": 30,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 3,
    "linear_value_head_dim": 5,
    "tie_word_embeddings": True,
}
NEXT: Config = {**TEXT, "model_type": "qwen3_next", "num_experts": 0}
EXPERTS: Config = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 6,
    "shared_expert_intermediate_size": 10,
}
PRECISION = Precision(torch.float64, torch.float64, torch.float64)


def asked_by(config: Config) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all tensors that the family asks for."""
    reader = ConfigReader(config)
    loader = TensorLoader(MemoryStore({}), PRECISION, torch.device("meta"))
    family_of(reader).build(reader, loader)
    return loader.asked.shapes


def random_weights(config: Config) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64)
        for name, shape in asked_by(config).items()
    }


def shape_of(config: Config) -> ModelShape:
    weights = {name: torch.zeros(shape) for name, shape in asked_by(config).items()}
    return check_model(ConfigReader(config), MemoryStore(weights), PRECISION)[0].shape


def logits(config: Config, weights: dict[str, Tensor]) -> Tensor:
    """After a prompt in two pieces and a decoded token."""
    device = TorchDevice.of_weights(config, weights, dtype="float64", num_threads=1, poison=True)
    desk = Desk(device)
    text = desk.begin([7, 3, 19, 3, 28, 0, 11, 4, 4, 25])
    return torch.stack([desk.run([(text, count)])[0] for count in (6, 3, 1)])


def test_a_text_model_beside_a_vision_tower_is_the_same_model() -> None:
    """Published directories hold both; what belongs to images or to drafting is left alone."""
    weights = random_weights(TEXT)
    both = {
        name.replace("model.", "model.language_model.", 1): tensor
        for name, tensor in weights.items()
    }
    both |= {
        "model.visual.blocks.0.attn.qkv.weight": torch.zeros(3, 2),
        "mtp.layers.0.mlp.up_proj.weight": torch.zeros(2, 2),
    }
    inner = {name: value for name, value in TEXT.items() if name != "tie_word_embeddings"}
    config: Config = {
        "model_type": "qwen3_5",
        "tie_word_embeddings": True,
        "text_config": inner,
        "vision_config": {"depth": 1},
    }

    assert torch.equal(logits(config, both), logits(TEXT, weights))


@pytest.mark.parametrize(
    ("above", "inside", "ends"),
    [
        ({"eos_token_id": 7}, {}, (7,)),
        ({"eos_token_id": 7}, {"eos_token_id": None}, (7,)),
        ({"eos_token_id": 7}, {"eos_token_id": [3, 4]}, (3, 4)),
        ({}, {}, ()),
    ],
)
def test_the_end_of_a_text_stands_with_the_text_model_or_above_it(
    above: Config, inside: Config, ends: tuple[int, ...]
) -> None:
    """Many keys are written as null, which must not hide the one above."""
    config = {"model_type": "qwen3_5", "text_config": {**TEXT, **inside}, **above}

    assert shape_of(config).eos_token_ids == ends


def test_rows_that_come_by_key_head_are_the_same_projection() -> None:
    """Qwen3-Next stores by key head what Qwen3.5 stores kind by kind."""
    weights = random_weights(TEXT)
    by_head = dict(weights)
    for layer in (0, 1, 2):
        own = f"model.layers.{layer}.linear_attn.in_proj_"
        q, k, v = torch.split_with_sizes(by_head.pop(f"{own}qkv.weight"), [6, 6, 20])
        z, b, a = (by_head.pop(f"{own}{name}.weight") for name in "zba")
        large = [part.view(2, -1, 8) for part in (q, k, v, z)]
        small = [part.view(2, -1, 8) for part in (b, a)]
        by_head[f"{own}qkvz.weight"] = torch.cat(large, dim=1).flatten(0, 1)
        by_head[f"{own}ba.weight"] = torch.cat(small, dim=1).flatten(0, 1)

    assert torch.equal(logits(NEXT, by_head), logits(TEXT, weights))


def test_every_fourth_layer_is_attention_unless_listed() -> None:
    listed = {**TEXT, "layer_types": ["full_attention", *["linear_attention"] * 3]}

    names = ["self_attn.q_proj.weight", "linear_attn.A_log"]
    places = [
        [f"model.layers.{layer}.{name}" in asked_by(config) for layer in range(4)]
        for config in (TEXT, listed)
        for name in names
    ]

    assert places == [
        [False, False, False, True],
        [True, True, True, False],
        [True, False, False, False],
        [False, True, True, True],
    ]


def test_experts_are_where_the_configuration_puts_them() -> None:
    config = {**NEXT, **EXPERTS, "decoder_sparse_step": 2, "mlp_only_layers": [3]}

    asked = asked_by(config)

    routed = [f"model.layers.{layer}.mlp.gate.weight" in asked for layer in range(4)]
    assert routed == [False, True, False, False]
    assert asked["model.layers.1.mlp.shared_expert_gate.weight"] == (1, 8)
    assert asked["model.layers.0.mlp.gate_proj.weight"] == (12, 8)


def test_a_model_without_attention_needs_no_page_and_one_without_nets_no_slot() -> None:
    nets = shape_of({**TEXT, "layer_types": ["linear_attention"] * 4})
    attention = shape_of({**TEXT, "layer_types": ["full_attention"] * 4})

    assert (nets.kv, nets.rope, nets.taps) == (None, None, 4)
    assert nets.slot_numbers == 4 * (3 * (6 + 6 + 20) + 4 * 3 * 5)
    assert (attention.states, attention.taps) == ((), 1)
    assert attention.kv is not None
    assert attention.kv.token_numbers == 2 * 4 * 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"attn_output_gate": False}, "attn_output_gate is False"),
        ({"linear_num_value_heads": 3}, "must be a multiple of 2 key heads, not 3"),
        ({"num_attention_heads": 3, "num_key_value_heads": 2}, "must be a divisor of 3 heads"),
        ({"layer_types": ["linear_attention"]}, "must be a list of 4"),
        ({"layer_types": ["sliding"] * 4}, "not 'sliding'"),
        ({"partial_rotary_factor": 0.4}, "an even part of 8 channels"),
        ({"linear_key_head_dim": 0}, "linear_key_head_dim must be a whole number from 1"),
        (
            {**EXPERTS, "model_type": "qwen3_5_moe_text", "num_experts_per_tok": 5},
            "num_experts_per_tok must be at most 4",
        ),
        ({"model_type": "qwen3_5", "text_config": {"vocab_size": 3}}, "text_config: hidden_size"),
    ],
)
def test_what_is_not_built_is_refused_by_name(change: Config, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        asked_by({**TEXT, **change})
