"""The gated delta rule on a state arena: a state that is corrected where it is read.

For each value head a state ``S`` [key width, value width] is decayed by ``exp(g)``; then what
the key ``k`` reads of it is moved by ``beta`` towards the value ``v``, and the query ``q`` reads:

    S <- exp(g) S;    S <- S + k (beta (v - k S));    o = q S

(Yang, Kautz and Hatamizadeh 2024, https://arxiv.org/abs/2412.06464). Consecutive value heads
share a key head. Decode is this recurrence, with both reads made in one product. Prefill is the
chunked form: inside a chunk each correction depends on the earlier ones through a unit lower
triangular matrix, which is inverted (Yang et al. 2024, https://arxiv.org/abs/2406.06484), so that
all else is matrix products. They agree to float tolerance, never to the bit.
"""

from typing import Protocol, cast

import attrs
import torch
from torch import Tensor

from adapters.layers.decays import shares_left
from adapters.ragged.indices import ChunkLayout, SlotList

__all__ = [
    "delta_decode",
    "delta_decode_gathered",
    "delta_decode_in_place",
    "delta_prefill",
    "unit_lower_inverse",
]

_SOLVED_WHOLE = 16
"""Larger triangular matrices are halved first: a third of the time at 64, two thirds at 32."""


class _Solve(Protocol):
    """``torch.linalg.solve_triangular``, whose type torch leaves out."""

    def __call__(self, a: Tensor, b: Tensor, /, *, upper: bool, unitriangular: bool) -> Tensor: ...


def delta_decode(
    arena: Tensor, slots: SlotList, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor
) -> Tensor:
    """Take each slot's state one token on and read it.

    Shapes: arena [slots, value heads, key width, value width], of any float type; q, k
    [rows, key heads, key width], normalised and scaled; v, result [rows, value heads, value
    width]; g (never above 0), beta [rows, value heads].
    """
    reads = torch.stack((k, q), dim=2)
    own = (q * k).sum(dim=-1)  # what a query reads of its own token's correction
    each = v.shape[1] // k.shape[1]
    if each > 1:
        reads, own = reads.repeat_interleave(each, dim=1), own.repeat_interleave(each, dim=1)
    decay = torch.exp(g)[..., None, None]
    if arena.device.type == "cpu" and arena.dtype == v.dtype:
        return delta_decode_in_place(arena, slots.host, reads, own, v, decay, beta)
    return delta_decode_gathered(arena, slots.index, reads, own, v, decay, beta)


def delta_decode_in_place(
    arena: Tensor,
    slots: list[int],
    reads: Tensor,
    own: Tensor,
    v: Tensor,
    decay: Tensor,
    beta: Tensor,
) -> Tensor:
    """Row by row on views: on a CPU a third of the time of gathering and scattering.

    The decay comes first because it streams through the state: a product of a state that isn't
    in the cache yet takes three times as long.
    """
    states = [arena[slot] for slot in slots]
    found = v.new_empty(*reads.shape[:3], v.shape[2])
    each_row = zip(states, decay.unbind(), reads.unbind(), found.unbind(), strict=True)
    for state, left, readers, out in each_row:
        torch.bmm(readers, state.mul_(left), out=out)
    change = (v - found[:, :, 0]).mul_(beta[..., None])
    keys, changes = reads[:, :, 0, :, None].unbind(), change[:, :, None].unbind()
    for state, key, row_change in zip(states, keys, changes, strict=True):
        state.addcmul_(key, row_change)
    return torch.addcmul(found[:, :, 1], own[..., None], change)


def delta_decode_gathered(
    arena: Tensor,
    slots: Tensor,
    reads: Tensor,
    own: Tensor,
    v: Tensor,
    decay: Tensor,
    beta: Tensor,
) -> Tensor:
    """All rows at once on a gathered copy, written back: for accelerators and 16-bit states."""
    state = arena.index_select(0, slots).to(v.dtype).mul_(decay)
    found = torch.matmul(reads, state)
    change = (v - found[:, :, 0]).mul_(beta[..., None])
    state.addcmul_(reads[:, :, 0, :, None], change[:, :, None])
    arena.index_copy_(0, slots, state.to(arena.dtype))
    return torch.addcmul(found[:, :, 1], own[..., None], change)


@attrs.frozen(eq=False)
class _Chunks:
    """What the walk along the chunks needs of each; the first dimension is chunk, then head."""

    readers: Tensor
    """[.., 2 Q, key width] keys, then queries: both read the state before the chunk"""
    corrections: Tensor
    """[.., Q, Q] what the tokens' own errors make of their corrections"""
    weights: Tensor
    """[.., Q, Q] what each query reads of each correction"""
    from_start: Tensor
    """[.., 1, Q, 1] what is left of the state before the chunk"""
    to_end: Tensor
    """[.., Q, 1] what is left of each correction at the chunk's end"""


