"""The ragged step: one :class:`kernel.step.DeviceStep` on a model and its arenas.

In order: poison (where asked for), load, zero and copy, compute, draw. Any mixture of prefill
chunks and decode rows is legal, and so is any cutting of a prompt into chunks.
"""

from collections.abc import Iterator, Mapping, Sequence

import attrs
import torch
from torch import Tensor

from adapters.image_check import ArrayKind
from adapters.models.decoder import CausalModel
from adapters.models.precision import Precision
from adapters.ragged.arenas import Arenas
from adapters.ragged.images import array_kinds
from adapters.ragged.passes import PassBudget, cut
from adapters.ragged.plan import PassPlan, Sampled, Scored, plan_pass
from adapters.ragged.reads import PageContext
from adapters.ragged.run import Pass
from adapters.torch_device.prepare import (
    NewestStep,
    check_rows,
    load_images,
    poison_freed,
    prepare_pages,
    prepare_slots,
)
from adapters.torch_device.sampling import SamplingMemory, draw, score
from kernel.outputs import TokenLogprobs
from kernel.step import DeviceStep, RowFault, RowOutcome, RowScores, StepRow

__all__ = ["StepRunner"]

_LOGIT_NUMBERS = (32 << 20) // 8


@attrs.define(eq=False)
class StepRunner:
    """Runs steps on one thread at a time.

    It keeps nothing from step to step but the arenas, and what follows from open turns' own tokens.
    """

    model: CausalModel
    arenas: Arenas
    precision: Precision
    poison: bool = False
    """Fill what was given back with NaN, so that a stale read shows."""
    newest: NewestStep = attrs.field(factory=NewestStep)
    """Of all runners over these arenas."""
    _memory: SamplingMemory = attrs.field(factory=SamplingMemory, init=False)
    _kinds: Mapping[str, ArrayKind] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._kinds = array_kinds(self.arenas)

    @torch.inference_mode()
    def run(self, step: DeviceStep) -> tuple[RowOutcome, ...]:
        """Run a whole step; the outcome of each row."""
        outcomes: list[RowOutcome] = [None] * len(step.rows)
        prompts: dict[int, list[TokenLogprobs]] = {}
        rows, faults = self._prepare(step)
        for plan, hidden in self._passes(rows):
            for scored in plan.scored:
                prompts.setdefault(scored.row, []).extend(self._score(scored, hidden))
            for sampled, logits in self._logits(plan, hidden):
                drawn = draw(logits, [sampling for _, sampling in sampled], self._memory)
                for (row, _), outcome in zip(sampled, drawn, strict=True):
                    outcomes[row] = outcome
        for row, found in prompts.items():
            outcomes[row] = _with_prompt(outcomes[row], found)
        for row, fault in faults.items():
            outcomes[row] = fault
        if self.model.head.device.type == "cuda":
            # A step that draws nothing is reported as well, and then others read what it wrote.
            torch.cuda.current_stream(self.model.head.device).synchronize()
        return tuple(outcomes)

    def forward(self, step: DeviceStep) -> Iterator[tuple[list[Sampled], Tensor]]:
        """Compute the step up to the drawing, in one pass or several.

        Yields sampling rows (index in the step, how it draws) and their logits
        [rows, vocabulary], each row once.
        """
        for plan, hidden in self._passes(self._prepare(step)[0]):
            yield from self._logits(plan, hidden)

    def _prepare(self, step: DeviceStep) -> tuple[Sequence[StepRow], Mapping[int, RowFault]]:
        """Everything before the passes; the rows to compute, and faults by their places."""
        check_rows(step.rows)
        if self.poison and self.newest.reached(step.step):
            poison_freed(self.arenas, step)
        rows, faults = load_images(self.arenas, self._kinds, step.rows)
        if self.model.shape.states:
            prepare_slots(self.arenas, rows)
        if self.model.shape.kv is not None:
            prepare_pages(self.arenas, rows)
        return rows, faults

    def _passes(self, rows: Sequence[StepRow]) -> Iterator[tuple[PassPlan, Tensor]]:
        """Each pass of a step, and what the model makes of its tokens: [tokens, hidden]."""
        shape = self.model.shape
        context = PageContext(
            shape=shape,
            page_size=self.arenas.pages.page_size,
            padding_page=self.arenas.pages.padding,
            compute=self.precision.compute,
        )
        for pieces in cut(rows, PassBudget.of(shape), page_size=context.page_size):
            plan = plan_pass(context, pieces, self.model.head.device)
            yield plan, self.model.hidden(Pass(plan, self.arenas))

    def _logits(self, plan: PassPlan, hidden: Tensor) -> Iterator[tuple[list[Sampled], Tensor]]:
        last, block = hidden.index_select(0, plan.sample_at), self._block
        for start in range(0, len(plan.sampled), block):
            part = slice(start, start + block)
            yield plan.sampled[part], self.model.logits(last[part])

    def _score(self, scored: Scored, hidden: Tensor) -> Iterator[TokenLogprobs]:
        """Log-probabilities of the targets of one row, in their order."""
        targets, count, block = scored.scoring.targets, scored.scoring.count, self._block
        for start in range(0, len(targets), block):
            part = targets[start : start + block]
            at = scored.start + start
            logits = self.model.logits(hidden[at : at + len(part)])
            yield from score(logits, part, [count] * len(part))

    @property
    def _block(self) -> int:
        """Rows of logits that are computed at once."""
        return max(1, _LOGIT_NUMBERS // self.model.shape.vocab_size)


def _with_prompt(outcome: RowOutcome, prompt: list[TokenLogprobs]) -> RowOutcome:
    if isinstance(outcome, RowFault):
        return outcome
    if isinstance(outcome, RowScores):
        return attrs.evolve(outcome, prompt=tuple(prompt))
    return RowScores(outcome, prompt=tuple(prompt))
