"""The gated short convolution against its formula, token by token."""

import pytest
import torch
from torch import Tensor

from adapters.layers.short_conv import ShortConv, short_conv_state
from adapters.ragged.arenas import allocate_arenas
from adapters.ragged.passes import Piece
from adapters.ragged.plan import plan_pass
from adapters.ragged.reads import PageContext
from adapters.ragged.run import Pass
from adapters.ragged.spec import ModelShape
from kernel.step import DeviceLimits
from tests.layers.laying_out import numbers

HIDDEN, LENGTHS = 6, {2: 16, 0: 13}
"""Tokens of the sequence in each slot."""


def layer(taps: int) -> ShortConv:
    return ShortConv(
        state_layer=1,
        in_proj=numbers(3 * HIDDEN, HIDDEN, seed=1),
        in_bias=numbers(3 * HIDDEN, seed=2),
        conv_weight=numbers(taps, HIDDEN, seed=3),
        conv_bias=numbers(HIDDEN, seed=4),
        out_proj=numbers(HIDDEN, HIDDEN, seed=5),
        out_bias=numbers(HIDDEN, seed=6),
    )


def formula(conv: ShortConv, tokens: Tensor) -> Tensor:
    """With the whole past at hand. Shapes: tokens, result [tokens, hidden]."""
    taps = conv.conv_weight.shape[0]
    past = [torch.zeros(HIDDEN, dtype=torch.float64)] * (taps - 1)
    rows: list[Tensor] = []
    for token in tokens:
        let_in, let_out, x = (conv.in_proj @ token + numbers(3 * HIDDEN, seed=2)).chunk(3)
        past.append(let_in * x)
        window = zip(conv.conv_weight, past[-taps:], strict=True)
        mixed = sum((weight * each for weight, each in window), conv.conv_bias)
        rows.append(conv.out_proj @ (let_out * mixed) + numbers(HIDDEN, seed=6))
    return torch.stack(rows)


@pytest.mark.parametrize("taps", [2, 3, 7])
def test_every_way_through_a_sequence_gives_the_formula(taps: int) -> None:
    """One token, pieces shorter than the kernel, and rows of both kinds in one pass."""
    conv = layer(taps)
    shape = ModelShape(
        name="mixer",
        vocab_size=1,
        hidden_size=HIDDEN,
        max_model_len=99,
        states=(short_conv_state(2, taps, HIDDEN),),
        taps=taps,
        token_numbers=3 * HIDDEN,
    )
    limits = DeviceLimits(num_slots=3, num_pages=0, page_size=1, max_rows=3, max_step_tokens=99)
    kinds = {"state_dtype": torch.float64, "page_dtype": torch.float64}
    arenas = allocate_arenas(shape, limits, **kinds, device=torch.device("cpu"))
    arenas.states.fill([1], float("nan"))
    arenas.states["conv"][0].fill_(float("nan"))
    inputs = {slot: numbers(length, HIDDEN, seed=20 + slot) for slot, length in LENGTHS.items()}
    expected = {slot: formula(conv, tokens) for slot, tokens in inputs.items()}
    context = PageContext(shape, page_size=1, padding_page=0, compute=torch.float64)
    done = dict.fromkeys(LENGTHS, 0)

    for counts in ({2: 5, 0: 1}, {2: 1, 0: 2}, {2: 9, 0: 2}, {2: 1, 0: 1}, {0: 7}):
        pieces = [
            Piece(at, slot, done[slot], [0] * count, (), None)
            for at, (slot, count) in enumerate(counts.items())
        ]
        plan = plan_pass(context, pieces, torch.device("cpu"))
        order = [*plan.decode.host, *plan.prefill.host]
        parts = [inputs[slot][done[slot] : done[slot] + counts[slot]] for slot in order]
        found = conv(torch.cat(parts), Pass(plan, arenas))
        for slot, rows in zip(
            order, found.split_with_sizes([counts[slot] for slot in order]), strict=True
        ):
            right = expected[slot][done[slot] : done[slot] + counts[slot]]
            torch.testing.assert_close(rows, right, rtol=1e-12, atol=1e-12)
            done[slot] += counts[slot]

    assert done == LENGTHS
