"""The fake device's host memory, transfers and images: a wrong copy is noticed or refused."""

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from adapters.fake_device import FakeDevice
from kernel.state_image import ImageArray, StateImage
from kernel.step import (
    CopyOf,
    CopyOut,
    DeviceLimits,
    DeviceStep,
    DeviceWorker,
    InitialState,
    PageCopy,
    ReadOut,
    RowFault,
    StepDone,
    StepFault,
    StepRow,
    TransferDone,
    TransferReport,
    TransferRow,
    TransferStep,
    WorkerContext,
)
from ownership import NO_SLOT, NoSlot, PageIndex, Place, SlotIndex
from tests.adapters.fake_bench import GREEDY, LIMITS, PROMPT, Timers, cold, row

HOST = attrs.evolve(LIMITS, host_slots=3, host_pages=9)
KINDS = {"fake": (True, True), "fake-recurrent": (True, False), "fake-attention": (False, True)}


@attrs.define(eq=False)
class Copier:
    """A device with host memory and one worker; slot 0 and pages 0 and 1 hold the prompt."""

    kind: str = "fake"
    limits: DeviceLimits = HOST
    options: dict[str, Any] = attrs.field(factory=dict[str, Any])
    timers: Timers = attrs.field(factory=Timers)
    device: FakeDevice = attrs.field(init=False)
    worker: DeviceWorker = attrs.field(init=False)
    reports: list[TransferReport] = attrs.field(factory=list[TransferReport], init=False)

    def __attrs_post_init__(self) -> None:
        slots, pages = KINDS[self.kind]
        self.device = FakeDevice(uses_slots=slots, uses_pages=pages, **self.options)
        self.device.allocate(self.limits)
        self.worker = self.device.start_worker(WorkerContext(self.timers.call_later))

    def begin(self) -> None:
        self.run(row(PROMPT, slot=self.slot(0), initial="zeros", pages=self.pages(0, 1, 2)))

    def slot(self, number: int) -> SlotIndex | NoSlot:
        return SlotIndex(number) if KINDS[self.kind][0] else NO_SLOT

    def pages(self, *numbers: int) -> list[PageIndex]:
        return [PageIndex(number) for number in numbers] if KINDS[self.kind][1] else []

    def slots(self, *numbers: int) -> list[SlotIndex]:
        return [SlotIndex(number) for number in numbers] if KINDS[self.kind][0] else []

    def run(self, *rows: StepRow, **settings: Any) -> tuple[Any, ...]:
        reports: list[object] = []
        self.worker.submit(DeviceStep(1, rows, **settings), reports.append)
        (report,) = reports
        assert isinstance(report, StepDone), report
        return report.tokens

    def transfer(self, *rows: TransferRow, **settings: Any) -> None:
        number: int = settings.pop("step", 1)
        self.worker.transfer(TransferStep(number, rows, **settings), self.reports.append)

    def image(self, place: Place = Place.DEVICE, pages: Sequence[int] = (0, 1)) -> StateImage:
        self.transfer(ReadOut(place, self.slot(0), self.pages(*pages), len(PROMPT)))
        report = self.reports[-1]
        assert isinstance(report, TransferDone), report
        (image,) = report.images
        assert image is not None
        return image

    def park(self) -> None:
        """The prompt's state, into slot 0 and pages 4 and 5 of the host."""
        self.transfer(self.parking())
        assert self.reports[-1] == TransferDone((None,))

    def parking(self, slot: int = 0, pages: Sequence[int] = (4, 5)) -> CopyOut:
        copies = [
            PageCopy(*pair) for pair in zip(self.pages(0, 1), self.pages(*pages), strict=False)
        ]
        return CopyOut(self.slot(0), self.slot(slot), copies)

    def back(self, tokens: Sequence[int] = (5,)) -> StepRow:
        """A turn that starts from what was parked."""
        copies = [
            PageCopy(source, target, Place.HOST)
            for source, target in zip(self.pages(4, 5), self.pages(10, 7), strict=False)
        ]
        slot = self.slot(1)
        initial: InitialState = "kept"
        if not isinstance(slot, NoSlot):
            initial = CopyOf(SlotIndex(0), Place.HOST)
        turn = row(tokens, slot=slot, initial=initial, at=6, pages=self.pages(10, 7))
        return attrs.evolve(turn, page_copies=copies)

    def loading(self, image: StateImage, tokens: Sequence[int] = (5,), first: int = 0) -> StepRow:
        turn = row(tokens, slot=self.slot(1), initial=image, at=6, pages=self.pages(10, 7))
        sampling = GREEDY if tokens else None
        return attrs.evolve(turn, sampling=sampling, first_page=first, pages=turn.pages[first:])


@pytest.fixture(params=KINDS)
def copier(request: pytest.FixtureRequest) -> Copier:
    made = Copier(request.param)
    made.begin()
    return made


