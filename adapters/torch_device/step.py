"""The ragged step: one :class:`kernel.step.DeviceStep` on a model and its arenas.

In order: poison (where asked for), zero and copy, compute, draw. Any mixture of prefill chunks and
decode rows is legal, and so is any cutting of a prompt into chunks.
"""

from collections.abc import Sequence

import attrs
import torch
from torch import Tensor

from adapters.models.hybrid import HybridConfig
from adapters.torch_device.arenas import Arenas
from adapters.torch_device.layers import attention_mixer, mamba_mixer, mlp
from adapters.torch_device.passes import PassBudget, cut
from adapters.torch_device.plan import PassPlan, plan_pass
from adapters.torch_device.reads import PageContext
from adapters.torch_device.sampler import draw
from adapters.torch_device.weights import (
    AttentionWeights,
    ModelWeights,
    Precision,
    linear,
    rms_norm,
)
from kernel.step import CopyOf, DeviceStep, RowSampling, StepRow

__all__ = ["StepRefused", "StepRunner"]

_LOGIT_NUMBERS = (32 << 20) // 8


class StepRefused(RuntimeError):
    """The step contradicts itself; nothing was touched."""


@attrs.frozen(eq=False)
class StepRunner:
    """Runs steps on one thread at a time; keeps nothing from step to step but the arenas."""

    config: HybridConfig
    weights: ModelWeights
    arenas: Arenas
    precision: Precision
    poison: bool = False
    """Fill what was given back with NaN, so that a stale read shows."""

    @torch.inference_mode()
    def run(self, step: DeviceStep) -> tuple[int | None, ...]:
        """Run a whole step; the drawn token of each row, ``None`` where it doesn't sample."""
        self._check(step.rows)
        if self.poison:
            self._poison(step)
        self._prepare_slots(step.rows)
        self._prepare_pages(step.rows)
        drawn: list[int | None] = [None] * len(step.rows)
        context = PageContext(
            config=self.config,
            page_size=self.arenas.pages.page_size,
            padding_page=self.arenas.pages.padding,
            compute=self.precision.compute,
        )
        for pieces in cut(step.rows, PassBudget.of(self.config)):
            plan = plan_pass(context, pieces, self.weights.embed.device)
            x = self._forward(plan)
            for row, token in self._draw(plan, x):
                drawn[row] = token
        return tuple(drawn)

    def _check(self, rows: Sequence[StepRow]) -> None:
        if not self.config.mamba_layers:
            return
        slots = {row.slot for row in rows}
        if len(slots) != len(rows):
            raise StepRefused("two rows of one step name the same slot")

    def _poison(self, step: DeviceStep) -> None:
        if step.freed_slots and self.config.mamba_layers:
            self.arenas.state.fill(step.freed_slots, float("nan"))
        if step.freed_pages and self.config.attention_layers:
            self.arenas.pages.fill(step.freed_pages, float("nan"))

    def _prepare_slots(self, rows: Sequence[StepRow]) -> None:
        if not self.config.mamba_layers:
            return
        state = self.arenas.state
        zeroed = [row.slot for row in rows if row.initial == "zeros"]
        if zeroed:
            state.fill([slot for slot in zeroed if isinstance(slot, int)], 0.0)
        for row in rows:
            if isinstance(row.initial, CopyOf) and isinstance(row.slot, int):
                state.copy(row.initial.slot, row.slot)

    def _prepare_pages(self, rows: Sequence[StepRow]) -> None:
        """Copy tails, and clear the pages that this step begins (see ``attention``)."""
        if not self.config.attention_layers:
            return
        pages, size = self.arenas.pages, self.arenas.pages.page_size
        begun: list[int] = []
        for row in rows:
            if row.tail_copy is not None:
                pages.copy(row.tail_copy.source, row.tail_copy.target)
            end = row.position + len(row.tokens)
            begun.extend(row.pages[-(-row.position // size) : -(-end // size)])
        if begun:
            pages.fill(begun, 0.0)

    def _forward(self, plan: PassPlan) -> Tensor:
        """Hidden state after every token of the pass: [tokens, hidden]."""
        eps, recurrent, attention = self.config.norm_eps, 0, 0
        x = self.weights.embed.index_select(0, plan.tokens).to(self.precision.compute)
        for layer in self.weights.layers:
            normed = rms_norm(x, layer.norm, eps)
            if isinstance(layer.mixer, AttentionWeights):
                assert plan.attention is not None
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

    def logits(self, x: Tensor) -> Tensor:
        """Logits after some tokens. x: [rows, hidden]; result [rows, vocabulary]."""
        return linear(rms_norm(x, self.weights.final_norm, self.config.norm_eps), self.weights.head)

    def _draw(self, plan: PassPlan, x: Tensor) -> list[tuple[int, int]]:
        """Draw for the sampling rows of a pass: (row of the step, token)."""
        last = x.index_select(0, plan.sample_at)
        block = max(1, _LOGIT_NUMBERS // self.config.vocab_size)
        drawn: list[tuple[int, int]] = []
        for start in range(0, len(plan.sampled), block):
            part = plan.sampled[start : start + block]
            how: list[RowSampling] = [sampling for _, sampling in part]
            tokens = draw(self.logits(last[start : start + block]), how)
            drawn.extend(zip((row for row, _ in part), tokens, strict=True))
        return drawn
