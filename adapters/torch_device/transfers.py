"""Transfers: states copied from the device's memory to the host's, and read into images.

They run on a thread of their own and, on an accelerator, on a stream of their own, beside the
steps. What they read is at rest: the step that wrote it has been reported, and a step is reported
when all that it has launched is done.
"""

from collections.abc import Mapping
from contextlib import nullcontext

import attrs
import torch

from adapters.image_check import ArrayKind
from adapters.ragged.arenas import Arenas
from adapters.ragged.images import array_kinds, read_image
from adapters.torch_device.prepare import NewestStep, StepRefused
from kernel.state_image import StateImage
from kernel.step import CopyOut, ReadOut, TransferStep
from ownership import NoSlot, Place

__all__ = ["TransferRunner"]


@attrs.define(eq=False)
class TransferRunner:
    """Runs transfers on one thread at a time."""

    arenas: Arenas
    device: torch.device
    poison: bool = False
    """Fill host memory that was given back with NaN, so that a stale read shows."""
    newest: NewestStep = attrs.field(factory=NewestStep)
    """Of all runners over these arenas."""
    _kinds: Mapping[str, ArrayKind] = attrs.field(init=False)
    _stream: torch.cuda.Stream | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._kinds = array_kinds(self.arenas)
        if self.device.type == "cuda":
            self._stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    @torch.inference_mode()
    def run(self, step: TransferStep) -> tuple[StateImage | None, ...]:
        """Copy and read, row by row; an image for each row that is read out.

        Raises:
            StepRefused: two rows write one slot or page; nothing was touched.
            ValueError: there is no host memory, or pages don't cover their position.
        """
        _check_targets(step)
        with nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            try:
                self._poison(step)
                return tuple([self._row(row) for row in step.rows])
            finally:
                # Also of a transfer that fails at its second row: once it is reported, the host
                # memory that its first row's copy still writes is somebody else's.
                if self._stream is not None:
                    self._stream.synchronize()

    def _row(self, row: CopyOut | ReadOut) -> StateImage | None:
        if isinstance(row, ReadOut):
            return read_image(
                self.arenas.at(row.place),
                self._kinds,
                row.slot,
                row.pages,
                position=row.position,
                first_page=row.first_page,
            )
        host = self.arenas.at(Place.HOST)
        if not isinstance(row.source, NoSlot) and not isinstance(row.target, NoSlot):
            host.states.copy(row.source, row.target, self.arenas.states)
        if row.pages:
            pairs = [(copy.source, copy.target) for copy in row.pages]
            host.pages.copy_all(pairs, self.arenas.pages)
        return None

    def _poison(self, step: TransferStep) -> None:
        if not (self.poison and self.newest.reached(step.step)):
            return
        host = self.arenas.host
        if step.freed_slots and host is not None:
            host.states.fill(step.freed_slots, float("nan"))
        if step.freed_pages and host is not None:
            host.pages.fill(step.freed_pages, float("nan"))


def _check_targets(step: TransferStep) -> None:
    """Refuse a transfer that would write one slot or page from two rows."""
    copies = [row for row in step.rows if isinstance(row, CopyOut)]
    slots = [row.target for row in copies if not isinstance(row.target, NoSlot)]
    pages = [copy.target for row in copies for copy in row.pages]
    if len(set(slots)) != len(slots) or len(set(pages)) != len(pages):
        raise StepRefused("two rows of one transfer write the same slot or page of the host")
