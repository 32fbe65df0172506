"""Callers of one session while its device or its disk hangs: so many wait, others are refused."""

from collections.abc import Awaitable, Callable

import anyio
import attrs

from adapters.fake_device import FakeDevice
from kernel import Engine, Session
from kernel.errors import Overloaded
from kernel.ids import SessionId
from kernel.session_store import ReadState
from kernel.sessions.session import SessionActor
from kernel.testing.invariants import Broken, always
from tests.durable.memory_store import MemoryFiles, MemoryStore
from tests.durable.test_image_shelf import shelf_of
from tests.durable.worlds import open_engine
from tests.pressure.worlds import greedy

FEW = 8
"""Requests that may wait: the fewer, the sooner is a crowd too large."""


@attrs.define
class Crowd:
    """Twice as many callers as a session may have mail, all asking for the same."""

    actor: SessionActor
    answered: int = 0
    refused: int = 0

    async def come(
        self, engine: Engine, ask: Callable[[], Awaitable[object]], go_on: Callable[[], bool]
    ) -> None:
        """Let all ask, look, then have what hangs go on, until ``go_on`` says that it does."""

        async def one() -> None:
            try:
                await ask()
                self.answered += 1
            except Overloaded:
                self.refused += 1

        size, waiting, broken = 2 * self.actor.mail_bound, 0, list[Broken]()
        with anyio.fail_after(15):
            async with anyio.create_task_group() as tasks:
                for _ in range(size):
                    tasks.start_soon(one)
                    await anyio.lowlevel.checkpoint()
                await handled()
                waiting = self.actor.num_mail
                broken = always(engine.core)
                while go_on():
                    await handled()
        assert broken == []
        assert 0 < 2 * waiting <= self.actor.mail_bound
        assert self.answered + self.refused == size
        assert self.refused >= self.actor.mail_bound


async def handled() -> None:
    for _ in range(20):
        await anyio.lowlevel.checkpoint()


def go_on_with(device: FakeDevice) -> bool:
    if device.waiting:
        device.complete()
    elif device.waiting_transfers:
        device.complete_transfer()
    else:
        return False
    return True


async def append(device: FakeDevice, session: Session) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.append, [1, 2, 3, 4, 5])
        await handled()
        while go_on_with(device):
            await handled()


async def test_exports_that_wait_for_a_device_are_so_many_and_no_more() -> None:
    """Each holds a record of the whole log; the state is read once for all of them."""
    device = FakeDevice(mode="manual", eos_token_ids=())
    async with open_engine(MemoryFiles(), device=device, max_num_queued_reqs=FEW) as engine:
        async with engine.session(session_id="a") as session:
            await append(device, session)
            crowd = Crowd(engine.core.sessions[SessionId("a")])
            await crowd.come(engine, session.export, lambda: go_on_with(device))


async def test_exports_that_wait_for_a_disk_are_so_many_and_read_once() -> None:
    """Nor do they flood the store's own mailbox, which has room for what sessions want."""
    disk = MemoryStore()
    files = MemoryFiles(disk)
    async with open_engine(files) as engine, engine.session(session_id="a") as session:
        await session.append([1, 2, 3, 4, 5])
        data = await session.export()
    async with open_engine(
        files, session_store="anywhere", max_num_queued_reqs=FEW, max_sessions=2
    ) as engine:
        shelf_of(engine.core, 0)
        session = await engine.import_session(data)
        await engine.settle()
        assert session.info.place == "disk"
        disk.manual = True
        reads: list[int] = []

        def go_on() -> bool:
            reads.append(sum(isinstance(job, ReadState) for job, _ in disk.waiting))
            disk.work()
            return bool(reads[-1])

        crowd = Crowd(engine.core.sessions[SessionId("a")])
        await crowd.come(engine, session.export, go_on)
        disk.manual = False

    assert reads == [1, 0]


async def test_interrupts_of_a_turn_whose_step_hangs_are_so_many_and_no_more() -> None:
    """All of them wait for one landing."""
    device = FakeDevice(mode="manual", eos_token_ids=())
    async with open_engine(MemoryFiles(), device=device, max_num_queued_reqs=FEW) as engine:
        async with engine.session(session_id="a") as session:
            turn = session.turn([1, 2, 3], greedy(50))
            async with anyio.create_task_group() as tasks, turn:
                await handled()
                crowd = Crowd(engine.core.sessions[SessionId("a")])
                await crowd.come(engine, session.interrupt, lambda: go_on_with(device))
                tasks.start_soon(turn.wait)


async def test_interrupts_of_a_turn_that_waits_count_too() -> None:
    """It ends when its place in the log has come, which a hanging step holds up."""
    device = FakeDevice(mode="manual", eos_token_ids=())
    async with open_engine(MemoryFiles(), device=device, max_num_queued_reqs=FEW) as engine:
        async with engine.session(session_id="a") as session:
            first = session.turn([1, 2, 3], greedy(2))
            second = session.turn([4], greedy(2), wait=True)
            async with first, second:
                await handled()
                crowd = Crowd(engine.core.sessions[SessionId("a")])
                await crowd.come(engine, second.interrupt, lambda: go_on_with(device))
