"""When the fake device's steps end: as the test says, and each reported exactly once."""

import time
from collections.abc import Callable

import attrs
import pytest

from adapters.fake_device import FakeDevice, open_fake
from kernel.errors import ModelError
from kernel.step import (
    DeviceStep,
    StepDone,
    StepFault,
    StepReport,
)
from tests.adapters.fake_bench import (
    OTHER,
    PROMPT,
    TURN,
    Bench,
    bench_with_prompt,
    cold,
    row,
)


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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_callback_that_raises_does_not_cost_a_thread_its_next_report() -> None:
    """As in the real device's thread: one caller's mistake is nobody else's."""

    def broken(_report: StepReport) -> None:
        raise KeyError("the caller's mistake")

    bench = Bench(FakeDevice(mode="thread"))
    bench.worker.submit(DeviceStep(0, [OTHER]), broken)
    bench.submit(attrs.evolve(OTHER, initial="kept", position=1))
    wait_for(lambda: bool(bench.reports))
    bench.worker.stop()

    assert bench.worker.join(5.0)
    assert [type(report) for report in bench.reports] == [StepDone]


def test_closed_device_has_no_arenas() -> None:
    """A step on it is a fault and no crash."""
    bench = Bench()
    bench.device.close()

    assert "allocate" in bench.fault(OTHER).why
    with pytest.raises(RuntimeError, match="allocate"):
        _ = bench.device.arenas
    assert bench.device.poison_reads == ()


def test_open_fake_knows_its_kinds_and_refuses_others() -> None:
    """The entry point of the group tenure.devices."""
    opened = open_fake(model="fake-recurrent", device="cpu", dtype="auto")

    assert opened.device.model.uses_slots
    assert not opened.device.model.uses_pages
    with pytest.raises(ModelError, match="fake-attention"):
        open_fake(model="llama", device="cpu", dtype="auto")
