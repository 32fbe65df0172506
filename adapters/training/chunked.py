"""The hybrid model's forward pass for training: whole sequences, Mamba-2 by chunks.

The scan is the state-space dual form: inside a chunk an attention-like product with decays, from
chunk to chunk one state per head. Sums run in another order than in
``adapters.models.reference``; a test holds the two together. Operations are laid out so that B
and C, which all heads of a group share, meet all the group's heads in one matrix product.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from adapters.models.hybrid import HybridConfig
from adapters.models.reference import rms_norm, rotate

__all__ = ["chunked_logits", "chunked_scan"]

Weights = Mapping[str, Tensor]


def chunked_logits(config: HybridConfig, weights: Weights, tokens: Tensor) -> Tensor:
    """Logits after every token.

    Shapes: tokens [B, L], L a multiple of ``config.chunk_size``; result [B, L, V].
    """
    x = functional.embedding(tokens, weights["embed.weight"])
    for layer, kind in enumerate(config.layer_types):
        own = _Layer(weights, f"layers.{layer}.")
        mixed = rms_norm(x, own["norm.weight"], config.norm_eps)
        mixer = _mamba if kind == "mamba2" else _attention
        x = x + mixer(config, own, mixed)
        if config.intermediate_size:
            inner = rms_norm(x, own["mlp_norm.weight"], config.norm_eps)
            x = x + _mlp(own, inner)
    x = rms_norm(x, weights["final_norm.weight"], config.norm_eps)
    return x @ weights["embed.weight" if config.tie_embeddings else "lm_head.weight"].T


class _Layer:
    """The tensors of one layer by their short names."""

    def __init__(self, weights: Weights, prefix: str) -> None:
        self._weights = weights
        self._prefix = prefix

    def __getitem__(self, name: str) -> Tensor:
        return self._weights[self._prefix + name]


def _mlp(own: _Layer, x: Tensor) -> Tensor:
    gate = functional.silu(x @ own["mlp.gate_proj.weight"].T)
    return (gate * (x @ own["mlp.up_proj.weight"].T)) @ own["mlp.down_proj.weight"].T


def _attention(config: HybridConfig, own: _Layer, x: Tensor) -> Tensor:
    batch, length, _ = x.shape
    width = config.attn_head_dim

    def heads(name: str) -> Tensor:
        projected = x @ own[f"mixer.{name}.weight"].T
        return projected.view(batch, length, -1, width).transpose(1, 2)

    positions = torch.arange(length)
    query = rotate(heads("q_proj"), positions, config.rope_theta)
    key = rotate(heads("k_proj"), positions, config.rope_theta)
    mixed = functional.scaled_dot_product_attention(
        query, key, heads("v_proj"), is_causal=True, enable_gqa=True
    )
    return mixed.transpose(1, 2).reshape(batch, length, -1) @ own["mixer.o_proj.weight"].T


def _mamba(config: HybridConfig, own: _Layer, x: Tensor) -> Tensor:
    batch, length, _ = x.shape
    inner, state, groups = config.inner_size, config.state_size, config.n_groups
    projected = x @ own["mixer.in_proj.weight"].T
    gate, conv_in, dt = torch.split(
        projected, [inner, config.conv_size, config.num_mamba_heads], dim=-1
    )
    conv = _short_conv(conv_in, own["mixer.conv1d.weight"], own["mixer.conv1d.bias"])
    values, keys, queries = torch.split(
        functional.silu(conv), [inner, groups * state, groups * state], dim=-1
    )
    dt = functional.softplus(dt + own["mixer.dt_bias"])
    heads = values.reshape(batch, length, config.num_mamba_heads, config.head_dim)
    y = chunked_scan(
        heads * dt.unsqueeze(-1),
        -torch.exp(own["mixer.A_log"]) * dt,
        keys.reshape(batch, length, groups, state),
        queries.reshape(batch, length, groups, state),
        config.chunk_size,
    )
    y = y + own["mixer.D"].unsqueeze(-1) * heads
    gated = y.reshape(batch, length, inner) * functional.silu(gate)
    weight = own["mixer.norm.weight"].view(groups, -1)
    normed = rms_norm(gated.view(batch, length, groups, -1), weight, config.norm_eps)
    return normed.flatten(-2) @ own["mixer.out_proj.weight"].T


def _short_conv(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Causal depthwise convolution. x: [B, L, channels], weight: [channels, 1, K].

    A few shifted products: the library's depthwise kernel is several times slower to train.
    """
    taps = weight.shape[-1]
    padded = functional.pad(x, (0, 0, taps - 1, 0))
    result = bias + padded[:, : x.shape[1]] * weight[:, 0, 0]
    for tap in range(1, taps):
        result = result + padded[:, tap : tap + x.shape[1]] * weight[:, 0, tap]
    return result


def chunked_scan(x: Tensor, decay: Tensor, keys: Tensor, queries: Tensor, chunk: int) -> Tensor:
    """``h[t] = exp(decay[t]) h[t-1] + keys[t] x[t]``, ``y[t] = queries[t] h[t]``, by chunks.

    Shapes: x [B, L, H, P] (dt already in it), decay [B, L, H] (at most 0), keys and queries
    [B, L, G, N]; L a multiple of ``chunk``; result [B, L, H, P].
    """
    batch, length, heads, width = x.shape
    groups, state = keys.shape[2:]
    count, each = length // chunk, heads // groups
    # [B, C, G, Q, ...]: one matrix product serves the heads of a group
    k = keys.view(batch, count, chunk, groups, state).transpose(2, 3)
    q = queries.view(batch, count, chunk, groups, state).transpose(2, 3)
    v = x.view(batch, count, chunk, groups, each, width)
    total = decay.view(batch, count, chunk, groups, each).cumsum(2)  # [B, C, Q, G, E]

    by_head = total.permute(0, 1, 3, 4, 2)  # [B, C, G, E, Q]
    span = by_head.unsqueeze(-1) - by_head.unsqueeze(-2)
    causal = torch.ones(chunk, chunk, dtype=torch.bool).tril()
    mix = span.masked_fill(~causal, float("-inf")).exp() * (q @ k.mT).unsqueeze(3)
    within = mix @ v.permute(0, 1, 3, 4, 2, 5)  # [B, C, G, E, Q, P]

    to_end = (total[:, :, -1:] - total).exp().unsqueeze(-1)  # [B, C, Q, G, E, 1]
    weighted = (v * to_end).transpose(2, 3).flatten(-2)  # [B, C, G, Q, E * P]
    added = k.mT @ weighted  # [B, C, G, N, E * P]
    keep = by_head[..., -1].exp()  # [B, C, G, E]: what one chunk keeps of the state before it
    before = _states_before(added.view(batch, count, groups, state, each, width), keep)
    carried = (q @ before.flatten(-2)).view(batch, count, groups, chunk, each, width)
    carried = carried.transpose(2, 3) * total.exp().unsqueeze(-1)
    y = within.permute(0, 1, 4, 2, 3, 5) + carried
    return y.reshape(batch, length, heads, width)


def _states_before(added: Tensor, keep: Tensor) -> Tensor:
    """State at the start of each chunk. added: [B, C, G, N, E, P], keep: [B, C, G, E]."""
    state = torch.zeros_like(added[:, 0])
    before: list[Tensor] = []
    for chunk in range(added.shape[1]):
        before.append(state)
        state = state * keep[:, chunk, :, None, :, None] + added[:, chunk]
    return torch.stack(before, dim=1)
