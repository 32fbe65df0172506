"""LFM2 and Zamba2: what is read in more than one spelling, and what is refused."""

from collections.abc import Mapping
from types import MappingProxyType

import pytest
import torch

from adapters.models.config_reader import ConfigReader
from adapters.models.errors import ConfigError, UnsupportedRope
from adapters.models.families import lfm2, zamba2
from adapters.models.family import Family
from adapters.models.loader import TensorLoader
from adapters.models.precision import Precision
from adapters.models.store import MemoryStore
from adapters.ragged.spec import ModelShape

LFM2: Mapping[str, object] = {
    "model_type": "lfm2",
    "vocab_size": 11,
    "hidden_size": 12,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "full_attn_idxs": [1],
    "block_multiple_of": 8,
}
ZAMBA2: Mapping[str, object] = {
    "model_type": "zamba2",
    "vocab_size": 11,
    "hidden_size": 12,
    "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid", "hybrid"],
    "num_mem_blocks": 2,
    "num_attention_heads": 2,
    "n_mamba_heads": 4,
}


def asked(
    family: Family,
    config: Mapping[str, object],
    stored: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> tuple[ModelShape, TensorLoader]:
    """Build on no device, from a file that has some tensors."""
    precision = Precision(torch.float32, torch.float32, torch.float32)
    tensors = {name: torch.empty(shape, device="meta") for name, shape in stored.items()}
    loader = TensorLoader(MemoryStore(tensors), precision, torch.device("meta"))
    return family.build(ConfigReader(config), loader).shape, loader


def test_a_short_convolution_keeps_its_last_inputs_and_nothing_else() -> None:
    shape, _ = asked(lfm2.FAMILY, {**LFM2, "conv_L_cache": 4})

    assert [(state.name, state.shape, state.layers) for state in shape.states] == [
        ("conv", (3, 12), 2)
    ]
    assert shape.slot_numbers == 2 * 3 * 12
    assert shape.kv is not None
    assert (shape.kv.layers, shape.kv.kv_heads, shape.kv.head_dim) == (1, 1, 6)


def test_layers_are_named_or_numbered() -> None:
    """The first published configurations list the attention layers by number."""
    named = {**LFM2, "full_attn_idxs": None, "layer_types": ["conv", "full_attention", "conv"]}

    _, by_name = asked(lfm2.FAMILY, named)
    _, by_number = asked(lfm2.FAMILY, LFM2)

    assert by_name.asked.shapes == by_number.asked.shapes


@pytest.mark.parametrize(
    ("settings", "width"),
    [
        ({}, 32),
        ({"block_auto_adjust_ff_dim": False}, 48),
        ({"block_ffn_dim_multiplier": 1.3}, 48),
        ({"block_ff_dim": 96}, 64),
    ],
    ids=["two thirds", "as it is", "scaled and rounded up", "older key"],
)
def test_the_width_of_a_block_is_worked_out(settings: dict[str, object], width: int) -> None:
    """config.json says another one than the weights have."""
    _, loader = asked(lfm2.FAMILY, {**LFM2, **settings})

    assert loader.asked.shapes["model.layers.0.feed_forward.w1.weight"] == (width, 12)


def test_a_shared_block_is_asked_for_once_and_its_adapters_for_each_use() -> None:
    """Three uses of two blocks: the third is the first block again."""
    shape, loader = asked(zamba2.FAMILY, ZAMBA2)
    names = [name for name in loader.asked.shapes if name.endswith("self_attn.q_proj.weight")]
    adapters = [name for name in loader.asked.shapes if name.endswith("adapter_list.2.0.weight")]

    assert names == [
        f"model.layers.{layer}.shared_transformer.self_attn.q_proj.weight" for layer in (1, 3)
    ]
    assert [name.split(".")[2] for name in adapters] == ["1"]
    assert shape.kv is not None
    assert shape.kv.layers == 3
    assert loader.asked.skipped == ["model.layers.4.shared_transformer.*"]


def test_a_shared_block_that_rotates_nothing_needs_no_rotation() -> None:
    """What config.json says of one is of no account then."""
    unknown = {**ZAMBA2, "rope_scaling": {"rope_type": "of tomorrow"}}

    shape, _ = asked(zamba2.FAMILY, unknown)

    assert shape.rope is None
    with pytest.raises(UnsupportedRope, match="'of tomorrow' isn't served"):
        asked(zamba2.FAMILY, {**unknown, "use_mem_rope": True})


def test_experts_are_read_in_both_layouts() -> None:
    """Each by itself, as published; or all in one tensor, as transformers can write them."""
    config = {
        **LFM2,
        "model_type": "lfm2_moe",
        "num_dense_layers": 2,
        "num_experts": 3,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 5,
    }
    feed = "model.layers.2.feed_forward.experts"
    fused = {f"{feed}.gate_up_proj": (3, 10, 12), f"{feed}.down_proj": (3, 12, 5)}
    _, split = asked(lfm2.FAMILY, config)
    _, joined = asked(lfm2.FAMILY, config, fused)

    assert {name: joined.asked.shapes[name] for name in fused} == fused
    assert split.asked.shapes[f"{feed}.2.w3.weight"] == (5, 12)
    assert split.asked.shapes[f"{feed}.2.w2.weight"] == (12, 5)
    assert split.asked.num_parameters == joined.asked.num_parameters


@pytest.mark.parametrize(
    ("family", "config", "why"),
    [
        (lfm2.FAMILY, {**LFM2, "layer_types": ["conv"]}, "layer_types must be a list of 3 names"),
        (lfm2.FAMILY, {**LFM2, "layer_types": ["conv", "scan", "conv"]}, "not 'scan'"),
        (zamba2.FAMILY, {**ZAMBA2, "use_long_context": True}, "use_long_context is True"),
        (zamba2.FAMILY, {**ZAMBA2, "n_mamba_heads": 5}, "n_mamba_heads must be a divisor of 24"),
        (zamba2.FAMILY, {**ZAMBA2, "attention_head_dim": 8}, "attention_head_dim must be 12, as"),
        (zamba2.FAMILY, {**ZAMBA2, "mamba_headdim": 4}, "mamba_headdim must be 6, as other keys"),
        (zamba2.FAMILY, {**ZAMBA2, "num_hidden_layers": 6}, "num_hidden_layers must be 5, not 6"),
        (
            zamba2.FAMILY,
            {**ZAMBA2, "use_shared_attention_adapter": True, "num_key_value_heads": 1},
            "num_key_value_heads must be as many as num_attention_heads",
        ),
    ],
    ids=[
        "too few",
        "unknown",
        "long context",
        "heads",
        "width",
        "mixer width",
        "layers",
        "adapters",
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    family: Family, config: dict[str, object], why: str
) -> None:
    """Before a tensor is read."""
    with pytest.raises(ConfigError, match=why):
        asked(family, config)
