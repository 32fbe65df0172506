"""Log-probabilities: the model's own, before any parameter, with ranks and the likeliest."""

from typing import Any

import pytest
import torch

from adapters.torch_device.sampling import draw, score
from adapters.torch_device.sampling.arrays import numbers
from kernel.requests.logit_rules import LogitsProcessor
from kernel.step import RowScores
from tests.sampling.rows import how, random_logits, ruled


@pytest.mark.parametrize("count", [0, 1, 5, 40, 60, -1])
def test_scores_are_the_log_softmax_with_ranks(count: int) -> None:
    logits = random_logits(6, 60, 3)
    tokens = [3, 59, 0, 7, 7, 30]

    found = score(logits, tokens, [count] * 6)

    for raw, token, entry in zip(logits, tokens, found, strict=True):
        right = raw.log_softmax(-1)
        order = numbers(right.sort(descending=True, stable=True).indices)
        wanted = order if count < 0 else order[:count]
        assert list(entry) == [*wanted, *([] if token in wanted else [token])]
        for id_, told in entry.items():
            assert told.rank == order.index(id_) + 1
            assert told.logprob == pytest.approx(float(right[id_]), abs=1e-12)


def test_rows_may_ask_for_different_numbers() -> None:
    """One pass for the most of them, each told what it asked for and its own token."""
    logits = random_logits(3, 30, 1)
    unlikely = numbers(logits.argmin(-1))

    found = score(logits, unlikely, [0, 7, 2])

    assert [len(entry) for entry in found] == [1, 8, 3]


def test_float32_logits_keep_their_precision() -> None:
    """The normaliser is summed up in float64: 50,000 small terms."""
    logits = random_logits(4, 50_000, 2).float()

    found = score(logits, [1, 2, 3, 4], [0] * 4)

    right = logits.double().log_softmax(-1)
    for at, token in enumerate([1, 2, 3, 4]):
        assert found[at][token].logprob == pytest.approx(float(right[at, token]), abs=2e-8)


def test_among_equals_the_lowest_id_is_the_likelier() -> None:
    """As the draws have it; so a greedy token is always of rank 1."""
    logits = torch.zeros(2, 9)
    logits[:, [3, 6]] = 2.0

    first, last = score(logits, [6, 8], [2, 0])

    assert [(id_, told.rank) for id_, told in first.items()] == [(3, 1), (6, 2)]
    assert last[8].rank == 9


def test_logprobs_are_of_the_model_whatever_the_row_asks_for() -> None:
    """As raw_logprobs of vLLM: before bias, processors, penalties, bans and temperature."""

    def flatten(_generated: Any, given: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(given)

    made = LogitsProcessor.of(flatten)
    assert made is not None
    logits = random_logits(3, 40, 4)
    right = logits.log_softmax(-1)
    best = numbers(logits.argmax(-1))
    rows = [
        ruled(temperature=0, logprobs=2),
        ruled([1], [best[1]], temperature=5.0, top_k=3, logprobs=2, presence_penalty=2.0,
              bad_words=((best[1],),), logit_bias=((best[1], -50.0),)),
        ruled(temperature=0, logprobs=2, processors=(made,)),
    ]  # fmt: skip

    outcomes = draw(logits, rows)

    for at, outcome in enumerate(outcomes):
        assert isinstance(outcome, RowScores)
        assert outcome.token is not None
        assert outcome.drawn is not None
        assert outcome.drawn[best[at]].rank == 1
        for id_ in (best[at], outcome.token):
            assert outcome.drawn[id_].logprob == pytest.approx(float(right[at, id_]), abs=1e-12)
    assert isinstance(outcomes[1], RowScores)
    assert outcomes[1].token != best[1]


def test_logprobs_do_not_change_a_draw() -> None:
    """Asking must not be answered with other tokens."""
    logits = random_logits(40, 50, 5)
    plain = [how(1.3, 9, 0.9, key=at) for at in range(40)]
    asking = [ruled(temperature=1.3, top_k=9, top_p=0.9, key=at, logprobs=1) for at in range(40)]

    told = draw(logits.clone(), asking)

    drawn = [outcome.token for outcome in told if isinstance(outcome, RowScores)]
    assert drawn == draw(logits, plain)
    assert len(set(drawn)) > 5
