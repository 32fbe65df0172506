"""Cut a step into passes whose temporaries stay small.

A temporary above 32 MiB is mapped afresh by the allocator each time and costs about five times as
much. A step that would need one runs as several passes instead: rows, or pieces of a long row,
one after another. For small models a step is nearly always one pass.
"""

from collections.abc import Iterator, Sequence

import attrs

from adapters.ragged.spec import ModelShape
from kernel.step import PromptScoring, RowSampling, StepRow
from ownership import NoSlot

__all__ = ["PassBudget", "Piece", "cut"]

_TEMPORARY_NUMBERS = (32 << 20) // 8
"""Most numbers in one temporary: 32 MiB of float64, half of that of float32."""
_ANY = 1 << 62
"""Of what the model's layers don't make."""


@attrs.frozen(eq=False)
class Piece:
    """A row, or as much of it as one pass takes."""

    row: int
    """Index of the row in the step."""
    slot: int | NoSlot
    position: int
    tokens: Sequence[int]
    pages: Sequence[int]
    sampling: RowSampling | None
    scoring: PromptScoring | None = None
    """What is asked of these tokens; counted from the first of them."""
    kept: int = attrs.field(default=attrs.Factory(lambda piece: piece.position, takes_self=True))
    """Positions before it that are kept: ``pages`` begins with the first of these."""


@attrs.frozen
class PassBudget:
    """How much one pass may take: tokens, chunks of the scan, cells of the causal masks."""

    tokens: int
    chunks: int
    mask_cells: int
    chunk_size: int

    @classmethod
    def of(cls, shape: ModelShape) -> "PassBudget":
        """The largest passes whose temporaries hold at most ``_TEMPORARY_NUMBERS`` numbers."""
        return cls(
            tokens=max(1, _TEMPORARY_NUMBERS // shape.token_numbers),
            chunks=max(1, _TEMPORARY_NUMBERS // shape.chunk_numbers) if shape.states else _ANY,
            mask_cells=_TEMPORARY_NUMBERS if shape.kv else _ANY,
            chunk_size=shape.chunk_size,
        )


def cut(
    rows: Sequence[StepRow], budget: PassBudget, *, page_size: int = 1
) -> Iterator[list[Piece]]:
    """Yield the pieces of each pass; a row's pieces come in order, one to a pass."""
    current: list[Piece] = []
    tokens, chunks, cells = budget.tokens, budget.chunks, budget.mask_cells
    for index, row in enumerate(rows):
        done, total = 0, len(row.tokens)
        dropped = row.first_page * page_size
        while done < total:
            position = row.position + done
            kept = position - dropped
            take = min(total - done, tokens, chunks * budget.chunk_size)
            if take > 1 and take * (kept + take) > cells:
                take = max(0 if current else 1, cells // (kept + take))
            if take < 1:
                yield current
                current = []
                tokens, chunks, cells = budget.tokens, budget.chunks, budget.mask_cells
                continue
            last = done + take == total
            part = row.tokens if take == total else row.tokens[done : done + take]
            sampling = row.sampling if last else None
            scoring = None if row.scoring is None else _within(row.scoring, done, take)
            current.append(
                Piece(index, row.slot, position, part, row.pages, sampling, scoring, kept)
            )
            done += take
            tokens -= take
            if take > 1:
                chunks -= -(-take // budget.chunk_size)
                cells -= take * (kept + take)
            if not last:
                tokens = 0  # the rest of this row needs this part's state: next pass
    if current:
        yield current


def _within(scoring: PromptScoring, start: int, length: int) -> PromptScoring | None:
    """The part of what a row is asked that ``length`` of its tokens from ``start`` on answer."""
    first = max(scoring.start, start)
    end = min(scoring.start + len(scoring.targets), start + length)
    if first >= end:
        return None
    targets = scoring.targets[first - scoring.start : end - scoring.start]
    return PromptScoring(first - start, targets, scoring.count)
