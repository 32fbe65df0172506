"""Llama and what shares its architecture (Mistral, SmolLM2); queries and keys are permuted."""

from adapters.models.gguf import common
from adapters.models.gguf.errors import UnsupportedArchitecture
from adapters.models.gguf.layout import Architecture, Layout, modules
from adapters.models.gguf.metadata import Metadata

__all__ = ["ARCHITECTURE"]


def _config(metadata: Metadata) -> dict[str, object]:
    if metadata.integer("expert_count", 0):
        raise UnsupportedArchitecture(f"{metadata.where}: llama with experts (Mixtral) isn't read")
    return {
        "model_type": "llama",
        **common.attention_config(metadata),
        "num_hidden_layers": metadata.layers,
        "intermediate_size": metadata.integer("feed_forward_length"),
        "mlp_bias": metadata.any_layer("ffn_gate.bias"),
    }


def _layout(metadata: Metadata) -> Layout:
    names = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    layer = (*modules(names), *common.attention(metadata, is_permuted=True))
    return Layout("model.layers.", common.ENDS, layer, unused=("rope_freqs.weight",))


ARCHITECTURE = Architecture(("llama",), _config, _layout)
