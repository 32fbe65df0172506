"""The pass laid out for the device: who is read together with whom."""

import pytest
import torch

from adapters.ragged import reads
from adapters.ragged.passes import Piece
from adapters.ragged.plan import plan_pass
from adapters.ragged.reads import PageContext
from tests.torch_device.support import GREEDY, shape_of

CONTEXT = PageContext(shape_of("hybrid"), page_size=4, padding_page=99, compute=torch.float32)


def piece(row: int, position: int, count: int = 1) -> Piece:
    pages = [row * 20 + page for page in range(20)]
    return Piece(row, row, position, [7] * count, pages, GREEDY)


def test_decode_rows_come_first_and_shortest_first() -> None:
    """Rows are answered by their index in the step, so their order is the plan's own."""
    pieces = [piece(0, 30), piece(1, 4, 5), piece(2, 3), piece(3, 0, 9)]

    plan = plan_pass(CONTEXT, pieces, torch.device("cpu"))

    assert plan.decode.host == [2, 0]
    assert plan.prefill.host == [3, 1]
    assert [row for row, _ in plan.sampled] == [2, 0, 3, 1]
    assert plan.sample_at.numpy().tolist() == [0, 1, 10, 15]
    assert plan.attention.write_at[:2].numpy().tolist() == [40 * 4 + 3, 7 * 4 + 2]


def test_rows_of_very_different_length_are_not_read_together() -> None:
    """One long history would pad all the others to its own length."""
    positions = [2, 5, 9, 70, 75]
    pieces = [piece(row, position) for row, position in enumerate(positions)]

    groups = plan_pass(CONTEXT, pieces, torch.device("cpu")).attention.decode

    assert [tuple(group.pages.shape) for group in groups] == [(3, 3), (2, 19)]
    assert groups[0].pages.numpy().tolist() == [[0, 99, 99], [20, 21, 99], [40, 41, 42]]


def test_what_a_group_gathers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large temporaries cost five times as much as small ones."""
    monkeypatch.setattr(reads, "_READ_NUMBERS", 16 * 64)
    pieces = [piece(row, 30) for row in range(5)]

    groups = plan_pass(CONTEXT, pieces, torch.device("cpu")).attention.decode

    assert [group.pages.shape[0] for group in groups] == [2, 2, 1]
    assert [group.start for group in groups] == [0, 2, 4]
