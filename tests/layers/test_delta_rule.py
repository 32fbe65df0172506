"""The gated delta rule's kernels against the rule written token by token."""

import attrs
import pytest
import torch
from torch import Tensor

from adapters.layers import delta_rule
from adapters.layers.delta_rule import (
    delta_decode,
    delta_decode_gathered,
    delta_prefill,
    unit_lower_inverse,
)
from adapters.ragged.indices import ChunkLayout, SlotList
from tests.layers.delta_by_token import Inputs, by_token
from tests.layers.laying_out import layout_of, numbers, slot_list
from tests.parity.double import double_precision


def prefill(arena: Tensor, slots: SlotList, layout: ChunkLayout, inputs: Inputs) -> Tensor:
    """What each token reads, in token order."""
    read = delta_prefill(arena, slots, layout, *inputs.cells(layout).all)
    return read.flatten(0, 1).index_select(0, layout.cell_of_token)


SHAPES = [((2, 2), (4, 6)), ((1, 3), (6, 4)), ((2, 4), (5, 5))]


@pytest.mark.parametrize(("heads", "widths"), SHAPES)
@pytest.mark.parametrize("gathered", [False, True])
def test_decode_is_the_rule_as_it_is_written(
    heads: tuple[int, int],
    widths: tuple[int, int],
    gathered: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The gathered form is for accelerators; where there is none, only tests run it."""
    inputs, slots = Inputs.draw(3, heads, widths), slot_list(5, 0, 3)
    arena = numbers(7, heads[1], *widths, seed=6)
    before = arena.clone()
    if gathered:

        def form(arena: Tensor, _slots: list[int], *rest: Tensor) -> Tensor:
            return delta_decode_gathered(arena, slots.index, *rest)

        monkeypatch.setattr(delta_rule, "delta_decode_in_place", form)

    read = delta_decode(arena, slots, *inputs.all)

    for row, slot in enumerate(slots.host):
        state, expected = by_token(before[slot], inputs.at(slice(row, row + 1)))
        assert torch.allclose(arena[slot], state, atol=1e-13)
        assert torch.allclose(read[row], expected[0], atol=1e-13)
    assert torch.equal(arena[[1, 2, 4, 6]], before[[1, 2, 4, 6]])


@pytest.mark.parametrize(("heads", "widths"), SHAPES)
@pytest.mark.parametrize("size", [1, 2, 6, 8, 64])
def test_prefill_in_any_chunk_size_is_the_rule_as_it_is_written(
    heads: tuple[int, int], widths: tuple[int, int], size: int
) -> None:
    """Rows that end inside a chunk, at its end, and turns before the others."""
    lengths, slots = [19, 16, 7, 2], slot_list(1, 4, 0, 3)
    inputs, layout = Inputs.draw(sum(lengths), heads, widths), layout_of(lengths, size)
    arena = numbers(6, heads[1], *widths, seed=6)
    before = arena.clone()

    read = prefill(arena, slots, layout, inputs)

    first = 0
    for slot, length in zip(slots.host, lengths, strict=True):
        tokens = slice(first, first + length)
        state, expected = by_token(before[slot], inputs.at(tokens))
        assert torch.allclose(arena[slot], state, atol=1e-12)
        assert torch.allclose(read[tokens], expected, atol=1e-12)
        first += length
    assert torch.equal(arena[[2, 5]], before[[2, 5]])


def test_a_row_that_is_not_a_number_stays_alone() -> None:
    """Padded cells repeat their own row's token; nothing of it reaches another row."""
    lengths, slots = [9, 6, 5], slot_list(2, 0, 1)
    inputs, layout = Inputs.draw(20, (1, 2), (4, 4)), layout_of(lengths, 4)
    clean = numbers(3, 2, 4, 4, seed=6)
    dirty = clean.clone()
    expected = prefill(clean, slots, layout, inputs)

    for each in inputs.all:
        each[9:15] = float("nan")
    read = prefill(dirty, slots, layout, inputs)

    assert torch.equal(read[:9], expected[:9])
    assert torch.equal(read[15:], expected[15:])
    assert torch.equal(dirty[1:], clean[1:])
    assert read[9:15].isnan().all()


@pytest.mark.parametrize("steepest", [1e3, 1e30])
def test_a_total_decay_gives_numbers(steepest: float) -> None:
    """And doesn't round those after it: sums of logarithms from the chunk's start would."""
    drawn = Inputs.draw(12, (2, 2), (4, 4)).to(torch.float32)
    steep = torch.where(torch.arange(12)[:, None] % 3 == 0, -steepest, drawn.g)
    inputs = attrs.evolve(drawn, g=steep)
    arena = numbers(1, 2, 4, 4, seed=6).float()
    state, expected = by_token(arena[0], inputs)

    read = prefill(arena, slot_list(0), layout_of([12], 8), inputs)

    assert torch.allclose(read, expected, atol=1e-6)
    assert torch.allclose(arena[0], state, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_narrow_state_is_the_rounding_of_a_wide_one(dtype: torch.dtype) -> None:
    """Half the bytes a slot: read exactly, computed in the wider type, rounded once."""
    inputs, slots = Inputs.draw(7, (2, 4), (4, 6)).to(torch.float32), slot_list(2, 0)
    narrow = numbers(3, 4, 4, 6, seed=6).to(dtype)
    wide = narrow.float()
    layout = layout_of([4, 3], 4)

    read = prefill(narrow, slots, layout, inputs)
    assert torch.equal(read, prefill(wide, slots, layout, inputs))
    assert torch.equal(narrow, wide.to(dtype))

    wide, first = narrow.float(), inputs.at(slice(0, 2))
    read = delta_decode(narrow, slots, *first.all)
    assert torch.allclose(read, delta_decode(wide, slots, *first.all), atol=1e-6)
    assert torch.allclose(narrow.float(), wide, rtol=2 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("size", [1, 2, 7, 16, 17, 24, 32, 64, 100])
def test_the_inverse_is_one_at_any_size(size: int) -> None:
    """Also of chunk sizes that can't be halved; what stands above the diagonal isn't read."""
    matrix = numbers(3, size, size, seed=size) / size

    found = unit_lower_inverse(matrix)

    unit = torch.eye(size, dtype=torch.float64)
    assert torch.allclose(found @ (matrix.tril(-1) + unit), unit, atol=1e-12)
    assert torch.equal(found, found.tril())


def test_the_inverse_of_equal_keys_is_exact() -> None:
    """A token repeated at full rate: powers of the matrix reach 10^18, so a power series fails."""
    ones = torch.ones(1, 64, 64)

    found = unit_lower_inverse(ones)

    expected = torch.eye(64) - torch.diag(torch.ones(63), diagonal=-1)
    assert torch.equal(found[0], expected)


def test_transformers_computes_the_same() -> None:
    """Both its forms, in float64 throughout: its casts to float32 are replaced."""
    peer = pytest.importorskip("transformers.models.qwen3_5.modeling_qwen3_5")
    inputs, arena = Inputs.draw(70, (2, 4), (8, 6)), numbers(1, 4, 8, 6, seed=6)
    initial = arena.clone()
    root = 8**0.5  # the peer scales queries itself
    batch = (inputs.q * root, *inputs.all[1:])
    with double_precision():
        for form in (peer.torch_chunk_gated_delta_rule, peer.torch_recurrent_gated_delta_rule):
            arena.copy_(initial)
            theirs, state = form(
                *(each[None] for each in batch), initial_state=initial, output_final_state=True
            )
            read = prefill(arena, slot_list(0), layout_of([70], 32), inputs)

            assert torch.allclose(read, theirs[0], atol=1e-12)
            assert torch.allclose(arena, state, atol=1e-12)
