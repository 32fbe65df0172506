"""Routers against their formulas, one token at a time."""

import pytest
import torch
from torch import Tensor

from adapters.layers.routers import Choice, SigmoidRouter, SoftmaxRouter
from tests.layers.laying_out import numbers

EXPERTS, HIDDEN = 8, 6


WEIGHT, X = numbers(EXPERTS, HIDDEN, seed=1), numbers(20, HIDDEN, seed=2)


def by_expert(choice: Choice) -> Tensor:
    """[tokens, experts] weights, 0 where not chosen: the order of a choice says nothing."""
    dense = torch.zeros(choice.experts.shape[0], EXPERTS, dtype=choice.weights.dtype)
    return dense.scatter_(1, choice.experts, choice.weights)


@pytest.mark.parametrize("renormalise", [False, True])
def test_softmax_router_keeps_the_likeliest(renormalise: bool) -> None:
    router = SoftmaxRouter(weight=WEIGHT, top_k=3, renormalise=renormalise)

    weights = by_expert(router(X))

    shares = torch.softmax(X @ WEIGHT.T, dim=-1)
    least = shares.sort(dim=-1, descending=True).values[:, 2:3]
    expected = torch.where(shares >= least, shares, 0.0)
    if renormalise:
        expected = expected / expected.sum(dim=-1, keepdim=True)
    assert torch.allclose(weights, expected, atol=1e-14)


def test_renormalised_shares_stay_finite_where_all_shares_underflow() -> None:
    """Far from the largest, a softmax over all experts is 0; over the chosen ones it isn't."""
    router = SoftmaxRouter(weight=WEIGHT * 1e4, top_k=2, renormalise=True)

    weights = router(X).weights

    assert torch.allclose(weights.sum(dim=-1), torch.ones(20, dtype=torch.float64))


def test_sigmoid_router_weighs_by_the_uncorrected_score() -> None:
    """A correction as large as this one overrules every score, and must not show in a weight."""
    correction = torch.zeros(EXPERTS, dtype=torch.float64)
    correction[[1, 6]] = 100.0
    router = SigmoidRouter(weight=WEIGHT, correction=correction, top_k=2, scale=2.5)

    weights = by_expert(router(X))

    scores = torch.sigmoid(X @ WEIGHT.T)[:, [1, 6]]
    assert torch.allclose(
        weights[:, [1, 6]], 2.5 * scores / scores.sum(dim=-1, keepdim=True), atol=1e-14
    )
    assert (weights[:, [0, 2, 3, 4, 5, 7]] == 0).all()


def test_sigmoid_router_may_leave_the_scores_as_they_are() -> None:
    router = SigmoidRouter(
        weight=WEIGHT,
        correction=torch.zeros(EXPERTS, dtype=torch.float64),
        top_k=EXPERTS,
        renormalise=False,
    )

    assert torch.allclose(by_expert(router(X)), torch.sigmoid(X @ WEIGHT.T), atol=1e-14)


def test_sigmoid_router_chooses_inside_the_best_groups() -> None:
    """A group is as good as its two best; the single best expert of all may be left out."""
    correction = torch.tensor([2, -3, 0.9, 0.9, 0.8, 0.8, 0, 0], dtype=torch.float64)
    router = SigmoidRouter(weight=WEIGHT, correction=correction, top_k=3, groups=4, kept_groups=2)

    choice = router(X)

    corrected = torch.sigmoid(X @ WEIGHT.T) + correction
    left_out_best = 0
    for row, experts in zip(corrected, choice.experts, strict=True):
        goodness = [float(row[2 * g : 2 * g + 2].sum()) for g in range(4)]
        kept = sorted(range(4), key=lambda g: -goodness[g])[:2]
        candidates = [e for e in range(EXPERTS) if e // 2 in kept]
        best = sorted(candidates, key=lambda e: -float(row[e]))[:3]
        assert set(best) == {int(expert) for expert in experts}
        left_out_best += int(row.argmax()) not in best
    assert left_out_best, "no row shows that groups matter"


def test_a_choice_names_no_expert_twice() -> None:
    router = SigmoidRouter(
        weight=WEIGHT * 0, correction=torch.zeros(EXPERTS, dtype=torch.float64), top_k=4
    )

    for row in router(X).experts:
        assert len({int(expert) for expert in row}) == 4


def test_the_sum_that_is_divided_by_may_be_larger_by_a_little() -> None:
    """Families differ in how little, and 1e-6 shows in float64."""
    correction = torch.zeros(EXPERTS, dtype=torch.float64)
    router = SigmoidRouter(weight=WEIGHT, correction=correction, top_k=EXPERTS, least_sum=0.5)

    scores = torch.sigmoid(X @ WEIGHT.T)
    assert torch.allclose(
        by_expert(router(X)), scores / (scores.sum(dim=-1, keepdim=True) + 0.5), atol=1e-14
    )
