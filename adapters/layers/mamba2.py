"""The Mamba-2 recurrence on a state arena: short convolution and selective scan.

Each kernel takes ``(arena, slots, ...)`` and updates the named slots in place; no caller sees a
gathered row, so a fused kernel can replace any of them. Decode is the recurrence as written;
prefill is the chunked form (state space duality, Dao and Gu 2024, section 6): inside a chunk a
masked matrix product, between chunks the recurrence. They agree to float tolerance, never to the
bit.
"""

import torch
from torch import Tensor
from torch.nn import functional

from adapters.layers.decays import shares_left
from adapters.ragged.indices import ChunkLayout, SlotList

__all__ = [
    "conv_decode",
    "conv_prefill",
    "ssm_decode",
    "ssm_decode_gathered",
    "ssm_decode_in_place",
    "ssm_prefill",
]


def conv_decode(
    arena: Tensor,
    slots: SlotList,
    inputs: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    activate: bool = True,
) -> Tensor:
    """Convolve one new input per slot with the slot's last inputs, and shift it in.

    SiLU follows, unless ``activate`` is false. Shapes: arena [slots, taps - 1, channels]; inputs,
    result [rows, channels]; weight [taps, channels]; bias [channels].
    """
    history = arena.index_select(0, slots.index).to(inputs.dtype)
    window = torch.cat((history, inputs[:, None]), dim=1)  # [rows, taps, channels]
    arena.index_copy_(0, slots.index, window[:, 1:].to(arena.dtype))
    result = (window * weight).sum(dim=1).add_(bias)
    return functional.silu(result, inplace=True) if activate else result


def conv_prefill(
    arena: Tensor,
    slots: SlotList,
    layout: ChunkLayout,
    inputs: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    activate: bool = True,
) -> Tensor:
    """Convolve many new inputs per slot; outputs in stream order (see ``ChunkLayout``).

    SiLU follows, unless ``activate`` is false.

    Shapes: arena [slots, taps - 1, channels]; inputs [tokens, channels];
    result [stream - (taps - 1), channels].
    """
    taps = weight.shape[0]
    history = arena.index_select(0, slots.index).flatten(0, 1).to(inputs.dtype)
    stream = torch.cat((history, inputs)).index_select(0, layout.stream_from)
    if taps > 1:
        tail = stream.index_select(0, layout.tail_at)
        kept = tail.view(len(slots.host), taps - 1, -1).to(arena.dtype)
        arena.index_copy_(0, slots.index, kept)
    length = stream.shape[0] - taps + 1
    result = torch.addcmul(bias, stream[:length], weight[0])
    for tap in range(1, taps):
        result.addcmul_(stream[tap : tap + length], weight[tap])
    return functional.silu(result, inplace=True) if activate else result


def ssm_decode(
    arena: Tensor, slots: SlotList, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor
) -> Tensor:
    """Take each slot's state one token on and read it.

    Shapes: arena [slots, heads, width, state]; x, result [rows, heads, width]; dt [rows, heads]
    after softplus; a [heads], negative; b, c [rows, groups, state].
    """
    decay = torch.exp(dt * a)[..., None, None]
    step = (x * dt[..., None])[..., None]
    if arena.device.type == "cpu" and arena.dtype == x.dtype:
        return ssm_decode_in_place(arena, slots.host, decay, step, b, c)
    return ssm_decode_gathered(arena, slots.index, decay, step, b, c)