def delta_prefill(
    arena: Tensor,
    slots: SlotList,
    layout: ChunkLayout,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
) -> Tensor:
    """Take each slot's state over all its chunks and read it after every token.

    A padded position has g 0 and beta 0: it neither decays nor corrects the state.

    Shapes: arena [slots, value heads, key width, value width], of any float type; q, k
    [chunks, Q, key heads, key width], normalised and scaled; v, result [chunks, Q, value heads,
    value width]; g, beta [chunks, Q, value heads].
    """
    chunks = _prepare(layout, q, k, g, beta)
    heads = v.shape[2]
    result = torch.empty(v.shape, dtype=v.dtype, device=v.device)
    state = arena.index_select(0, slots.index).to(v.dtype).flatten(0, 1)
    first = 0
    for rows in layout.rows_by_turn:
        turn = slice(first, first + rows)
        at = slice(first * heads, (first + rows) * heads)
        read = _take_on(state[: rows * heads], chunks, at, v[turn].transpose(1, 2))
        result[turn] = read.transpose(1, 2)
        first += rows
    arena.index_copy_(0, slots.index, state.view(-1, *arena.shape[1:]).to(arena.dtype))
    return result


def _take_on(state: Tensor, chunks: _Chunks, at: slice, values: Tensor) -> Tensor:
    """Take states over one chunk each, in place, and read them after every token.

    Shapes: state [rows * heads, key width, value width]; values, result [rows, heads, Q, value
    width].
    """
    readers, from_start = chunks.readers[at], chunks.from_start[at]
    size, width = values.shape[2:]
    found = torch.bmm(readers, state).view(-1, 2, size, width).mul_(from_start)
    error = found[:, 0].view(values.shape)
    torch.sub(values, error, out=error)
    change = torch.bmm(chunks.corrections[at], found[:, 0])
    read = torch.baddbmm(found[:, 1], chunks.weights[at], change)
    change.mul_(chunks.to_end[at])
    state.mul_(from_start[:, 0, -1:]).baddbmm_(readers[:, :size].mT, change)
    return read.view(values.shape)


def _prepare(layout: ChunkLayout, q: Tensor, k: Tensor, g: Tensor, beta: Tensor) -> _Chunks:
    """All that doesn't depend on the state, for every chunk at once."""
    chunks, size, key_heads, width = k.shape
    each = g.shape[2] // key_heads
    readers = k.new_empty(chunks, key_heads, 2 * size, width)
    readers[:, :, :size], readers[:, :, size:] = k.transpose(1, 2), q.transpose(1, 2)
    met = torch.matmul(readers, readers[:, :, :size].mT)  # each key and query with each key

    by_head = g.transpose(1, 2).contiguous()  # [chunks, value heads, Q]
    shares = shares_left(layout, by_head)
    by_group = shares.view(chunks, key_heads, each, 1, size, size)
    met = met.view(chunks, key_heads, 1, 2, size, size).mul(by_group).view(-1, 2, size, size)
    rate = beta.transpose(1, 2).reshape(-1, 1, size)
    if each > 1:
        readers = readers.repeat_interleave(each, dim=1)
    return _Chunks(
        readers=readers.flatten(0, 1),
        corrections=unit_lower_inverse(met[:, 0] * rate.mT).mul_(rate),
        weights=met[:, 1],
        from_start=torch.cumsum(by_head, dim=2).exp_().view(-1, 1, size, 1),
        to_end=shares[:, :, -1].reshape(-1, size, 1),
    )


def unit_lower_inverse(matrix: Tensor) -> Tensor:
    """Inverse of the unit matrix plus what stands below each diagonal. Shapes: [..., Q, Q]."""
    size = matrix.shape[-1]
    if size <= _SOLVED_WHOLE or size % 2:
        unit = torch.eye(size, dtype=matrix.dtype, device=matrix.device).expand_as(matrix)
        solve = cast(
            _Solve,
            torch.linalg.solve_triangular,  # pyright: ignore[reportUnknownMemberType]
        )
        return solve(matrix, unit, upper=False, unitriangular=True)
    half = size // 2
    corners = torch.stack((matrix[..., :half, :half], matrix[..., half:, half:]))
    upper, lower = unit_lower_inverse(corners).unbind()
    result = torch.zeros_like(matrix)
    result[..., :half, :half], result[..., half:, half:] = upper, lower
    below = torch.matmul(torch.matmul(lower, matrix[..., half:, :half]), upper)
    result[..., half:, :half] = below.neg_()
    return result
