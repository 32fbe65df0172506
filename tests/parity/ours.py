"""Our side: a directory that transformers wrote, on a device whose memory held NaN before.

Sequences get slots and pages in no order; what is given back is poisoned, so a stale read shows.
"""

import random
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import attrs
import torch
from torch import Tensor

from adapters.models.config_reader import ConfigReader
from adapters.models.directory import open_store
from adapters.models.registry import load_model
from adapters.torch_device import TorchDevice
from adapters.torch_device.precision import choose_precision
from kernel.step import CopyOf, DeviceLimits, DeviceStep, InitialState, PageCopy, StepRow
from ownership import NO_SLOT, PageIndex, SlotIndex
from tests.torch_device.support import GREEDY

__all__ = ["Desk", "Sequenced", "open_device"]

PAGE_SIZE = 4
_SLOTS, _PAGES = 6, 90


def open_device(directory: Path, dtype: str) -> TorchDevice:
    """The model of a directory, as ``EngineConfig(model=...)`` opens it."""
    where = torch.device("cpu")
    precision = choose_precision(dtype, where)
    with closing(open_store(directory)) as store:
        model, asked = load_model(ConfigReader.load(directory), store, precision, where)
    return TorchDevice(
        model,
        precision,
        num_parameters=asked.num_parameters,
        device=where,
        num_threads=1,
        poison=True,
    )


@attrs.define(eq=False)
class Sequenced:
    """A text on the device, and how much of it is absorbed."""

    tokens: tuple[int, ...]
    slot: SlotIndex
    pages: list[PageIndex]
    position: int = 0
    initial: InitialState = "zeros"
    tail_copy: PageCopy | None = None

    @property
    def left(self) -> int:
        return len(self.tokens) - self.position


class Desk:
    """Slots and pages of a device, lent to sequences; runs steps and gives their logits."""

    def __init__(self, device: TorchDevice, seed: int = 0) -> None:
        device.allocate(
            DeviceLimits(
                num_slots=_SLOTS,
                num_pages=_PAGES,
                page_size=PAGE_SIZE,
                max_rows=_SLOTS,
                max_step_tokens=256,
            )
        )
        self._model = device.model
        nan = float("nan")
        device.arenas.states.fill(range(_SLOTS), nan)
        device.arenas.pages.fill(range(_PAGES), nan)
        self._runner = device.runner()
        self._random = random.Random(seed)
        self._slots = [SlotIndex(slot) for slot in range(_SLOTS)]
        self._pages = [PageIndex(page) for page in range(_PAGES)]
        self._random.shuffle(self._slots)
        self._random.shuffle(self._pages)
        self._freed = DeviceStep(step=0, rows=[])

    def begin(self, tokens: Sequence[int]) -> Sequenced:
        """A new sequence that has absorbed nothing."""
        pages = [self._pages.pop() for _ in range(-(-len(tokens) // PAGE_SIZE))]
        return Sequenced(tuple(tokens), self._slots.pop(), pages)

    def turn(self, base: Sequenced) -> Sequenced:
        """Go on from a session's state as a turn does: on a copy, the base untouched."""
        other = self.begin(base.tokens)
        full, tail = divmod(base.position, PAGE_SIZE)
        if tail and self._model.uses_pages:
            other.tail_copy = PageCopy(source=base.pages[full], target=other.pages[full])
        self._pages.extend(other.pages[:full])
        other.pages[:full] = base.pages[:full]
        other.position, other.initial = base.position, CopyOf(base.slot)
        return other

    def end(self, sequence: Sequenced, kept: Sequenced | None = None) -> None:
        """Give back what ``kept`` doesn't share; the next step poisons it."""
        pages = [page for page in sequence.pages if kept is None or page not in kept.pages]
        self._slots.insert(0, sequence.slot)
        self._pages = pages + self._pages
        self._freed = attrs.evolve(
            self._freed,
            freed_slots=[*self._freed.freed_slots, sequence.slot],
            freed_pages=[*self._freed.freed_pages, *pages],
        )

    def run(self, parts: Sequence[tuple[Sequenced, int]]) -> list[Tensor]:
        """One step: each sequence absorbs so many tokens. Its logits after the last of them."""
        rows = [self._row(sequence, count) for sequence, count in parts]
        step, self._freed = attrs.evolve(self._freed, rows=rows), DeviceStep(step=0, rows=[])
        found: dict[int, Tensor] = {}
        with torch.inference_mode():
            for sampled, logits in self._runner.forward(step):
                found |= {row: logits[at].double() for at, (row, _) in enumerate(sampled)}
        return [found[row] for row in range(len(rows))]

    def _row(self, sequence: Sequenced, count: int) -> StepRow:
        row = StepRow(
            slot=sequence.slot if self._model.uses_slots else NO_SLOT,
            initial=sequence.initial if self._model.uses_slots else "kept",
            position=sequence.position,
            tokens=sequence.tokens[sequence.position : sequence.position + count],
            pages=sequence.pages if self._model.uses_pages else (),
            tail_copy=sequence.tail_copy,
            sampling=GREEDY,
        )
        sequence.position += count
        sequence.initial, sequence.tail_copy = "kept", None
        return row
