"""Falcon-H1. The converter multiplies the model's many multipliers into its weights.

So every multiplier of the configuration is one here: the products are the same, their rounding is
not. Nothing is permuted. The gated norm, where there is one, comes after the gate.
"""

from adapters.models.gguf import common
from adapters.models.gguf.layout import Architecture, Entry, Layout, modules
from adapters.models.gguf.metadata import Metadata

__all__ = ["ARCHITECTURE"]


def _config(metadata: Metadata) -> dict[str, object]:
    return {
        "model_type": "falcon_h1",
        **common.attention_config(metadata),
        **common.mamba2_config(metadata),
        "mamba_d_ssm": metadata.integer("ssm.inner_size"),
        "mamba_rms_norm": metadata.any_layer("ssm_norm.weight"),
        "mamba_norm_before_gate": False,
        "projectors_bias": metadata.any_layer("ssm_out.bias"),
        "mlp_bias": metadata.any_layer("ffn_gate.bias"),
        "num_hidden_layers": metadata.layers,
        "intermediate_size": metadata.integer("feed_forward_length"),
    }


def _layout(metadata: Metadata) -> Layout:
    names = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "pre_ff_layernorm",
        "ffn_gate": "feed_forward.gate_proj",
        "ffn_up": "feed_forward.up_proj",
        "ffn_down": "feed_forward.down_proj",
    }
    ends = common.ends("model.embed_tokens", "model.final_layernorm")
    layer = (
        *modules(names),
        Entry("pre_ff_layernorm.weight", ("ffn_norm",)),  # the converter drops its suffix
        *common.mamba2("mamba."),
        *common.attention(metadata),
    )
    return Layout("model.layers.", ends, layer)


ARCHITECTURE = Architecture(("falcon-h1",), _config, _layout)
