"""Quarantine: what a hanging worker may still write to, until it is proven to be done."""

from collections.abc import Callable

import attrs
import pytest

from kernel.devices.quarantine import Quarantine
from kernel.errors import DeviceLost, EngineFault
from kernel.ids import SCHEDULER
from kernel.step import DeviceStep, StepReport, TransferReport, TransferStep
from ownership import Capacity, Lease, Ledger
from tests.kernel.loopless import Loopless, tokens_of
from tests.kernel.toys import reserve


@attrs.define(eq=False)
class Worker:
    """Ends when the test says so."""

    has_ended: bool = False
    stops: int = 0
    joins: list[float] = attrs.field(factory=list[float])

    def submit(self, step: DeviceStep, done: Callable[[StepReport], None], /) -> None:
        raise NotImplementedError  # An abandoned worker is given no more steps.

    def transfer(self, step: TransferStep, done: Callable[[TransferReport], None], /) -> None:
        raise NotImplementedError  # Nor transfers.

    def stop(self) -> None:
        self.stops += 1

    def join(self, timeout_s: float, /) -> bool:
        self.joins.append(timeout_s)
        return self.has_ended


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(Capacity(4, 16, 4))


def launch(ledger: Ledger, step: int) -> Lease:
    port = ledger.batch_port(SCHEDULER)
    return port.launch([reserve(port)], step=step)


def test_taken_leases_count_as_quarantined_and_their_worker_is_told_to_stop(
    ledger: Ledger,
) -> None:
    """Nobody can prove that their slots aren't written, so nobody gets them."""
    quarantine, worker = Quarantine(ledger), Worker()
    lease = launch(ledger, 7)
    quarantine.take(worker, {7: lease})

    assert ledger.view.quarantined_slots == 1
    assert worker.stops == 1
    assert quarantine.leases() == [lease]
    assert not quarantine.is_empty


def test_a_lease_leaves_once(ledger: Ledger) -> None:
    """The completion and the end of the worker may both name its step."""
    quarantine = Quarantine(ledger)
    lease = launch(ledger, 7)
    quarantine.take(Worker(), {7: lease})

    assert quarantine.release(7) is lease
    assert quarantine.release(7) is None
    assert quarantine.release(8) is None


def test_only_workers_that_have_ended_are_told_of(ledger: Ledger) -> None:
    """And each once, with the steps that it left."""
    quarantine = Quarantine(ledger)
    ended, hangs = Worker(has_ended=True), Worker()
    leases = {step: launch(ledger, step) for step in (5, 3, 8)}
    quarantine.take(ended, {5: leases[5], 3: leases[3]})
    quarantine.take(hangs, {8: leases[8]})
    told: list[tuple[int, ...]] = []
    quarantine.collect_ended(told.append)
    quarantine.collect_ended(told.append, seconds_left=lambda: 2.0)
    hangs.has_ended = True
    quarantine.collect_ended(told.append)

    assert told == [(3, 5), (8,)]
    assert quarantine.is_empty
    assert hangs.joins == [0.0, 2.0, 0.0]


def test_a_worker_without_steps_is_watched_as_well(ledger: Ledger) -> None:
    """Its thread has to end before the arenas may go."""
    quarantine = Quarantine(ledger)
    quarantine.take(Worker(), {})

    assert not quarantine.is_empty
    assert quarantine.leases() == []


# In a whole engine


def hang(world: Loopless) -> None:
    """Let the next step hang past its deadline."""
    world.device.hang_next()


def test_a_successor_serves_while_the_old_step_hangs() -> None:
    """The hanging turn fails at once; its slot is out of use, and everything else goes on."""
    world = Loopless.open(num_slots=2, step_timeout_s=5.0)
    session = world.session("a")
    hang(world)
    lost = world.start(session, [1, 2])
    world.advance(6)
    quarantined = world.core.ledger.view.quarantined_slots
    request = world.start(session, [3])
    world.finish(request)

    assert isinstance(lost.output.end and lost.output.end.error, EngineFault)
    assert quarantined == 1
    assert len(tokens_of(request)) == 4
    assert world.core.recovery.restarts == 1


def test_a_late_completion_gives_the_slot_back() -> None:
    """As failed, whatever it computed: its turn has failed long ago."""
    world = Loopless.open(num_slots=2, step_timeout_s=5.0)
    session = world.session("a")
    hang(world)
    world.start(session, [1, 2])
    world.advance(6)
    world.device.unhang()
    world.run()
    while world.device.waiting:
        world.step()
    world.advance(1)
    world.close(session)

    assert world.core.ledger.view.quarantined_slots == 0
    world.assert_all_free()


def test_two_hangs_in_a_row_lose_the_device() -> None:
    """The successor completed no step either: no third worker would."""
    world = Loopless.open(num_slots=3, step_timeout_s=5.0)
    hang(world)
    world.start(world.session("a"), [1])
    world.advance(6)
    hang(world)
    request = world.start(world.session("b"), [2])
    world.advance(6)

    assert request.output.end is not None
    assert isinstance(world.core.failure, DeviceLost)
    with pytest.raises(DeviceLost):
        world.core.door.check_open()


def test_a_step_in_between_forgives_a_hang() -> None:
    """Two hangs with work between them are two deaths of a worker, not of the device."""
    world = Loopless.open(num_slots=4, step_timeout_s=5.0)
    for name in ("a", "b"):
        hang(world)
        world.start(world.session(name), [1])
        world.advance(6)
        world.finish(world.start(world.session(f"{name} again"), [2]))

    assert world.core.failure is None
    assert world.core.ledger.view.quarantined_slots == 2


def test_stopping_says_what_is_still_in_quarantine() -> None:
    """The audit at the end is free or quarantined, and nothing else."""
    world = Loopless.open(num_slots=2, step_timeout_s=5.0)
    hang(world)
    world.start(world.session("a"), [1])
    world.advance(6)
    audit = world.core.stop(join_timeout_s=0)

    assert audit.conserved
    assert (audit.quarantined, audit.free_slots) == (1, 1)
    assert (audit.batch, audit.session) == (0, 0)
