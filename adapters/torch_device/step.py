"""The ragged step: one :class:`kernel.step.DeviceStep` on a model and its arenas.

In order: poison (where asked for), zero and copy, compute, draw. Any mixture of prefill chunks and
decode rows is legal, and so is any cutting of a prompt into chunks.
"""

from collections.abc import Iterator

import attrs
import torch
from torch import Tensor

from adapters.models.hybrid import HybridConfig
from adapters.torch_device.arenas import Arenas
from adapters.torch_device.layers import attention_mixer, mamba_mixer, mlp
from adapters.torch_device.passes import PassBudget, cut
from adapters.torch_device.plan import PassPlan, Sampled, plan_pass
from adapters.torch_device.prepare import check_rows, poison_freed, prepare_pages, prepare_slots
from adapters.torch_device.reads import PageContext
from adapters.torch_device.sampler import draw
from adapters.torch_device.weights import (
    AttentionWeights,
    ModelWeights,
    Precision,
    linear,
    rms_norm,
)
from kernel.step import DeviceStep

__all__ = ["StepRunner"]

_LOGIT_NUMBERS = (32 << 20) // 8


@attrs.define(eq=False)
class StepRunner:
    """Runs steps on one thread at a time; keeps nothing from step to step but the arenas."""

    config: HybridConfig
    weights: ModelWeights
    arenas: Arenas
    precision: Precision
    poison: bool = False
    """Fill what was given back with NaN, so that a stale read shows."""
    _newest_step: int = attrs.field(default=-1, init=False)

    @torch.inference_mode()
    def run(self, step: DeviceStep) -> tuple[int | None, ...]:
        """Run a whole step; the drawn token of each row, ``None`` where it doesn't sample."""
        drawn: list[int | None] = [None] * len(step.rows)
        for sampled, logits in self.forward(step):
            tokens = draw(logits, [sampling for _, sampling in sampled])
            for (row, _), token in zip(sampled, tokens, strict=True):
                drawn[row] = token
        return tuple(drawn)

    def forward(self, step: DeviceStep) -> Iterator[tuple[list[Sampled], Tensor]]:
        """Compute the step up to the drawing, in one pass or several.

        Yields sampling rows (index in the step, how it draws) and their logits
        [rows, vocabulary], each row once.
        """
        check_rows(step.rows)
        if self.poison and step.step >= self._newest_step:
            # A step that was overtaken while its worker hung would poison what others own by now.
            self._newest_step = step.step
            poison_freed(self.arenas, step)
        if self.config.mamba_layers:
            prepare_slots(self.arenas.state, step.rows)
        if self.config.attention_layers:
            prepare_pages(self.arenas.pages, step.rows)
        context = PageContext(
            config=self.config,
            page_size=self.arenas.pages.page_size,
            padding_page=self.arenas.pages.padding,
            compute=self.precision.compute,
        )
        block = max(1, _LOGIT_NUMBERS // self.config.vocab_size)
        for pieces in cut(step.rows, PassBudget.of(self.config)):
            plan = plan_pass(context, pieces, self.weights.embed.device)
            last = self._hidden(plan).index_select(0, plan.sample_at)
            for start in range(0, len(plan.sampled), block):
                part = slice(start, start + block)
                yield plan.sampled[part], self._logits(last[part])

    def _hidden(self, plan: PassPlan) -> Tensor:
        """Hidden state after every token of the pass: [tokens, hidden]."""
        eps, recurrent, attention = self.config.norm_eps, 0, 0
        x = self.weights.embed.index_select(0, plan.tokens).to(self.precision.compute)
        for layer in self.weights.layers:
            normed = rms_norm(x, layer.norm, eps)
            if isinstance(layer.mixer, AttentionWeights):
                x += attention_mixer(
                    self.config, layer.mixer, self.arenas.pages, attention, plan.attention, normed
                )
                attention += 1
            else:
                state = self.arenas.state
                x += mamba_mixer(
                    self.config,
                    layer.mixer,
                    state.conv[recurrent],
                    state.ssm[recurrent],
                    plan,
                    normed,
                )
                recurrent += 1
            if layer.mlp is not None:
                x += mlp(self.config, layer.mlp, x)
        return x

    def _logits(self, x: Tensor) -> Tensor:
        """Logits after some tokens. x: [rows, hidden]; result [rows, vocabulary]."""
        return linear(rms_norm(x, self.weights.final_norm, self.config.norm_eps), self.weights.head)
