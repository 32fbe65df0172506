"""Transfers on the explorer's device: held as steps are, and followed in plain tokens."""

from collections.abc import Sequence

import attrs
import pytest

from kernel.state_image import StateImage
from kernel.step import (
    CopyOf,
    CopyOut,
    DeviceLimits,
    DeviceStep,
    InitialState,
    PageCopy,
    ReadOut,
    StepFault,
    StepRow,
    TransferDone,
    TransferStep,
    WorkerContext,
)
from kernel.testing.explorer.held_device import Ending, HeldDevice, HeldWorker, open_inner
from ownership import NO_SLOT, NoSlot, PageIndex, Place, SlotIndex

LIMITS = DeviceLimits(4, 12, 2, 4, 16, host_slots=2, host_pages=6)


@attrs.define(eq=False)
class Bench:
    """A held device whose slot 0 and pages 0 and 1 hold three tokens."""

    device: HeldDevice
    worker: HeldWorker
    reports: list[object] = attrs.field(factory=list[object])

    @classmethod
    def of(cls, model: str = "fake") -> "Bench":
        device = HeldDevice(open_inner(model))
        device.allocate(LIMITS)
        bench = cls(device, device.start_worker(WorkerContext(lambda _delay, _fire: None)))
        bench.step(1, row([1, 2, 3], slot=bench.slot(0), initial="zeros", pages=bench.pages(0, 1)))
        return bench

    def slot(self, number: int) -> SlotIndex | NoSlot:
        return SlotIndex(number) if self.device.model.uses_slots else NO_SLOT

    def pages(self, *numbers: int) -> list[PageIndex]:
        uses_pages = self.device.model.uses_pages
        return [PageIndex(number) for number in numbers] if uses_pages else []

    def step(self, number: int, *rows: StepRow) -> None:
        self.worker.submit(DeviceStep(number, rows), self.reports.append)
        self.device.end(self.worker.held[0], "done")

    def park(self, how: Ending = "done", source: int = 0) -> None:
        copies = [PageCopy(page, PageIndex(page + 2)) for page in self.pages(0, 1)]
        row = CopyOut(self.slot(source), self.slot(1), copies)
        self.worker.transfer(TransferStep(5, (row,)), self.reports.append)
        self.device.end(self.worker.transfers[0], how)

    def image(self, pages: Sequence[int] = (0, 1), position: int = 3) -> StateImage:
        out = ReadOut(Place.DEVICE, self.slot(0), [PageIndex(page) for page in pages], position)
        self.worker.transfer(TransferStep(6, (out,)), self.reports.append)
        report = self.device.end(self.worker.transfers[0], "done")
        assert isinstance(report, TransferDone), report
        (image,) = report.images
        assert image is not None
        return image


def row(
    tokens: Sequence[int],
    *,
    slot: SlotIndex | NoSlot,
    initial: InitialState = "kept",
    at: int = 0,
    pages: Sequence[int] = (),
    copies: Sequence[tuple[int, int]] = (),
    first_page: int = 0,
) -> StepRow:
    return StepRow(
        slot,
        initial,
        at,
        tokens,
        [PageIndex(page) for page in pages],
        None,
        None,
        page_copies=[PageCopy(PageIndex(a), PageIndex(b), Place.HOST) for a, b in copies],
        first_page=first_page,
    )


def test_a_transfer_is_held_beside_the_steps() -> None:
    """Neither waits for the other; each may end at any moment."""
    bench = Bench.of()
    bench.worker.submit(
        DeviceStep(2, (row([4], slot=SlotIndex(0), at=3, pages=(0, 1)),)), bench.reports.append
    )
    bench.worker.transfer(TransferStep(3, ()), bench.reports.append)

    assert [held.step.step for held in bench.device.held] == [2, 3]
    assert not bench.worker.join(0.0)
    assert bench.device.end(bench.device.held[1], "done") == TransferDone(())
    assert [held.step.step for held in bench.device.held] == [2]
    bench.device.end(bench.device.held[0], "done")
    assert bench.worker.join(0.0)


