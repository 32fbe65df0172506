"""The fake device: bugs of ownership change tokens, and steps end when the test says."""

import time
from collections.abc import Callable, Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.fake_device import FakeDevice, FakeTokenizer, open_fake
from kernel.errors import ModelError
from kernel.step import (
    CopyOf,
    DeviceLimits,
    DeviceStep,
    DeviceWorker,
    InitialState,
    PageCopy,
    RowSampling,
    StepDone,
    StepFault,
    StepReport,
    StepRow,
    WorkerContext,
)
from ownership import NO_SLOT, NoSlot, PageIndex, SlotIndex

GREEDY = RowSampling(temperature=0, top_k=0, top_p=1, key=0, index=0)
LIMITS = DeviceLimits(num_slots=6, num_pages=24, page_size=4, max_rows=6, max_step_tokens=64)
PROMPT = (11, 12, 13, 14, 15, 16)


@attrs.define(eq=False)
class Timers:
    """An engine's clock by hand."""

    pending: list[tuple[float, Callable[[], None]]] = attrs.field(factory=list)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> object:
        self.pending.append((delay_s, callback))
        return None

    def fire(self) -> None:
        pending, self.pending = self.pending, []
        for _, callback in pending:
            callback()


@attrs.define(eq=False)
class Bench:
    """A device with one worker and the reports that came."""

    device: FakeDevice = attrs.field(factory=FakeDevice)
    timers: Timers = attrs.field(factory=Timers)
    reports: list[StepReport] = attrs.field(factory=list)
    worker: DeviceWorker = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.device.allocate(LIMITS)
        self.worker = self.start_worker()

    def start_worker(self) -> DeviceWorker:
        return self.device.start_worker(WorkerContext(self.timers.call_later))

    def submit(self, *rows: StepRow, step: int = 0, **freed: Sequence[int]) -> None:
        self.worker.submit(DeviceStep(step, rows, **freed), self.reports.append)  # type: ignore[arg-type]

    def tokens(self, *rows: StepRow, **freed: Sequence[int]) -> tuple[int | None, ...]:
        self.submit(*rows, **freed)
        report = self.reports[-1]
        assert isinstance(report, StepDone), report
        return report.tokens

    def fault(self, *rows: StepRow) -> StepFault:
        self.submit(*rows)
        report = self.reports[-1]
        assert isinstance(report, StepFault), report
        return report


def row(
    tokens: Sequence[int],
    *,
    slot: int | NoSlot = 0,
    initial: InitialState = "kept",
    at: int = 0,
    pages: Sequence[int] = (0, 1, 2, 3),
    tail: tuple[int, int] | None = None,
    sampling: RowSampling | None = GREEDY,
) -> StepRow:
    return StepRow(
        slot=slot if isinstance(slot, NoSlot) else SlotIndex(slot),
        initial=initial,
        position=at,
        tokens=tuple(tokens),
        pages=[PageIndex(page) for page in pages],
        tail_copy=tail and PageCopy(PageIndex(tail[0]), PageIndex(tail[1])),
        sampling=sampling,
    )


def cold(history: Sequence[int], *, kind: str = "fake", sampling: RowSampling = GREEDY) -> int:
    """Say which token follows a history, by a device of its own and one step."""
    opened = open_fake(model=kind, device="cpu", dtype="auto").device
    assert isinstance(opened, FakeDevice)
    slot = 3 if opened.model.uses_slots else NO_SLOT
    first = row(history, slot=slot, initial="zeros", pages=range(9, 20), sampling=sampling)
    (token,) = Bench(opened).tokens(first)
    assert token is not None
    return token


def bench_with_prompt() -> Bench:
    """Slot 0 and pages 0 and 1 hold the prompt."""
    bench = Bench()
    assert bench.tokens(row(PROMPT, initial="zeros")) == (cold(PROMPT),)
    return bench