def test_a_state_comes_back_from_host_memory_as_it_was(copier: Copier) -> None:
    """The base is given back meanwhile; what was copied is not."""
    copier.park()

    drawn = copier.run(copier.back(), freed_slots=copier.slots(0), freed_pages=copier.pages(0, 1))

    assert drawn == (cold((*PROMPT, 5), kind=copier.kind),)
    assert not copier.device.poison_reads


def test_an_image_of_either_place_goes_on_like_the_state(copier: Copier) -> None:
    """Also one that is loaded first, and goes on later."""
    copier.park()
    here, there = copier.image(), copier.image(Place.HOST, (4, 5))

    assert here.arrays == there.arrays
    assert copier.run(copier.loading(here)) == (cold((*PROMPT, 5), kind=copier.kind),)
    assert copier.run(copier.loading(there, ())) == (None,)
    later = row((5,), slot=copier.slot(1), at=6, pages=copier.pages(10, 7))
    assert copier.run(later) == (cold((*PROMPT, 5), kind=copier.kind),)
    assert not copier.device.poison_reads


def test_an_image_fits_pages_of_another_size() -> None:
    """The cells are loaded where they belong."""
    copier = Copier()
    copier.begin()
    other = Copier(limits=attrs.evolve(HOST, page_size=3))
    image = copier.image()
    other.run(other.loading(image, ()))
    slot, pages = SlotIndex(1), other.pages(10, 7)
    other.transfer(ReadOut(Place.DEVICE, slot, pages, len(PROMPT)))
    report = other.reports[-1]

    assert isinstance(report, TransferDone)
    assert report.images[0] is not None
    assert report.images[0].arrays == image.arrays


def test_what_was_never_copied_is_poison(copier: Copier) -> None:
    """Host memory is allocated, not cleared."""
    copier.run(copier.back())

    wanted = {"slot"} if copier.kind == "fake-recurrent" else {"page"}
    assert {read.what for read in copier.device.poison_reads} >= wanted


def test_what_was_given_back_of_the_host_is_poison(copier: Copier) -> None:
    """A use after free shows at once."""
    copier.park()
    copier.transfer(freed_slots=copier.slots(0), freed_pages=copier.pages(4, 5))

    copier.run(copier.back())

    assert copier.device.poison_reads


def test_a_transfer_that_was_overtaken_poisons_nothing(copier: Copier) -> None:
    """What it was told of may have a new owner by then."""
    copier.transfer(step=5)
    copier.park()
    copier.transfer(step=2, freed_slots=copier.slots(0), freed_pages=copier.pages(4, 5))

    copier.run(copier.back())
    assert copier.device.poison_reads == []


def test_a_copy_of_what_holds_nothing_is_noted() -> None:
    """A slot and a page that nobody has written."""
    copier = Copier()
    copier.transfer(copier.parking())

    assert {read.what for read in copier.device.poison_reads} == {"slot", "page"}
    copier.transfer(ReadOut(Place.HOST, SlotIndex(2), copier.pages(7, 8), 6))
    assert len(copier.device.poison_reads) == 5


