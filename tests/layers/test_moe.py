"""The mixture of experts against the same sum written token by token."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from adapters.layers import moe
from adapters.layers.mlp import GatedMlp, relu_squared
from adapters.layers.moe import Experts, LatentProjection, MixtureOfExperts
from adapters.layers.routers import Choice, SigmoidRouter, SoftmaxRouter
from tests.layers.laying_out import numbers

EXPERTS, HIDDEN, WIDTH, CHOSEN = 6, 8, 5, 3


def gated_experts(seed: int = 1) -> Experts:
    return Experts(
        up_proj=numbers(EXPERTS, 2 * WIDTH, HIDDEN, seed=seed),
        down_proj=numbers(EXPERTS, HIDDEN, WIDTH, seed=seed + 1),
    )


def plain_experts() -> Experts:
    return Experts(
        up_proj=numbers(EXPERTS, WIDTH, HIDDEN, seed=3),
        down_proj=numbers(EXPERTS, HIDDEN, WIDTH, seed=4),
        activation=relu_squared,
    )


def choice(tokens: int) -> Choice:
    experts = numbers(tokens, EXPERTS, seed=5).topk(CHOSEN).indices
    return Choice(experts, numbers(tokens, CHOSEN, seed=6))


def token_by_token(x: Tensor, chosen: Choice, expert: Callable[[int, Tensor], Tensor]) -> Tensor:
    rows: list[Tensor] = []
    for token, experts, weights in zip(x, chosen.experts, chosen.weights, strict=True):
        row = torch.zeros_like(token)
        for which, weight in zip(experts, weights, strict=True):
            row += weight * expert(int(which), token)
        rows.append(row)
    return torch.stack(rows)


@pytest.mark.parametrize("tokens", [1, 2, 33])
def test_gated_experts_give_each_token_its_weighted_sum(tokens: int) -> None:
    experts, x, chosen = gated_experts(), numbers(tokens, HIDDEN, seed=7), choice(tokens)

    def expert(which: int, token: Tensor) -> Tensor:
        widened = experts.up_proj[which] @ token
        silu = widened[:WIDTH] * torch.sigmoid(widened[:WIDTH])
        return experts.down_proj[which] @ (silu * widened[WIDTH:])

    assert torch.allclose(experts(x, chosen), token_by_token(x, chosen, expert), atol=1e-12)


def test_experts_without_a_gate_square_the_positive_part() -> None:
    experts, x, chosen = plain_experts(), numbers(9, HIDDEN, seed=7), choice(9)

    def expert(which: int, token: Tensor) -> Tensor:
        return experts.down_proj[which] @ (experts.up_proj[which] @ token).clamp_min(0) ** 2

    assert torch.allclose(experts(x, chosen), token_by_token(x, chosen, expert), atol=1e-12)


def test_weights_of_an_expert_that_nobody_chose_are_not_read() -> None:
    """They would be read into every decode step; not-a-number in them would show."""
    experts, x = gated_experts(), numbers(4, HIDDEN, seed=7)
    chosen = Choice(torch.tensor([[0, 2]] * 4), numbers(4, 2, seed=6))
    expected = experts(x, chosen)
    for weights in (experts.up_proj, experts.down_proj):
        weights[[1, 3, 4, 5]] = float("nan")

    assert torch.equal(experts(x, chosen), expected)


def test_a_token_does_not_depend_on_the_others() -> None:
    experts, x, chosen = gated_experts(), numbers(16, HIDDEN, seed=7), choice(16)

    together = experts(x, chosen)

    for token in range(16):
        alone = Choice(chosen.experts[token, None], chosen.weights[token, None])
        assert torch.allclose(experts(x[token, None], alone)[0], together[token], atol=1e-12)
    other = x.clone()
    other[8:] = float("nan")
    assert torch.equal(experts(other, chosen)[:8], together[:8])


def test_the_same_input_gives_the_same_bits() -> None:
    experts, x, chosen = gated_experts(), numbers(64, HIDDEN, seed=7).float(), choice(64)
    narrow = Experts(up_proj=experts.up_proj.float(), down_proj=experts.down_proj.float())
    chosen = Choice(chosen.experts, chosen.weights.float())

    assert torch.equal(narrow(x, chosen), narrow(x, chosen))


def test_many_tokens_go_through_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    experts, x, chosen = gated_experts(), numbers(33, HIDDEN, seed=7), choice(33)
    whole = experts(x, chosen)

    monkeypatch.setattr(moe, "_MOST_NUMBERS", 7 * CHOSEN * 2 * WIDTH)

    assert torch.allclose(experts(x, chosen), whole, atol=1e-12)
    monkeypatch.setattr(moe, "_MOST_NUMBERS", 1)
    assert torch.allclose(experts(x, chosen), whole, atol=1e-12)


def test_narrow_weights_give_a_result_of_the_inputs_type() -> None:
    experts, x, chosen = gated_experts(), numbers(5, HIDDEN, seed=7).float(), choice(5)
    narrow = Experts(up_proj=experts.up_proj.bfloat16(), down_proj=experts.down_proj.bfloat16())
    chosen = Choice(chosen.experts, chosen.weights.float())

    result = narrow(x, chosen)

    assert result.dtype == torch.float32
    exact = experts(x.double(), Choice(chosen.experts, chosen.weights.double()))
    assert (result - exact).abs().max() < 0.02 * exact.abs().max()


def test_no_tokens_are_fine() -> None:
    experts = gated_experts()
    nothing = Choice(torch.empty(0, CHOSEN, dtype=torch.int64), numbers(0, CHOSEN, seed=1))

    assert experts(numbers(0, HIDDEN, seed=1), nothing).shape == (0, HIDDEN)


def test_shared_block_and_its_gate_are_added() -> None:
    x = numbers(7, HIDDEN, seed=8)
    router = SoftmaxRouter(weight=numbers(EXPERTS, HIDDEN, seed=9), top_k=CHOSEN, renormalise=True)
    shared = GatedMlp(
        gate_up_proj=numbers(10, HIDDEN, seed=10), down_proj=numbers(HIDDEN, 5, seed=11)
    )
    gate = numbers(1, HIDDEN, seed=12)
    routed = MixtureOfExperts(router=router, experts=gated_experts())(x)

    plain = MixtureOfExperts(router=router, experts=gated_experts(), shared=shared)
    scaled = MixtureOfExperts(
        router=router, experts=gated_experts(), shared=shared, shared_gate=gate
    )

    assert torch.allclose(plain(x), routed + shared(x), atol=1e-12)
    assert torch.allclose(scaled(x), routed + torch.sigmoid(x @ gate.T) * shared(x), atol=1e-12)


def test_latent_experts_work_between_two_projections() -> None:
    """The router sees the wide input, the experts the narrow one."""
    latent, x = 4, numbers(7, HIDDEN, seed=8)
    router = SoftmaxRouter(weight=numbers(EXPERTS, HIDDEN, seed=9), top_k=2, renormalise=False)
    experts = Experts(
        up_proj=numbers(EXPERTS, WIDTH, latent, seed=1),
        down_proj=numbers(EXPERTS, latent, WIDTH, seed=2),
        activation=functional.relu,
    )
    ways = LatentProjection(
        enter=numbers(latent, HIDDEN, seed=3),
        enter_bias=numbers(latent, seed=4),
        leave=numbers(HIDDEN, latent, seed=5),
        leave_bias=numbers(HIDDEN, seed=6),
    )
    assert ways.enter_bias is not None
    assert ways.leave_bias is not None

    result = MixtureOfExperts(router=router, experts=experts, latent=ways)(x)

    inside = experts(x @ ways.enter.T + ways.enter_bias, router(x))
    assert torch.allclose(result, inside @ ways.leave.T + ways.leave_bias, atol=1e-12)


def test_sigmoid_router_feeds_the_experts() -> None:
    x = numbers(3, HIDDEN, seed=8)
    router = SigmoidRouter(
        weight=numbers(EXPERTS, HIDDEN, seed=9), correction=numbers(EXPERTS, seed=10), top_k=2
    )

    result = MixtureOfExperts(router=router, experts=plain_experts())(x)

    assert torch.allclose(result, plain_experts()(x, router(x)), atol=1e-12)