@given(
    history=st.lists(st.integers(0, 999), min_size=1, max_size=30),
    cuts=st.sets(st.integers(1, 29)),
    kind=st.sampled_from(["fake", "fake-recurrent", "fake-attention"]),
)
def test_tokens_do_not_depend_on_how_a_prompt_is_cut(
    history: list[int], cuts: set[int], kind: str
) -> None:
    """Chunked prefill, decode and replay must agree, as they do (nearly) on a real model."""
    opened = open_fake(model=kind, device="cpu", dtype="auto").device
    assert isinstance(opened, FakeDevice)
    bench = Bench(opened)
    slot = 0 if opened.model.uses_slots else NO_SLOT
    edges = [0, *sorted(cut for cut in cuts if cut < len(history)), len(history)]
    got: int | None = None
    for start, end in zip(edges, edges[1:], strict=False):
        initial: InitialState = "kept" if start else "zeros"
        chunk = row(history[start:end], slot=slot, initial=initial, at=start, pages=range(9))
        (got,) = bench.tokens(chunk)

    assert got == cold(history, kind=kind)
    assert not bench.device.poison_reads


def test_rows_of_a_step_do_not_influence_each_other() -> None:
    """Batching changes nothing."""
    bench = bench_with_prompt()
    other = row((1, 2, 3), slot=4, initial="zeros", pages=(9,))

    assert bench.tokens(row((5,), at=6), other) == (cold((*PROMPT, 5)), cold((1, 2, 3)))


def test_prefill_row_draws_nothing() -> None:
    """A chunk that isn't the last has no logits to draw from."""
    assert Bench().tokens(row((1,), initial="zeros", sampling=None)) == (None,)


def test_copy_of_slot_and_tail_continues_like_the_base_and_leaves_it_alone() -> None:
    """What every later turn of a session does: the base's full page is shared."""
    bench = bench_with_prompt()
    turn = row((5,), slot=1, initial=CopyOf(SlotIndex(0)), at=6, pages=(0, 7), tail=(1, 7))

    assert bench.tokens(turn) == (cold((*PROMPT, 5)),)
    assert bench.tokens(row((6,), at=6)) == (cold((*PROMPT, 6)),)


TURN = row((5,), slot=1, initial=CopyOf(SlotIndex(0)), at=6, pages=(0, 7), tail=(1, 7))


@pytest.mark.parametrize(
    "planted",
    [
        attrs.evolve(TURN, initial="zeros"),
        attrs.evolve(TURN, initial="kept"),
        attrs.evolve(TURN, tail_copy=None),
        attrs.evolve(TURN, tail_copy=PageCopy(PageIndex(0), PageIndex(7))),
        attrs.evolve(TURN, position=5),
        attrs.evolve(TURN, position=7),
        attrs.evolve(TURN, pages=[PageIndex(8), PageIndex(7)]),
    ],
    ids=[
        "slot zeroed",
        "slot not copied",
        "tail not copied",
        "wrong tail",
        "position too low",
        "position too high",
        "stale page table",
    ],
)
def test_planted_bug_changes_the_token(planted: StepRow) -> None:
    """The device is the witness of every test of the kernel, so it must not be forgiving."""
    assert bench_with_prompt().tokens(planted) != (cold((*PROMPT, 5)),)


@pytest.mark.parametrize(
    ("kind", "kwargs"),
    [("fake-recurrent", {"at": 5}), ("fake-recurrent", {"at": 7}), ("fake-attention", {"at": 5})],
)
def test_wrong_position_changes_the_token_of_each_kind_of_model(
    kind: str, kwargs: dict[str, int]
) -> None:
    """Recurrent-only and attention-only models have one witness each."""
    opened = open_fake(model=kind, device="cpu", dtype="auto").device
    assert isinstance(opened, FakeDevice)
    bench = Bench(opened)
    slot = 0 if opened.model.uses_slots else NO_SLOT
    bench.tokens(row(PROMPT, slot=slot, initial="zeros"))

    assert bench.tokens(row((5,), slot=slot, **kwargs)) != (cold((*PROMPT, 5), kind=kind),)


def test_aliased_slot_changes_the_token_of_its_first_owner() -> None:
    """The seed's bug: a slot freed twice serves two clients, in steps that alternate."""
    bench = bench_with_prompt()
    bench.tokens(row((9,), slot=0, initial="zeros", pages=(9,)))

    assert bench.tokens(row((5,), at=6)) != (cold((*PROMPT, 5)),)


