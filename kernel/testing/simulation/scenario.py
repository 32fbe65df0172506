"""The kernel's own scenario: clients and faults, then calm, in which every open turn must end.

First a safety phase, in which anything may go wrong and nothing may be broken. Then the faults
stop, and within a bound every turn that is open ends and every client is done. Then the engine is
closed, and everything is free.
"""

from collections.abc import Sequence

import anyio

from kernel.engine.engine import Engine
from kernel.errors import TenureError
from kernel.testing import invariants
from kernel.testing.simulation.clients import Client
from kernel.testing.simulation.plan import Plan, draw_plan
from kernel.testing.simulation.timeline import Job
from kernel.testing.simulation.waiting import late_turns, steps_for_all
from kernel.testing.simulation.world import OpenWorld, World

__all__ = ["kernel_scenario"]

_SAFETY_S = 12.0
_QUARANTINE_S = 0.3
_STEP_S = 0.2
"""More than a step takes once the faults have stopped."""


async def kernel_scenario(world: World) -> None:
    """One run; see the module."""
    plan = draw_plan(world.track("plan"))
    await _Run(world, plan).run()


class _Run:
    def __init__(self, world: World, plan: Plan) -> None:
        self._world = world
        self._plan = plan
        self._opened = anyio.Event()
        self._leave = anyio.Event()
        self._calm = anyio.Event()
        self._engine: Engine | None = None
        self._clients: list[Client] = []
        self._host_job: Job | None = None

    async def run(self) -> None:
        world = self._world
        host = self._host_job = world.start("host", self._host, holds_engine=True)
        with anyio.move_on_after(_SAFETY_S):
            await self._opened.wait()
            mains = self._start_clients()
            world.faults.begin(*self._plan.faults)
            for main in mains:
                await main.wait()
        if self._engine is None:
            world.fail("scenario", "the engine was not opened, and no fault was there to stop it")
        world.faults.stop()
        # What hung is completed now, and what was in quarantine comes back.
        await anyio.sleep(_QUARANTINE_S)
        since = [opened.engine.core.counters.steps for opened in world.opened]
        self._calm.set()
        await self._end_everything()
        await self._close_sessions()
        for opened, step in zip(world.opened, since, strict=True):
            self._judge_at_rest(opened, step)
        self._leave.set()
        with anyio.move_on_after(60.0) as scope:
            await host.wait()
        if scope.cancelled_caught:
            world.fail("liveness", "the engine's block does not end")

    async def _host(self) -> None:
        plan = self._plan
        async with self._world.open(plan.config, model=plan.model) as engine:
            self._engine = engine
            self._opened.set()
            await self._leave.wait()
            if plan.drains:
                await engine.aclose(drain_timeout_s=1.0)

    def _start_clients(self) -> list[Job]:
        engine = self._engine
        if engine is None:
            return []
        for client_plan in self._plan.clients:
            client = Client(self._world, engine, client_plan, self._calm, self._clients)
            self._clients.append(client)
        return [self._world.start(client.name, client.run) for client in self._clients]

    async def _end_everything(self) -> None:
        """Every client must come to its end, and within the bound."""
        world = self._world
        operations = sum(len(client.operations) for client in self._plan.clients)
        bound_s = 30.0
        for opened in world.opened:
            core = opened.engine.core
            bound_s += _STEP_S * steps_for_all(core, 3 * operations)
        with anyio.move_on_after(bound_s) as scope:
            while left := self._clients_left():
                await left[0].wait()
        if scope.cancelled_caught:
            names = [job.name for job in self._clients_left()]
            world.fail("liveness", f"{names} wait after {bound_s:.0f} s: {self._describe()}")

    def _clients_left(self) -> list[Job]:
        return [job for job in self._world.jobs if not job.is_done and job is not self._host_job]

    async def _close_sessions(self) -> None:
        for client in self._clients:
            if client.session is not None and self._engine is not None:
                try:
                    await client.session.close()
                except TenureError as error:
                    self._world.saw_error(error)
        if self._engine is not None and self._engine.core.audit is None:
            with anyio.move_on_after(5.0):
                await self._engine.settle()
                self._engine.reset_prefix_cache()
                await self._engine.settle()

    def _judge_at_rest(self, opened: OpenWorld, since: int) -> None:
        world, core = self._world, opened.engine.core
        if opened.is_over or core.failure is not None:
            return
        opened.observer.check_always()
        for broken in invariants.at_rest(core):
            world.fail(broken.property, broken.message)
        if not core.sessions:
            # Before the stop, which gives back whatever it finds.
            for broken in invariants.all_free(core):
                world.fail(broken.property, broken.message)
        audit = core.ledger.audit()
        if audit.quarantined:
            world.fail("quarantine", f"nothing hangs, and {audit.quarantined} are in quarantine")
        for message in late_turns(core, opened.observer.histories.turns, since):
            world.fail("bound", message)

    def _describe(self) -> Sequence[str]:
        return [
            f"{record.turn.id} of {record.session} is {record.turn.state.value}"
            for opened in self._world.opened
            for record in opened.observer.histories.open_turns
        ]
