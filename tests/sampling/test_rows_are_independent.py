"""A row's outcome is a function of its own logits, parameters and tokens: property tests."""

import random

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.torch_device.sampling import SamplingMemory, draw
from kernel.step import RowOutcome, RowScores
from tests.sampling.rows import random_logits, random_row


def close(one: RowOutcome, other: RowOutcome) -> bool:
    """Equal; log-probabilities to the last bits that the size of a batch may change."""
    if not isinstance(one, RowScores) or not isinstance(other, RowScores):
        return one == other
    if one.token != other.token or one.drawn is None or other.drawn is None:
        return False
    return list(one.drawn) == list(other.drawn) and all(
        abs(one.drawn[token].logprob - other.drawn[token].logprob) < 1e-12
        and one.drawn[token].rank == other.drawn[token].rank
        for token in one.drawn
    )


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), scale=st.sampled_from([0.1, 3.0]))
def test_a_row_draws_alone_what_it_draws_in_any_company(seed: int, scale: float) -> None:
    """Batching, order and what the sampler remembers must not change what a turn says."""
    draws, vocabulary = random.Random(seed), 150
    logits = random_logits(12, vocabulary, seed, scale)
    rows = [random_row(draws, vocabulary) for _ in logits]
    memory = SamplingMemory()

    together = draw(logits.clone(), rows, memory)
    again = draw(logits.clone(), rows, memory)
    backwards = draw(logits.flip(0), rows[::-1], memory)[::-1]
    alone = [draw(logits[at : at + 1].clone(), [row])[0] for at, row in enumerate(rows)]

    for outcomes in (again, backwards, alone):
        assert all(map(close, together, outcomes)), (together, outcomes)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32))
def test_a_row_with_rules_leaves_the_other_rows_logits_alone(seed: int) -> None:
    """In place is cheap, and must stop at the row's edge."""
    draws, vocabulary = random.Random(seed), 90
    logits = random_logits(6, vocabulary, seed)
    rows = [random_row(draws, vocabulary) for _ in logits]
    untouched = [
        at
        for at, row in enumerate(rows)
        if not row.banned and (row.rules is None or not row.rules.changes_logits)
    ]
    changed = logits.clone()

    draw(changed, rows)

    assert torch.equal(changed[untouched], logits[untouched])