@pytest.mark.parametrize("offset", range(4))
def test_aliased_full_page_changes_the_token_whatever_was_overwritten(offset: int) -> None:
    """Attention reads all of the history, not the last position."""
    bench = bench_with_prompt()
    intruder = row((9,), slot=2, initial="zeros", at=offset, pages=(0,), sampling=None)
    bench.tokens(intruder)

    assert bench.tokens(row((5,), at=6)) != (cold((*PROMPT, 5)),)


def test_content_beyond_the_position_is_never_read() -> None:
    """A page that is not poisoned when it changes hands holds old keys; attention masks them."""
    bench = Bench()
    bench.tokens(row(range(100, 112), initial="zeros", pages=(0, 1, 2)))

    assert bench.tokens(row(PROMPT, slot=1, initial="zeros", pages=(2, 1))) == (cold(PROMPT),)
    assert bench.tokens(row((5,), slot=1, at=6, pages=(2, 1))) == (cold((*PROMPT, 5)),)


def test_freed_memory_is_poison_for_who_still_reads_it() -> None:
    """A use after free shows at once, not only when the memory has a new owner."""
    bench = bench_with_prompt()
    late = row((5,), at=6)

    assert bench.tokens(late, freed_slots=(0,), freed_pages=(0,)) != (cold((*PROMPT, 5)),)
    assert [(read.what, read.index) for read in bench.device.poison_reads] == [
        ("slot", 0),
        ("page", 0),
    ]


def test_freed_memory_may_be_taken_again_in_the_same_step() -> None:
    """Poison goes before zeros and copies."""
    bench = bench_with_prompt()
    again = row(PROMPT, initial="zeros", pages=(1, 0))

    assert bench.tokens(again, freed_slots=(0,), freed_pages=(0, 1)) == (cold(PROMPT),)
    assert not bench.device.poison_reads


def test_memory_that_was_never_written_is_poison() -> None:
    """Arenas are allocated, not cleared."""
    bench = Bench()
    bench.tokens(row((5,), at=6))

    assert {read.what for read in bench.device.poison_reads} == {"slot", "page"}


OTHER = row((1,), slot=4, initial="zeros", pages=(9,))


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ((OTHER, attrs.evolve(OTHER, pages=[PageIndex(10)])), "two rows write one slot"),
        ((OTHER, attrs.evolve(OTHER, slot=SlotIndex(3))), "two rows write one page"),
        ((OTHER, row((5,), at=6, pages=(9, 1))), "read by one row, written by another"),
        ((OTHER, attrs.evolve(TURN, initial=CopyOf(SlotIndex(4)))), "copied by one row"),
        (
            (OTHER, attrs.evolve(TURN, tail_copy=PageCopy(PageIndex(9), PageIndex(7)))),
            "source of a tail copy",
        ),
        ((attrs.evolve(OTHER, slot=NO_SLOT),), "no slot"),
        ((row(range(9), pages=(0, 1)),), "does not cover"),
        ((row((1,), at=4, pages=(0,)),), "IndexError"),
        ((row(range(65), pages=range(20)),), "beyond"),
        ((row(()),), "no tokens"),
        ((row((1000,)),), "vocabulary"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_plan_that_cannot_be_right_is_a_fault(rows: tuple[StepRow, ...], why: str) -> None:
    """Two writers in one step could end in the right token by luck."""
    fault = bench_with_prompt().fault(*rows)

    assert why in fault.why
    assert isinstance(fault.error, Exception)


def test_slot_of_a_model_without_slots_is_a_fault() -> None:
    """Claims of such a model have NO_SLOT, never a number that nobody uses."""
    bench = Bench(FakeDevice(uses_slots=False))

    assert "has none" in bench.fault(row(PROMPT, slot=0)).why


def sampled(key: int, index: int, **kwargs: object) -> RowSampling:
    settings: dict[str, object] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, **kwargs}
    return RowSampling(key=key, index=index, **settings)  # type: ignore[arg-type]


