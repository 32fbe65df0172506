"""The ragged step: one :class:`kernel.step.DeviceStep` on a model and its arenas.

In order: poison (where asked for), zero and copy, compute, draw. Any mixture of prefill chunks and
decode rows is legal, and so is any cutting of a prompt into chunks.
"""

from collections.abc import Iterator

import attrs
import torch
from torch import Tensor

from adapters.models.decoder import CausalModel
from adapters.models.precision import Precision
from adapters.ragged.arenas import Arenas
from adapters.ragged.passes import PassBudget, cut
from adapters.ragged.plan import Sampled, plan_pass
from adapters.ragged.reads import PageContext
from adapters.ragged.run import Pass
from adapters.torch_device.prepare import check_rows, poison_freed, prepare_pages, prepare_slots
from adapters.torch_device.sampler import draw
from kernel.step import DeviceStep

__all__ = ["StepRunner"]

_LOGIT_NUMBERS = (32 << 20) // 8


@attrs.define(eq=False)
class StepRunner:
    """Runs steps on one thread at a time; keeps nothing from step to step but the arenas."""

    model: CausalModel
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
        shape = self.model.shape
        if shape.states:
            prepare_slots(self.arenas.states, step.rows)
        if shape.kv is not None:
            prepare_pages(self.arenas.pages, step.rows)
        context = PageContext(
            shape=shape,
            page_size=self.arenas.pages.page_size,
            padding_page=self.arenas.pages.padding,
            compute=self.precision.compute,
        )
        block = max(1, _LOGIT_NUMBERS // shape.vocab_size)
        for pieces in cut(step.rows, PassBudget.of(shape)):
            plan = plan_pass(context, pieces, self.model.head.device)
            last = self.model.hidden(Pass(plan, self.arenas)).index_select(0, plan.sample_at)
            for start in range(0, len(plan.sampled), block):
                part = slice(start, start + block)
                yield plan.sampled[part], self.model.logits(last[part])
