"""Each parameter against the logits processor of transformers that means the same, in float64.

Theirs run one after another over one row; ours once over a batch of rows that differ.
"""

import random
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    PrefixConstrainedLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from adapters.torch_device.sampling import draw, uniform
from kernel.requests.logit_rules import LogitRules
from kernel.step import RowSampling
from tests.sampling.distribution import changed_logits, distributions
from tests.sampling.rows import how, known_of, random_logits, ruled

VOCABULARY = 230
EXACT = 1e-9


def theirs(scores: Tensor, processors: list[Any], ids: list[int] | None = None) -> Tensor:
    """What a chain of processors makes of one row's scores."""
    tokens: Any = torch.tensor([ids or []], dtype=torch.int64)  # they say LongTensor
    changed: Tensor = LogitsProcessorList(processors)(tokens, scores[None].clone())
    return changed[0]


def same_distribution(ours: Tensor, scores: Tensor) -> None:
    expected = scores.softmax(-1)
    assert torch.equal(ours > 0, expected > 0)
    assert float((ours - expected).abs().max()) < EXACT


def eighths(draws: random.Random) -> float:
    """A bias that float32 holds exactly: their processor keeps it in that, whatever the scores."""
    return draws.randrange(-40, 41) / 8


LIMITS = [
    (how(0.3), [TemperatureLogitsWarper(0.3)]),
    (how(2.5), [TemperatureLogitsWarper(2.5)]),
    (how(top_k=1), [TopKLogitsWarper(1)]),
    (how(top_k=17), [TopKLogitsWarper(17)]),
    (how(top_k=VOCABULARY), [TopKLogitsWarper(VOCABULARY)]),
    (how(top_p=0.05), [TopPLogitsWarper(0.05)]),
    (how(top_p=0.6), [TopPLogitsWarper(0.6)]),
    (how(top_p=0.999), [TopPLogitsWarper(0.999)]),
    (ruled(min_p=0.001), [MinPLogitsWarper(0.001)]),
    (ruled(min_p=0.2), [MinPLogitsWarper(0.2)]),
    (ruled(min_p=1.0), [MinPLogitsWarper(1.0)]),
    (ruled(typical_p=0.1), [TypicalLogitsWarper(0.1)]),
    (ruled(typical_p=0.7), [TypicalLogitsWarper(0.7)]),
    (ruled(typical_p=0.999), [TypicalLogitsWarper(0.999)]),
]