def test_draw_is_a_function_of_key_index_and_memory() -> None:
    """Different keys and indices draw differently; equal ones alike, on any device."""
    draws = [cold(PROMPT, sampling=sampled(key, index)) for key in range(9) for index in range(9)]

    assert len(set(draws)) > 70
    assert cold(PROMPT, sampling=sampled(3, 4)) == draws[3 * 9 + 4]
    assert cold(PROMPT, sampling=sampled(3, 4)) != cold(PROMPT[:-1], sampling=sampled(3, 4))


def test_one_candidate_is_greedy() -> None:
    """top_k=1 and a tiny top_p leave the likeliest token, as on a real model."""
    assert cold(PROMPT, sampling=sampled(1, 2, top_k=1)) == cold(PROMPT)
    assert cold(PROMPT, sampling=sampled(1, 2, top_p=1e-9)) == cold(PROMPT)


def test_banned_token_is_not_drawn() -> None:
    """End of sequence before min_tokens."""
    likeliest = cold(PROMPT)
    second = cold(PROMPT, sampling=attrs.evolve(GREEDY, banned=(likeliest,)))

    assert second != likeliest
    assert cold(PROMPT, sampling=attrs.evolve(GREEDY, banned=(likeliest, second))) != second


def test_step_with_every_token_banned_is_a_fault() -> None:
    """It must not search for ever."""
    bench = Bench(FakeDevice(vocab_size=3))
    banned = attrs.evolve(GREEDY, banned=(0, 1, 2))

    assert "banned" in bench.fault(row((1,), initial="zeros", sampling=banned)).why


def test_failed_step_leaves_its_rows_undefined_and_the_others_alone() -> None:
    """A kernel that commits such a claim would be found out."""
    bench = bench_with_prompt()
    bench.device.fail_next("planted")

    assert bench.fault(TURN).why == "planted"
    assert bench.tokens(row((5,), at=6)) == (cold((*PROMPT, 5)),)
    assert not bench.device.poison_reads
    bench.tokens(row((6,), slot=1, at=7, pages=(0, 7)))
    assert {read.what for read in bench.device.poison_reads} == {"slot", "page"}


def test_lost_device_fails_every_later_step() -> None:
    """Also those of a new worker."""
    bench = Bench()
    bench.device.fail_next("gone", device_lost=True)
    bench.fault(OTHER)
    bench.worker = bench.start_worker()

    assert bench.fault(OTHER).device_lost


def test_delayed_step_is_computed_when_its_timer_fires() -> None:
    """By the engine's own clock, one after another; the delay may depend on the step."""
    bench = Bench(FakeDevice(delay=lambda step: 0.5 * len(step.rows)))
    bench.submit(OTHER)
    bench.submit(attrs.evolve(OTHER, initial="kept", position=1))

    assert [delay_s for delay_s, _ in bench.timers.pending] == [0.5]
    assert bench.device.steps == 0
    bench.timers.fire()
    assert bench.reports == [StepDone((cold((1,)),), compute_s=0.5)]
    bench.timers.fire()
    assert bench.reports[1:] == [StepDone((cold((1, 1)),), compute_s=0.5)]


def test_join_ends_a_delayed_step_and_the_late_timer_does_nothing() -> None:
    """Join blocks the thread that timers fire on; what is queued was reported by stop."""
    bench = Bench(FakeDevice(delay=5.0))
    bench.submit(OTHER)
    bench.submit(OTHER)
    bench.worker.stop()

    assert [type(report) for report in bench.reports] == [StepFault]
    assert bench.worker.join(1.0)
    bench.timers.fire()
    bench.submit(OTHER)
    assert [type(report) for report in bench.reports] == [StepFault, StepDone, StepFault]


def test_steps_by_hand_report_in_any_order_and_compute_in_theirs() -> None:
    """A device may run two steps deep; the second must not compute on the first one's input."""
    bench = Bench(FakeDevice(mode="manual"))
    bench.submit(OTHER, step=1)
    bench.submit(attrs.evolve(OTHER, initial="kept", position=1), step=2)
    bench.submit(OTHER, step=3)

    assert [step.step for step in bench.device.waiting] == [1, 2, 3]
    assert not bench.worker.join(0.0)
    bench.device.complete(1)
    bench.device.complete()
    bench.device.fail(why="planted")
    assert bench.reports == [
        StepDone((cold((1, 1)),)),
        StepDone((cold((1,)),)),
        StepFault("planted"),
    ]
    bench.worker.stop()
    assert bench.worker.join(0.0)


