"""One engine's actors, ledger and device, put together. Synchronous; the shell drives it."""

import itertools
from collections.abc import Callable
from typing import final

from kernel.active_turn import SessionLimits
from kernel.actor import Address, AnyActor
from kernel.config import EngineConfig, resolve
from kernel.dispatcher import Dispatcher
from kernel.door import Door
from kernel.environment import Environment
from kernel.errors import (
    DeviceLost,
    EngineClosed,
    EngineFault,
    SessionExists,
    SessionNotFound,
    TenureError,
    TooManySessions,
)
from kernel.flight import Counters
from kernel.gpu_pool import GpuPool
from kernel.ids import GPU_POOL, SCHEDULER, SessionId, TurnId
from kernel.messages import (
    Cancel,
    CloseSession,
    PoolMessage,
    Rested,
    SchedulerMessage,
    SessionMessage,
    TurnFailed,
    WorkerEnded,
)
from kernel.orphans import orphans
from kernel.policies import make_policy
from kernel.probe import Probe
from kernel.quarantine import Quarantine
from kernel.scheduler import Scheduler
from kernel.session import SessionActor, SessionCounters
from kernel.step import Device, DeviceLimits, StepDone, StepReport, WorkerContext
from kernel.supervision import Child, RestartIntensity
from ownership import AuditReport, Capacity, CustodianId, Lease, Ledger, StepFailed

__all__ = ["Core"]

_SUPERVISOR = CustodianId("supervisor")
_STALLS_THAT_LOSE_A_DEVICE = 2
_WORKER_POLL_S = 0.05


