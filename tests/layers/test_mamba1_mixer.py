"""The Mamba-1 mixer against its formulas, token by token."""

from collections.abc import Sequence

import attrs
import pytest
import torch
from torch import Tensor

from adapters.layers.mamba1_mixer import Mamba1, Mamba1Norms, Mamba1Sizes
from adapters.layers.norm import RmsNorm
from adapters.ragged.arenas import Arenas, allocate_arenas
from adapters.ragged.passes import Piece
from adapters.ragged.plan import plan_pass
from adapters.ragged.reads import PageContext
from adapters.ragged.run import Pass
from adapters.ragged.spec import ModelShape
from kernel.step import DeviceLimits
from tests.layers.laying_out import numbers

SIZES = Mamba1Sizes(hidden=6, inner=10, state=4, rank=3, taps=3)
CPU, EPS = torch.device("cpu"), 1e-3
SHAPE = ModelShape(
    name="mixer",
    vocab_size=1,
    hidden_size=SIZES.hidden,
    max_model_len=99,
    states=SIZES.states(2),
    taps=SIZES.taps,
    chunk_size=4,
    token_numbers=SIZES.token_numbers,
    chunk_numbers=SIZES.chunk_numbers(4),
)


def mixer(*, norms: bool, biases: bool) -> Mamba1:
    inner, hidden = SIZES.inner, SIZES.hidden
    return Mamba1(
        state_layer=1,
        sizes=SIZES,
        in_proj=numbers(2 * inner, hidden, seed=1),
        in_bias=numbers(2 * inner, seed=2) if biases else None,
        conv_weight=numbers(SIZES.taps, inner, seed=3),
        conv_bias=numbers(inner, seed=4),
        x_proj=numbers(SIZES.selected, inner, seed=5),
        norms=Mamba1Norms(
            dt=RmsNorm(numbers(SIZES.rank, seed=6), EPS),
            b=RmsNorm(numbers(SIZES.state, seed=7), EPS),
            c=RmsNorm(numbers(SIZES.state, seed=8), EPS),
        )
        if norms
        else None,
        dt_proj=numbers(inner, SIZES.rank, seed=9),
        dt_bias=numbers(inner, seed=10),
        a=-numbers(SIZES.state, inner, seed=11).exp(),
        skip=numbers(inner, seed=12),
        out_proj=numbers(hidden, inner, seed=13),
        out_bias=numbers(hidden, seed=14) if biases else None,
    )


def normed(x: Tensor, norm: RmsNorm) -> Tensor:
    return x / (x.square().mean() + EPS).sqrt() * norm.weight


def formulas(layer: Mamba1, tokens: Tensor) -> Tensor:
    """From an empty state, with the whole past at hand. Shapes: tokens, result [tokens, hidden]."""
    past = [torch.zeros(SIZES.inner, dtype=torch.float64)] * (SIZES.taps - 1)
    h = torch.zeros(SIZES.state, SIZES.inner, dtype=torch.float64)
    rows: list[Tensor] = []
    for token in tokens:
        projected = layer.in_proj @ token
        projected = projected if layer.in_bias is None else projected + layer.in_bias
        past.append(projected[: SIZES.inner])
        window = past[-SIZES.taps :]
        mixed = sum(
            (w * p for w, p in zip(layer.conv_weight, window, strict=True)), layer.conv_bias
        )
        x = mixed * torch.sigmoid(mixed)
        dt, b, c = (layer.x_proj @ x).split_with_sizes([SIZES.rank, SIZES.state, SIZES.state])
        if layer.norms is not None:
            dt = normed(dt, layer.norms.dt)
            b, c = normed(b, layer.norms.b), normed(c, layer.norms.c)
        step = torch.log1p(torch.exp(layer.dt_proj @ dt + layer.dt_bias))
        h = torch.exp(step * layer.a) * h + b[:, None] * (step * x)
        gate = projected[SIZES.inner :]
        y = (c @ h + layer.skip * x) * gate * torch.sigmoid(gate)
        out = layer.out_proj @ y
        rows.append(out if layer.out_bias is None else out + layer.out_bias)
    return torch.stack(rows)


@attrs.define(eq=False)
class Absorbing:
    """Inputs of one slot, and how many are absorbed."""

    slot: int
    inputs: Tensor
    done: int = 0


def run(layer: Mamba1, arenas: Arenas, parts: Sequence[tuple[Absorbing, int]]) -> list[Tensor]:
    """One pass; what the mixer gives for each sequence's next tokens."""
    context = PageContext(SHAPE, page_size=1, padding_page=0, compute=torch.float64)
    pieces = [
        Piece(at, each.slot, each.done, [0] * count, (), None)
        for at, (each, count) in enumerate(parts)
    ]
    plan = plan_pass(context, pieces, CPU)
    slots = [*plan.decode.host, *plan.prefill.host]
    order = [next(p for p in parts if p[0].slot == slot) for slot in slots]
    x = torch.cat([each.inputs[each.done : each.done + count] for each, count in order])
    found = layer(x, Pass(plan, arenas)).split_with_sizes([count for _, count in order])
    for each, count in order:
        each.done += count
    by_slot = dict(zip(slots, found, strict=True))
    return [by_slot[each.slot] for each, _ in parts]


@pytest.mark.parametrize("norms", [False, True])
@pytest.mark.parametrize("biases", [False, True])
def test_every_way_through_a_sequence_gives_the_formulas(norms: bool, biases: bool) -> None:
    """One token, many tokens, and rows of both kinds in one pass."""
    layer = mixer(norms=norms, biases=biases)
    limits = DeviceLimits(num_slots=3, num_pages=0, page_size=1, max_rows=3, max_step_tokens=99)
    arenas = allocate_arenas(
        SHAPE, limits, state_dtype=torch.float64, page_dtype=torch.float64, device=CPU
    )
    arenas.states.fill([1], float("nan"))
    arenas.states["ssm"][0].fill_(float("nan"))
    arenas.states["conv"][0].fill_(float("nan"))
    sequences = [Absorbing(2, numbers(16, 6, seed=20)), Absorbing(0, numbers(13, 6, seed=21))]
    expected = [formulas(layer, each.inputs) for each in sequences]

    for counts in ((5, 1), (1, 6), (9, 2), (1, 1), (0, 3)):
        parts = [(s, n) for s, n in zip(sequences, counts, strict=True) if n]
        before = [each.done for each, _ in parts]
        for (each, count), at, found in zip(parts, before, run(layer, arenas, parts), strict=True):
            right = expected[sequences.index(each)][at : at + count]
            assert torch.allclose(found, right, atol=1e-12)

    assert [each.done for each in sequences] == [16, 13]
