"""The sequential reference: what a token is after a history, computed cold, alone and greedy."""

from collections.abc import Sequence

from kernel.step import (
    DeviceLimits,
    DeviceStep,
    InitialState,
    RowSampling,
    StepDone,
    StepReport,
    StepRow,
    WorkerContext,
)
from kernel.testing.device import FaultyDevice
from ownership import NO_SLOT, PageIndex, SlotIndex

__all__ = ["Reference"]

_MAX_LEN = 1024
_GREEDY = RowSampling(temperature=0.0, top_k=0, top_p=1.0, key=0, index=0)


class Reference:
    """Draws the next token of a history on a device of its own, and remembers it."""

    def __init__(self, device: FaultyDevice, page_size: int = 16) -> None:
        model = device.model
        self._slot = SlotIndex(0) if model.uses_slots else NO_SLOT
        pages = -(-_MAX_LEN // page_size) if model.uses_pages else 0
        self._pages = [PageIndex(page) for page in range(pages)]
        device.allocate(DeviceLimits(int(model.uses_slots), pages, page_size, 1, _MAX_LEN))
        self._worker = device.start_worker(WorkerContext(lambda _delay, _fire: None))
        self._known: dict[tuple[int, ...], int] = {}
        self._steps = 0

    def next_token(self, history: Sequence[int]) -> int:
        """The token that follows a history."""
        key = tuple(history)
        token = self._known.get(key)
        if token is None:
            token = self._known[key] = self._draw(key)
        return token

    def _draw(self, history: tuple[int, ...]) -> int:
        self._steps += 1
        initial: InitialState = "zeros" if self._slot is not NO_SLOT else "kept"
        row = StepRow(self._slot, initial, 0, history, self._pages, None, _GREEDY)
        reports: list[StepReport] = []
        self._worker.submit(DeviceStep(self._steps, (row,)), reports.append)
        report = reports[0]
        token = report.tokens[0] if isinstance(report, StepDone) else None
        if not isinstance(token, int):
            raise RuntimeError(f"the reference could not be computed: {report}")
        return token
