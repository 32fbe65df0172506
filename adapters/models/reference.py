"""The hybrid model in its simplest form: token by token, no chunks, no cache, any float type.

This is what the serving device and the training code are held to. It follows the recurrence as
it is written in the paper and is far too slow for anything else.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from adapters.models.hybrid import HybridConfig

__all__ = ["reference_logits", "rms_norm", "rotate"]

Weights = Mapping[str, Tensor]


def reference_logits(config: HybridConfig, weights: Weights, tokens: Tensor) -> Tensor:
    """Logits after every token, from an empty state, in the weights' own float type.

    Shapes: tokens [B, L] int64; result [B, L, V].
    """
    x = weights["embed.weight"][tokens]
    for layer, kind in enumerate(config.layer_types):
        prefix = f"layers.{layer}."
        own = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
        mixer = mamba_mixer if kind == "mamba2" else attention_mixer
        x = x + mixer(config, own, rms_norm(x, own["norm.weight"], config.norm_eps))
        if config.intermediate_size:
            x = x + _mlp(own, rms_norm(x, own["mlp_norm.weight"], config.norm_eps))
    x = rms_norm(x, weights["final_norm.weight"], config.norm_eps)
    return x @ weights["embed.weight" if config.tie_embeddings else "lm_head.weight"].T


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Scale the last dimension to a mean square of one, then by ``weight``."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotate(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Rotary embedding, halves paired. x: [..., L, width], positions: [L]."""
    half = x.shape[-1] // 2
    steps = torch.arange(half, dtype=torch.float64) / half
    angles = positions.to(torch.float64)[:, None] * theta**-steps  # [L, half]
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    low, high = x[..., :half], x[..., half:]
    return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)


def mamba_mixer(config: HybridConfig, own: Weights, x: Tensor) -> Tensor:
    """One Mamba-2 mixer by its recurrence. x: [B, L, hidden], result alike."""
    inner, heads, groups = config.inner_size, config.num_mamba_heads, config.n_groups
    batch, length, _ = x.shape
    state_channels = groups * config.state_size
    projected = x @ own["mixer.in_proj.weight"].T
    gate, conv_in, dt = torch.split(projected, [inner, config.conv_size, heads], dim=-1)
    kernel = own["mixer.conv1d.weight"]
    padded = functional.pad(conv_in.mT, (config.conv_kernel - 1, 0))
    conv = functional.conv1d(padded, kernel, own["mixer.conv1d.bias"], groups=config.conv_size)
    values, keys, queries = torch.split(
        functional.silu(conv.mT), [inner, state_channels, state_channels], dim=-1
    )
    values = values.reshape(batch, length, heads, config.head_dim)
    keys = _for_each_head(config, keys)
    queries = _for_each_head(config, queries)
    dt = functional.softplus(dt + own["mixer.dt_bias"])
    decay = torch.exp(-torch.exp(own["mixer.A_log"]) * dt)

    state = x.new_zeros(batch, heads, config.head_dim, config.state_size)
    outputs: list[Tensor] = []
    for t in range(length):
        step = (dt[:, t, :, None] * values[:, t])[..., None] * keys[:, t, :, None, :]
        state = decay[:, t, :, None, None] * state + step
        read = (state * queries[:, t, :, None, :]).sum(-1)
        outputs.append(read + own["mixer.D"][:, None] * values[:, t])
    y = torch.stack(outputs, dim=1).reshape(batch, length, inner) * functional.silu(gate)
    weight = own["mixer.norm.weight"].view(groups, -1)
    normed = rms_norm(y.view(batch, length, groups, -1), weight, config.norm_eps)
    return normed.flatten(-2) @ own["mixer.out_proj.weight"].T


def _for_each_head(config: HybridConfig, shared: Tensor) -> Tensor:
    """Give each head its group's B or C: [B, L, G * N] to [B, L, heads, N]."""
    each = config.num_mamba_heads // config.n_groups
    grouped = shared.reshape(*shared.shape[:2], config.n_groups, config.state_size)
    return grouped.repeat_interleave(each, dim=2)


def attention_mixer(config: HybridConfig, own: Weights, x: Tensor) -> Tensor:
    """Causal grouped-query attention over the whole sequence. x: [B, L, hidden], result alike."""
    batch, length, _ = x.shape
    width, each = config.attn_head_dim, config.num_heads // config.num_kv_heads
    positions = torch.arange(length)

    def heads(name: str) -> Tensor:
        projected = x @ own[f"mixer.{name}.weight"].T
        return projected.view(batch, length, -1, width).transpose(1, 2)

    query = rotate(heads("q_proj"), positions, config.rope_theta)
    key = rotate(heads("k_proj"), positions, config.rope_theta).repeat_interleave(each, dim=1)
    value = heads("v_proj").repeat_interleave(each, dim=1)
    scores = query @ key.mT / math.sqrt(width)
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    shares = scores.masked_fill(~causal, float("-inf")).softmax(-1)
    mixed = (shares @ value).transpose(1, 2).reshape(batch, length, -1)
    return mixed @ own["mixer.o_proj.weight"].T


def _mlp(own: Weights, x: Tensor) -> Tensor:
    gate = functional.silu(x @ own["mlp.gate_proj.weight"].T)
    return (gate * (x @ own["mlp.up_proj.weight"].T)) @ own["mlp.down_proj.weight"].T
