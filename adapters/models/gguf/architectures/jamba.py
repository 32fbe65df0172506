"""Jamba: Mamba-1 and attention by period, experts by another; nothing rotates or is permuted."""

from adapters.models.gguf import common
from adapters.models.gguf.errors import MetadataMissing
from adapters.models.gguf.layout import Architecture, Entry, Layout, modules
from adapters.models.gguf.metadata import Metadata
from adapters.models.gguf.transforms import as_conv, log_decay

__all__ = ["ARCHITECTURE"]


def _period(metadata: Metadata, layers: list[int], what: str) -> tuple[int, int]:
    """Period and offset of the layers of a kind, as the configuration has them."""
    for period in range(1, metadata.layers + 1):
        for offset in range(period):
            if layers == list(range(offset, metadata.layers, period)):
                return period, offset
    raise MetadataMissing(f"{metadata.where}: layers with {what} ({layers}) have no period")


def _config(metadata: Metadata) -> dict[str, object]:
    kv_heads = metadata.per_layer("attention.head_count_kv")
    attending = [layer for layer, heads in enumerate(kv_heads) if heads]
    period, offset = _period(metadata, attending, "attention")
    config: dict[str, object] = {
        "model_type": "jamba",
        **common.attention_config(metadata),
        "num_hidden_layers": metadata.layers,
        "intermediate_size": metadata.integer("feed_forward_length"),
        "attn_layer_period": period,
        "attn_layer_offset": offset,
        "num_experts": 1,
        "mamba_d_state": metadata.integer("ssm.state_size"),
        "mamba_d_conv": metadata.integer("ssm.conv_kernel"),
        "mamba_dt_rank": metadata.integer("ssm.time_step_rank"),
        "mamba_expand": metadata.integer("ssm.inner_size") / metadata.integer("embedding_length"),
        "mamba_conv_bias": metadata.any_layer("ssm_conv1d.bias"),
        "mamba_proj_bias": metadata.any_layer("ssm_in.bias"),
    }
    sparse = metadata.layers_with("ffn_gate_inp.weight")
    if sparse:
        period, offset = _period(metadata, sparse, "experts")
        config |= {
            "expert_layer_period": period,
            "expert_layer_offset": offset,
            "num_experts": metadata.integer("expert_count"),
            "num_experts_per_tok": metadata.integer("expert_used_count"),
        }
    return config


def _layout(metadata: Metadata) -> Layout:
    names = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "pre_ff_layernorm",
        "ffn_gate": "feed_forward.gate_proj",
        "ffn_up": "feed_forward.up_proj",
        "ffn_down": "feed_forward.down_proj",
        "ffn_gate_inp": "feed_forward.router",
        "ssm_in": "mamba.in_proj",
        "ssm_x": "mamba.x_proj",
        "ssm_dt": "mamba.dt_proj",
        "ssm_out": "mamba.out_proj",
        "ssm_dt_norm": "mamba.dt_layernorm",
        "ssm_b_norm": "mamba.b_layernorm",
        "ssm_c_norm": "mamba.c_layernorm",
    }
    ends = common.ends("model.embed_tokens", "model.final_layernorm")
    layer = (
        *modules(names),
        *common.attention(metadata),
        *common.experts("feed_forward.experts."),
        Entry("mamba.conv1d.weight", ("ssm_conv1d.weight",), as_conv),
        Entry("mamba.conv1d.bias", ("ssm_conv1d.bias",)),
        Entry("mamba.A_log", ("ssm_a",), log_decay),
        Entry("mamba.D", ("ssm_d",)),
    )
    return Layout("model.layers.", ends, layer)


ARCHITECTURE = Architecture(("jamba",), _config, _layout)
