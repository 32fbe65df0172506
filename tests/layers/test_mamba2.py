"""The kernels alone: two ways to the same state."""

import numpy as np
import pytest
import torch

from adapters.layers import mamba2
from adapters.ragged.indices import (
    IndexBatch,
    SlotList,
    chunk_arrays,
    index_array,
)
from tests.layers.laying_out import layout_of, numbers


@pytest.mark.parametrize("groups", [1, 2])
def test_in_place_and_gathered_decode_agree(groups: int) -> None:
    """The gathered form is for accelerators; where there is none, only this test runs it."""
    heads, width, state, slots = 4, 8, 16, [5, 0, 3]
    arenas = [numbers(7, heads, width, state, seed=1) for _ in range(2)]
    decay = numbers(3, heads, 1, 1, seed=2).sigmoid()
    step, b, c = (
        numbers(3, heads, width, 1, seed=3),
        numbers(3, groups, state, seed=4),
        numbers(3, groups, state, seed=5),
    )

    in_place = mamba2.ssm_decode_in_place(arenas[0], slots, decay, step, b, c)
    gathered = mamba2.ssm_decode_gathered(arenas[1], torch.tensor(slots), decay, step, b, c)

    assert torch.allclose(in_place, gathered, atol=1e-12)
    assert torch.allclose(arenas[0], arenas[1], atol=1e-12)
    assert torch.equal(
        arenas[0][[1, 2, 4, 6]], numbers(7, heads, width, state, seed=1)[[1, 2, 4, 6]]
    )


def test_conv_prefill_is_conv_decode_repeated() -> None:
    """Also for a row shorter than the kernel, whose history then shifts but stays in part."""
    channels, taps, lengths = 6, 4, [9, 3, 2]
    weight, bias = numbers(taps, channels, seed=1), numbers(channels, seed=2)
    inputs = numbers(sum(lengths), channels, seed=3)
    arena = numbers(5, taps - 1, channels, seed=4)
    other = arena.clone()
    slots = SlotList([4, 0, 2], torch.tensor([4, 0, 2]))
    _, arrays = chunk_arrays(lengths, 4, taps)
    layout = layout_of(lengths, 4, taps)

    stream = mamba2.conv_prefill(arena, slots, layout, inputs, weight, bias)
    outputs = stream[torch.as_tensor(arrays[2])][torch.as_tensor(arrays[4])]

    start = 0
    for slot, length in zip(slots.host, lengths, strict=True):
        one = SlotList([slot], torch.tensor([slot]))
        for token in range(start, start + length):
            y = mamba2.conv_decode(other, one, inputs[token : token + 1], weight, bias)
            assert torch.allclose(y[0], outputs[token], atol=1e-12)
        start += length
    assert torch.equal(arena, other)


def test_every_token_has_its_own_cell_and_padding_stays_in_its_row() -> None:
    """A cell that repeats another row's token would carry that row's NaN over."""
    lengths, size, taps = [11, 8, 5, 2], 4, 3
    by_turn, (_, tail, output, token, cell, filled) = chunk_arrays(lengths, size, taps)
    row_of_token = np.repeat(np.arange(4), lengths)

    assert by_turn == (4, 3, 1)
    assert len(set(cell.tolist())) == sum(lengths) == filled.sum()
    assert (token[cell] == np.arange(sum(lengths))).all()
    assert (tail.reshape(4, 2)[:, -1] == [12, 22, 29, 33]).all()
    chunk_rows = np.concatenate([np.arange(n) for n in by_turn]).repeat(size)
    assert (row_of_token[token] == chunk_rows).all()
    assert (output - token == chunk_rows * (taps - 1)).all()


def test_arrays_keep_their_shape_on_the_way_to_the_device() -> None:
    """They travel as one flat array."""
    batch = IndexBatch()
    places = [batch.add(np.arange(6).reshape(2, 3)), batch.add(index_array([]))]

    moved = batch.move(torch.device("cpu"))

    assert torch.equal(moved[places[0]], torch.arange(6).view(2, 3))
    assert moved[places[1]].shape == (0,)


@pytest.mark.parametrize("steep", [-1.0, -30.0, -1000.0])
def test_steep_decays_lose_no_digits(steep: float) -> None:
    """A difference of two sums from the chunk's start is off by the rounding of the larger one."""
    heads, width, state, length, size = 2, 4, 8, 16, 16
    layout = layout_of([length], size, 4)
    slots = SlotList([1], torch.tensor([1]))
    x, b, c = (
        numbers(1, size, heads, width, seed=1),
        numbers(1, size, 1, state, seed=2),
        numbers(1, size, 1, state, seed=3),
    )
    # Every other token forgets; the one between must be read as if nothing had been before.
    dt = numbers(1, size, heads, seed=4).sigmoid() * torch.tensor([1.0, 1e-3]).repeat(8)[:, None]
    a = torch.tensor([steep, steep / 2], dtype=torch.float64)
    arena = numbers(3, heads, width, state, seed=5)
    exact = mamba2.ssm_prefill(arena.clone(), slots, layout, x, dt, a, b, c)

    narrow = mamba2.ssm_prefill(
        arena.float(), slots, layout, *(part.float() for part in (x, dt, a, b, c))
    )

    assert (narrow.double() - exact).abs().max() < 2e-6 * exact.abs().max()