def ssm_decode_in_place(
    arena: Tensor, slots: list[int], decay: Tensor, step: Tensor, b: Tensor, c: Tensor
) -> Tensor:
    """Row by row on views: on a CPU a third of the time of gathering and scattering."""
    rows, heads, width, _ = step.shape
    groups, state = b.shape[1:]
    result = step.new_empty(rows, groups, heads // groups * width, 1)
    by_group = arena.view(arena.shape[0], groups, -1, state)
    keys = b if groups == 1 else b.repeat_interleave(heads // groups, dim=1)[:, :, None]
    # One matrix per slot where groups allow: mv is twice as fast as a batch of one.
    flat, queries = by_group[:, 0], c[:, 0] if groups == 1 else c[..., None]
    outs = result[:, 0, :, 0] if groups == 1 else result
    each_row = zip(
        slots,
        decay.unbind(),
        step.unbind(),
        keys.unbind(),
        queries.unbind(),
        outs.unbind(),
        strict=True,
    )
    # Each state is read right after it was written, while the cache has it.
    for slot, row_decay, row_step, key, query, out in each_row:
        arena[slot].mul_(row_decay).addcmul_(row_step, key)
        if groups == 1:
            torch.mv(flat[slot], query, out=out)
        else:
            torch.bmm(by_group[slot], query, out=out)
    return result.view(rows, heads, width)


def ssm_decode_gathered(
    arena: Tensor, slots: Tensor, decay: Tensor, step: Tensor, b: Tensor, c: Tensor
) -> Tensor:
    """All rows at once on a gathered copy, written back.

    For accelerators, and where the state is kept in another type than it is computed in.
    """
    rows, heads, width, _ = step.shape
    each = heads // b.shape[1]
    h = arena.index_select(0, slots).to(step.dtype)
    h.mul_(decay).addcmul_(step, b.repeat_interleave(each, dim=1)[:, :, None])
    arena.index_copy_(0, slots, h.to(arena.dtype))
    return torch.matmul(h, c.repeat_interleave(each, dim=1)[..., None]).view(rows, heads, width)


def ssm_prefill(
    arena: Tensor,
    slots: SlotList,
    layout: ChunkLayout,
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
) -> Tensor:
    """Take each slot's state over all its chunks and read it after every token.

    A padded position has dt 0: it adds nothing to the state and doesn't decay it.

    Shapes: arena [slots, heads, width, state]; x, result [chunks, Q, heads, width];
    dt [chunks, Q, heads]; a [heads]; b, c [chunks, Q, groups, state].
    """
    chunks, size, heads, width = x.shape
    groups = b.shape[2]
    log_decay = dt * a  # [chunks, Q, heads]
    stepped = x * dt[..., None]
    shares = shares_left(layout, log_decay.transpose(1, 2))
    to_end = shares[:, :, -1].transpose(1, 2)[..., None].clone()  # before it is overwritten
    from_start = torch.cumsum(log_decay, dim=1).exp_()
    result = _within_chunks(shares, stepped, b, c)

    by_group = (stepped * to_end).view(chunks, size, groups, heads // groups * width)
    added = torch.matmul(by_group.permute(0, 2, 3, 1), b.transpose(1, 2))
    added = added.view(chunks, heads, width, -1)  # what each chunk's tokens leave at its end
    h = arena.index_select(0, slots.index).to(x.dtype)
    first = 0
    for rows in layout.rows_by_turn:
        turn = slice(first, first + rows)
        _read_carried(h[:rows], from_start[turn], c[turn], result[turn])
        h[:rows].mul_(from_start[turn, -1, :, None, None]).add_(added[turn])
        first += rows
    arena.index_copy_(0, slots.index, h.to(arena.dtype))
    return result


def _read_carried(h: Tensor, decay: Tensor, c: Tensor, result: Tensor) -> None:
    """Add what each token of a chunk reads of the state ``h`` before the chunk."""
    rows, _, groups, state = c.shape
    carried = torch.matmul(c.transpose(1, 2), h.view(rows, groups, -1, state).mT)
    result.addcmul_(carried.transpose(1, 2).reshape(result.shape), decay[..., None])


def _within_chunks(shares: Tensor, stepped: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """What each token reads of the tokens of its own chunk. Result [chunks, Q, heads, width].

    ``shares`` [chunks, heads, Q, Q] is overwritten.
    """
    chunks, size, heads, _ = stepped.shape
    groups = b.shape[2]
    scores = torch.matmul(c.transpose(1, 2), b.permute(0, 2, 3, 1))  # [chunks, groups, Q, Q]
    shares.view(chunks, groups, heads // groups, size, size).mul_(scores[:, :, None])
    return torch.matmul(shares, stepped.transpose(1, 2)).transpose(1, 2).contiguous()