@final
class Core:
    """The synchronous whole of an engine.

    Args:
        config: as given by the caller; checked against the model here.
        device: allocated here, closed by whoever opened it.
        environment: the world.
        probe: where events go.

    Raises:
        ValidationError: the configuration doesn't fit the model.
    """

    def __init__(
        self, config: EngineConfig, device: Device, environment: Environment, probe: Probe
    ) -> None:
        self.config = config
        self.device = device
        self.model = device.model
        self.environment = environment
        self.probe = probe
        resolved = resolve(config, self.model)
        self.limits = DeviceLimits(
            resolved.num_slots,
            resolved.num_pages,
            resolved.page_size,
            resolved.max_rows,
            resolved.max_step_tokens,
        )
        device.allocate(self.limits)
        self.ledger = Ledger(
            Capacity(resolved.num_slots, resolved.num_pages, resolved.page_size),
            observer=probe if probe.enabled else None,
            track_freed=True,
        )
        self.door = Door(
            max_reqs=config.max_num_queued_reqs, max_tokens=config.max_num_queued_tokens
        )
        self.counters = Counters()
        self.session_counters = SessionCounters()
        self.sessions: dict[SessionId, SessionActor] = {}
        self.num_sessions = 0
        self.quarantine = Quarantine(self.ledger)
        self.dispatcher = Dispatcher(
            environment,
            self.ledger,
            probe,
            RestartIntensity(config.max_restarts, config.restart_window_s),
        )
        self.dispatcher.on_give_up = self._give_up
        self.audit: AuditReport | None = None
        self.failure: TenureError | None = None
        self.restarts = 0
        self._port = self.ledger.batch_port(_SUPERVISOR)
        self._steps = itertools.count(1)
        self._stalls = 0
        self._policy = make_policy(config)
        pages = resolved.num_pages * resolved.page_size
        by_pages = bool(pages) and pages < resolved.max_model_len
        self.session_limits = SessionLimits(
            max_len=pages if by_pages else resolved.max_model_len,
            limit_name="num_pages * page_size" if by_pages else "max_model_len",
            page_size=resolved.page_size,
            eos_token_ids=self.model.eos_token_ids,
            mail_bound=16 + 8 * config.max_num_queued_reqs,
        )

    # Births

    def start(self) -> None:
        """Let the scheduler and the GPU pool live."""
        self._emit("engine.opened", model=self.model.name, slots=self.limits.num_slots)
        self.dispatcher.spawn(self._new_scheduler(), Child(self._reborn(self._new_scheduler)))
        self.dispatcher.spawn(
            self._new_pool(), Child(self._reborn(self._new_pool), self._bury_pool)
        )

    def open_session(
        self, session_id: SessionId, *, is_one_shot: bool, idle_timeout_s: float | None
    ) -> SessionActor:
        """Open a session. Synchronous: there is no moment at which it is half open.

        Raises:
            EngineClosed: the engine takes no more work.
            TooManySessions: the bound is reached.
            SessionExists: the id is taken.
        """
        self.door.check_open()
        if not is_one_shot and self.num_sessions >= self.config.max_sessions:
            raise TooManySessions(open_sessions=self.num_sessions, limit=self.config.max_sessions)
        if session_id in self.sessions:
            raise SessionExists(session_id=session_id)
        actor = SessionActor(
            session_id,
            self.dispatcher,
            self.ledger,
            self.session_limits,
            self.door,
            self.session_counters,
            self.probe,
            is_one_shot=is_one_shot,
            idle_timeout_s=idle_timeout_s,
            on_end=self._session_ended,
        )
        self.sessions[session_id] = actor
        self.num_sessions += not is_one_shot
        self.dispatcher.spawn(actor)
        return actor

    def session(self, session_id: SessionId) -> SessionActor:
        """An open session.

        Raises:
            SessionNotFound: there is none with this id.
        """
        actor = self.sessions.get(session_id)
        if actor is None or actor.is_one_shot:
            raise SessionNotFound(session_id=session_id)
        return actor

    @property
    def open_turns(self) -> int:
        """Turns whose callers have not been told an end."""
        return sum(
            (actor.active is not None) + len(actor.waiting) for actor in self.sessions.values()
        )

    def holds_turn(self, turn: TurnId) -> bool:
        """Whether a turn of this id is queued or at the scheduler, wanted by anybody or not."""
        scheduler = self.scheduler
        is_there = scheduler is not None and scheduler.roster.get(turn) is not None
        return is_there or self.door.counts(turn)

    @property
    def scheduler(self) -> Scheduler | None:
        actor = self.dispatcher.actor(SCHEDULER)
        return actor if isinstance(actor, Scheduler) else None

    @property
    def pool(self) -> GpuPool | None:
        actor = self.dispatcher.actor(GPU_POOL)
        return actor if isinstance(actor, GpuPool) else None

    def _session_ended(self, session_id: SessionId) -> None:
        actor = self.sessions.pop(session_id, None)
        self.num_sessions -= actor is not None and not actor.is_one_shot

    def _new_scheduler(self) -> Scheduler:
        bound = 64 + 8 * (self.config.max_sessions + self.config.max_num_queued_reqs)
        return Scheduler(
            self.dispatcher,
            self.ledger.batch_port(SCHEDULER),
            self.ledger.view,
            self.limits,
            self._policy,
            self.door,
            self.counters,
            lambda: next(self._steps),
            mail_bound=bound,
        )

    def _new_pool(self) -> GpuPool:
        worker = self.device.start_worker(WorkerContext(self._call_later))
        return GpuPool(
            self.dispatcher,
            self.ledger,
            worker,
            self.quarantine,
            step_timeout_s=self.config.step_timeout_s,
            on_step=self._step_reported,
            on_unwanted=self._land_as_failed,
        )

    def _call_later(self, delay_s: float, fire: Callable[[], None]) -> None:
        self.dispatcher.call_at(self.dispatcher.now() + delay_s, fire)

    # Deaths

    def _reborn(self, make: Callable[[], AnyActor]) -> Callable[[], AnyActor]:
        def restart() -> AnyActor:
            self.restarts += 1
            self._land_orphans()
            return make()

        return restart

    def _bury_pool(self, actor: AnyActor) -> None:
        if not isinstance(actor, GpuPool):
            return
        self.quarantine.take(actor.worker, actor.leases)
        self._poll_quarantine()
        self._stalls += bool(actor.leases)
        if self._stalls >= _STALLS_THAT_LOSE_A_DEVICE:
            self.fail(DeviceLost(why="the successor of a dead GPU pool completed no step either"))

    def _poll_quarantine(self) -> None:
        self.quarantine.collect_ended(self._tell_worker_ended)
        if not self.quarantine.is_empty:
            self._call_later(_WORKER_POLL_S, self._poll_quarantine)

    def _tell_worker_ended(self, steps: tuple[int, ...]) -> None:
        message = WorkerEnded(steps)
        if self.dispatcher.post(Address[PoolMessage](GPU_POOL), message, _SUPERVISOR) is not None:
            self._land_ended(steps)

    def _step_reported(self, report: StepReport) -> None:
        if isinstance(report, StepDone):
            self._stalls = 0
        elif report.device_lost:
            self.fail(DeviceLost(why=report.why))

    def _land_orphans(self) -> None:
        for lease in orphans(self.ledger.view, self.quarantine, self.pool, self.scheduler):
            self._land_as_failed(lease)

    def _land_as_failed(self, lease: Lease) -> None:
        for claim in self._port.land(lease, StepFailed("nobody waits for this step")):
            self._port.rollback(claim)
        self.dispatcher.post(Address[SchedulerMessage](SCHEDULER), Rested(), _SUPERVISOR)

    def _give_up(self, error: BaseException) -> None:
        self._land_orphans()
        self.fail(EngineFault(actor="supervision", why=f"too many deaths, the last: {error!r}"))

    def fail(self, error: TenureError) -> None:
        """Fail every open turn and take no more; states at rest stay with their sessions."""
        if self.failure is not None:
            return
        self.failure = error
        self.door.fail(error)
        self._emit("engine.failed", error=repr(error))
        for actor in list(self.sessions.values()):
            if actor.active is not None:
                turn = actor.active.id
                self.dispatcher.post(
                    Address[SchedulerMessage](SCHEDULER), Cancel(turn), _SUPERVISOR
                )
                self.dispatcher.post(
                    Address[SessionMessage](actor.name), TurnFailed(turn, error), _SUPERVISOR
                )

    # The end

    def close_sessions(self) -> None:
        """Close the door and every session; their turns end as closed."""
        closed = self.failure or EngineClosed()
        self.door.close(closed)
        for actor in self.sessions.values():
            if not actor.is_close_posted:
                actor.is_close_posted = True
                actor.mailbox.post(CloseSession(closed), _SUPERVISOR)

    @property
    def device_is_idle(self) -> bool:
        """No step is with the device, whoever launched it; steps in quarantine aside."""
        scheduler, pool = self.scheduler, self.pool
        return not (scheduler and scheduler.flight) and not (pool and pool.leases)

    def stop(self, *, join_timeout_s: float) -> AuditReport:
        """Stop everything, synchronously, and audit. Idempotent.

        Order: the door, sessions, the device's worker, scheduler, GPU pool. A lease whose worker
        has not ended by the deadline stays in quarantine, and the audit says so.

        Args:
            join_timeout_s: how long to block for workers that run, all together.
        """
        if self.audit is not None:
            return self.audit
        deadline = self.dispatcher.now() + join_timeout_s
        self.close_sessions()
        self._run_until_quiet()
        pool = self.pool
        if pool is not None:
            pool.worker.stop()
            has_ended = pool.worker.join(join_timeout_s)
            self._run_until_quiet()
            if pool.leases or not has_ended:
                self.quarantine.take(pool.worker, dict(pool.leases))
                pool.leases.clear()
            self.dispatcher.retire(pool)
        self._run_until_quiet()
        self.quarantine.collect_ended(
            self._land_ended, seconds_left=lambda: deadline - self.dispatcher.now()
        )
        scheduler = self.scheduler
        if scheduler is not None:
            self.dispatcher.retire(scheduler)
        self.audit = self.ledger.audit()
        self._emit("engine.closed", conserved=self.audit.conserved)
        return self.audit

    def _land_ended(self, steps: tuple[int, ...]) -> None:
        for step in steps:
            lease = self.quarantine.release(step)
            if lease is not None:
                self._land_as_failed(lease)

    def _run_until_quiet(self) -> None:
        while not self.dispatcher.is_quiet:
            self.dispatcher.run(1024)

    def _emit(self, event: str, **fields: object) -> None:
        if self.probe.enabled:
            self.probe.record(event, fields)
