"""Cold, solo runs without a kernel: what a turn must have drawn, whatever happened beside it.

The device is asked directly, one sequence from its first token on: the context in one step, then
each token in a step of its own. A state that was aliased, copied at the wrong moment, cut or
rebuilt at another position gives other tokens.
"""

from collections.abc import Sequence
from functools import cache
from typing import final

from kernel.engine.core import Core
from kernel.step import (
    Device,
    DeviceLimits,
    DeviceStep,
    InitialState,
    RowSampling,
    RowScores,
    StepDone,
    StepReport,
    StepRow,
    WorkerContext,
)
from kernel.testing.simulation.device import open_inner
from kernel.testing.simulation.histories import TurnRecord
from kernel.turn import OpenTurn
from ownership import NO_SLOT, PageIndex, SlotIndex

__all__ = ["ColdReference", "wrong_tokens"]

_LONGEST = 512


@final
class ColdReference:
    """One sequence after another on a device of its own."""

    def __init__(self, device: Device, page_size: int) -> None:
        model = device.model
        pages = -(-_LONGEST // page_size)
        limits = DeviceLimits(
            int(model.uses_slots), pages if model.uses_pages else 0, page_size, 1, _LONGEST
        )
        device.allocate(limits)
        self._worker = device.start_worker(WorkerContext(_no_timers))
        self._slot = SlotIndex(0) if model.uses_slots else NO_SLOT
        self._pages = tuple(map(PageIndex, range(pages))) if model.uses_pages else ()
        self._steps = 0

    def tokens(self, context: Sequence[int], turn: OpenTurn, count: int) -> tuple[int, ...]:
        """The first ``count`` tokens that a turn draws after a context."""
        drawn: list[int] = []
        known, position = list(context), 0
        initial: InitialState = "zeros"
        while len(drawn) < count:
            # One that slides sees other positions beyond each end of its window.
            end = len(known) if turn.window is None else turn.window.end(position)
            chunk = known[position:end]
            first = 0 if turn.window is None else turn.window.first_page(position)
            is_last = position + len(chunk) == len(known)
            row = StepRow(
                self._slot,
                initial,
                position,
                chunk,
                self._pages[first:],
                None,
                _sampling(turn, len(drawn)) if is_last else None,
                first_page=first,
            )
            position += len(chunk)
            report = self._run(row)
            if is_last:
                known.append(_token(report))
                drawn.append(known[-1])
            initial = "kept"
        return tuple(drawn)

    def _run(self, row: StepRow) -> StepReport:
        reports: list[StepReport] = []
        self._steps += 1
        self._worker.submit(DeviceStep(self._steps, (row,)), reports.append)
        return reports[0]


def _token(report: StepReport) -> int:
    token = report.tokens[0] if isinstance(report, StepDone) else None
    if isinstance(token, RowScores):
        token = token.token
    if not isinstance(token, int):
        raise RuntimeError(f"the reference's own step failed: {report}")
    return token


def wrong_tokens(core: Core, turns: Sequence[TurnRecord]) -> list[str]:
    """Which turns have drawn anything but what they must."""
    reference = _reference(core.model.name, core.limits.page_size)
    wrong: list[str] = []
    for record in turns:
        if record.tokens and len(record.context) + len(record.tokens) <= _LONGEST:
            expected = reference.tokens(record.context, record.turn, len(record.tokens))
            if record.tokens != expected:
                wrong.append(
                    f"{record.turn.id} of {record.session} drew {record.tokens} after "
                    f"{record.context}; a cold run draws {expected}"
                )
    return wrong


@cache
def _reference(model: str, page_size: int) -> ColdReference:
    return ColdReference(open_inner(model).device, page_size)


def _sampling(turn: OpenTurn, index: int) -> RowSampling:
    banned = tuple(sorted(turn.stop_ids)) if index < turn.min_tokens else ()
    return RowSampling(
        turn.temperature, turn.top_k, turn.top_p, turn.key, index, banned, turn.rules
    )


def _no_timers(_delay_s: float, _fire: object) -> None:
    raise RuntimeError("a device that computes at once needs no timer")
