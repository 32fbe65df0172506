"""The layers of a hybrid model over one pass: every product over all tokens at once.

Tokens are [tokens, hidden]: decode rows' first, then prefill rows'. Only the sequence mixing looks
at rows.
"""

import torch
from torch import Tensor
from torch.nn import functional

from adapters.models.hybrid import HybridConfig
from adapters.torch_device.arenas import PageArena
from adapters.torch_device.attention import AttentionPlan, attend, write
from adapters.torch_device.indices import ChunkLayout
from adapters.torch_device.mamba2 import conv_decode, conv_prefill, ssm_decode, ssm_prefill
from adapters.torch_device.plan import PassPlan
from adapters.torch_device.weights import (
    AttentionWeights,
    MambaWeights,
    MlpWeights,
    linear,
    rms_norm,
)

__all__ = ["attention_mixer", "mamba_mixer", "mlp"]


def mamba_mixer(
    config: HybridConfig,
    weights: MambaWeights,
    conv_arena: Tensor,
    ssm_arena: Tensor,
    plan: PassPlan,
    x: Tensor,
) -> Tensor:
    """One Mamba-2 mixer; takes every row's conv and SSM state on in place.

    Shapes: conv_arena [slots, taps - 1, conv_size]; ssm_arena [slots, heads, width, state];
    x, result [tokens, hidden].
    """
    inner, heads = config.inner_size, config.num_mamba_heads
    projected = linear(x, weights.in_proj)
    gate, mixed, dt = torch.split_with_sizes(projected, [inner, config.conv_size, heads], dim=-1)
    dt = functional.softplus(dt + weights.dt_bias)
    rows = len(plan.decode.host)
    parts: list[Tensor] = []
    if rows:
        conv = conv_decode(
            conv_arena, plan.decode, mixed[:rows], weights.conv_weight, weights.conv_bias
        )
        values, b, c = _split(config, conv)
        y = ssm_decode(ssm_arena, plan.decode, values, dt[:rows], weights.a, b, c)
        parts.append(y.addcmul_(values, weights.skip))
    if plan.layout is not None:
        conv = conv_prefill(
            conv_arena,
            plan.prefill,
            plan.layout,
            mixed[rows:],
            weights.conv_weight,
            weights.conv_bias,
        )
        parts.append(_scan_chunks(config, weights, ssm_arena, plan, plan.layout, conv, dt[rows:]))
    y = parts[0] if len(parts) == 1 else torch.cat(parts)
    y = y.view(-1, inner).mul_(functional.silu(gate)).view(-1, *weights.norm.shape)
    return linear(rms_norm(y, weights.norm, config.norm_eps).view(-1, inner), weights.out_proj)


def _split(config: HybridConfig, conv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Convolved channels as x [..., heads, width] and B, C [..., groups, state]."""
    shared = config.n_groups * config.state_size
    values, b, c = torch.split_with_sizes(conv, [config.inner_size, shared, shared], dim=-1)
    by_group = (*conv.shape[:-1], config.n_groups, config.state_size)
    by_head = (*conv.shape[:-1], config.num_mamba_heads, config.head_dim)
    return values.view(by_head), b.view(by_group), c.view(by_group)


def _scan_chunks(
    config: HybridConfig,
    weights: MambaWeights,
    arena: Tensor,
    plan: PassPlan,
    layout: ChunkLayout,
    conv: Tensor,
    dt: Tensor,
) -> Tensor:
    """Scan the prefill rows; result [tokens, heads, width] in token order."""
    shape = (layout.chunks, layout.size, -1)
    values, b, c = _split(config, conv.index_select(0, layout.output_of_cell).view(shape))
    steps = (dt.index_select(0, layout.token_of_cell) * layout.filled[:, None]).view(shape)
    y = ssm_prefill(arena, plan.prefill, layout, values, steps, weights.a, b, c)
    y.addcmul_(values, weights.skip)
    return y.flatten(0, 1).index_select(0, layout.cell_of_token)


def attention_mixer(
    config: HybridConfig,
    weights: AttentionWeights,
    arena: PageArena,
    layer: int,
    plan: AttentionPlan,
    x: Tensor,
) -> Tensor:
    """One attention mixer; writes the tokens' keys and values, then reads.

    ``layer`` counts attention layers. Shapes: x, result [tokens, hidden].
    """
    width, kv_heads = config.attn_head_dim, config.num_kv_heads
    heads = linear(x, weights.qkv_proj).view(x.shape[0], -1, width)
    turned = plan.rotation.apply(heads[:, : config.num_heads + kv_heads])
    queries, keys = turned[:, : config.num_heads], turned[:, config.num_heads :]
    write(arena, layer, plan.write_at, keys, heads[:, config.num_heads + kv_heads :])
    mixed = attend(arena, layer, queries, plan)
    return linear(mixed.flatten(1), weights.o_proj)


def mlp(config: HybridConfig, weights: MlpWeights, x: Tensor) -> Tensor:
    """The SwiGLU block with its norm. Shapes: x, result [tokens, hidden]."""
    normed = rms_norm(x, weights.norm, config.norm_eps)
    gate, up = linear(normed, weights.gate_up_proj).chunk(2, dim=-1)
    return linear(functional.silu(gate).mul_(up), weights.down_proj)
