"""A tiny random hybrid on torch, and its oracle: one forward pass in the simplest correct form."""

from collections.abc import Mapping

import attrs
import torch
from torch import Tensor

from adapters.models.hybrid import HybridConfig
from adapters.models.reference import reference_logits
from adapters.models.weights import random_weights
from adapters.torch_device import TorchDevice
from tests.oracle.masked import Window, masked_logits
from tests.oracle.world import Finished

__all__ = ["TIE", "TinyModel", "Verdict"]

TIE = 1e-9
"""Two leading candidates closer than this are a tie: reported, not failed."""


@attrs.frozen
class Verdict:
    """How a turn's tokens compare with the oracle's."""

    differing: int
    ties: int
    tokens: int


class TinyModel:
    """Weights drawn from a seed, shared by the device under test and its oracle."""

    def __init__(self, seed: int, *, layer_types: tuple[str, ...] | None = None) -> None:
        self.config = HybridConfig(
            vocab_size=61,
            hidden_size=32,
            layer_types=layer_types or ("mamba2", "attention", "mamba2"),
            intermediate_size=0,
            state_size=8,
            head_dim=8,
            expand=2,
            n_groups=1,
            conv_kernel=4,
            chunk_size=8,
            num_heads=4,
            num_kv_heads=2,
            attn_head_dim=8,
            max_model_len=512,
            eos_token_ids=(),
        )
        self.weights: Mapping[str, Tensor] = random_weights(
            self.config, seed=seed, dtype=torch.float64
        )

    def device(self, dtype: str) -> TorchDevice:
        """A fresh device over the same weights, whose given-back memory is poisoned."""
        return TorchDevice.of_weights(
            self.config.to_dict(), self.weights, dtype=dtype, num_threads=1, poison=True
        )

    def judge(self, turn: Finished, window: Window | None = None) -> Verdict:
        """Check every generated token against the oracle's logits over the same history.

        Args:
            window: of the engine, for a turn of a session that slides.
        """
        if not turn.tokens:
            return Verdict(0, 0, 0)
        sequence = torch.tensor([[*turn.context, *turn.tokens]])
        if window is None:
            logits = reference_logits(self.config, self.weights, sequence)[0]
        else:
            logits = masked_logits(self.config, self.weights, sequence, window)[0]
        start = len(turn.context) - 1
        differing = ties = 0
        for offset, token in enumerate(turn.tokens):
            row = logits[start + offset]
            if int(row.argmax()) != token:
                differing += 1
                ties += float(row.max() - row[token]) < TIE
        return Verdict(differing, ties, len(turn.tokens))
