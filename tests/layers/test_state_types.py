"""A state kept in 16 bits: half the bytes a slot, for every kernel that reads and writes one."""

import pytest
import torch
from torch import Tensor

from adapters.layers.mamba2 import conv_decode, conv_prefill, ssm_decode, ssm_prefill
from adapters.ragged.indices import SlotList
from tests.layers.laying_out import layout_of

TAPS, CHANNELS, HEADS, WIDTH, STATE = 4, 6, 4, 3, 5
SLOTS = SlotList([3, 0], torch.tensor([3, 0]))
LENGTHS = [6, 2]
NARROW = [torch.bfloat16, torch.float16]


def numbers(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def arenas(dtype: torch.dtype, *shape: int) -> tuple[Tensor, Tensor]:
    """A narrow one, and a wide one of the same numbers."""
    narrow = numbers(5, *shape, seed=1).to(dtype)
    return narrow, narrow.float()


@pytest.mark.parametrize("dtype", NARROW)
def test_the_convolution_keeps_rounded_inputs(dtype: torch.dtype) -> None:
    """What it computes with inputs of the same step isn't rounded."""
    weight, bias = numbers(TAPS, CHANNELS, seed=2), numbers(CHANNELS, seed=3)
    one, many = numbers(2, CHANNELS, seed=4), numbers(sum(LENGTHS), CHANNELS, seed=5)
    narrow, wide = arenas(dtype, TAPS - 1, CHANNELS)

    decoded = [conv_decode(arena, SLOTS, one, weight, bias) for arena in (narrow, wide)]
    assert torch.equal(decoded[0], decoded[1])
    assert torch.equal(narrow, wide.to(dtype))

    wide = narrow.float()
    streams = [
        conv_prefill(arena, SLOTS, layout_of(LENGTHS, 4, TAPS), many, weight, bias)
        for arena in (narrow, wide)
    ]
    assert torch.equal(streams[0], streams[1])
    assert torch.equal(narrow, wide.to(dtype))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("dtype", NARROW)
def test_the_scan_reads_exactly_and_rounds_once(dtype: torch.dtype, groups: int) -> None:
    a = -numbers(HEADS, seed=2).abs()
    narrow, wide = arenas(dtype, HEADS, WIDTH, STATE)
    x, dt = numbers(2, HEADS, WIDTH, seed=3), numbers(2, HEADS, seed=4).abs()
    b, c = numbers(2, groups, STATE, seed=5), numbers(2, groups, STATE, seed=6)

    decoded = [ssm_decode(arena, SLOTS, x, dt, a, b, c) for arena in (narrow, wide)]
    assert torch.allclose(decoded[0], decoded[1], atol=1e-6)
    assert torch.allclose(narrow.float(), wide, rtol=2 * torch.finfo(dtype).eps)

    wide, cells = narrow.float(), layout_of(LENGTHS, 4, TAPS)
    at = (cells.chunks, cells.size)
    inputs = (
        numbers(*at, HEADS, WIDTH, seed=7),
        numbers(*at, HEADS, seed=8).abs() * cells.filled.view(*at, 1),
        a,
        numbers(*at, groups, STATE, seed=9),
        numbers(*at, groups, STATE, seed=10),
    )
    scanned = [ssm_prefill(arena, SLOTS, cells, *inputs) for arena in (narrow, wide)]
    assert torch.equal(scanned[0], scanned[1])
    assert torch.equal(narrow, wide.to(dtype))