@pytest.mark.parametrize("model", ["fake", "fake-attention", "fake-recurrent"])
def test_the_memory_follows_a_state_to_the_host_and_back(model: str) -> None:
    """A copy is worth what its source was."""
    bench = Bench.of(model)
    bench.park()
    initial: InitialState = "kept"
    if bench.device.model.uses_slots:
        initial = CopyOf(SlotIndex(1), Place.HOST)
        assert bench.device.memory.host_slots[1] == (1, 2, 3)
    there, here = bench.pages(2, 3), bench.pages(8, 9)
    if there:
        assert bench.device.memory.prefix(there, 3, Place.HOST) == (1, 2, 3)
    copies = list(zip(there, here, strict=True))
    back = row([4], slot=bench.slot(2), initial=initial, at=3, pages=here, copies=copies)
    bench.step(7, back)

    assert bench.device.memory.wrong == []
    if here:
        assert bench.device.memory.prefix(here, 4) == (1, 2, 3, 4)
    else:
        assert bench.device.memory.slots[2] == (1, 2, 3, 4)
    assert not bench.device.poison_reads


def test_the_memory_knows_an_image_by_its_bytes() -> None:
    """It may have been in a file meanwhile; one that nobody has read out holds nothing known."""
    bench = Bench.of()
    image = bench.image()
    again = StateImage(image.position, dict(image.arrays))
    bench.step(7, row([], slot=SlotIndex(2), initial=again, at=3, pages=(8, 9)))
    assert bench.device.memory.slots[2] == (1, 2, 3)
    assert bench.device.memory.wrong == []

    stranger = Bench.of()
    stranger.step(7, row([4], slot=SlotIndex(2), initial=image, at=3, pages=(8, 9)))
    assert stranger.device.memory.wrong == ["step 7: slot 2 held nothing known at 3"]


def test_an_image_that_is_refused_leaves_its_row_unknown() -> None:
    """And the rest of the step as it is."""
    bench = Bench.of()
    wrong = attrs.evolve(bench.image(), arrays={})
    bench.step(
        7,
        row([4], slot=SlotIndex(2), initial=wrong, at=3, pages=(8, 9)),
        row([9], slot=SlotIndex(3), initial="zeros", pages=(10,)),
    )

    assert bench.device.memory.slots[2] is None
    assert bench.device.memory.slots[3] == (9,)
    assert bench.device.memory.wrong == []


def test_what_a_failed_transfer_has_written_is_unknown() -> None:
    """What it has read is not."""
    bench = Bench.of()
    bench.park("failed")

    assert isinstance(bench.reports[-1], StepFault)
    assert bench.device.memory.host_slots[1] is None
    assert bench.device.memory.prefix([PageIndex(2)], 1, Place.HOST) is None
    assert bench.device.memory.slots[0] == (1, 2, 3)


def test_reading_out_what_is_not_there_is_seen() -> None:
    """At a position that the state is not at."""
    bench = Bench.of("fake-recurrent")
    bench.image(pages=(), position=2)

    assert bench.device.memory.wrong == ["transfer 6: 3 tokens was read out at 2"]


def test_dropped_pages_are_no_part_of_a_history() -> None:
    """What is kept is one history all the same."""
    bench = Bench.of()
    late = row([4, 5], slot=SlotIndex(0), at=3, pages=(1, 4), first_page=1)
    bench.step(7, late)
    pages = [PageIndex(1), PageIndex(4)]

    assert bench.device.memory.prefix(pages, 5, first_page=1) == (1, 2, 3, 4, 5)
    assert bench.device.memory.prefix(pages[::-1], 5, first_page=1) is None
    assert bench.device.memory.wrong == []


def test_what_steps_and_transfers_touch_in_each_place() -> None:
    """What nobody else may have until they have ended."""
    bench = Bench.of()
    copies = [PageCopy(PageIndex(0), PageIndex(2))]
    out = CopyOut(SlotIndex(0), SlotIndex(1), copies)
    read = ReadOut(Place.HOST, SlotIndex(0), [PageIndex(5)], 1)
    bench.worker.transfer(TransferStep(8, (out, read)), bench.reports.append)
    back = row([4], slot=SlotIndex(2), initial=CopyOf(SlotIndex(1), Place.HOST), at=3, pages=(8, 9))
    bench.worker.submit(DeviceStep(9, (back,)), bench.reports.append)
    transfer, step = bench.device.held

    assert (transfer.touched_slots, transfer.written_pages) == ({0}, set())
    assert transfer.touches(Place.HOST).slots == {0, 1}
    assert transfer.touches(Place.HOST).written_pages == {2}
    assert (step.touched_slots, step.written_pages) == ({2}, {9})
    assert step.touches(Place.HOST).slots == {1}
    bench.worker.stop()
    bench.worker.transfer(TransferStep(10, ()), bench.reports.append)
    assert isinstance(bench.reports[-1], StepFault)
