"""A step is cut so that every token is computed once, in order, within the budget."""

import attrs
from hypothesis import given
from hypothesis import strategies as st

from adapters.ragged.passes import PassBudget, cut
from kernel.step import RowSampling, StepRow
from ownership import SlotIndex
from tests.torch_device.support import GREEDY, shape_of

BUDGETS = st.builds(
    PassBudget,
    tokens=st.integers(1, 40),
    chunks=st.integers(1, 6),
    mask_cells=st.integers(1, 2000),
    chunk_size=st.sampled_from([1, 4, 8]),
)
ROWS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 90)), min_size=1, max_size=6)


def row(slot: int, position: int, length: int, sampling: RowSampling | None = GREEDY) -> StepRow:
    return StepRow(SlotIndex(slot), "kept", position, range(length), (), None, sampling)


@given(budget=BUDGETS, sizes=ROWS)
def test_passes_cover_each_row_once_and_keep_to_the_budget(
    budget: PassBudget, sizes: list[tuple[int, int]]
) -> None:
    rows = [row(slot, *size) for slot, size in enumerate(sizes)]
    seen: dict[int, list[int]] = {slot: [] for slot in range(len(rows))}
    for pieces in cut(rows, budget):
        assert len({piece.row for piece in pieces}) == len(pieces) > 0
        assert sum(len(piece.tokens) for piece in pieces) <= budget.tokens
        many = [piece for piece in pieces if len(piece.tokens) > 1]
        cells = sum(len(p.tokens) * (p.position + len(p.tokens)) for p in many)
        assert cells <= budget.mask_cells
        assert sum(-(-len(p.tokens) // budget.chunk_size) for p in many) <= budget.chunks
        for piece in pieces:
            whole = rows[piece.row]
            assert piece.position == whole.position + len(seen[piece.row])
            seen[piece.row] += piece.tokens
            ended = len(seen[piece.row]) == len(whole.tokens)
            assert (piece.sampling is not None) == ended

    assert seen == {slot: list(rows[slot].tokens) for slot in seen}


def test_an_ordinary_step_is_one_pass() -> None:
    """512 tokens on a small model must not pay for cutting."""
    rows = [row(slot, 100, 1) for slot in range(30)] + [row(31, 0, 482)]

    assert len(list(cut(rows, PassBudget.of(shape_of("hybrid"))))) == 1


def test_a_model_without_recurrent_layers_has_no_chunks_to_count() -> None:
    """Families of both kinds give the sizes of a scan also where no layer of theirs scans."""
    shape = attrs.evolve(shape_of("attention-only"), chunk_numbers=1 << 21)
    rows = [row(0, 0, 500)]

    assert not shape.states
    assert len(list(cut(rows, PassBudget.of(shape)))) == 1
