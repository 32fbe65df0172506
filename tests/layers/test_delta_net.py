"""A Gated DeltaNet mixer in mixed passes against the layer written token by token."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from adapters.layers.delta_net import DeltaNetSizes, GatedDeltaNet
from adapters.layers.mamba2_mixer import GatedNorm
from adapters.ragged.arenas import allocate_arenas
from adapters.ragged.passes import Piece
from adapters.ragged.plan import plan_pass
from adapters.ragged.reads import PageContext
from adapters.ragged.run import Pass
from adapters.ragged.spec import ModelShape
from kernel.step import DeviceLimits
from tests.layers.delta_by_token import Inputs, by_token
from tests.layers.laying_out import numbers

LAYERS, LAYER = 2, 1
SIZES = [
    DeltaNetSizes(hidden=6, key_heads=2, value_heads=4, key_width=3, value_width=5, taps=4),
    DeltaNetSizes(hidden=6, key_heads=1, value_heads=1, key_width=4, value_width=4, taps=2),
]
EPS = 1e-6


def mixer_of(sizes: DeltaNetSizes) -> GatedDeltaNet:
    return GatedDeltaNet(
        state_layer=LAYER,
        sizes=sizes,
        in_proj=numbers(sizes.projected, sizes.hidden, seed=1),
        conv_weight=numbers(sizes.taps, sizes.conv, seed=2),
        conv_bias=torch.zeros(sizes.conv, dtype=torch.float64),
        dt_bias=numbers(sizes.value_heads, seed=3),
        a=-numbers(sizes.value_heads, seed=4).exp(),
        norm=GatedNorm(numbers(sizes.value_heads, sizes.value_width, seed=5), EPS, False),
        out_proj=numbers(sizes.hidden, sizes.values, seed=6),
    )


def written_out(mixer: GatedDeltaNet, x: Tensor) -> Tensor:
    """One whole sequence from an empty state. Shapes: x, result [tokens, hidden]."""
    sizes, tokens = mixer.sizes, x.shape[0]
    projected = x @ mixer.in_proj.T
    ends = [sizes.conv, sizes.conv + sizes.values, sizes.projected - sizes.value_heads]
    mixed, gate, rate, step = projected.tensor_split(ends, dim=1)
    padded = functional.pad(mixed.T, (sizes.taps - 1, 0))
    conv = functional.conv1d(padded, mixer.conv_weight.T[:, None], groups=sizes.conv).T
    conv = conv * conv.sigmoid()
    q, k, v = conv.tensor_split([sizes.keys, 2 * sizes.keys], dim=1)
    q, k = (
        each / (each.square().sum(-1, keepdim=True) + 1e-6).sqrt()
        for each in (part.reshape(tokens, sizes.key_heads, -1) for part in (q, k))
    )
    inputs = Inputs(
        q=q / sizes.key_width**0.5,
        k=k,
        v=v.reshape(tokens, sizes.value_heads, -1),
        g=mixer.a * torch.log1p(torch.exp(step + mixer.dt_bias)),
        beta=rate.sigmoid(),
    )
    empty = torch.zeros(sizes.states(1)[1].shape, dtype=torch.float64)
    _, y = by_token(empty, inputs)
    y = y / (y.square().mean(-1, keepdim=True) + EPS).sqrt() * mixer.norm.weight
    y = y.flatten(1) * gate * gate.sigmoid()
    return y @ mixer.out_proj.T


@pytest.mark.parametrize("sizes", SIZES, ids=["grouped", "one head"])
@pytest.mark.parametrize("chunk", [4, 64])
def test_mixed_passes_compute_the_layer_as_it_is_written(sizes: DeltaNetSizes, chunk: int) -> None:
    """Rows that decode beside rows that prefill; pieces shorter than the convolution too."""
    shape = ModelShape(
        name="one mixer",
        vocab_size=1,
        hidden_size=sizes.hidden,
        max_model_len=64,
        states=sizes.states(LAYERS),
        taps=sizes.taps,
        chunk_size=chunk,
        token_numbers=sizes.projected,
        chunk_numbers=sizes.chunk_numbers(chunk),
    )
    limits = DeviceLimits(num_slots=5, num_pages=1, page_size=4, max_rows=4, max_step_tokens=64)
    arenas = allocate_arenas(
        shape,
        limits,
        state_dtype=torch.float64,
        page_dtype=torch.float64,
        device=torch.device("cpu"),
    )
    others = [state[: LAYERS - 1].clone() for state in arenas.states.tensors.values()]
    context = PageContext(shape, page_size=4, padding_page=1, compute=torch.float64)
    mixer, slots = mixer_of(sizes), [3, 0, 4]
    texts = [numbers(17, sizes.hidden, seed=10 + row) for row in range(3)]
    expected = [written_out(mixer, text) for text in texts]
    done = [0, 0, 0]

    for counts in ([9, 1, 2], [1, 11, 1], [1, 1, 1], [6, 4, 13]):
        pieces = [
            Piece(row, slots[row], done[row], [0] * count, [], None)
            for row, count in enumerate(counts)
        ]
        order = sorted(pieces, key=lambda p: (len(p.tokens) > 1, _place(p)))
        x = torch.cat([texts[p.row][p.position : p.position + len(p.tokens)] for p in order])
        lengths = [len(piece.tokens) for piece in order]
        y = mixer(x, Pass(plan_pass(context, pieces, torch.device("cpu")), arenas))

        for piece, found in zip(order, torch.split_with_sizes(y, lengths), strict=True):
            end = piece.position + len(piece.tokens)
            assert torch.allclose(found, expected[piece.row][piece.position : end], atol=1e-12)
            done[piece.row] = end

    assert done == [17, 17, 17]
    after = [state[: LAYERS - 1] for state in arenas.states.tensors.values()]
    assert all(torch.equal(*pair) for pair in zip(others, after, strict=True))


def _place(piece: Piece) -> int:
    """As a pass orders its rows: decode by position, prefill longest first."""
    return piece.position if len(piece.tokens) == 1 else -len(piece.tokens)
