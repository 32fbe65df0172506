"""Entries and configuration keys that several architectures share."""

from adapters.models.gguf.layout import Entry, modules
from adapters.models.gguf.metadata import Metadata
from adapters.models.gguf.ropes import rope_config
from adapters.models.gguf.transforms import (
    as_conv,
    flat,
    join,
    log_decay_flat,
    unpermuted,
)

__all__ = [
    "ENDS",
    "attention",
    "attention_config",
    "ends",
    "experts",
    "joined_mlp",
    "mamba2",
    "mamba2_config",
    "norm_eps",
]


def ends(embedding: str, norm: str) -> tuple[Entry, ...]:
    """What lies outside of layers, by a family's names for embedding and last norm."""
    return (
        Entry(f"{embedding}.weight", ("token_embd.weight",)),
        Entry(f"{norm}.weight", ("output_norm.weight",)),
        Entry("lm_head.weight", ("output.weight",)),
    )


ENDS = ends("model.embed_tokens", "model.norm")
"""As most families name it."""


def attention(
    metadata: Metadata,
    under: str = "self_attn.",
    *,
    out: str = "o_proj",
    is_permuted: bool = False,
) -> tuple[Entry, ...]:
    """Projections of attention.

    Args:
        metadata: tells the heads.
        under: prefix of the names in the model.
        out: name of the output projection.
        is_permuted: whether the converter has permuted queries and keys (Llama and what its
            converter derives from it).
    """
    queries = keys = None
    if is_permuted:
        kv_heads = max(metadata.per_layer("attention.head_count_kv", _heads(metadata)))
        # None at all is the family's to refuse; here it must not be divided by.
        queries, keys = unpermuted(max(1, _heads(metadata))), unpermuted(max(1, kv_heads))
    return (
        *modules({"attn_q": f"{under}q_proj"}, queries),
        *modules({"attn_k": f"{under}k_proj"}, keys),
        *modules({"attn_v": f"{under}v_proj", "attn_output": f"{under}{out}"}),
    )


def _heads(metadata: Metadata) -> int:
    return max(metadata.per_layer("attention.head_count"))


def _head_dim(metadata: Metadata) -> int:
    hidden = metadata.integer("embedding_length")
    return metadata.integer("attention.key_length", hidden // max(1, _heads(metadata)))


def norm_eps(metadata: Metadata) -> float:
    """Added to the variance in every norm; Nemotron-H's may stand under another key."""
    other = "attention.layer_norm_epsilon"
    name = "attention.layer_norm_rms_epsilon"
    return metadata.number(other if metadata.has(other) and not metadata.has(name) else name)


def attention_config(metadata: Metadata) -> dict[str, object]:
    """The keys of every family with attention, rotary embeddings included."""
    heads, hidden = _heads(metadata), metadata.integer("embedding_length")
    return {
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": max(metadata.per_layer("attention.head_count_kv", heads)),
        "head_dim": _head_dim(metadata),
        "rms_norm_eps": norm_eps(metadata),
        "attention_bias": metadata.any_layer("attn_q.bias"),
        "max_position_embeddings": metadata.integer("context_length"),
        **rope_config(metadata, _head_dim(metadata)),
    }


def mamba2(under: str) -> tuple[Entry, ...]:
    """A Mamba-2 mixer under a prefix; ``Mamba2Model.modify_tensors`` has the converter's side."""
    return (
        *modules({"ssm_in": f"{under}in_proj", "ssm_out": f"{under}out_proj"}),
        Entry(f"{under}conv1d.weight", ("ssm_conv1d.weight",), as_conv),
        Entry(f"{under}conv1d.bias", ("ssm_conv1d.bias",)),
        Entry(f"{under}dt_bias", ("ssm_dt.bias",)),
        Entry(f"{under}A_log", ("ssm_a",), log_decay_flat),
        Entry(f"{under}D", ("ssm_d",), flat),
        Entry(f"{under}norm.weight", ("ssm_norm.weight",), flat),
    )


def mamba2_config(metadata: Metadata) -> dict[str, object]:
    """Sizes of Mamba-2 mixers under the keys of hybrid families."""
    inner, heads = metadata.integer("ssm.inner_size"), metadata.integer("ssm.time_step_rank")
    return {
        "mamba_n_heads": heads,
        "mamba_d_head": inner // max(1, heads),
        "mamba_d_state": metadata.integer("ssm.state_size"),
        "mamba_n_groups": metadata.integer("ssm.group_count"),
        "mamba_d_conv": metadata.integer("ssm.conv_kernel"),
        "mamba_expand": inner / metadata.integer("embedding_length"),
        "mamba_conv_bias": metadata.any_layer("ssm_conv1d.bias"),
        "mamba_proj_bias": metadata.any_layer("ssm_in.bias"),
    }


def experts(under: str) -> tuple[Entry, ...]:
    """Experts that the file has stacked, one by one."""
    names = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
    return tuple(
        Entry(f"{under}{{expert}}.{ours}.weight", (f"ffn_{theirs}_exps.weight",))
        for theirs, ours in names.items()
    )


def joined_mlp(suffix: str, into: str, out: str, dim: int = 0) -> tuple[Entry, ...]:
    """A gated block whose gate and up projections are one tensor in the model."""
    sources = (f"ffn_gate{suffix}.weight", f"ffn_up{suffix}.weight")
    return (
        Entry(f"{into}.weight", sources, join(dim)),
        Entry(f"{out}.weight", (f"ffn_down{suffix}.weight",)),
    )
