"""What the scenarios share: an engine that moves when the test says, and oracles after each move.

A :class:`Stage` holds an engine over a device whose steps wait, and a clock that stands still. So a
test stands at a chosen moment of a turn (queued, between two chunks, while a step is in flight) and
does there what it likes. After every move ``check`` counts who owns what; at the end all is free,
and every turn that was noted has the tokens of a cold, solo, greedy run.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import attrs

from adapters.fake_device import FakeDevice
from kernel import Engine, EngineConfig, RequestOutput, Session
from kernel.engine.request import RunningTurn
from kernel.environment import Environment
from kernel.ids import SCHEDULER, SessionId, session_custodian
from kernel.step import OpenedDevice
from ownership import DEVICE, NO_SLOT, ClaimView, CustodianId, Place, SlotIndex
from tests.scenarios.held_device import HeldDevice
from tests.scenarios.inputs import (
    PAGE_SIZE,
    DeviceFactory,
    cold_tokens,
    greedy,
    judge,
    open_fake,
    prompt,
)

__all__ = [
    "PAGE_SIZE",
    "DeviceFactory",
    "Stage",
    "cold_tokens",
    "greedy",
    "open_fake",
    "open_stage",
    "prompt",
]


@attrs.define(eq=False)
class Clock:
    """Stands still until it is moved."""

    at: float = 1000.0

    def __call__(self) -> float:
        return self.at


@attrs.define(eq=False)
class Stage:
    """An engine, its held device and its clock; see the module."""

    engine: Engine
    device: HeldDevice
    clock: Clock
    noted: list[tuple[tuple[int, ...], tuple[int, ...]]] = attrs.field(
        factory=list[tuple[tuple[int, ...], tuple[int, ...]]]
    )
    """What each noted turn started from, and what it generated."""
    broken: list[AssertionError] = attrs.field(factory=list[AssertionError])
    """What was wrong when a step was submitted; raised at the next check."""

    # Moves

    async def settle(self) -> None:
        """Let all mail be handled (a step in flight stays there), then count."""
        while not self.engine.core.dispatcher.is_quiet:
            await anyio.lowlevel.checkpoint()
        self.check()

    async def step(self, count: int = 1) -> None:
        """Let the device compute so many steps, and count after each."""
        for _ in range(count):
            assert self.device.waiting, "nothing runs: the engine is stuck or at rest"
            self.device.release()
            if not self.device.idle.is_set():
                await anyio.to_thread.run_sync(self.device.idle.wait)
            await self.settle()

    async def fail_step(self, why: str = "planted") -> None:
        """Let the step in flight fail."""
        self.device.fail(why)
        await self.settle()

    async def run(self, turn: RunningTurn) -> RequestOutput:
        """A whole turn, from submit to result."""
        async with turn:
            await self.settle()
            return await self.finish(turn)

    async def finish(self, turn: RunningTurn) -> RequestOutput:
        """Step until a turn has a result."""
        while not turn.has_result:
            await self.step()
        return await turn.wait()

    async def land(self) -> None:
        """Let the step in flight land; nothing may run after it."""
        if self.device.waiting:
            await self.step()
        assert not self.device.waiting, "a turn that has ended goes on"

    async def drain(self) -> None:
        """Step until the device has nothing to do."""
        while self.device.waiting:
            await self.step()

    async def step_until(self, condition: Callable[[], bool]) -> None:
        """Step until something has come about."""
        while not condition():
            await self.step()

    async def read(self, turn: RunningTurn) -> tuple[int, ...]:
        """The tokens that a caller can have without waiting."""
        with anyio.move_on_after(0):
            return (await anext(turn)).token_ids
        return ()

    async def advance(self, seconds: float) -> None:
        """Move the clock, and let what is due happen."""
        self.clock.at += seconds
        dispatcher = self.engine.core.dispatcher
        dispatcher.wake()
        while (due := dispatcher.next_timer_at()) is not None and due <= self.clock.at:
            await anyio.lowlevel.checkpoint()
        await self.settle()

    # Oracles

    def check(self) -> None:
        """Every slot and page is in exactly one hand, by the audit and by asking each actor."""
        if self.broken:
            raise self.broken[0]
        audit = self.engine.audit()
        assert audit.conserved, audit.problems
        slots = self.engine.core.limits.num_slots
        if slots:
            columns = audit.on_device
            assert audit.free_slots + sum(columns.values()) == slots, audit
            assert len(self.owners()) + audit.free_slots + columns["draining"] == slots, audit
        assert self.engine.core.ledger.view.counters.reclaimed == 0

    def check_at_submit(self) -> None:
        """Check a device that does not wait; inside a handler, which an error would kill."""
        if self.device.holds:
            return
        try:
            self.check()
        except AssertionError as error:
            self.broken.append(error)

    def owners(self) -> dict[SlotIndex, CustodianId]:
        """Who holds each slot of the device that is held; asserts that nobody else does."""
        actors = self.engine.core.dispatcher.actors()
        names = [DEVICE, *(actor.name for actor in actors)]
        names += [actor.mailbox.custodian for actor in actors]
        owners: dict[SlotIndex, CustodianId] = {}
        for name in names:
            for claim in self.engine.core.ledger.view.held_by(name):
                if claim.slot is not NO_SLOT and claim.place is Place.DEVICE:
                    assert claim.slot not in owners, (claim, owners)
                    owners[claim.slot] = name
        return owners

    def held_by(self, session: Session) -> tuple[ClaimView, ...]:
        """The claims of a session at rest, the oldest first."""
        name = session_custodian(SessionId(session.session_id))
        return self.engine.core.ledger.view.held_by(name)

    def running(self) -> set[str]:
        """Ids of the turns that have a working claim, with the scheduler or on the device."""
        view = self.engine.core.ledger.view
        claims = (*view.held_by(SCHEDULER), *view.held_by(DEVICE))
        return {claim.turn for claim in claims}

    @property
    def free(self) -> tuple[int, int]:
        """Free slots and pages."""
        view = self.engine.core.ledger.view
        return view.free_slots, view.free_pages

    @property
    def capacity(self) -> tuple[int, int]:
        """All slots and pages."""
        limits = self.engine.core.limits
        return limits.num_slots, limits.num_pages

    def assert_at_rest(self) -> None:
        """Nobody holds anything."""
        assert self.engine.audit().at_rest, self.engine.audit()
        assert self.free == self.capacity
        assert self.engine.stats().num_queued_tokens == 0

    def note(self, history: Sequence[int], result: RequestOutput) -> list[int]:
        """Have a turn judged at the end; returns the history that its session has now."""
        context = (*history, *result.prompt_token_ids)
        self.noted.append((context, result.token_ids))
        return [*context, *result.token_ids]


@asynccontextmanager
async def open_stage(
    open_device: DeviceFactory = open_fake, *, counts_steps: bool = False, **config: Any
) -> AsyncGenerator[Stage]:
    """Open a stage; at its end everything must be free and every noted turn right.

    Args:
        open_device: what computes.
        counts_steps: let the engine's clock count the device's steps, so that every time that it
            reports is a number of steps.
        config: of the engine, where it differs from a small one.
    """
    opened = open_device()
    device, clock = HeldDevice(opened.device), Clock()
    defaults: dict[str, Any] = {
        "log_events": False,
        "page_size": PAGE_SIZE,
        "max_num_batched_tokens": 64,
        "max_num_seqs": 8,
        # The clock is moved far, with steps in flight that the test holds.
        "step_timeout_s": 1e6,
    }
    async with Engine.open(
        EngineConfig(**{**defaults, **config}),
        device=OpenedDevice(device=device, tokenizer=opened.tokenizer),
        environment=Environment(
            clock=(lambda: float(len(device.steps))) if counts_steps else clock
        ),
    ) as engine:
        stage = Stage(engine, device, clock)
        device.on_submit = stage.check_at_submit
        try:
            yield stage
        finally:
            device.open()
    if stage.broken:
        raise stage.broken[0]
    audit = engine.core.audit
    assert audit is not None
    assert audit.at_rest, audit
    assert engine.core.ledger.view.counters.violations == 0
    if isinstance(opened.device, FakeDevice):
        assert not opened.device.poison_reads, opened.device.poison_reads
    opened.device.close()
    await judge(open_device, stage.noted)
