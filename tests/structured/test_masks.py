"""A packed mask is unpacked alike on the CPU and where the logits are elsewhere."""

import pytest
import torch

from adapters.torch_device.sampling import masks
from adapters.torch_device.sampling.masks import WORD, cleared

WAYS = (masks._by_numpy, masks._by_torch)  # pyright: ignore[reportPrivateUsage]  # both, here


@pytest.mark.parametrize("vocabulary", [1, 31, 32, 33, 1000])
@pytest.mark.parametrize("rows", [1, 5])
def test_a_clear_bit_is_a_token_left_out(vocabulary: int, rows: int) -> None:
    generator = torch.Generator().manual_seed(vocabulary)
    allowed = torch.rand(rows, vocabulary, generator=generator) < 0.5
    words = torch.zeros(rows, -(-vocabulary // WORD), dtype=torch.int64)
    for row, token in allowed.nonzero():
        words[row, token // WORD] |= 1 << (token % WORD)
    packed = words.to(torch.int32)

    for way in WAYS:
        assert torch.equal(way(packed, vocabulary), ~allowed)
    assert torch.equal(cleared(packed, vocabulary, torch.device("cpu")), ~allowed)
