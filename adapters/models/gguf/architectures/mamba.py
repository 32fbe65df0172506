"""Mamba-1 and Falcon-Mamba, which norms B, C and the time step and says so in a key."""

from adapters.models.gguf import common
from adapters.models.gguf.layout import Architecture, Entry, Layout, modules
from adapters.models.gguf.metadata import Metadata
from adapters.models.gguf.transforms import as_conv, log_decay

__all__ = ["ARCHITECTURE"]


def _config(metadata: Metadata) -> dict[str, object]:
    inner, hidden = metadata.integer("ssm.inner_size"), metadata.integer("embedding_length")
    norms = metadata.boolean("ssm.dt_b_c_rms", False)
    return {
        "model_type": "falcon_mamba" if norms else "mamba",
        "hidden_size": hidden,
        "num_hidden_layers": metadata.layers,
        "intermediate_size": inner,
        "expand": inner / hidden,
        "state_size": metadata.integer("ssm.state_size"),
        "conv_kernel": metadata.integer("ssm.conv_kernel"),
        "time_step_rank": metadata.integer("ssm.time_step_rank"),
        "layer_norm_epsilon": metadata.number("attention.layer_norm_rms_epsilon"),
        "use_bias": metadata.any_layer("ssm_in.bias"),
        "use_conv_bias": metadata.any_layer("ssm_conv1d.bias"),
    }


def _layout(_metadata: Metadata) -> Layout:
    names = {
        "attn_norm": "norm",
        "ssm_in": "mixer.in_proj",
        "ssm_x": "mixer.x_proj",
        "ssm_dt": "mixer.dt_proj",
        "ssm_out": "mixer.out_proj",
    }
    layer = (
        *modules(names),
        Entry("mixer.conv1d.weight", ("ssm_conv1d.weight",), as_conv),
        Entry("mixer.conv1d.bias", ("ssm_conv1d.bias",)),
        Entry("mixer.A_log", ("ssm_a",), log_decay),
        Entry("mixer.D", ("ssm_d",)),
    )
    ends = common.ends("backbone.embeddings", "backbone.norm_f")
    return Layout("backbone.layers.", ends, layer)


ARCHITECTURE = Architecture(("mamba",), _config, _layout)
