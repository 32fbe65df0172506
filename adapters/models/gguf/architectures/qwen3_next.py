"""Qwen3-Next and Qwen3.5: Gated DeltaNet, gated attention in every fourth layer.

Norms are stored with one added, but for the gated one. Qwen3-Next's joined input projection is
put in order of kind (queries, keys, values; gates) where the model has it in order of key heads.
Qwen3.5's value heads are dealt out over the key heads (each key head's first, then each one's
second) where the model has each key head's together; ``_LinearAttentionVReorderBase`` in the
converter.
"""

from adapters.models.gguf import common
from adapters.models.gguf.delta_transforms import DeltaHeads
from adapters.models.gguf.layout import Architecture, Entry, Layout, modules
from adapters.models.gguf.metadata import Metadata
from adapters.models.gguf.transforms import as_conv, as_row, log_decay, minus_one

__all__ = ["ARCHITECTURE"]

_MODEL_TYPES = {
    "qwen3next": "qwen3_next",
    "qwen35": "qwen3_5_text",
    "qwen35moe": "qwen3_5_moe_text",
}


def _heads(metadata: Metadata) -> DeltaHeads:
    values = metadata.integer("ssm.time_step_rank")
    return DeltaHeads(
        keys=metadata.integer("ssm.group_count"),
        values=values,
        key_width=metadata.integer("ssm.state_size"),
        value_width=metadata.integer("ssm.inner_size") // max(1, values),
    )


def _config(metadata: Metadata) -> dict[str, object]:
    heads = _heads(metadata)
    attending = metadata.layers_with("attn_q.weight")
    config: dict[str, object] = {
        "model_type": _MODEL_TYPES[metadata.architecture],
        **common.attention_config(metadata),
        "num_hidden_layers": metadata.layers,
        "layer_types": [
            "full_attention" if layer in attending else "linear_attention"
            for layer in range(metadata.layers)
        ],
        "linear_num_key_heads": heads.keys,
        "linear_num_value_heads": heads.values,
        "linear_key_head_dim": heads.key_width,
        "linear_value_head_dim": heads.value_width,
        "linear_conv_kernel_dim": metadata.integer("ssm.conv_kernel"),
        "num_experts": 0,
    }
    if metadata.any_layer("ffn_gate.weight"):
        config["intermediate_size"] = metadata.rows("ffn_gate.weight")
    sparse = metadata.layers_with("ffn_gate_inp.weight")
    if sparse:
        config |= {
            "num_experts": metadata.integer("expert_count"),
            "num_experts_per_tok": metadata.integer("expert_used_count"),
            "moe_intermediate_size": metadata.rows("ffn_gate_exps.weight"),
            "shared_expert_intermediate_size": metadata.rows("ffn_gate_shexp.weight"),
            "mlp_only_layers": [layer for layer in range(metadata.layers) if layer not in sparse],
        }
    return config


def _layout(metadata: Metadata) -> Layout:
    names = {
        "attn_norm": "input_layernorm",
        "post_attention_norm": "post_attention_layernorm",
        "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
    }
    plain = {
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
        "ffn_gate_inp": "mlp.gate",
        "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
        "ffn_up_shexp": "mlp.shared_expert.up_proj",
        "ffn_down_shexp": "mlp.shared_expert.down_proj",
        "ssm_norm": "linear_attn.norm",
    }
    ends = (
        Entry("model.embed_tokens.weight", ("token_embd.weight",)),
        Entry("model.norm.weight", ("output_norm.weight",), minus_one),
        Entry("lm_head.weight", ("output.weight",)),
    )
    layer = (
        *modules(names, minus_one),
        *modules(plain),
        *common.attention(metadata),
        *common.experts("mlp.experts."),
        Entry("mlp.shared_expert_gate.weight", ("ffn_gate_inp_shexp.weight",), as_row),
        *(_next(metadata) if metadata.architecture == "qwen3next" else _dealt(metadata)),
    )
    return Layout("model.layers.", ends, layer)


def _next(metadata: Metadata) -> tuple[Entry, ...]:
    heads = _heads(metadata)
    joined = ("attn_qkv.weight", "attn_gate.weight")
    return (
        Entry("linear_attn.in_proj_qkvz.weight", joined, heads.by_key_head),
        Entry("linear_attn.in_proj_qkvz.weight", ("ssm_in.weight",)),  # files of 2025
        Entry("linear_attn.in_proj_ba.weight", ("ssm_ba.weight",)),
        Entry("linear_attn.conv1d.weight", ("ssm_conv1d.weight",), as_conv),
        Entry("linear_attn.dt_bias", ("ssm_dt.bias",)),
        Entry("linear_attn.A_log", ("ssm_a",), log_decay),
        Entry("linear_attn.out_proj.weight", ("ssm_out.weight",)),
    )


def _dealt(metadata: Metadata) -> tuple[Entry, ...]:
    heads = _heads(metadata)
    under = "linear_attn."
    return (
        Entry(f"{under}in_proj_qkv.weight", ("attn_qkv.weight",), heads.gathered_values),
        Entry(f"{under}in_proj_z.weight", ("attn_gate.weight",), heads.gathered),
        Entry(f"{under}in_proj_b.weight", ("ssm_beta.weight",), heads.gathered),
        Entry(f"{under}in_proj_a.weight", ("ssm_alpha.weight",), heads.gathered),
        Entry(
            f"{under}conv1d.weight",
            ("ssm_conv1d.weight",),
            heads.gathered_conv,
        ),
        Entry(f"{under}dt_bias", ("ssm_dt.bias",), heads.gathered),
        Entry(f"{under}A_log", ("ssm_a",), heads.gathered_decay),
        Entry(
            f"{under}out_proj.weight",
            ("ssm_out.weight",),
            heads.gathered_columns,
        ),
    )


ARCHITECTURE = Architecture(tuple(_MODEL_TYPES), _config, _layout)
