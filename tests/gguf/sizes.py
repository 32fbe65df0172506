"""Sizes in a GGUF file's metadata, from config.json, as llama.cpp's converter writes them."""

from collections.abc import Mapping
from typing import Any

import gguf

__all__ = ["ARCHITECTURES", "write_sizes"]

ARCHITECTURES = {
    "llama": "LLAMA",
    "qwen3": "QWEN3",
    "mamba": "MAMBA",
    "mamba2": "MAMBA2",
    "falcon_h1": "FALCON_H1",
    "granitemoehybrid": "GRANITE_HYBRID",
    "bamba": "GRANITE_HYBRID",
    "lfm2": "LFM2",
    "lfm2_moe": "LFM2MOE",
    "nemotron_h": "NEMOTRON_H_MOE",
    "jamba": "JAMBA",
    "qwen3_next": "QWEN3NEXT",
    "qwen3_5_text": "QWEN35",
}
"""Names of the ``gguf`` package's constants by ``model_type``."""

_INTEGERS = {
    "embedding_length": ("hidden_size",),
    "block_count": ("num_hidden_layers",),
    "feed_forward_length": ("intermediate_size",),
    "attention.head_count": ("num_attention_heads",),
    "attention.key_length": ("head_dim",),
    "attention.value_length": ("head_dim",),
    "ssm.conv_kernel": ("conv_kernel", "mamba_d_conv", "linear_conv_kernel_dim"),
    "ssm.state_size": ("state_size", "ssm_state_size", "mamba_d_state", "linear_key_head_dim"),
    "ssm.time_step_rank": (
        *("num_heads", "mamba_n_heads", "mamba_num_heads", "linear_num_value_heads"),
        *("time_step_rank", "mamba_dt_rank"),
    ),
    "ssm.group_count": ("n_groups", "mamba_n_groups", "linear_num_key_heads"),
    "shortconv.l_cache": ("conv_L_cache",),
    "expert_count": ("num_local_experts", "n_routed_experts", "num_experts"),
    "expert_used_count": ("num_experts_per_tok",),
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "expert_shared_feed_forward_length": (
        "shared_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "shared_expert_intermediate_size",
    ),
    "expert_group_count": ("n_group",),
    "expert_group_used_count": ("topk_group",),
    "leading_dense_block_count": ("num_dense_layers",),
    "moe_latent_size": ("moe_latent_size",),
}
_NUMBERS = {
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps", "norm_eps", "layer_norm_epsilon"),
    "attention.scale": ("attention_multiplier",),
    "embedding_scale": ("embedding_multiplier",),
    "residual_scale": ("residual_multiplier",),
    "logit_scale": ("logits_scaling",),
    "expert_weights_scale": ("routed_scaling_factor",),
}
_ATTENTION = ("attention", "full_attention")


def write_sizes(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    """Write everything but the vocabulary."""
    family, under = config["model_type"], writer.arch
    for key, names in _INTEGERS.items():
        value = _first(config, names)
        if value is not None:
            writer.add_uint32(f"{under}.{key}", value)
    for key, names in _NUMBERS.items():
        value = _first(config, names)
        if value is not None and (family != "falcon_h1" or "norm" in key):
            writer.add_float32(f"{under}.{key}", value)
    writer.add_context_length(config.get("max_position_embeddings", 1 << 20))
    writer.add_vocab_size(config["vocab_size"])
    if _first(config, _INTEGERS["ssm.conv_kernel"]):
        writer.add_ssm_inner_size(_inner(config))
    if "num_key_value_heads" in config:
        writer.add_head_count_kv(_kv_heads(config))
    if "norm_topk_prob" in config:
        writer.add_expert_weights_norm(config["norm_topk_prob"])
    if family in ("granitemoehybrid", "bamba"):
        writer.add_rope_scaling_finetuned(family == "bamba")
    _write_special(writer, config)
    _write_rope(writer, config)


def _write_special(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    """What single families have beside the rest."""
    family, under = config["model_type"], writer.arch
    if family == "nemotron_h":
        writer.add_layer_norm_eps(config["layer_norm_epsilon"])
        kinds = config["layers_block_type"]
        writer.add_feed_forward_length(
            [config["moe_intermediate_size"] * (k == "moe") for k in kinds]
        )
    if family == "lfm2_moe":
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if family == "qwen3_5_text":
        writer.add_rope_dimension_sections([1, 1, 0, 0])
    if family.startswith("qwen3_") and "layer_types" in config:
        recurrent = [kind == "linear_attention" for kind in config["layer_types"]]
        writer.add_array(f"{under}.attention.recurrent_layers", recurrent)


def _first(config: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((config[name] for name in names if config.get(name) is not None), None)


def _inner(config: Mapping[str, Any]) -> int:
    if config["model_type"] == "mamba":
        return int(config["intermediate_size"])
    if config["model_type"] == "jamba":
        return int(config["mamba_expand"] * config["hidden_size"])
    heads = ("num_heads", "mamba_n_heads", "mamba_num_heads", "linear_num_value_heads")
    widths = ("head_dim", "mamba_d_head", "mamba_head_dim", "linear_value_head_dim")
    # Elsewhere head_dim is that of attention.
    own = widths if config["model_type"] == "mamba2" else widths[1:]
    return int(_first(config, heads) * _first(config, own))


def _kv_heads(config: Mapping[str, Any]) -> int | list[int]:
    heads, layers = config["num_key_value_heads"], range(config["num_hidden_layers"])
    kinds = config.get("layer_types") or config.get("layers_block_type")
    if config["model_type"] == "jamba":
        period, offset = config["attn_layer_period"], config["attn_layer_offset"]
        return [heads if layer % period == offset else 0 for layer in layers]
    if config["model_type"] == "bamba":
        return [heads if layer in config["attn_layer_indices"] else 0 for layer in layers]
    if kinds is None or config["model_type"] in ("llama", "qwen3", "qwen3_next", "qwen3_5_text"):
        return int(heads)
    return [heads if kind in _ATTENTION else 0 for kind in kinds]


def _write_rope(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    rope = config.get("rope_parameters")
    if not rope:
        return
    writer.add_rope_freq_base(rope["rope_theta"])
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer.add_rope_dimension_count(int(width * rope.get("partial_rotary_factor", 1.0)))
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(rope.get("beta_fast", 32.0))
        writer.add_rope_scaling_yarn_beta_slow(rope.get("beta_slow", 1.0))