def test_stop_reports_queued_steps_and_waits_for_the_one_that_runs() -> None:
    """Every submitted step is reported exactly once."""
    bench = Bench(FakeDevice(mode="manual"))
    bench.submit(OTHER)
    bench.submit(OTHER)
    bench.worker.stop()

    assert [type(report) for report in bench.reports] == [StepFault]
    assert len(bench.device.waiting) == 1
    bench.device.complete()
    assert len(bench.reports) == 2


@pytest.mark.parametrize("delay", [None, 1.0])
def test_hanging_step_holds_its_worker_up_and_completes_late(delay: float | None) -> None:
    """The kernel puts its claims in quarantine and starts another worker meanwhile."""
    bench = Bench(FakeDevice(delay=delay))
    bench.device.hang_next()
    bench.submit(OTHER)
    bench.submit(OTHER)
    bench.worker.stop()
    bench.timers.fire()

    assert [type(report) for report in bench.reports] == [StepFault]
    assert not bench.worker.join(5.0)
    successor = bench.start_worker()
    successor.submit(DeviceStep(2, (TURN,)), bench.reports.append)
    bench.timers.fire()
    assert len(bench.reports) == 2
    bench.device.unhang()
    bench.timers.fire()
    assert bench.reports[2] == StepDone((cold((1,)),), compute_s=delay or 0.0)
    assert bench.worker.join(5.0)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


def test_thread_runs_the_steps_in_order() -> None:
    """Reports come from another thread, as with a real device."""
    bench = Bench(FakeDevice(mode="thread", delay=0.001))
    bench.submit(OTHER)
    bench.submit(attrs.evolve(OTHER, initial="kept", position=1))
    wait_for(lambda: len(bench.reports) == 2)
    bench.worker.stop()

    assert bench.worker.join(5.0)
    assert [report.tokens for report in bench.reports if isinstance(report, StepDone)] == [
        (cold((1,)),),
        (cold((1, 1)),),
    ]
    bench.submit(OTHER)
    assert isinstance(bench.reports[2], StepFault)


def test_hanging_thread_is_seen_by_join_and_ends_when_released() -> None:
    """What is queued behind it is reported as failed by the stop."""
    bench = Bench(FakeDevice(mode="thread"))
    bench.device.hang_next()
    bench.submit(OTHER)
    bench.submit(OTHER)
    bench.worker.stop()

    assert not bench.worker.join(0.01)
    assert [type(report) for report in bench.reports] == [StepFault]
    bench.device.unhang()
    assert bench.worker.join(5.0)
    assert [type(report) for report in bench.reports] == [StepFault, StepDone]


def test_closed_device_has_no_arenas() -> None:
    """A step on it is a fault and no crash."""
    bench = Bench()
    bench.device.close()

    assert "allocate" in bench.fault(OTHER).why
    with pytest.raises(RuntimeError, match="allocate"):
        _ = bench.device.poison_reads


def test_open_fake_knows_its_kinds_and_refuses_others() -> None:
    """The entry point of the group tenure.devices."""
    opened = open_fake(model="fake-recurrent", device="cpu", dtype="auto")

    assert opened.device.model.uses_slots
    assert not opened.device.model.uses_pages
    with pytest.raises(ModelError, match="fake-attention"):
        open_fake(model="llama", device="cpu", dtype="auto")


@given(text=st.text(st.characters(codec="utf-8")))
def test_tokenizer_gives_the_text_back(text: str) -> None:
    """Byte by byte, so half characters occur in between."""
    tokenizer = FakeTokenizer()

    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_tokenizer_words_are_distinct_and_special_tokens_silent() -> None:
    """The fake device's output can be read in a demo and told apart in a test."""
    tokenizer = FakeTokenizer(1000, special_token_ids=(999,))
    words = [tokenizer.decode([token]) for token in range(256, 999)]

    assert len(set(words)) == len(words)
    assert all(word.startswith(" ") and word[1:].isalpha() for word in words)
    assert tokenizer.decode([999]) == ""
    assert tokenizer.decode([0xE2]) == "\ufffd"
