"""The sampler against a plain reference, one row at a time in numpy."""

import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
import torch

from adapters.torch_device.sampling import draw as draw_outcomes
from adapters.torch_device.sampling import uniform
from kernel.step import RowSampling

Logits = npt.NDArray[np.float64]


def draw(logits: torch.Tensor, rows: Sequence[RowSampling]) -> list[int]:
    """Draw where every row must come to a token."""
    outcomes = draw_outcomes(logits, rows)
    tokens = [outcome for outcome in outcomes if isinstance(outcome, int)]
    assert len(tokens) == len(rows), outcomes
    return tokens


def how(
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    *,
    key: int = 1,
    index: int = 0,
    banned: tuple[int, ...] = (),
) -> RowSampling:
    return RowSampling(temperature, top_k, top_p, key, index, banned)


def plain(logits: Logits, row: RowSampling) -> int:
    """What ``draw`` must return, said as simply as possible."""
    logits = logits.copy()
    logits[list(row.banned)] = -np.inf
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    if row.temperature == 0:
        return order[0]
    if row.top_k:
        order = order[: row.top_k]
    weights = np.exp((logits[order] - logits[order[0]]) / row.temperature)
    if row.top_p < 1:
        before = np.cumsum(weights) - weights
        kept = before < row.top_p * weights.sum()
        order = [token for token, keeps in zip(order, kept, strict=True) if keeps]
    if not 0 < row.top_k < len(logits) and row.top_p == 1:
        order = sorted(order)
    weights = np.exp((logits[order] - logits.max()) / row.temperature)
    target = uniform(row.key, row.index) * weights.sum()
    return order[int((np.cumsum(weights) <= target).sum())]


def random_row(random_: random.Random, vocabulary: int) -> RowSampling:
    return how(
        random_.choice([0.0, 0.05, 0.7, 1.0, 2.0]),
        random_.choice([0, 0, 1, 2, 20, vocabulary, vocabulary + 5]),
        random_.choice([1.0, 1.0, 0.95, 0.5, 1e-6]),
        key=random_.getrandbits(64),
        index=random_.randrange(1000),
        banned=tuple(random_.sample(range(vocabulary), random_.choice([0, 0, 3]))),
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_rows_of_all_kinds_equal_the_plain_sampler(seed: int, scale: float) -> None:
    """A flat distribution (scale 0.1) takes top-p beyond the candidates looked at first."""
    draws, vocabulary = random.Random(seed), 300
    logits = np.random.default_rng(seed).normal(size=(40, vocabulary)) * scale
    rows = [random_row(draws, vocabulary) for _ in logits]

    drawn = draw(torch.tensor(logits), rows)

    assert drawn == [plain(line, row) for line, row in zip(logits, rows, strict=True)]


def test_a_draw_does_not_depend_on_the_batch() -> None:
    """Preemption, replay and neighbours must not change what a turn says."""
    draws, vocabulary = random.Random(9), 500
    logits = torch.randn(30, vocabulary, generator=torch.Generator().manual_seed(9)) * 2
    rows = [random_row(draws, vocabulary) for _ in range(30)]
    together = draw(logits.clone(), rows)

    alone = [draw(logits[at : at + 1].clone(), [rows[at]])[0] for at in range(30)]
    backwards = draw(logits.flip(0), rows[::-1])

    assert together == alone == backwards[::-1]


@pytest.mark.parametrize(
    "row",
    [how(), how(0.5), how(top_k=5), how(top_p=0.8), how(0.7, 6, 0.9), how(2.0, banned=(0, 3))],
)
def test_draws_follow_the_distribution(row: RowSampling) -> None:
    """Chi-squared over 8,000 draws of one turn; the hash is fixed, so this can't be flaky."""
    logits = np.random.default_rng(2).normal(size=12)
    count = 8000
    drawn = draw(
        torch.tensor(logits).expand(count, -1).clone(),
        [
            how(row.temperature, row.top_k, row.top_p, key=99, index=i, banned=row.banned)
            for i in range(count)
        ],
    )
    chances = probabilities(logits, row)
    counts = np.bincount(drawn, minlength=12)

    assert counts[chances == 0].sum() == 0
    likely = chances[chances > 0] * count
    chi_squared = ((counts[chances > 0] - likely) ** 2 / likely).sum()
    assert chi_squared < 35  # 11 degrees of freedom: one in 4,000


def probabilities(logits: Logits, row: RowSampling) -> Logits:
    logits = logits.copy()
    logits[list(row.banned)] = -np.inf
    weights = np.exp(logits / row.temperature)
    order = np.argsort(-weights)
    if row.top_k:
        weights[order[row.top_k :]] = 0
    before = np.cumsum(weights[order]) - weights[order]
    weights[order[before >= row.top_p * weights.sum()]] = 0
    chances: Logits = weights / weights.sum()
    return chances


@pytest.mark.parametrize("row", [how(0.0), how(top_k=1), how(top_p=1e-9), how(0.0, top_k=1)])
def test_the_lowest_id_wins_among_equals(row: RowSampling) -> None:
    """Else a tie would be decided by how a sort happens to work."""
    logits = torch.zeros(2, 200)
    logits[:, [17, 60, 151]] = 5.0

    assert draw(logits, [row, row]) == [17, 17]


def test_a_tie_at_the_edge_of_top_k_keeps_the_lowest_ids() -> None:
    logits = torch.zeros(1, 50)

    drawn = {draw(logits.clone(), [how(top_k=3, index=index)])[0] for index in range(60)}

    assert drawn == {0, 1, 2}


def test_banned_ids_are_never_drawn_however_likely() -> None:
    """End-of-sequence ids before min_tokens."""
    logits = torch.zeros(4, 30)
    logits[:, 4], logits[:, 9] = 90.0, 80.0
    kinds = [how(0.0, banned=(4,)), how(banned=(4,)), how(top_k=2, banned=(4,))]

    assert draw(logits, [*kinds, how(top_p=0.9)]) == [9, 9, 9, 4]


def test_uniform_numbers_are_even_and_differ_by_key_and_index() -> None:
    """Neighbouring keys and indices are the usual case and must not be alike."""
    numbers = np.array([[uniform(key, index) for index in range(100)] for key in range(100)])

    assert len(set(numbers.ravel().tolist())) == 10_000
    assert 0 <= numbers.min() < 0.001
    assert 0.999 < numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(numbers[:, :-1].ravel(), numbers[:, 1:].ravel())[0, 1]) < 0.03
    assert abs(np.corrcoef(numbers[:-1].ravel(), numbers[1:].ravel())[0, 1]) < 0.03


def test_logits_that_are_no_numbers_yield_some_token_and_spare_their_neighbours() -> None:
    """One broken sequence must not fail the step of the others."""
    logits = torch.randn(8, 20, generator=torch.Generator().manual_seed(1))
    rows = [how(), how(top_k=4), how(top_p=0.5), how(0.0)] * 2
    right = draw(logits.clone(), rows)
    logits[:4] = float("nan")

    drawn = draw(logits, rows)

    assert all(0 <= token < 20 for token in drawn)
    assert drawn[4:] == right[4:]
