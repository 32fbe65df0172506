"""The Mamba-1 recurrence on a state arena: a selective scan (Gu and Dao 2023, section 3).

Each channel keeps ``state`` numbers, and each of these has a decay of its own, so that there is no
form of matrix products as for Mamba-2. The recurrence runs as written, position after position,
over the channels of many rows at once; everything that doesn't depend on the state before is
worked out for a span of positions together. Nothing is ever divided by a decay: any step is safe.

The state lies as [state, channels], the long dimension last: on a CPU a third of the time of the
other order, whose inner loops would be ``state`` numbers long.
"""

import torch
from torch import Tensor

from adapters.ragged.indices import ChunkLayout, SlotList

__all__ = [
    "scan_at_once",
    "scan_by_turns",
    "scan_decode",
    "scan_decode_gathered",
    "scan_decode_in_place",
    "scan_prefill",
]

_IN_CACHE = 1 << 18
"""Numbers of a span's temporary on a CPU: beyond it they leave its second-level cache."""
_ON_ACCELERATOR = 1 << 24
"""The same there, where only memory bounds it."""
_LARGE_STATE = 1 << 13
"""Numbers from which a row's state is worth a walk of its own on a CPU."""


def scan_decode(
    arena: Tensor, slots: SlotList, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor
) -> Tensor:
    """Take each slot's state one token on and read it.

    Shapes: arena [slots, state, channels]; x, result [rows, channels]; dt [rows, channels] after
    softplus; a [state, channels], negative; b, c [rows, state].
    """
    in_place = arena.device.type == "cpu" and arena.dtype == x.dtype
    if in_place and a.numel() >= _LARGE_STATE:
        return scan_decode_in_place(arena, slots.host, x, dt, a, b, c)
    return scan_decode_gathered(arena, slots.index, x, dt, a, b, c)


def scan_decode_in_place(
    arena: Tensor, slots: list[int], x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor
) -> Tensor:
    """Row by row on views: for large states on a CPU, which are then read and written once."""
    result = torch.empty_like(x)
    each_row = zip(
        slots,
        dt.unbind(),
        (dt * x).unbind(),
        b[..., None].unbind(),
        c.unbind(),
        result.unbind(),
        strict=True,
    )
    for slot, row_dt, row_step, key, query, out in each_row:
        state = arena[slot]
        state.mul_((row_dt * a).exp_()).addcmul_(row_step, key)
        torch.mv(state.T, query, out=out)
    return result


def scan_decode_gathered(
    arena: Tensor, slots: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor
) -> Tensor:
    """All rows at once on a gathered copy, written back: for accelerators and small states."""
    h = arena.index_select(0, slots).to(x.dtype)
    result = torch.empty_like(x)
    one = (x[:, None], dt[:, None], a, b[:, None], c[:, None])
    _scan_span(h, *one, result[:, None])
    arena.index_copy_(0, slots, h.to(arena.dtype))
    return result


def scan_prefill(
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

    Shapes: arena [slots, state, channels]; x, result [chunks, Q, channels]; dt as x; a
    [state, channels]; b, c [chunks, Q, state].
    """
    on_cpu = arena.device.type == "cpu"
    h = arena.index_select(0, slots.index).to(x.dtype)
    if on_cpu or len(layout.rows_by_turn) == 1:
        most = _IN_CACHE if on_cpu else _ON_ACCELERATOR
        result = scan_by_turns(h, layout, most, x, dt, a, b, c)
    else:
        result = scan_at_once(h, layout, _ON_ACCELERATOR, x, dt, a, b, c)
    arena.index_copy_(0, slots.index, h.to(arena.dtype))
    return result


def scan_by_turns(
    h: Tensor,
    layout: ChunkLayout,
    most: int,
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
) -> Tensor:
    """Chunk after chunk: the least work, in as many steps as the longest row has tokens.

    ``h`` [rows, state, channels] is taken on in place; ``most`` numbers in a temporary.
    """
    result, first = torch.empty_like(x), 0
    for rows in layout.rows_by_turn:
        turn = slice(first, first + rows)
        _scan(h[:rows], most, x[turn], dt[turn], a, b[turn], c[turn], result[turn])
        first += rows
    return result


def scan_at_once(
    h: Tensor,
    layout: ChunkLayout,
    most: int,
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
) -> Tensor:
    """All chunks side by side, twice: an accelerator waits for steps and not for work.

    The first time every chunk starts from nothing, which gives what its tokens leave at its end;
    the states before the chunks follow from these, and from them the second time starts.
    Arguments as for :func:`scan_by_turns`.
    """
    starts = torch.zeros(x.shape[0], *a.shape, dtype=x.dtype, device=x.device)
    ends = starts.clone()
    _scan(ends, most, x, dt, a, b, c, None)
    lasting = (dt.sum(dim=1, keepdim=True) * a).exp_()  # of a state, from start to end of a chunk
    first = 0
    for rows in layout.rows_by_turn:
        turn = slice(first, first + rows)
        starts[turn] = h[:rows]
        h[:rows].mul_(lasting[turn]).add_(ends[turn])
        first += rows
    result = torch.empty_like(x)
    _scan(starts, most, x, dt, a, b, c, result)
    return result


def _scan(
    h: Tensor,
    most: int,
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    result: Tensor | None,
) -> None:
    """All positions of some chunks, in spans whose temporaries hold ``most`` numbers or one row's.

    Shapes: h [chunks, state, channels]; others as for :func:`_scan_span`, Q the span.
    """
    together = max(1, most // a.numel())  # chunks times positions
    for begin in range(0, x.shape[0], together):
        chunks = slice(begin, begin + together)
        span = max(1, together // h[chunks].shape[0])
        for start in range(0, x.shape[1], span):
            at = (chunks, slice(start, start + span))
            read = None if result is None else result[at]
            _scan_span(h[chunks], x[at], dt[at], a, b[at], c[at], read)


def _scan_span(
    h: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, result: Tensor | None
) -> None:
    """A few positions of some rows; takes ``h`` on and writes ``result``, both in place.

    Nothing is read where there is no ``result``.

    Shapes: h [rows, state, channels]; x, dt, result [rows, span, channels]; a [state, channels];
    b, c [rows, span, state].
    """
    dt = dt.transpose(0, 1)[:, :, None]  # positions first: each one's rows then lie together
    decays = (dt * a).exp_()  # [span, rows, state, channels]
    states = dt * x.transpose(0, 1)[:, :, None] * b.transpose(0, 1)[..., None]
    before = h
    for decay, state in zip(decays.unbind(), states.unbind(), strict=True):
        before = state.addcmul_(decay, before)
    h.copy_(before)
    if result is None:
        return
    read = torch.matmul(c.transpose(0, 1)[:, :, None], states)
    result.copy_(read[:, :, 0].transpose(0, 1))