@pytest.mark.parametrize(
    ("planted", "what"),
    [
        ({"initial": "zeros"}, "slot zeroed"),
        ({"initial": CopyOf(SlotIndex(0))}, "slot of the wrong place"),
        ({"page_copies": ()}, "pages not copied"),
        ({"page_copies": [PageCopy(PageIndex(0), PageIndex(10), Place.HOST)]}, "wrong page"),
        ({"position": 5}, "position too low"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_planted_bug_is_noticed(planted: dict[str, Any], what: str) -> None:
    """Tokens change or poison is read; never neither."""
    copier = Copier()
    copier.begin()
    copier.park()
    copier.run(row((9, 9), slot=0, at=6, pages=(0, 1)))
    drawn = copier.run(attrs.evolve(copier.back(), **planted))

    assert drawn != (cold((*PROMPT, 5)),) or copier.device.poison_reads, what


def fault(copier: Copier) -> str:
    report = copier.reports[-1]
    assert isinstance(report, StepFault), report
    return report.why


def test_transfers_that_can_not_be_right_are_refused() -> None:
    """Each by its own name."""
    copier = Copier()
    copier.begin()
    copier.transfer(copier.parking(), copier.parking(1, (6, 7)))
    assert copier.reports == [TransferDone((None, None))]
    wrong: dict[str, tuple[TransferRow, ...]] = {
        "one slot of the host": (copier.parking(), copier.parking(0, (6, 7))),
        "pages are copied into one": (copier.parking(), copier.parking(1, (4, 7))),
        "written by another": (
            copier.parking(),
            ReadOut(Place.HOST, SlotIndex(0), copier.pages(6, 7), 6),
        ),
        "from or to none": (attrs.evolve(copier.parking(), target=NO_SLOT),),
        "don't cover": (ReadOut(Place.DEVICE, SlotIndex(0), copier.pages(0), 6),),
        "[77] are no slots": (copier.parking(slot=77),),
        "[78] are no slots": (copier.parking(pages=(4, 78)),),
    }
    for told, rows in wrong.items():
        copier.transfer(*rows)
        assert told in fault(copier)


def test_pages_of_a_model_without_any_are_refused() -> None:
    """In a transfer, and in a row."""
    copier = Copier("fake-recurrent")
    copier.begin()
    copy = PageCopy(PageIndex(0), PageIndex(1), Place.HOST)
    copier.transfer(attrs.evolve(copier.parking(), pages=[copy]))
    reports: list[object] = []
    turn = attrs.evolve(copier.back(), initial="kept", page_copies=[copy])
    copier.worker.submit(DeviceStep(2, (turn,)), reports.append)

    assert "the model has none" in fault(copier)
    (report,) = reports
    assert isinstance(report, StepFault)
    assert "in the row's page table" in report.why


def test_a_slot_and_pages_of_different_states_are_no_state() -> None:
    """The last cell is a part of the slot's hash."""
    copier = Copier()
    copier.begin()
    copier.run(row((5,), slot=2, initial=CopyOf(SlotIndex(0)), at=6, pages=(0, 3), tail=(1, 3)))
    copier.transfer(ReadOut(Place.DEVICE, SlotIndex(0), copier.pages(0, 3), 7))

    assert "different states" in fault(copier)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"page_copies": [PageCopy(PageIndex(4), PageIndex(20), Place.HOST)]}, "page table"),
        (
            {"page_copies": [PageCopy(PageIndex(n), PageIndex(7), Place.HOST) for n in (4, 5)]},
            "one",
        ),
        ({"tail_copy": PageCopy(PageIndex(1), PageIndex(7))}, "copied twice"),
        ({"page_copies": [PageCopy(PageIndex(7), PageIndex(10))]}, "source of a page copy"),
        ({"tokens": ()}, "no tokens"),
        ({"pages": [PageIndex(10)]}, "does not cover"),
    ],
)
def test_rows_whose_copies_can_not_be_right_are_refused(changes: dict[str, Any], told: str) -> None:
    """The step fails as a whole: the kernel itself is wrong."""
    copier = Copier()
    copier.begin()
    copier.park()
    reports: list[object] = []
    turn = attrs.evolve(copier.back(), **changes)
    copier.worker.submit(DeviceStep(2, (turn,)), reports.append)

    (report,) = reports
    assert isinstance(report, StepFault)
    assert told in report.why


def damaged(image: StateImage) -> dict[str, StateImage]:
    hashed = image.arrays["hash"]
    return {
        "arrays": attrs.evolve(image, arrays={"hash": hashed}),
        "begins at": attrs.evolve(image, position=7),
        "F32": attrs.evolve(
            image, arrays={**image.arrays, "hash": ImageArray("F32", (1, 1), hashed.data)}
        ),
        "bytes": attrs.evolve(
            image, arrays={**image.arrays, "hash": attrs.evolve(hashed, data=b"1234")}
        ),
    }


@pytest.mark.parametrize("told", ["arrays", "begins at", "F32", "bytes"])
def test_an_image_of_something_else_costs_its_own_row(told: str) -> None:
    """Its slot and pages are undefined, the other rows as if it weren't there."""
    copier = Copier()
    copier.begin()
    image = damaged(copier.image())[told]
    turn = copier.loading(image)
    other = row((1,), slot=4, initial="zeros", pages=(9,))

    refused, drawn = copier.run(turn, other)

    assert isinstance(refused, RowFault)
    assert refused.is_undefined
    assert told in refused.why
    assert drawn == cold((1,))
    copier.run(row((6,), slot=1, at=6, pages=(10, 7)))
    assert {read.what for read in copier.device.poison_reads} == {"slot", "page"}


def test_pages_that_were_dropped_are_not_read() -> None:
    """What a row draws is a function of what it keeps."""
    tokens: list[object] = []
    for first in (True, False):
        copier = Copier()
        copier.begin()
        image = copier.image()
        copier.transfer(ReadOut(Place.DEVICE, SlotIndex(0), copier.pages(1), 6, first_page=1))
        report = copier.reports[-1]
        assert isinstance(report, TransferDone)
        (cut,) = report.images
        assert cut is not None
        assert (cut.first_position, cut.arrays["cells"].shape) == (4, (1, 2, 1, 1))
        tokens += copier.run(copier.loading(image if first else cut, first=1))
        late = attrs.evolve(row((6,), slot=1, at=7, pages=(7,)), first_page=1)
        tokens += copier.run(late, freed_pages=copier.pages(0, 1, 10))
        assert not copier.device.poison_reads

    assert tokens[:2] == tokens[2:]
    assert tokens[0] != cold((*PROMPT, 5))


