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
    history = arena.index_select(0, slots.index)
    window = torch.cat((history, inputs[:, None]), dim=1)  # [rows, taps, channels]
    arena.index_copy_(0, slots.index, window[:, 1:])
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
    history = arena.index_select(0, slots.index).flatten(0, 1)
    stream = torch.cat((history, inputs)).index_select(0, layout.stream_from)
    if taps > 1:
        tail = stream.index_select(0, layout.tail_at)
        arena.index_copy_(0, slots.index, tail.view(len(slots.host), taps - 1, -1))
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
    if arena.device.type == "cpu":
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
    each_row = zip(slots, decay.unbind(), step.unbind(), keys.unbind(), strict=True)
    for slot, row_decay, row_step, key in each_row:
        arena[slot].mul_(row_decay).addcmul_(row_step, key)
    if groups == 1:
        flat = by_group[:, 0]  # one matrix per slot: mv is twice as fast as a batch of one
        for slot, query, out in zip(
            slots, c[:, 0].unbind(), result[:, 0, :, 0].unbind(), strict=True
        ):
            torch.mv(flat[slot], query, out=out)
    else:
        for slot, query, out in zip(slots, c[..., None].unbind(), result.unbind(), strict=True):
            torch.bmm(by_group[slot], query, out=out)
    return result.view(rows, heads, width)


def ssm_decode_gathered(
    arena: Tensor, slots: Tensor, decay: Tensor, step: Tensor, b: Tensor, c: Tensor
) -> Tensor:
    """All rows at once on a gathered copy, written back: for accelerators."""
    rows, heads, width, _ = step.shape
    each = heads // b.shape[1]
    h = arena.index_select(0, slots)
    h.mul_(decay).addcmul_(step, b.repeat_interleave(each, dim=1)[:, :, None])
    arena.index_copy_(0, slots, h)
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
    log_decay = torch.cumsum(dt * a, dim=1)  # [chunks, Q, heads], from the chunk's start
    stepped = x * dt[..., None]
    result = _within_chunks(layout, stepped, log_decay, b, c)

    to_end = torch.exp(log_decay[:, -1:] - log_decay)[..., None]
    by_group = (stepped * to_end).view(chunks, size, groups, heads // groups * width)
    added = torch.matmul(by_group.permute(0, 2, 3, 1), b.transpose(1, 2))
    added = added.view(chunks, heads, width, -1)  # what each chunk's tokens leave at its end
    from_start = torch.exp(log_decay)
    h = arena.index_select(0, slots.index)
    first = 0
    for rows in layout.rows_by_turn:
        turn = slice(first, first + rows)
        _read_carried(h[:rows], from_start[turn], c[turn], result[turn])
        h[:rows].mul_(from_start[turn, -1, :, None, None]).add_(added[turn])
        first += rows
    arena.index_copy_(0, slots.index, h)
    return result


def _read_carried(h: Tensor, decay: Tensor, c: Tensor, result: Tensor) -> None:
    """Add what each token of a chunk reads of the state ``h`` before the chunk."""
    rows, _, groups, state = c.shape
    carried = torch.matmul(c.transpose(1, 2), h.view(rows, groups, -1, state).mT)
    result.addcmul_(carried.transpose(1, 2).reshape(result.shape), decay[..., None])


def _within_chunks(
    layout: ChunkLayout, stepped: Tensor, log_decay: Tensor, b: Tensor, c: Tensor
) -> Tensor:
    """What each token reads of the tokens of its own chunk. Result [chunks, Q, heads, width]."""
    chunks, size, heads, _ = stepped.shape
    groups = b.shape[2]
    by_head = log_decay.transpose(1, 2)  # [chunks, heads, Q]
    # Masked before exp: above the diagonal the differences are positive and would overflow.
    differences = by_head[..., None] - by_head[:, :, None]  # [chunks, heads, Q, Q]
    shares = differences.masked_fill_(layout.later, float("-inf")).exp_()
    scores = torch.matmul(c.transpose(1, 2), b.permute(0, 2, 3, 1))  # [chunks, groups, Q, Q]
    shares.view(chunks, groups, heads // groups, size, size).mul_(scores[:, :, None])
    return torch.matmul(shares, stepped.transpose(1, 2)).transpose(1, 2).contiguous()
