"""Mamba-2."""

from adapters.models.gguf import common
from adapters.models.gguf.layout import Architecture, Layout, modules
from adapters.models.gguf.metadata import Metadata

__all__ = ["ARCHITECTURE"]


def _config(metadata: Metadata) -> dict[str, object]:
    inner, hidden = metadata.integer("ssm.inner_size"), metadata.integer("embedding_length")
    heads = metadata.integer("ssm.time_step_rank")
    return {
        "model_type": "mamba2",
        "hidden_size": hidden,
        "num_hidden_layers": metadata.layers,
        "num_heads": heads,
        "head_dim": inner // max(1, heads),
        "expand": inner / hidden,
        "state_size": metadata.integer("ssm.state_size"),
        "n_groups": metadata.integer("ssm.group_count"),
        "conv_kernel": metadata.integer("ssm.conv_kernel"),
        "layer_norm_epsilon": metadata.number("attention.layer_norm_rms_epsilon"),
        "use_bias": metadata.any_layer("ssm_in.bias"),
        "use_conv_bias": metadata.any_layer("ssm_conv1d.bias"),
    }


def _layout(_metadata: Metadata) -> Layout:
    ends = common.ends("backbone.embeddings", "backbone.norm_f")
    layer = (*modules({"attn_norm": "norm"}), *common.mamba2("mixer."))
    return Layout("backbone.layers.", ends, layer)


ARCHITECTURE = Architecture(("mamba2",), _config, _layout)