@pytest.mark.parametrize("scale", [0.1, 1.0, 4.0])
def test_each_limit_keeps_the_same_tokens_at_the_same_probabilities(scale: float) -> None:
    """All of them in one batch of three rows each, the flat and the peaked ones together."""
    logits = random_logits(3 * len(LIMITS), VOCABULARY, seed=1, scale=scale)
    rows = [row for row, _ in LIMITS for _ in range(3)]

    ours = distributions(logits, rows)

    for at, mine in enumerate(ours):
        same_distribution(mine, theirs(logits[at], LIMITS[at // 3][1]))


@pytest.mark.parametrize("seed", range(8))
def test_limits_together_are_their_processors_in_our_order(seed: int) -> None:
    """Temperature, min-p, top-k, top-p, typical."""
    draws = random.Random(seed)
    logits = random_logits(25, VOCABULARY, seed, scale=draws.choice([0.5, 3.0]))
    rows: list[RowSampling] = []
    chains: list[list[Any]] = []
    for _ in logits:
        temperature, top_k = draws.choice([0.4, 1.0, 1.7]), draws.choice([0, 2, 30, 200])
        top_p, min_p = draws.choice([0.5, 0.95]), draws.choice([0.001, 0.1])
        mass = draws.choice([0.3, 0.9, 1.0])
        rows.append(
            ruled(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, typical_p=mass)
        )
        chain = [TemperatureLogitsWarper(temperature), MinPLogitsWarper(min_p)]
        chain += [TopKLogitsWarper(top_k)] if top_k else []
        chain += [TopPLogitsWarper(top_p)]
        chains.append([*chain, TypicalLogitsWarper(mass)] if mass < 1 else chain)

    ours = distributions(logits, rows)

    for at, mine in enumerate(ours):
        same_distribution(mine, theirs(logits[at], chains[at]))


def test_a_draw_is_the_look_up_in_the_distribution_that_was_compared() -> None:
    """What the tests above say of distributions holds of the tokens that come out."""
    logits = random_logits(3 * len(LIMITS), VOCABULARY, seed=5, scale=2.0)
    rows = [row for row, _ in LIMITS for _ in range(3)]
    ours = distributions(logits, rows)

    drawn = draw(logits.clone(), rows)

    for at, token in enumerate(drawn):
        assert isinstance(token, int)
        order = _order(logits[at], rows[at])
        cumulative = ours[at][order].cumsum(-1)
        place = int((cumulative <= uniform(rows[at].key, rows[at].index)).sum())
        assert token == int(order[place])


def _order(logits: Tensor, row: RowSampling) -> Tensor:
    """Rows that limit by rank are drawn likeliest first, the others by id."""
    by_id = row.rules is not None and row.rules.typical_p < 1
    limits = row.top_p < 1 or 0 < row.top_k < VOCABULARY or bool(row.rules)
    if by_id or not limits:
        return torch.arange(VOCABULARY)
    return logits.sort(descending=True, stable=True).indices


@pytest.mark.parametrize("seed", range(4))
def test_each_rule_changes_logits_as_its_processor_does(seed: int) -> None:
    """Their processors see one list of ids; what each of ours looks at is in the rules' names."""
    draws = random.Random(seed)
    prompt = [draws.randrange(VOCABULARY) for _ in range(20)]
    generated = [draws.randrange(40) for _ in range(25)]
    both = [*prompt, *generated]
    words = [[generated[-1], 7], [*generated[-2:], 8], [5], [1, 2], [generated[-2], 9], [3, 3, 3]]
    some = sorted(draws.sample(range(VOCABULARY), 12))
    bias = {token: eighths(draws) for token in some}
    cases: list[tuple[dict[str, Any], Any, list[int]]] = [
        ({"repetition_penalty": 1.3}, RepetitionPenaltyLogitsProcessor(1.3), both),
        ({"repetition_penalty": 0.6}, RepetitionPenaltyLogitsProcessor(0.6), both),
        ({"bad_words": tuple(map(tuple, words))}, NoBadWordsLogitsProcessor(words), generated),
        (
            {"bad_words": tuple((token,) for token in some)},
            SuppressTokensLogitsProcessor(some),
            generated,
        ),
        (
            {"logit_bias": tuple(bias.items())},
            SequenceBiasLogitsProcessor([[[token], value] for token, value in bias.items()]),
            both,
        ),
        (
            {"allowed_token_ids": tuple(some)},
            PrefixConstrainedLogitsProcessor(lambda _batch, _ids: some, 1),
            both,
        ),
    ]
    logits = random_logits(len(cases), VOCABULARY, seed)
    rows = [ruled(prompt, generated, **rules) for rules, _, _ in cases]

    ours = changed_logits(logits, rows)

    for mine, raw, (_, processor, ids) in zip(ours, logits, cases, strict=True):
        expected = theirs(raw, [processor], ids)
        assert torch.equal(mine.isinf(), expected.isinf())
        assert float((mine - expected)[~mine.isinf()].abs().max()) < EXACT


def test_tokens_before_min_tokens_are_banned_as_theirs_are() -> None:
    """End-of-sequence ids, by the number of generated tokens alone."""
    logits = random_logits(1, VOCABULARY, 3)

    ours = changed_logits(logits, [how(banned=(4, 9))])[0]

    processor = MinNewTokensLengthLogitsProcessor(5, 8, [4, 9])
    assert torch.equal(ours, theirs(logits[0], [processor], [1] * 10))


def test_a_chain_of_everything_is_theirs_in_our_order() -> None:
    """Bias, repetition, bans, temperature, limits; the order in which vLLM has them."""
    draws = random.Random(11)
    logits = random_logits(20, VOCABULARY, 11)
    rows: list[RowSampling] = []
    chains: list[tuple[list[Any], list[int]]] = []
    for _ in logits:
        prompt = [draws.randrange(VOCABULARY) for _ in range(9)]
        generated = [draws.randrange(VOCABULARY) for _ in range(9)]
        bias = {draws.randrange(VOCABULARY): eighths(draws)}
        penalty, temperature = draws.choice([0.8, 1.4]), draws.choice([0.5, 1.5])
        rules = LogitRules(
            known=known_of(prompt, generated),
            logit_bias=tuple(bias.items()),
            repetition_penalty=penalty,
            bad_words=((11,), (12,)),
            min_p=0.01,
        )
        rows.append(RowSampling(temperature, 40, 0.9, 1, len(generated), (4,), rules))
        chain = [
            SequenceBiasLogitsProcessor([[[token], value] for token, value in bias.items()]),
            RepetitionPenaltyLogitsProcessor(penalty),
            NoBadWordsLogitsProcessor([[11], [12]]),
            MinNewTokensLengthLogitsProcessor(9, 20, [4]),
            TemperatureLogitsWarper(temperature),
            MinPLogitsWarper(0.01),
            TopKLogitsWarper(40),
            TopPLogitsWarper(0.9),
        ]
        chains.append((chain, [*prompt, *generated]))

    ours = distributions(logits, rows)

    for mine, raw, (chain, ids) in zip(ours, logits, chains, strict=True):
        same_distribution(mine, theirs(raw, chain, ids))
