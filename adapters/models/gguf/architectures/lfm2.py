"""LFM2, dense and with experts. Layers without key and value heads are convolutions."""

from adapters.models.gguf import common
from adapters.models.gguf.layout import Architecture, Entry, Layout, modules
from adapters.models.gguf.metadata import Metadata
from adapters.models.gguf.transforms import as_conv

__all__ = ["ARCHITECTURE"]


def _config(metadata: Metadata) -> dict[str, object]:
    kv_heads = metadata.per_layer("attention.head_count_kv")
    config: dict[str, object] = {
        "model_type": "lfm2",
        **common.attention_config(metadata),
        "norm_eps": metadata.number("attention.layer_norm_rms_epsilon"),
        "num_hidden_layers": metadata.layers,
        "layer_types": ["full_attention" if heads else "conv" for heads in kv_heads],
        "conv_L_cache": metadata.integer("shortconv.l_cache"),
        "conv_bias": metadata.any_layer("shortconv.conv.bias"),
        "intermediate_size": metadata.integer("feed_forward_length"),
        # The converter has done it already.
        "block_auto_adjust_ff_dim": False,
    }
    if metadata.architecture == "lfm2moe":
        config |= {
            "model_type": "lfm2_moe",
            "num_experts": metadata.integer("expert_count"),
            "num_experts_per_tok": metadata.integer("expert_used_count"),
            "moe_intermediate_size": metadata.integer("expert_feed_forward_length"),
            "num_dense_layers": metadata.integer("leading_dense_block_count"),
            "use_expert_bias": metadata.any_layer("exp_probs_b.bias"),
            "norm_topk_prob": True,
        }
    return config


def _layout(metadata: Metadata) -> Layout:
    names = {
        "attn_norm": "operator_norm",
        "ffn_norm": "ffn_norm",
        "attn_q_norm": "self_attn.q_layernorm",
        "attn_k_norm": "self_attn.k_layernorm",
        "shortconv.in_proj": "conv.in_proj",
        "shortconv.out_proj": "conv.out_proj",
        "ffn_gate": "feed_forward.w1",
        "ffn_down": "feed_forward.w2",
        "ffn_up": "feed_forward.w3",
        "ffn_gate_inp": "feed_forward.gate",
    }
    ends = (
        Entry("model.embed_tokens.weight", ("token_embd.weight",)),
        # Files of 2025 call it the norm of the embedding, later ones that of the output.
        Entry("model.embedding_norm.weight", ("token_embd_norm.weight",)),
        Entry("model.embedding_norm.weight", ("output_norm.weight",)),
        Entry("lm_head.weight", ("output.weight",)),
    )
    experts = {"gate": "w1", "down": "w2", "up": "w3"}
    layer = (
        *modules(names),
        *common.attention(metadata, out="out_proj"),
        Entry("conv.conv.weight", ("shortconv.conv.weight",), as_conv),
        Entry("conv.conv.bias", ("shortconv.conv.bias",)),
        Entry("feed_forward.expert_bias", ("exp_probs_b.bias",)),
        *(
            Entry(f"feed_forward.experts.{{expert}}.{ours}.weight", (f"ffn_{theirs}_exps.weight",))
            for theirs, ours in experts.items()
        ),
    )
    return Layout("model.layers.", ends, layer)


ARCHITECTURE = Architecture(("lfm2", "lfm2moe"), _config, _layout)
