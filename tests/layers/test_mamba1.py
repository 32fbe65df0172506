"""The selective scan against the recurrence written token by token."""

from typing import Protocol

import pytest
import torch
from torch import Tensor

from adapters.layers import mamba1
from adapters.layers.mamba1 import (
    scan_decode,
    scan_decode_gathered,
    scan_decode_in_place,
    scan_prefill,
)
from adapters.ragged.indices import ChunkLayout
from tests.layers.laying_out import layout_of, numbers, slot_list

STATE, CHANNELS = 5, 12


class Scan(Protocol):
    def __call__(
        self,
        h: Tensor,
        layout: ChunkLayout,
        most: int,
        x: Tensor,
        dt: Tensor,
        a: Tensor,
        b: Tensor,
        c: Tensor,
    ) -> Tensor: ...


class Inputs:
    """Of so many tokens; decays from hardly any to total."""

    def __init__(self, tokens: int, *, steepest: float = 3.0) -> None:
        self.x = numbers(tokens, CHANNELS, seed=1)
        self.dt = torch.nn.functional.softplus(numbers(tokens, CHANNELS, seed=2) * steepest)
        self.a = -torch.exp(numbers(STATE, CHANNELS, seed=3))
        self.b, self.c = numbers(tokens, STATE, seed=4), numbers(tokens, STATE, seed=5)

    def token(self, at: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        return self.x[at], self.dt[at], self.a, self.b[at], self.c[at]

    def rows(self, at: slice) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        return self.x[at], self.dt[at], self.a, self.b[at], self.c[at]

    def cells(self, layout: ChunkLayout) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        shape = (layout.chunks, layout.size, -1)
        x, dt, b, c = (
            each.index_select(0, layout.token_of_cell).view(shape)
            for each in (self.x, self.dt, self.b, self.c)
        )
        return x, dt * layout.filled.view(layout.chunks, layout.size, 1), self.a, b, c


def one_token(
    h: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor
) -> tuple[Tensor, Tensor]:
    """State after, and what is read; h [state, channels], row by row of it."""
    after = torch.empty_like(h)
    for n in range(h.shape[0]):
        after[n] = torch.exp(dt * a[n]) * h[n] + dt * b[n] * x
    return after, (after * c[:, None]).sum(dim=0)


@pytest.mark.parametrize("how", ["in place", "gathered", "chosen"])
def test_decode_takes_each_named_slot_one_token_on(how: str) -> None:
    inputs, slots = Inputs(3), slot_list(5, 0, 3)
    arena = numbers(7, STATE, CHANNELS, seed=6)
    before = arena.clone()

    row = inputs.rows(slice(None))
    if how == "in place":
        y = scan_decode_in_place(arena, slots.host, *row)
    elif how == "gathered":
        y = scan_decode_gathered(arena, slots.index, *row)
    else:
        y = scan_decode(arena, slots, *row)

    for at, slot in enumerate(slots.host):
        state, read = one_token(before[slot], *inputs.token(at))
        assert torch.allclose(arena[slot], state, atol=1e-13)
        assert torch.allclose(y[at], read, atol=1e-13)
    others = [1, 2, 4, 6]
    assert torch.equal(arena[others], before[others])


def test_a_large_state_is_taken_on_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its own slots are touched, and nothing is gathered."""
    monkeypatch.setattr(mamba1, "_LARGE_STATE", 1)
    monkeypatch.setattr(mamba1, "scan_decode_gathered", None)
    inputs, arena = Inputs(2), numbers(3, STATE, CHANNELS, seed=6)
    expected, _ = one_token(arena[2], *inputs.token(0))

    scan_decode(arena, slot_list(2, 1), *inputs.rows(slice(None)))

    assert torch.allclose(arena[2], expected, atol=1e-13)


@pytest.mark.parametrize("how", [mamba1.scan_by_turns, mamba1.scan_at_once, None])
@pytest.mark.parametrize("together", [1, 2, 5, 1000])
@pytest.mark.parametrize("size", [1, 4, 16])
def test_prefill_is_the_recurrence_whatever_the_chunks_and_spans(
    monkeypatch: pytest.MonkeyPatch, size: int, together: int, how: Scan | None
) -> None:
    """All chunks at once is for accelerators; where there is none, only this test runs it."""
    lengths, slots = [11, 8, 5, 2], slot_list(4, 0, 5, 2)
    inputs, layout = Inputs(sum(lengths)), layout_of(lengths, size)
    arena = numbers(7, STATE, CHANNELS, seed=6)
    before, most = arena.clone(), together * STATE * CHANNELS
    monkeypatch.setattr(mamba1, "_IN_CACHE", most)

    if how is None:
        cells = scan_prefill(arena, slots, layout, *inputs.cells(layout))
    else:
        h = arena[slots.host]
        cells = how(h, layout, most, *inputs.cells(layout))
        arena[slots.host] = h

    y = cells.flatten(0, 1).index_select(0, layout.cell_of_token)
    token = 0
    for slot, length in zip(slots.host, lengths, strict=True):
        state = before[slot]
        for at in range(token, token + length):
            state, read = one_token(state, *inputs.token(at))
            assert torch.allclose(y[at], read, atol=1e-12)
        assert torch.allclose(arena[slot], state, atol=1e-12)
        token += length
    assert torch.equal(arena[[1, 3, 6]], before[[1, 3, 6]])


def test_steps_that_forget_everything_at_once_stay_finite() -> None:
    """A form that divides by decays would divide by zero here."""
    inputs, layout = Inputs(16, steepest=1e4), layout_of([16], 8)
    x, dt, a, b, c = (each.float() for each in inputs.cells(layout))
    for how in (mamba1.scan_by_turns, mamba1.scan_at_once):
        h = numbers(1, STATE, CHANNELS, seed=6).float()

        y = how(h, layout, 1000, x, dt, a, b, c)

        assert (torch.exp(dt * a[0]) == 0).any()
        assert torch.isfinite(y).all()
        assert torch.isfinite(h).all()


def test_padding_changes_no_state_even_when_its_row_is_not_a_number() -> None:
    """Rows are apart: what one of them holds can't reach another through a padded cell."""
    lengths = [7, 3]
    inputs, layout = Inputs(10), layout_of(lengths, 4)
    clean = numbers(2, STATE, CHANNELS, seed=6)
    dirty = clean.clone()
    expected = scan_prefill(clean, slot_list(0, 1), layout, *inputs.cells(layout))
    inputs.x[7:] = float("nan")

    found = scan_prefill(dirty, slot_list(0, 1), layout, *inputs.cells(layout))

    first = layout.cell_of_token[:7]
    assert torch.equal(found.flatten(0, 1)[first], expected.flatten(0, 1)[first])
    assert torch.equal(dirty[0], clean[0])


@pytest.mark.parametrize("state", [torch.float64, torch.bfloat16])
def test_a_state_of_another_type_than_the_compute_type_is_kept_in_it(state: torch.dtype) -> None:
    lengths = [6]
    inputs, layout = Inputs(7), layout_of(lengths, 4)
    arena = torch.zeros(1, STATE, CHANNELS, dtype=state)
    exact = arena.double()
    narrow = Inputs(7)
    for name in ("x", "dt", "a", "b", "c"):
        setattr(narrow, name, getattr(inputs, name).float())

    for each, into in ((inputs, exact), (narrow, arena)):
        x, dt, a, b, c = each.cells(layout)
        kind = each.x.dtype
        scan_prefill(into, slot_list(0), layout, x, dt.to(kind), a, b, c)
        scan_decode(into, slot_list(0), *each.rows(slice(6, 7)))

    assert arena.dtype == state
    tolerance = 1e-5 if state == torch.float64 else 0.05
    assert torch.allclose(arena.double(), exact, rtol=tolerance, atol=tolerance)
