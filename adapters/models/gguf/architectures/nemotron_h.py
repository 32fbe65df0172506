"""Nemotron-H. A layer is what its tensors are: Mamba-2, attention, a block, or experts.

Its converter derives from Granite's, so queries and keys are permuted, though nothing rotates.
"""

from adapters.models.gguf import common
from adapters.models.gguf.layout import Architecture, Entry, Layout, modules
from adapters.models.gguf.metadata import Metadata

__all__ = ["ARCHITECTURE"]

_KINDS = {
    "ssm_in.weight": "mamba",
    "attn_q.weight": "attention",
    "ffn_gate_inp.weight": "moe",
    "ffn_up.weight": "mlp",
}


def _kinds(metadata: Metadata) -> list[str]:
    kinds = ["mlp"] * metadata.layers
    for tensor, kind in _KINDS.items():
        for layer in metadata.layers_with(tensor):
            kinds[layer] = kind
    return kinds


def _config(metadata: Metadata) -> dict[str, object]:
    inner, heads = metadata.integer("ssm.inner_size"), metadata.integer("ssm.time_step_rank")
    config: dict[str, object] = {
        "model_type": "nemotron_h",
        **common.attention_config(metadata),
        "layer_norm_epsilon": common.norm_eps(metadata),
        "num_hidden_layers": metadata.layers,
        "layers_block_type": _kinds(metadata),
        "mamba_num_heads": heads,
        "mamba_head_dim": inner // max(1, heads),
        "ssm_state_size": metadata.integer("ssm.state_size"),
        "n_groups": metadata.integer("ssm.group_count"),
        "conv_kernel": metadata.integer("ssm.conv_kernel"),
        "use_conv_bias": metadata.any_layer("ssm_conv1d.bias"),
        "use_bias": metadata.any_layer("ssm_in.bias"),
        "mlp_bias": metadata.any_layer("ffn_up.bias"),
        "mlp_hidden_act": "relu2",
    }
    if metadata.any_layer("ffn_up.weight"):
        config["intermediate_size"] = metadata.rows("ffn_up.weight")
    if metadata.architecture == "nemotron_h_moe":
        config |= _experts(metadata)
    return config


def _experts(metadata: Metadata) -> dict[str, object]:
    found: dict[str, object] = {
        "n_routed_experts": metadata.integer("expert_count"),
        "num_experts_per_tok": metadata.integer("expert_used_count"),
        "moe_intermediate_size": metadata.integer("expert_feed_forward_length"),
        "moe_shared_expert_intermediate_size": metadata.integer(
            "expert_shared_feed_forward_length"
        ),
        "norm_topk_prob": metadata.boolean("expert_weights_norm", True),
        "routed_scaling_factor": metadata.number("expert_weights_scale", 1.0),
        "n_group": metadata.integer("expert_group_count", 1),
        "topk_group": metadata.integer("expert_group_used_count", 1),
    }
    if metadata.has("moe_latent_size"):
        found["moe_latent_size"] = metadata.integer("moe_latent_size")
    return found


def _layout(metadata: Metadata) -> Layout:
    names = {
        "attn_norm": "norm",
        "ffn_up": "mixer.up_proj",
        "ffn_down": "mixer.down_proj",
        "ffn_gate_inp": "mixer.gate",
        "ffn_up_shexp": "mixer.shared_experts.up_proj",
        "ffn_down_shexp": "mixer.shared_experts.down_proj",
        "ffn_latent_down": "mixer.fc1_latent_proj",
        "ffn_latent_up": "mixer.fc2_latent_proj",
    }
    ends = common.ends("backbone.embeddings", "backbone.norm_f")
    experts = (
        Entry("mixer.gate.e_score_correction_bias", ("exp_probs_b.bias",)),
        Entry("mixer.experts.{expert}.up_proj.weight", ("ffn_up_exps.weight",)),
        Entry("mixer.experts.{expert}.down_proj.weight", ("ffn_down_exps.weight",)),
    )
    layer = (
        *modules(names),
        *common.mamba2("mixer."),
        *common.attention(metadata, "mixer.", is_permuted=True),
        *experts,
    )
    return Layout("backbone.layers.", ends, layer)


ARCHITECTURE = Architecture(("nemotron_h", "nemotron_h_moe"), _config, _layout)
