"""Experts load alike from every layout in which files hold them."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from adapters.layers.mlp import relu_squared
from adapters.models.errors import MisshapenTensor, MissingTensor
from adapters.models.experts import load_experts, load_granite_experts
from adapters.models.loader import TensorLoader
from adapters.models.precision import Precision
from adapters.models.store import MemoryStore

EXPERTS, HIDDEN, WIDTH = 3, 4, 5
PRECISION = Precision(weights=torch.bfloat16, compute=torch.float32, state=torch.float32)


def numbers(*shape: int, seed: int) -> Tensor:
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return drawn.bfloat16().float()


UP, DOWN = numbers(EXPERTS, 2 * WIDTH, HIDDEN, seed=1), numbers(EXPERTS, HIDDEN, WIDTH, seed=2)
ROUTER = numbers(EXPERTS, HIDDEN, seed=3)


def loader(tensors: Mapping[str, Tensor], device: str = "cpu") -> TensorLoader:
    named = {f"mlp.{name}": tensor for name, tensor in tensors.items()}
    return TensorLoader(MemoryStore(named), PRECISION, torch.device(device)).under("mlp.")


def split() -> dict[str, Tensor]:
    """Each expert's projections apart."""
    gate, up = UP.chunk(2, dim=1)
    stacks = {"gate_proj": gate, "up_proj": up, "down_proj": DOWN}
    return {
        f"{expert}.{name}.weight": stacked[expert]
        for name, stacked in stacks.items()
        for expert in range(EXPERTS)
    }


def check(tensors: TensorLoader) -> None:
    tensors.asked.check(tensors.store.tensors)


@pytest.mark.parametrize(
    "tensors",
    [split(), {"gate_up_proj": UP, "down_proj": DOWN}],
    ids=["split", "fused"],
)
def test_gated_experts_are_gate_then_up_in_the_weights_type(tensors: dict[str, Tensor]) -> None:
    weights = loader(tensors)

    experts = load_experts(weights, experts=EXPERTS, hidden=HIDDEN, width=WIDTH)

    check(weights)
    assert experts.gated
    assert experts.up_proj.dtype == experts.down_proj.dtype == torch.bfloat16
    assert torch.equal(experts.up_proj.float(), UP)
    assert torch.equal(experts.down_proj.float(), DOWN)


@pytest.mark.parametrize("fused", [False, True])
def test_experts_without_a_gate_have_one_projection_up(fused: bool) -> None:
    ups, downs = UP[:, :WIDTH], DOWN
    tensors = {"up_proj": ups, "down_proj": downs}
    if not fused:
        tensors = {
            f"{expert}.{name}.weight": stacked[expert]
            for name, stacked in tensors.items()
            for expert in range(EXPERTS)
        }
    weights = loader(tensors)

    experts = load_experts(
        weights, experts=EXPERTS, hidden=HIDDEN, width=WIDTH, gated=False, activation=relu_squared
    )

    check(weights)
    assert not experts.gated
    assert experts.activation is relu_squared
    assert torch.equal(experts.up_proj.float(), ups)
    assert torch.equal(experts.down_proj.float(), downs)


@pytest.mark.parametrize(
    "tensors",
    [
        {
            "router.layer.weight": ROUTER,
            "input_linear.weight": UP,
            "output_linear.weight": DOWN,
        },
        {"router.weight": ROUTER, "experts.gate_up_proj": UP, "experts.down_proj": DOWN},
    ],
    ids=["published", "library"],
)
def test_granite_experts_load_under_both_names(tensors: dict[str, Tensor]) -> None:
    weights = loader(tensors)

    router, experts = load_granite_experts(weights, experts=EXPERTS, hidden=HIDDEN, width=WIDTH)

    check(weights)
    assert router.dtype == torch.float32
    assert torch.equal(router, ROUTER)
    assert torch.equal(experts.up_proj.float(), UP)
    assert torch.equal(experts.down_proj.float(), DOWN)


def test_a_missing_expert_is_named() -> None:
    tensors = split()
    del tensors["1.up_proj.weight"]
    weights = loader(tensors, "meta")
    load_experts(weights, experts=EXPERTS, hidden=HIDDEN, width=WIDTH)

    with pytest.raises(MissingTensor, match=r"mlp\.1\.up_proj\.weight \[5, 4\]"):
        check(weights)


def test_a_stack_of_too_few_experts_is_misshapen() -> None:
    weights = loader({"gate_up_proj": UP[:2], "down_proj": DOWN}, "meta")
    load_experts(weights, experts=EXPERTS, hidden=HIDDEN, width=WIDTH)

    with pytest.raises(MisshapenTensor, match=r"mlp\.gate_up_proj is \[2, 10, 4\]"):
        check(weights)