def test_an_image_of_which_too_much_was_dropped_is_refused() -> None:
    """Its row would read positions that nobody has."""
    copier = Copier()
    copier.begin()
    image = attrs.evolve(copier.image(), first_position=4)

    (refused,) = copier.run(copier.loading(image))

    assert isinstance(refused, RowFault)
    assert "keeps positions 4 to 6, its row 0 and later" in refused.why


def test_failed_transfer_leaves_what_it_would_have_written_undefined(copier: Copier) -> None:
    """And nothing else."""
    copier.park()
    copier.device.fail_next_transfer("planted")
    copier.transfer(copier.parking(2, (7, 8)))
    copier.device.fail_next_transfer("planted")

    assert fault(copier) == "planted"
    assert copier.run(copier.back()) == (cold((*PROMPT, 5), kind=copier.kind),)
    assert not copier.device.poison_reads
    copier.transfer(copier.parking())
    copier.run(copier.back())
    assert copier.device.poison_reads


def test_a_lost_device_fails_transfers_and_steps() -> None:
    """Whichever noticed it."""
    copier = Copier()
    copier.begin()
    copier.device.fail_next_transfer("gone", device_lost=True)
    copier.transfer(copier.parking())
    reports: list[object] = []
    copier.worker.submit(DeviceStep(2, (copier.back(),)), reports.append)

    assert reports == [StepFault("gone", device_lost=True)]


def test_transfers_by_hand_run_beside_the_steps() -> None:
    """Neither waits for the other; each in its own order."""
    copier = Copier(options={"mode": "manual"})
    steps: list[object] = []
    first = row(PROMPT, slot=0, initial="zeros", pages=(0, 1))
    copier.worker.submit(DeviceStep(1, (first,)), steps.append)
    copier.transfer(ReadOut(Place.HOST, SlotIndex(0), copier.pages(4, 5), 6), step=2)
    copier.transfer(copier.parking(), step=3)

    assert [step.step for step in copier.device.waiting_transfers] == [2, 3]
    copier.device.fail_transfer(why="planted")
    copier.device.complete()
    copier.device.complete_transfer()
    assert copier.reports == [StepFault("planted"), TransferDone((None,))]
    assert len(steps) == 1
    assert (copier.device.steps, copier.device.transfers) == (1, 2)
    copier.worker.stop()
    assert copier.worker.join(0.0)


def test_a_delayed_transfer_ends_by_its_own_timer() -> None:
    """By the engine's own clock; the delay may depend on the transfer."""

    def delay_s(step: TransferStep) -> float:
        return 0.5 * len(step.rows)

    copier = Copier(options={"transfer_delay": delay_s})
    copier.begin()
    copier.transfer(copier.parking())

    assert [delay_s for delay_s, _ in copier.timers.pending] == [0.5]
    assert not copier.reports
    copier.timers.fire()
    assert copier.reports == [TransferDone((None,), copy_s=0.5)]


def test_a_hanging_transfer_holds_its_worker_and_no_step() -> None:
    """It completes late."""
    copier = Copier()
    copier.device.hang_next_transfer()
    copier.begin()
    copier.transfer(copier.parking())
    copier.worker.stop()

    assert not copier.worker.join(0.0)
    copier.transfer(copier.parking())
    assert [type(report) for report in copier.reports] == [StepFault]
    copier.device.unhang()
    assert copier.reports[1:] == [TransferDone((None,))]
    assert copier.worker.join(0.0)


def test_a_transfer_after_stop_is_reported_as_failed() -> None:
    """Also the first one of a worker."""
    copier = Copier()
    copier.worker.stop()
    copier.transfer(copier.parking())

    assert [type(report) for report in copier.reports] == [StepFault]
    assert copier.worker.join(0.0)


def test_transfers_in_threads_run_beside_a_step_that_hangs() -> None:
    """As on a real device."""
    copier = Copier(options={"mode": "thread"})
    copier.device.hang_next()
    steps: list[object] = []
    first = row(PROMPT, slot=0, initial="zeros", pages=(0, 1))
    copier.worker.submit(DeviceStep(1, (first,)), steps.append)
    copier.transfer()
    copier.worker.stop()

    assert not copier.worker.join(0.05)
    assert copier.reports == [TransferDone(())]
    copier.device.unhang()
    assert copier.worker.join(5.0)
    assert len(steps) == 1


def test_a_closed_device_makes_no_transfers() -> None:
    """A fault, and no crash."""
    copier = Copier()
    copier.device.close()
    copier.transfer(copier.parking())

    assert "allocate" in fault(copier)
