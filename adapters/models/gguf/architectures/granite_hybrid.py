"""Granite 4 hybrids, and Bamba, which the converter writes under the same name.

Bamba rotates its queries and keys, and ``rope.scaling.finetuned`` says so; Granite's hybrids have
no positions. Queries and keys are permuted in both.
"""

from adapters.models.gguf import common
from adapters.models.gguf.layout import Architecture, Layout, modules
from adapters.models.gguf.metadata import Metadata

__all__ = ["ARCHITECTURE"]


def _is_bamba(metadata: Metadata) -> bool:
    return metadata.boolean("rope.scaling.finetuned", False)


def _config(metadata: Metadata) -> dict[str, object]:
    kv_heads = metadata.per_layer("attention.head_count_kv")
    shared = {
        **common.attention_config(metadata),
        **common.mamba2_config(metadata),
        "num_hidden_layers": metadata.layers,
    }
    if _is_bamba(metadata):
        return {
            "model_type": "bamba",
            **shared,
            "attn_layer_indices": [layer for layer, heads in enumerate(kv_heads) if heads],
            "intermediate_size": metadata.integer("feed_forward_length"),
            "mlp_bias": metadata.any_layer("ffn_gate.bias"),
        }
    return {
        "model_type": "granitemoehybrid",
        **shared,
        "layer_types": ["attention" if heads else "mamba" for heads in kv_heads],
        "position_embedding_type": "nope",
        "attention_multiplier": metadata.number("attention.scale", 1.0),
        "embedding_multiplier": metadata.number("embedding_scale", 1.0),
        "residual_multiplier": metadata.number("residual_scale", 1.0),
        "logits_scaling": metadata.number("logit_scale", 1.0),
        "num_local_experts": metadata.integer("expert_count", 0),
        "num_experts_per_tok": metadata.integer("expert_used_count", 0),
        "intermediate_size": metadata.integer("feed_forward_length"),
        "shared_intermediate_size": metadata.rows("ffn_gate_shexp.weight", "ffn_gate.weight"),
    }


def _layout(metadata: Metadata) -> Layout:
    mixers = (*common.mamba2("mamba."), *common.attention(metadata, is_permuted=True))
    if _is_bamba(metadata):
        names = {
            "attn_norm": "input_layernorm",
            "ffn_norm": "pre_ff_layernorm",
            "ffn_gate": "feed_forward.gate_proj",
            "ffn_up": "feed_forward.up_proj",
            "ffn_down": "feed_forward.down_proj",
        }
        ends = common.ends("model.embed_tokens", "model.final_layernorm")
        return Layout("model.layers.", ends, (*modules(names), *mixers))
    names = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate_inp": "block_sparse_moe.router.layer",
    }
    dense = ("shared_mlp.input_linear", "shared_mlp.output_linear")
    sparse = ("block_sparse_moe.input_linear", "block_sparse_moe.output_linear")
    layer = (
        *modules(names),
        *mixers,
        *common.joined_mlp("", *dense),
        *common.joined_mlp("_shexp", *dense),
        *common.joined_mlp("_exps", *sparse, dim=1),
    )
    return Layout("model.layers.", common.ENDS, layer)


ARCHITECTURE = Architecture(("granitehybrid",), _config, _layout)
