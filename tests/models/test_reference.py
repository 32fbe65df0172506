"""The forward passes of the hybrid family agree with each other and with transformers."""

import pytest
import torch
from torch import Tensor
from transformers import Mamba2Config
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

from adapters.models.hybrid import HybridConfig
from adapters.models.reference import mamba_mixer, reference_logits, rotate
from adapters.models.weights import random_weights
from adapters.training.chunked import chunked_logits, chunked_scan
from tests.models.sizes import EVERYTHING, PLAIN


def tokens_for(config: HybridConfig, length: int) -> Tensor:
    draw = torch.Generator().manual_seed(7)
    return torch.randint(config.vocab_size, (2, length), generator=draw)


@pytest.mark.parametrize("config", [PLAIN, EVERYTHING], ids=lambda config: config.name)
def test_chunked_and_recurrent_forms_agree(config: HybridConfig) -> None:
    """Training and serving use the chunked form; the recurrence is what it must equal."""
    weights = random_weights(config, 5, torch.float64)
    tokens = tokens_for(config, 3 * config.chunk_size)

    chunked = chunked_logits(config, weights, tokens)

    torch.testing.assert_close(
        chunked, reference_logits(config, weights, tokens), rtol=0, atol=1e-12
    )


def test_strong_decay_stays_finite_in_float32() -> None:
    """Products of many small decays underflow; the chunked form only ever takes quotients <= 1."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(1, 128, 2, 4, generator=draw)
    keys = torch.randn(1, 128, 1, 8, generator=draw)
    decay = torch.full((1, 128, 2), -40.0)

    y = chunked_scan(x, decay, keys, keys, 64)

    torch.testing.assert_close(y, (keys * keys).sum(-1, keepdim=True) * x)


def test_logits_depend_on_the_past_alone() -> None:
    """A change of the last token leaves every earlier logit as it was."""
    weights = random_weights(PLAIN, 5, torch.float64)
    tokens = tokens_for(PLAIN, 9)
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % PLAIN.vocab_size

    before = reference_logits(PLAIN, weights, tokens)
    after = reference_logits(PLAIN, weights, changed)

    assert torch.equal(before[:, :-1], after[:, :-1])
    assert not torch.equal(before[:, -1], after[:, -1])


def test_rotation_makes_scores_depend_on_distance_alone() -> None:
    """The point of rotary embeddings: the same pair, moved by 100 positions, scores alike."""
    draw = torch.Generator().manual_seed(0)
    pair = torch.randn(2, 8, dtype=torch.float64, generator=draw)
    near = rotate(pair, torch.tensor([3, 10]), 10_000.0)
    far = rotate(pair, torch.tensor([103, 110]), 10_000.0)

    torch.testing.assert_close(near[0] @ near[1], far[0] @ far[1])


@pytest.mark.parametrize("config", [PLAIN, EVERYTHING], ids=lambda config: config.name)
def test_a_mamba2_layer_equals_that_of_transformers(config: HybridConfig) -> None:
    """The layout of in_proj, the order of gate and norm and the groups are theirs to define.

    transformers computes the norm in float32 whatever the weights are; hence the tolerance.
    """
    theirs = Mamba2Mixer(
        Mamba2Config(
            num_heads=config.num_mamba_heads,
            head_dim=config.head_dim,
            hidden_size=config.hidden_size,
            state_size=config.state_size,
            expand=config.expand,
            n_groups=config.n_groups,
            conv_kernel=config.conv_kernel,
            chunk_size=config.chunk_size,
            layer_norm_epsilon=config.norm_eps,
            use_bias=False,
            num_hidden_layers=1,
        ),
        layer_idx=0,
    ).double()
    own = {
        name.removeprefix("layers.2."): tensor
        for name, tensor in random_weights(config, 5, torch.float64).items()
        if name.startswith("layers.2.mixer.")
    }
    theirs.load_state_dict({name.removeprefix("mixer."): t for name, t in own.items()})
    draw = torch.Generator().manual_seed(7)
    x = torch.randn(2, 11, config.hidden_size, generator=draw, dtype=torch.float64)

    with torch.no_grad():
        expected = theirs(x)

    torch.testing.assert_close(mamba_mixer(config, own, x), expected, rtol=1e-5, atol=1e-6)
