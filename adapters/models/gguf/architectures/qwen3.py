"""Qwen3, dense: norms over each head's queries and keys, nothing permuted."""

from adapters.models.gguf import common
from adapters.models.gguf.layout import Architecture, Layout, modules
from adapters.models.gguf.metadata import Metadata

__all__ = ["ARCHITECTURE"]


def _config(metadata: Metadata) -> dict[str, object]:
    return {
        "model_type": "qwen3",
        **common.attention_config(metadata),
        "num_hidden_layers": metadata.layers,
        "intermediate_size": metadata.integer("feed_forward_length"),
    }


def _layout(metadata: Metadata) -> Layout:
    names = {
        "attn_norm": "input_layernorm",
        "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    return Layout("model.layers.", common.ENDS, (*modules(names), *common.attention(metadata)))


ARCHITECTURE = Architecture(("qwen3",), _config, _layout)
