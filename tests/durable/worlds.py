"""Engines with a store: one whose mail and jobs wait for the test, others behind the door."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import attrs

from adapters.fake_device import FakeDevice
from kernel import Engine, EngineConfig
from kernel.actors.reply import Reply
from kernel.engine.core import Core
from kernel.engine.opening import open_store
from kernel.environment import Environment
from kernel.errors import TenureError
from kernel.ids import STORE, SessionId
from kernel.probe import NullProbe, Probe
from kernel.session_store import SessionFiles
from kernel.sessions.session import SessionActor
from kernel.step import OpenedDevice
from tests.durable.memory_store import MemoryFiles, MemoryStore
from tests.kernel.loopless import Loopless
from tests.kernel.toys import Clock

__all__ = ["Durable", "device_of", "open_engine", "settled"]

DIRECTORY = "anywhere"


@attrs.define(eq=False)
class Durable(Loopless):
    """An engine over a store whose jobs wait for the test."""

    disk: MemoryStore = attrs.field(factory=MemoryStore)

    @classmethod
    def on(
        cls,
        disk: MemoryStore | None = None,
        *,
        probe: Probe | None = None,
        device: FakeDevice | None = None,
        manual: bool = True,
        **config: Any,
    ) -> "Durable":
        disk = disk or MemoryStore()
        disk.manual = manual
        clock = Clock()
        device = device or FakeDevice(mode="manual", eos_token_ids=())
        limits = {"page_size": 4, "max_num_seqs": 4, "max_num_batched_tokens": 64}
        given: dict[str, Any] = {**limits, "session_store": DIRECTORY, **config}
        made = EngineConfig(**given)
        store = open_store(made, device.model, MemoryFiles(disk))
        core = Core(made, device, Environment(clock=clock), probe or NullProbe(), store=store)
        core.start()
        return cls(core, device, clock, disk=disk)

    def work(self, count: int | None = None) -> None:
        """Let the store do jobs, and what follows from them; all, or so many of those that wait."""
        self.disk.work(1_000_000 if count is None else count)
        self.run()
        while count is None and self.disk.waiting:
            self.disk.work()
            self.run()

    def rest(self) -> None:
        """Steps, transfers and jobs until nothing is left to do."""
        while True:
            self.run()
            if self.disk.waiting:
                self.disk.work()
            elif self.device.waiting:
                self.device.complete()
            elif self.device.waiting_transfers:
                self.device.complete_transfer()
            else:
                return

    def wake(self, session_id: str) -> SessionActor:
        """The actor of a dormant session."""
        stored = self.core.stored
        assert stored is not None
        reply = stored.wake(SessionId(session_id))
        self.run()
        self.rest()
        outcome = settled(reply)
        assert isinstance(outcome, SessionActor), outcome
        return outcome

    def kill_store(self) -> None:
        self.core.dispatcher.kill(STORE, RuntimeError("planted"))
        self.run()

    def crash(self) -> MemoryStore:
        """The process is gone: what is on the disk is what there is."""
        self.disk.waiting.clear()
        self.disk.opened = 0
        return self.disk


def settled(reply: Reply[Any]) -> Any:
    """What a reply was answered with, or its error; ``None`` where it wasn't."""
    if not reply.is_settled:
        return None

    async def ask() -> Any:
        try:
            return await reply.wait()
        except TenureError as error:
            return error

    return anyio.run(ask)


def device_of(engine: Engine) -> FakeDevice:
    """The fake device behind an engine."""
    device = engine.core.device
    assert isinstance(device, FakeDevice)
    return device


@asynccontextmanager
async def open_engine(files: SessionFiles, **config: Any) -> AsyncGenerator[Engine]:
    """An engine behind the public door; with a store, if one is named."""
    device: FakeDevice = config.pop("device", None) or FakeDevice(eos_token_ids=())
    opened = OpenedDevice(device=device, tokenizer=device.tokenizer, chat=config.pop("chat", None))
    given: dict[str, Any] = {"model": "fake", "page_size": 4, **config}
    async with Engine.open(EngineConfig(**given), device=opened, session_files=files) as engine:
        yield engine
