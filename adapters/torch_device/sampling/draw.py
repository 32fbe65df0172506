"""Draw one token per row from logits, every row with its own parameters.

A draw is a function of (key, index), the row's logits and its turn's own tokens: a counter-based
hash gives a uniform number, which is looked up in the row's cumulative distribution. Rows never
influence each other, so batching doesn't change a draw.

In order: log-probabilities of what the model gave (where asked for), the rows' rules
(:mod:`~adapters.torch_device.sampling.rules`), temperature and limits
(:mod:`~adapters.torch_device.sampling.pick`). Rows without rules pay for none of it.
"""

from collections.abc import Sequence

from torch import Tensor

from adapters.torch_device.sampling.arrays import indices
from adapters.torch_device.sampling.foreign import mark_last
from adapters.torch_device.sampling.memory import SamplingMemory
from adapters.torch_device.sampling.pick import pick
from adapters.torch_device.sampling.rules import apply_rules, ban
from adapters.torch_device.sampling.scores import score
from kernel.step import RowFault, RowOutcome, RowSampling, RowScores

__all__ = ["draw"]


def draw(
    logits: Tensor, rows: Sequence[RowSampling], memory: SamplingMemory | None = None
) -> list[RowOutcome]:
    """Draw one token per row.

    Args:
        logits: [rows, vocabulary], changed where rows ask for it.
        rows: how each row draws.
        memory: what earlier draws of the same turns have worked out; saves time, changes nothing.

    Returns:
        A token for each row, with its log-probabilities where they were asked for; or why none
        could be drawn.
    """
    if all(row.rules is None for row in rows):
        ban(logits, rows)
        tokens = pick(logits, rows)
        return _without_choice(rows, logits.shape[1], [*tokens])
    told = [at for at, row in enumerate(rows) if _count(row) is not None]
    given = logits[indices(told, logits)] if told else logits
    faults = apply_rules(logits, rows, SamplingMemory() if memory is None else memory)
    tokens = pick(logits, rows)
    outcomes: list[RowOutcome] = [*tokens]
    if told:
        scores = score(given, [tokens[at] for at in told], [_count(rows[at]) or 0 for at in told])
        for at, drawn in zip(told, scores, strict=True):
            outcomes[at] = RowScores(tokens[at], drawn)
    for at, fault in faults.items():
        outcomes[at] = fault
    outcomes = [mark_last(row, outcome) for row, outcome in zip(rows, outcomes, strict=True)]
    return _without_choice(rows, logits.shape[1], outcomes)


def _count(row: RowSampling) -> int | None:
    return None if row.rules is None else row.rules.logprobs


def _without_choice(
    rows: Sequence[RowSampling], vocabulary: int, outcomes: list[RowOutcome]
) -> list[RowOutcome]:
    """A row whose every id is banned has drawn nothing; any of them would look like a token."""
    for at, row in enumerate(rows):
        if len(row.banned) >= vocabulary:
            outcomes[at] = RowFault("no token is left to draw")
    return outcomes
